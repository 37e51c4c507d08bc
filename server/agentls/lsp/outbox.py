"""What a connection still has to be sent of an agent that it draws.

While the client takes what it is sent, each frame is written as it is published. While it does not, or while the
answer to its attach is not queued yet, an outbox keeps no messages but what has changed: the ids of changed blocks
with what of them, the ids of dropped ones, and whether the state changed. When the client has caught up, it is sent
how these stand then. So a slow client costs memory by its number of blocks, and slows nobody.

Revisions only rise: whoever has received revision r has every change up to r that was not overtaken by a later one.
Hence changed blocks from before the state's last revision go before it, and the others after.

A context is announced once, right after the frame that brought its block. What calls for the person's attention is
announced at once, or, to a client that was slow, only the last of it, if it still holds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from agentls.agent.agent import Agent
from agentls.agent.view import AppendOp, CatchUp, Drawn, DropOp, Frame, Op, PutOp, View
from agentls.core.ids import AgentId, BlockId
from agentls.core.json import JsonValue
from agentls.lsp.encode import (
    append_json,
    attention_message,
    blocks_message,
    context_message,
    frame_message,
    put_json,
    state_message,
)
from agentls.lsp.notices import Attention, Notices
from agentls.lsp.transport import Writer


@dataclass(frozen=True, slots=True)
class _Behind:
    """How far a client is behind with a block: which fields it lacks (None: all of them), and, where its body only
    grew, how many bytes of that it has."""

    fields: frozenset[str] | None
    size: int | None = None

    def put(self, wanted: frozenset[str] | None) -> _Behind:
        """Further behind by a put."""
        if self.fields is None or wanted is None:
            return _Behind(None)
        return _Behind(self.fields | wanted, None if "body" in wanted else self.size)

    def append(self, offset: int) -> _Behind:
        """Further behind by an append."""
        if self.size is not None or self.fields is None or "body" in self.fields:
            return self
        return replace(self, size=offset)


class Outbox:
    """One agent for one connection; paused when made, until the first `resume`."""

    def __init__(self, agent_id: AgentId, view: View, writer: Writer) -> None:
        self._agent_id = agent_id
        self._view = view
        self._writer = writer
        self._pauses = 1
        self._changed: dict[BlockId, _Behind] = {}
        self._dropped: dict[BlockId, int] = {}
        self._state_changed = False
        self._notices = Notices(view)
        self._contexts: dict[BlockId, BlockId | None] = {}
        self._attention: Attention | None = None
        self._leave = view.subscribe(self._take)
        self._open = True

    def pause(self) -> None:
        """Send nothing until `resume` has been called as often."""
        self._pauses += 1

    def resume(self) -> None:
        """Take back one pause."""
        self._pauses -= 1
        self.flush()

    def close(self) -> None:
        """Send nothing any more."""
        self._open = False
        self._leave()

    @property
    def kept(self) -> int:
        """How many things are kept for the client."""
        return len(self._changed) + len(self._dropped) + self._state_changed + (self._attention is not None)

    def flush(self) -> None:
        """Send how everything stands that is kept, where the client takes it."""
        if not self._open or self._pauses or not self.kept or not self._writer.writable:
            return
        changed, self._changed = self._changed, {}
        dropped, self._dropped = self._dropped, {}
        told, self._state_changed = self._state_changed, False
        attention, self._attention = self._attention, None
        view = self._view
        edge = view.state_rev if told else 0
        self._send_blocks(changed, dropped, lambda rev: rev < edge)
        if told and view.state is not None:
            self._writer.write(state_message(view.epoch, view.state_rev, view.state))
        self._send_blocks(changed, dropped, lambda rev: rev > edge)
        asked = view.state is not None and view.state.requests
        if attention is not None and (attention != "needs-you" or asked):
            self._send_attention(attention)

    def _send_blocks(
        self, changed: dict[BlockId, _Behind], dropped: dict[BlockId, int], wanted: Callable[[int], bool]
    ) -> None:
        drops = [block for block, rev in dropped.items() if wanted(rev)]
        drawn = [drawn for block in changed if (drawn := self._view.drawn(block)) is not None and wanted(drawn.rev)]
        if not drops and not drawn:
            return
        ops: list[JsonValue] = [{"op": "drop", "id": block} for block in drops]
        for current in sorted(drawn, key=lambda one: (one.block.order, one.block.id)):
            behind = changed[current.block.id]
            if behind.fields is None or behind.fields:
                ops += put_json(current, behind.fields)
            if behind.size is not None:
                grown = current.block.body.encode()[behind.size :].decode()
                ops += append_json(current.block.id, behind.size, grown)
        rev = max([dropped[block] for block in drops] + [current.rev for current in drawn])
        self._writer.write(blocks_message(self._agent_id, self._view.epoch, rev, ops))
        for current in drawn:
            if current.block.id in self._contexts:
                self._send_context(current, rev, self._contexts.pop(current.block.id))

    def _send_context(self, drawn: Drawn, rev: int, supersedes: BlockId | None) -> None:
        self._writer.write(context_message(self._agent_id, rev, drawn.block, supersedes))

    def _send_attention(self, attention: Attention) -> None:
        self._writer.write(attention_message(self._agent_id, attention, self._view.state))

    def _take(self, frame: Frame) -> None:
        news = self._notices.of(frame)
        if self._pauses or self.kept or not self._writer.writable:
            self._contexts.update((drawn.block.id, supersedes) for drawn, supersedes in news.contexts)
            self._keep(frame)
            self._attention = news.attention or self._attention
            return
        self._writer.write(frame_message(self._agent_id, self._view.epoch, frame))
        for drawn, supersedes in news.contexts:
            self._send_context(drawn, frame.rev, supersedes)
        if news.attention is not None:
            self._send_attention(news.attention)

    def _keep(self, frame: Frame) -> None:
        self._state_changed |= frame.state is not None
        for op in frame.ops:
            self._keep_op(op, frame.rev)

    def _keep_op(self, op: Op, rev: int) -> None:
        match op:
            case PutOp(drawn, fields):
                block = drawn.block.id
                self._changed[block] = self._changed.get(block, _Behind(frozenset())).put(fields)
            case AppendOp(block, offset):
                self._changed[block] = self._changed.get(block, _Behind(frozenset())).append(offset)
            case DropOp(block):
                # A drop stays when the block comes back: what it was is not what it is. A block that the client never
                # had leaves no trace, so that what is kept is bounded by what the client has.
                behind = self._changed.pop(block, None)
                self._contexts.pop(block, None)
                if behind is None or behind.fields is not None or block in self._dropped:
                    self._dropped[block] = rev


class Outboxes:
    """The outboxes of one connection."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._open: dict[AgentId, Outbox] = {}
        writer.on_writable(self._flush)

    def attach(self, agent: Agent, epoch: str | None, since: int | None) -> tuple[CatchUp, Outbox]:
        """Ops that bring the client up to date, and the paused outbox of what comes after, in one loop step. An
        earlier outbox of the agent is closed."""
        self.detach(agent.id)
        outbox = self._open[agent.id] = Outbox(agent.id, agent.view, self._writer)
        return agent.view.catch_up(epoch, since), outbox

    def of(self, agent_id: AgentId) -> Outbox | None:
        """The outbox of an agent that the connection draws."""
        return self._open.get(agent_id)

    def detach(self, agent_id: AgentId) -> None:
        """Close the outbox of an agent, if there is one."""
        outbox = self._open.pop(agent_id, None)
        if outbox is not None:
            outbox.close()

    def close(self) -> tuple[AgentId, ...]:
        """Close all; the agents that were drawn."""
        drawn = tuple(self._open)
        for agent_id in drawn:
            self.detach(agent_id)
        return drawn

    def _flush(self) -> None:
        for outbox in tuple(self._open.values()):
            outbox.flush()
