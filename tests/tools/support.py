"""A workspace on disk, and a context to call tools in."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from agentls.core.ids import SessionId
from agentls.core.json import JsonObject, JsonValue
from agentls.tools.list_files import ListFiles
from agentls.tools.read import Read
from agentls.tools.registry import Call, Registry
from agentls.tools.tool import Output, ToolContext, ToolError
from agentls.tools.write import Write
from agentls.workspace.documents import Documents
from agentls.workspace.roots import Roots
from agentls.workspace.texts import content_hash
from agentls.workspace.uris import to_uri
from tests.workspace.support import FakeEditor

NEOVIM = FakeEditor("neovim 0.11.4")
VSCODE = FakeEditor("Visual Studio Code 1.107")


def registry() -> Registry:
    made = Registry()
    made.register(Read())
    made.register(ListFiles())
    made.register(Write())
    return made


class Space:
    """A workspace with one folder, and the calls of one session in it."""

    def __init__(self, root: Path) -> None:
        root.mkdir(exist_ok=True)
        self.root = root.resolve()
        self.context = ToolContext(SessionId("s"), Roots([self.root]), Documents())
        self._tools = registry()

    def file(self, name: str, data: bytes | str = b"") -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data.encode() if isinstance(data, str) else data)
        return path

    def bytes_of(self, name: str) -> bytes | None:
        """What a file holds, or None where there is none."""
        path = self.root / name
        return path.read_bytes() if path.is_file() else None

    def seen(self, name: str, data: bytes | str = b"") -> Path:
        """A file that the agent has read."""
        path = self.file(name, data)
        self.context.seen[str(path)] = content_hash(path.read_bytes())
        return path

    def opened(self, name: str, text: str, editor: FakeEditor = NEOVIM) -> None:
        """A buffer, dirty where its text is not that of the file."""
        self.context.documents.open(editor, to_uri(self.root / name), version=7, text=text)

    def meet(self, documents: Documents) -> None:
        """Have other documents from now on."""
        self.context = replace(self.context, documents=documents)

    def prepared(self, name: str, /, **arguments: JsonValue) -> Call:
        return self._tools.prepare(name, arguments)

    async def call(self, name: str, /, **arguments: JsonValue) -> Output:
        """A call that a person allows, where it asks for that."""
        return await self.run(name, await self.asks(name, **arguments), **arguments)

    async def run(self, name: str, allowed: JsonObject | None = None, /, **arguments: JsonValue) -> Output:
        """A call that a person has allowed already, or that nobody was asked about."""
        return await self.prepared(name, **arguments).run(self.context, allowed)

    async def asks(self, name: str, /, **arguments: JsonValue) -> JsonObject | None:
        return await self.prepared(name, **arguments).asks(self.context)

    async def refusal(self, name: str, allowed: JsonObject | None = None, /, **arguments: JsonValue) -> ToolError:
        """The error that a call ends with that a person has allowed, or that nobody was asked about."""
        with pytest.raises(ToolError) as error:
            await self.run(name, allowed, **arguments)
        return error.value

    async def asking(self, name: str, /, **arguments: JsonValue) -> ToolError:
        """The error that a call ends with before a person is asked."""
        with pytest.raises(ToolError) as error:
            await self.asks(name, **arguments)
        return error.value


async def happened(event: threading.Event) -> None:
    """Wait for what a thread does, on a thread that no call can be waiting for."""
    with ThreadPoolExecutor(1) as own:
        assert await asyncio.get_running_loop().run_in_executor(own, event.wait, 10)
