"""The rules of the repository's texts and layout, as functions from a root folder to findings.

Every gate takes the root of a tree and returns what is wrong there, so that a test can plant a fault in a
small tree and see it found. A finding names file and line; no finding means that the rule is kept. Nothing
here mends.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import date
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote

from markdown_it import MarkdownIt
from markdown_it.token import Token


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """One broken rule at one place; reads as `file:line: what is wrong`."""

    path: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message}"


Gate = Callable[[Path], list[Finding]]

# --- RFCs -----------------------------------------------------------------------------------------

RFC_CLASSES = ("feature", "bug-fix", "simplification", "architecture", "process", "testing")

# Lifecycle folder -> the sections that every RFC in it has, in this order. Others may stand between them.
RFC_SECTIONS = {
    "proposed": ("Problem", "Proposal", "Alternatives", "Acceptance", "Risks"),
    "implemented": ("Problem", "Decision", "Alternatives", "Consequences"),
    "rejected": ("Problem", "Proposal", "Alternatives", "Reason"),
}

_DATED_NAME = re.compile(r"(\d{4}-\d{2}-\d{2})-[a-z0-9]+(-[a-z0-9]+)*\.md")


def rfc_classification(root: Path) -> list[Finding]:
    """Find RFCs that stand in the wrong place, are not dated, or disagree with the folder they are in."""
    findings: list[Finding] = []
    for path in _files(root / "docs" / "rfc"):
        parts = path.relative_to(root / "docs" / "rfc").parts
        if parts == ("README.md",):
            continue
        problems = _rfc_place(parts)
        if not problems:
            problems = _rfc_text(path, lifecycle=parts[0])
        findings += [Finding(_name(root, path), line, message) for line, message in problems]
    return findings


def _rfc_place(parts: tuple[str, ...]) -> list[tuple[int, str]]:
    problems: list[tuple[int, str]] = []
    if len(parts) != 3:
        problems.append((1, "stands at the wrong depth; an RFC is docs/rfc/<lifecycle>/<class>/<date>-<topic>.md"))
    if len(parts) > 1 and parts[0] not in RFC_SECTIONS:
        problems.append((1, f'unknown lifecycle folder "{parts[0]}"; use one of {_quoted(RFC_SECTIONS)}'))
    if len(parts) > 2 and parts[1] not in RFC_CLASSES:
        problems.append((1, f'unknown class folder "{parts[1]}"; use one of {_quoted(RFC_CLASSES)}'))
    dated = _DATED_NAME.fullmatch(parts[-1])
    if not dated or not _is_date(dated.group(1)):
        problems.append((1, f'"{parts[-1]}" is not YYYY-MM-DD-topic.md with a real date and a topic in lower case'))
    return problems


def _rfc_text(path: Path, *, lifecycle: str) -> list[tuple[int, str]]:
    tokens = _tokens(path)
    headings = _headings(tokens)
    problems: list[tuple[int, str]] = []

    if [level for level, _, _ in headings].count(1) != 1 or headings[0][:2] != (1, 1):
        problems.append((1, "has no title; line 1 is `# Title`, and there is one such heading"))

    statuses = [(line, text) for line, text in _paragraphs(tokens) if text.startswith("Status:")]
    if len(statuses) != 1:
        problems.append((1, f"has {len(statuses)} `Status:` lines; it needs one, below the title"))
    for line, text in statuses:
        if text != f"Status: {lifecycle}":
            problems.append((line, f'says "{text}" in the folder "{lifecycle}"; the two must agree'))
        if line != 3:
            problems.append((line, "has its `Status:` on another line than 3, right below the title"))

    sections = [text for level, _, text in headings if level == 2]
    required = RFC_SECTIONS[lifecycle]
    problems += [
        (1, f'has no section "## {name}", which every {lifecycle} RFC has') for name in required if name not in sections
    ]
    present = [name for name in sections if name in required]
    if len(present) == len(required) and present != list(required):
        problems.append((1, f"has its sections in another order than {_quoted(required)}"))
    problems += [(1, f'has the section "## {name}" twice') for name, count in Counter(present).items() if count > 1]
    return problems


def rfc_index(root: Path) -> list[Finding]:
    """Find RFCs that docs/rfc/README.md does not list exactly once, under the headings of their path."""
    folder = root / "docs" / "rfc"
    index = folder / "README.md"
    name = _name(root, index)
    if not index.is_file():
        return [Finding(name, 1, "is missing; it lists every RFC")]

    listed: dict[str, list[tuple[int, str]]] = {}
    heading = ["", ""]
    for token, line, text in _blocks(_tokens(index)):
        if token.tag == "h2":
            heading = [_folder_of(text), ""]
        elif token.tag == "h3":
            heading[1] = _folder_of(text)
        for href in _links(token):
            target = unquote(href.partition("#")[0])
            if target.endswith(".md") and not re.match(r"[a-z]+:|\.\./|/", target):
                listed.setdefault(target.removeprefix("./"), []).append((line, "/".join(heading)))

    findings: list[Finding] = []
    present = {path.relative_to(folder).as_posix() for path in _files(folder)} - {"README.md"}
    findings += [
        Finding(name, 1, f'does not list "{path}"')
        for path in sorted(present)
        if path.endswith(".md") and path not in listed
    ]
    for path, places in listed.items():
        if path not in present:
            findings += [Finding(name, line, f'lists "{path}", which is not there') for line, _ in places]
            continue
        findings += [Finding(name, line, f'lists "{path}" once more') for line, _ in places[1:]]
        right = path.rpartition("/")[0]
        findings += [
            Finding(name, line, f'lists "{path}" under "{under}" instead of "{right}"')
            for line, under in places
            if under != right
        ]
    return findings


# --- Paths and links --------------------------------------------------------------------------------

# Code and configuration; a file without suffix is a script. Recorded data is not among them.
CODE_SUFFIXES = frozenset({"", ".js", ".lua", ".mjs", ".py", ".pyi", ".sh", ".toml", ".ts", ".tsx"})

_DOC_PATH = re.compile(r"(?<![\w./-])docs/[\w./-]*\w\.md\b")


def doc_citations(root: Path) -> list[Finding]:
    """Find paths of documents that code, tests or comments cite and that are not there."""
    return [
        Finding(_name(root, path), number, f'cites "{cited}", which is not there')
        for path in _files(root)
        if path.suffix in CODE_SUFFIXES
        for number, line in _lines(path)
        for cited in _DOC_PATH.findall(line)
        if not (root / cited).is_file()
    ]


def markdown_links(root: Path) -> list[Finding]:
    """Find relative links and anchors in Markdown that lead nowhere. Links to the web are not followed."""
    findings: list[Finding] = []
    for path in _markdown(root):
        for token, line, _ in _blocks(_tokens(path)):
            for href in _links(token):
                problem = _dead_link(root, path, href)
                if problem:
                    findings.append(Finding(_name(root, path), line, problem))
    return findings


def _dead_link(root: Path, page: Path, href: str) -> str | None:
    if re.match(r"[a-z][a-z0-9+.-]*:", href, re.IGNORECASE):
        return None
    if href.startswith("/"):
        return f'links to "{href}"; write it relative to this page'
    place, _, anchor = href.partition("#")
    target = (page.parent / unquote(place)).resolve() if place else page.resolve()
    if not target.is_relative_to(root.resolve()):
        return f'links to "{href}", outside of the repository'
    if not target.exists():
        return f'links to "{href}", which is not there'
    if anchor and target.suffix == ".md" and unquote(anchor) not in _anchors(target):
        return f'links to "{href}", but there is no such heading'
    return None


def _anchors(page: Path) -> set[str]:
    """Return the anchors that a page offers: of its headings as forges make them, and its own `id` marks."""
    anchors: set[str] = set()
    seen: Counter[str] = Counter()
    tokens = _tokens(page)
    for _, _, text in _headings(tokens):
        slug = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
        anchors.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
        seen[slug] += 1
    for token in tokens:
        for part in (token, *(token.children or ())):
            if part.type in {"html_block", "html_inline"}:
                anchors.update(re.findall(r'\b(?:id|name)="([^"]+)"', part.content))
    return anchors


# --- Texts ------------------------------------------------------------------------------------------


def one_line_paragraphs(root: Path) -> list[Finding]:
    """Find paragraphs of Markdown, list items included, that are broken over several lines."""
    return [
        Finding(
            _name(root, path),
            token.map[0] + 1,
            f"a paragraph goes over {token.map[1] - token.map[0]} lines; write it as one",
        )
        for path in _markdown(root)
        for token in _tokens(path)
        if token.type == "paragraph_open" and token.map and token.map[1] - token.map[0] > 1
    ]


# In pieces, since this file keeps the rule too.
REGISTRY_HOSTS = tuple(
    ".".join(labels)
    for labels in (
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("npmjs", "org"),
        ("npmjs", "com"),
        ("yarnpkg", "com"),
        ("deb", "debian", "org"),
        ("archive", "ubuntu", "com"),
        ("crates", "io"),
    )
)

_HOST = re.compile("|".join(rf"(?<![\w-]){re.escape(host)}(?![\w-])" for host in REGISTRY_HOSTS), re.IGNORECASE)
_MACHINE_PATH = re.compile(
    r"(?:(?<=file://)|(?<![\w./~}$-]))/(?:work|root|home/[A-Za-z][\w.-]*|Users/[A-Za-z][\w.-]*)(?![\w.-])"
)


def machine_traces(root: Path) -> list[Finding]:
    """Find names of package registries, and paths that exist on somebody's machine only."""
    findings: list[Finding] = []
    for path in _files(root):
        for number, line in _lines(path):
            findings += [
                Finding(_name(root, path), number, f'names the registry host "{host}"; name the package alone')
                for host in _HOST.findall(line)
            ]
            findings += [
                Finding(_name(root, path), number, f'names "{place}", a path of one machine')
                for place in _MACHINE_PATH.findall(line)
            ]
    return findings


# A folder beside the repository and its pages; in pieces, since this file is read too.
_OUTSIDE = "shared" + "/"
_PAGES = "DESIGN|PROTOCOL|RIG|SEMANTICS|STYLE"
_OUTSIDE_MENTION = re.compile(rf"(?:\.\./)+{_OUTSIDE}[\w./-]*|(?<![\w./-]){_OUTSIDE}[\w./-]+|\b(?:{_PAGES})\.md\b")
_READER_OF_NEWER_CASES = "tests/conformance/cases.py"


def outside_mentions(root: Path) -> list[Finding]:
    """Find mentions of the folder beside the repository and of its pages; only the reader of the conformance cases may
    name the folder of newer ones."""
    findings: list[Finding] = []
    for path in _files(root):
        name = _name(root, path)
        if path.suffix not in CODE_SUFFIXES | {".md"}:
            continue
        findings += [
            Finding(name, number, f'mentions "{mention}", which a clone does not have')
            for number, line in _lines(path)
            for mention in _OUTSIDE_MENTION.findall(line)
            if name != _READER_OF_NEWER_CASES or not mention.endswith(f"{_OUTSIDE}conformance")
        ]
    return findings


_NUMBERS = r"\d+(?:(?:, | and )\d+)*"
_CITED = re.compile(rf"\b(?P<what>[Ss]tatement|Rule)s? (?P<numbers>{_NUMBERS})\b|\b(?P<case>[A-Z]\d\d[a-z]?)\b")


def cited_ids(root: Path) -> list[Finding]:
    """Find statements, cases and rules that a docstring or a comment of a test cites and that tests/README.md does not
    explain, in a list item that begins with them."""
    page = root / "tests" / "README.md"
    items = [re.match(r"- ([^:]+): \S", line) for _, line in _lines(page)] if page.is_file() else []
    explained = {cited for item in items if item for cited in _ids(item[1])}
    return [
        Finding(_name(root, path), number, f'cites "{cited}", which tests/README.md does not explain')
        for path in _files(root / "tests")
        if path.suffix == ".py"
        for number, line in _remarks(path)
        for cited in _ids(line)
        if cited not in explained
    ]


def _ids(text: str) -> Iterator[str]:
    """Yield the ids that a text cites: `Statement 7`, `Rule 7`, `S07`."""
    for found in _CITED.finditer(text):
        if found["case"]:
            yield found["case"]
        else:
            yield from (f"{found['what'].capitalize()} {number}" for number in re.findall(r"\d+", found["numbers"]))


def _remarks(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the numbered lines of a Python file's docstrings and comments."""
    source = path.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
            match node.body[0]:
                case ast.Expr(value=ast.Constant(value=str(text)), lineno=line):
                    yield from enumerate(text.split("\n"), start=line)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


# --- Layout -----------------------------------------------------------------------------------------

COMMANDS = ("scripts/setup", "scripts/check", "scripts/test", "scripts/demo", ".ci/run")


def commands(root: Path) -> list[Finding]:
    """Find commands that are missing, cannot be run, or are not where a reader and the CI look for them."""
    findings = [Finding(name, 1, "is missing") for name in COMMANDS if not (root / name).is_file()]
    findings += [
        Finding(_name(root, path), 1, f"starts with #! and is not executable; run: chmod +x {_name(root, path)}")
        for path in _files(root)
        if path.read_bytes()[:2] == b"#!" and not path.stat().st_mode & 0o111
    ]
    findings += [
        Finding(name, 1, "has no #! line")
        for name in COMMANDS
        if (root / name).is_file() and (root / name).read_bytes()[:2] != b"#!"
    ]
    for page, command in (
        ("README.md", "scripts/demo"),
        ("README.md", "scripts/test"),
        (".ci/run", "scripts/test"),
    ):
        if (root / page).is_file() and not any(_runs(line, command) for _, line in _lines(root / page)):
            findings.append(Finding(page, 1, f"does not name {command}"))
    if not (root / "README.md").is_file():
        findings.append(Finding("README.md", 1, "is missing"))
    return findings


def _runs(line: str, command: str) -> bool:
    """Tell whether a line names a command, other than in a shell comment."""
    return re.search(rf"(?<![\w/.-]){re.escape(command)}(?![\w/-]|\.\w)", re.sub(r"^\s*#.*", "", line)) is not None


GATES: tuple[Gate, ...] = (
    rfc_classification,
    rfc_index,
    doc_citations,
    markdown_links,
    one_line_paragraphs,
    machine_traces,
    outside_mentions,
    cited_ids,
    commands,
)

# --- Reading a tree ---------------------------------------------------------------------------------

_MADE = frozenset({"__pycache__", "build", "dist", "node_modules"})


def _files(root: Path) -> Iterator[Path]:
    """Yield the files below a folder in a fixed order, without what scripts and tools make."""
    if not root.is_dir():
        return
    for path in sorted(root.iterdir()):
        if path.is_symlink():
            continue
        if path.is_dir():
            hidden = path.name.startswith(".") and path.name not in {".ci", ".github"}
            if not hidden and path.name not in _MADE and not path.name.endswith(".egg-info"):
                yield from _files(path)
        else:
            yield path


def _markdown(root: Path) -> Iterator[Path]:
    return (path for path in _files(root) if path.suffix == ".md")


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield numbered lines of a text; a file that is not UTF-8 has none."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return iter(())
    return iter(enumerate(text.split("\n"), start=1))


def _tokens(page: Path) -> list[Token]:
    return MarkdownIt("commonmark").enable("table").parse(page.read_text(encoding="utf-8"))


def _blocks(tokens: list[Token]) -> Iterator[tuple[Token, int, str]]:
    """Yield the inline content of a page with line and plain text, tagged as the block that holds it."""
    line = 1
    for opening, token in pairwise(tokens):
        if token.map:
            line = token.map[0] + 1
        if token.type == "inline":
            token.tag = opening.tag
            yield token, line, _plain(token)


def _headings(tokens: list[Token]) -> list[tuple[int, int, str]]:
    return [
        (int(token.tag[1]), line, text) for token, line, text in _blocks(tokens) if re.fullmatch("h[1-6]", token.tag)
    ]


def _paragraphs(tokens: list[Token]) -> list[tuple[int, str]]:
    return [(line, text) for token, line, text in _blocks(tokens) if token.tag == "p"]


def _plain(token: Token) -> str:
    return "".join(part.content for part in token.children or () if part.type in {"text", "code_inline"})


def _links(token: Token) -> Iterator[str]:
    for part in token.children or ():
        if part.type in {"link_open", "image"}:
            yield str(part.attrs.get("href") or part.attrs.get("src") or "")


def _name(root: Path, path: Path) -> str:
    return path.relative_to(root).as_posix()


def _folder_of(heading: str) -> str:
    return heading.strip().lower().replace(" ", "-")


def _is_date(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)
