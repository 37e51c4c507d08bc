"""The case files of real bug reports: newer cases beside the repository where there are any, else our copy."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from agentls.core.json import JsonObject

_HERE = Path(__file__).parent
_ROOT = _HERE.parent.parent


@dataclass(frozen=True, slots=True)
class Case:
    """One file, how it is to be understood (`think_tags` is a flag of the model's row) and what must come out."""

    name: str
    kind: str
    data: bytes
    expect: JsonObject
    think_tags: bool


def folder() -> Path:
    """`AGENTLS_CONFORMANCE`, else newer cases beside the repository, else the copy in it."""
    named = os.environ.get("AGENTLS_CONFORMANCE")
    if named:
        return Path(named)
    shared = _ROOT.parent / "shared" / "conformance"
    return shared if (shared / "manifest.json").is_file() else _HERE


def cases(*kinds: str) -> list[Case]:
    """All cases of these kinds; a manifest that has none is an error, since it would test nothing."""
    source = folder()
    manifest = json.loads((source / "manifest.json").read_text("utf-8"))
    found = [
        Case(
            name=name,
            kind=entry["kind"],
            data=(source / "cases" / entry["file"]).read_bytes(),
            expect=entry["expect"],
            think_tags=entry.get("option") == "think_tags",
        )
        for name, entry in manifest.items()
        if entry["kind"] in kinds
    ]
    if not found:
        raise LookupError(f'"{source}" has no case of kind {", ".join(kinds)}')
    return found
