"""Text as a person may see it: nothing hidden, no terminal controls, one line where one line is promised."""

from __future__ import annotations

import re

_KEPT = {"\n", "\t"}

# Zero-width joiner, non-joiner and variation selectors stay: emoji and several scripts are wrong without them, and
# none of them can move or hide other text.
_HIDDEN_RANGES = (
    (0x0080, 0x009F),  # C1 controls
    (0x00AD, 0x00AD),  # soft hyphen
    (0x034F, 0x034F),  # combining grapheme joiner
    (0x061C, 0x061C),  # Arabic letter mark
    (0x115F, 0x1160),  # Hangul fillers
    (0x17B4, 0x17B5),  # Khmer inherent vowels
    (0x180B, 0x180F),  # Mongolian separators
    (0x200B, 0x200B),  # zero-width space
    (0x200E, 0x200F),  # direction marks
    (0x2028, 0x202E),  # line and paragraph separators, bidirectional embeddings and overrides
    (0x2060, 0x206F),  # word joiner, invisible operators, isolates
    (0x3164, 0x3164),
    (0xD800, 0xDFFF),  # a surrogate alone is no character and has no UTF-8 form
    (0xFEFF, 0xFEFF),
    (0xFFA0, 0xFFA0),
    (0xFFF9, 0xFFFB),
    (0x1D173, 0x1D17A),  # musical formatting
    (0xE0000, 0xE007F),  # tags
)


def _table() -> dict[int, str]:
    table = {code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in _KEPT}
    table[0x7F] = "\u2421"
    for first, last in _HIDDEN_RANGES:
        table.update({code: f"⟨U+{code:04X}⟩" for code in range(first, last + 1)})
    return table


_TABLE = _table()


def visible(text: str) -> str:
    """`text` with control, bidirectional and invisible characters as visible signs; newline and tab stay.

    It works character by character, so that the pieces of a stream give the same as the whole.
    """
    return text if text.isascii() and text.isprintable() else text.translate(_TABLE)


def one_line(text: str, limit: int = 120) -> str:
    """`text` as one plain line of at most `limit` code points, white space folded."""
    line = visible(re.sub(r"\s+", " ", text).strip())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def fenced(text: str, info: str = "") -> str:
    """`text` in a code fence that is longer than any run of backticks in it."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{info}\n{text}{'' if text.endswith(chr(10)) or not text else chr(10)}{fence}"


def boundary(data: bytes, at: int) -> int:
    """The place nearest before `at`, or `at` itself, that is between two characters of UTF-8 `data`, or its end."""
    at = min(at, len(data))
    while 0 < at < len(data) and data[at] & 0xC0 == 0x80:
        at -= 1
    return at


def preview(text: str, limit: int) -> tuple[str, int]:
    """The first `limit` UTF-8 bytes of `text`, cut between characters, and how many bytes are left out."""
    if len(text) <= limit // 4 or len(text.encode()) <= limit:
        return text, 0
    encoded = text.encode()
    kept = encoded[:limit].decode(errors="ignore")
    return kept, len(encoded) - len(kept.encode())
