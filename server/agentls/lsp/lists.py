"""Telling a client that the list of agents is not what it was: once, however often that happens while it is slow."""

from __future__ import annotations

from agentls.lsp.encode import list_changed_message
from agentls.lsp.ports import Host
from agentls.lsp.transport import Writer


class Lists:
    """The workspaces whose lists one client has not been told of."""

    def __init__(self, host: Host, writer: Writer) -> None:
        self._writer = writer
        self._changed: dict[str, None] = {}
        self.close = host.on_list_changed(self._take)
        writer.on_writable(self._flush)

    def _take(self, workspace_uri: str) -> None:
        self._changed[workspace_uri] = None
        self._flush()

    def _flush(self) -> None:
        while self._changed and self._writer.writable:
            workspace_uri = next(iter(self._changed))
            del self._changed[workspace_uri]
            self._writer.write(list_changed_message(workspace_uri))
