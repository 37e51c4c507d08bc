"""Write the reference of the protocol: `python -m agentls.lsp.reference [--check] [--root FOLDER]`.

`docs/protocol/schema.json` is for generators of client types, `docs/protocol/README.md` for people, and the plugin for
Neovim has its types from here. All come from `methods.py`, `wire.py`, `replies.py` and `errors.py` alone, so that the
same code gives the same bytes.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from agentls.core.json import JsonObject, JsonValue
from agentls.lsp import errors, replies, schema, wire
from agentls.lsp.lua_types import lua_types
from agentls.lsp.methods import METHODS, STANDARD, Method

FOLDER = Path("docs/protocol")
LUA = Path("editors/neovim/lua/agentls/types.lua")

_NEGOTIATION: tuple[type[wire.Wire], ...] = (wire.AgentClient, replies.AgentServer)


def pages() -> Mapping[Path, str]:
    """Every generated file and its text."""
    known = _definitions()
    return {
        FOLDER / "schema.json": json.dumps(_schema(known), indent=2, ensure_ascii=False) + "\n",
        FOLDER / "README.md": "\n".join(_readme(known)) + "\n",
        LUA: lua_types(known),
    }


def stale(root: Path) -> list[Path]:
    """The files below `root` that are not what the code says."""
    return [
        path
        for path, text in pages().items()
        if not (root / path).is_file() or (root / path).read_text(encoding="utf-8") != text
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the files, or with `--check` only say whether they are as they should be."""
    parser = argparse.ArgumentParser(prog="python -m agentls.lsp.reference", description=main.__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; status 1 when a file is stale")
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[3], help="the repository")
    given = parser.parse_args(arguments)
    old = stale(given.root)
    for path in old:
        sys.stderr.write(f"{path} is stale\n" if given.check else f"{path} written\n")
    if not given.check:
        for path, text in pages().items():
            (given.root / path).parent.mkdir(parents=True, exist_ok=True)
            (given.root / path).write_text(text, encoding="utf-8")
    return 1 if old and given.check else 0


# The schema ----------------------------------------------------------------------------------------------------


def _definitions() -> JsonObject:
    models = [model for method in METHODS for model in (method.params, method.result) if model is not None]
    return schema.definitions(dict.fromkeys([*_NEGOTIATION, *models]))


def _schema(known: JsonObject) -> JsonObject:
    client, server = _NEGOTIATION
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"The agent extension to LSP, version {wire.VERSION}",
        "version": wire.VERSION,
        "capabilities": {"client": schema.reference(client), "server": schema.reference(server)},
        "methods": {method.name: _method(method) for method in METHODS},
        "errors": {str(code): name for code, (name, _) in errors.MEANINGS.items()},
        "$defs": known,
    }


def _method(method: Method[wire.Wire]) -> JsonObject:
    row: dict[str, JsonValue] = {
        "description": method.doc,
        "direction": method.direction,
        "kind": "notification" if method.result is None else "request",
        "params": schema.reference(method.params),
    }
    if method.result is not None:
        row["result"] = schema.reference(method.result)
        row["errors"] = [*method.errors, *errors.ALWAYS]
    return row


# The page ------------------------------------------------------------------------------------------------------


def _readme(known: JsonObject) -> Iterator[str]:
    yield from (
        "# Protocol reference",
        "",
        "<!-- Made by `python -m agentls.lsp.reference`; do not edit. -->",
        "",
        f"The methods of the agent extension to LSP, version {wire.VERSION}, that this server serves. "
        "The same as a JSON Schema, keyed by method, is in [schema.json](schema.json).",
        "",
        "A field marked `?` may be left out; in what a client sends, null counts as left out, but for "
        "`agent/editorState`, and an empty list as an empty object, which Lua cannot tell apart. Both sides ignore "
        "unknown fields. Times are epoch milliseconds, sizes and offsets UTF-8 "
        "bytes, lines count from 0.",
        "",
        "## Negotiation",
        "",
        "A client announces the extension in `initialize` as `capabilities.experimental.agent`; the server answers in "
        "the same place. A client that does not, or that names another version, is answered as a plain LSP client.",
        "",
        "- client: [`AgentClient`](#agentclient)",
        "- server: [`AgentServer`](#agentserver)",
        "",
        "## How a client keeps up",
        "",
        "A client holds blocks by id, the `rev` and `epoch` of what it has applied, and the order before which its "
        "blocks are not paged in (`before`). Attaching gives it all three. A frame (`agent/blocks`) is applied, op "
        "after op, when its `epoch` is the same and its `rev` is higher, and its `rev` is kept. `agent/state` is "
        "complete, and of two the one with the higher `rev` counts; its `rev` is kept as well.",
        "",
        "Answers and frames count in the order in which they are written. Where a library hands an answer over late, "
        "the client keeps the frames that arrive while an attach or a page is asked for, and applies them after it.",
        "",
        "No op holds more than 64 KiB of text: a longer body is a put of its beginning and appends of the rest, in the "
        "same frame. While a client is slow, frames are merged, so that `rev` may jump; what it has received up to a "
        "`rev` is never missing a change from before it. An append that does not fit is never guessed at: the client "
        "attaches again with the `epoch` and `rev` that it holds, and is sent what has changed since.",
        "",
    )
    for kind, direction in (
        ("Requests", "client to server"),
        ("Notifications", "client to server"),
        ("Notifications", "server to client"),
    ):
        yield from (f"## {kind}, {direction}", "")
        for method in METHODS:
            if method.direction == direction and (method.result is None) == (kind == "Notifications"):
                yield from _method_rows(method)
    yield from _standard_rows()
    yield from ("## Types", "")
    for name, node in known.items():
        yield from _type_rows(name, _object(node), known)
    yield from ("## Error codes", "", "| code | name | meaning |", "|---|---|---|")
    for code, (name, meaning) in errors.MEANINGS.items():
        yield f"| {code} | {name} | {meaning} |"


def _standard_rows() -> Iterator[str]:
    yield from (
        "## Plain LSP",
        "",
        "These notifications are taken from any client, with the extension or without. Positions are in the encoding "
        "that `initialize` answers with: `utf-8` or `utf-32` where the client offers it, else `utf-16`. One that is "
        "malformed is left out, and the server's log says which field is wrong.",
        "",
        "| method | what it is for |",
        "|---|---|",
    )
    for method in STANDARD:
        yield f"| `{method.name}` | {method.doc} |"
    yield from (
        "",
        "A client with the capability `window.workDoneProgress` that draws an agent is asked for one progress a turn "
        "(`window/workDoneProgress/create`), which names the step or what waits for the person.",
        "",
    )


def _method_rows(method: Method[wire.Wire]) -> Iterator[str]:
    yield from (f"### {method.name}", "", method.doc, "", f"- params: {_link(method.params.__name__)}")
    if method.result is not None:
        yield f"- result: {_link(method.result.__name__)}"
        codes = [*method.errors, *errors.ALWAYS]
        yield f"- errors: {', '.join(f'{code} {errors.MEANINGS[code][0]}' for code in codes)}"
    yield ""


def _type_rows(name: str, node: JsonObject, known: JsonObject) -> Iterator[str]:
    yield from (f"### {name}", "", str(node.get("description", "")), "")
    properties = _object(node.get("properties", {}))
    if not properties:
        return
    yield from ("| field | type | meaning |", "|---|---|---|")
    required = node.get("required", [])
    for field, value in properties.items():
        facts = _object(value)
        optional = "" if isinstance(required, Sequence) and field in required else "?"
        meaning = str(facts.get("description", ""))
        default = facts.get("default")
        if default is not None and default != []:
            meaning = f"{meaning} Default {json.dumps(default)}.".strip()
        yield f"| `{field}`{optional} | {_type(facts, known)} | {meaning} |"
    yield ""


def _type(node: JsonObject, known: JsonObject) -> str:
    text = schema.words(node, known, link=True)
    for name in known:
        text = text.replace(f"`{name}`", _link(name))
    nullable = any(_object(choice).get("type") == "null" for choice in _list(node.get("anyOf", [])))
    return f"{text} or null" if nullable and "default" not in node else text


def _link(name: str) -> str:
    return f"[`{name}`](#{name.lower()})"


def _object(value: JsonValue) -> JsonObject:
    return value if isinstance(value, Mapping) else {}


def _list(value: JsonValue) -> Sequence[JsonValue]:
    return value if isinstance(value, Sequence) else ()


if __name__ == "__main__":
    sys.exit(main())
