"""JSON values as types, and the one canonical text that hashes and comparisons rest on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence

JsonValue = str | int | float | bool | None | Sequence["JsonValue"] | Mapping[str, "JsonValue"]
JsonObject = Mapping[str, JsonValue]


def canonical(value: JsonValue) -> str:
    """The same text for equal values: keys sorted, no spaces, non-ASCII kept, NaN refused with ValueError."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), sort_keys=True)


def digest(value: JsonValue) -> str:
    """`sha256:<hex>` of the canonical text; a lone surrogate is hashed as it stands."""
    return "sha256:" + hashlib.sha256(canonical(value).encode("utf-8", "surrogatepass")).hexdigest()
