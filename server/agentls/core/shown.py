"""A wrong value in the text of an error."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

_LONGEST = 40


def shown(value: object) -> str:
    """A value as JSON writes it; a text is shortened, and of an object or a list only that it is one is told."""
    if isinstance(value, str):
        return json.dumps(value if len(value) <= _LONGEST else value[: _LONGEST - 1] + "…", ensure_ascii=False)
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, Sequence):
        return f"a list of {len(value)}"
    return json.dumps(value) if value is None or isinstance(value, bool | int | float) else "something else"
