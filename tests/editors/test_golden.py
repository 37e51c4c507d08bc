"""Golden sequences that nobody wrote by hand: a recorded turn, and random changes of the server's own view.

`golden/recorded-turn.json` is all that a client is told of a turn with text, calls, an approval and a retry. When the
server tells it otherwise than then, `python -m tests.editors.test_golden` records it again.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from agentls.agent.agent import Page
from agentls.agent.view import PAGE, Frame, View
from agentls.core.rows import Block
from agentls.core.transcript import Append, Change, Drop, Put
from agentls.lsp import encode
from agentls.store.store import SessionStore
from tests.agent.memory import MemoryStore
from tests.agent.scenario import Scene
from tests.agent.stepping import SteppingLoop, run_stepping
from tests.editors.reducers import GOLDEN, played
from tests.harness import agent_id, content, mid, rows
from tests.lsp.doubles import block

RECORDED = GOLDEN / "recorded-turn.json"
TEXTS = ["", "a", "é", "測試🙂", "\n\n", "one\ntwo", "é" * 40_000]
NEW = 1000
"""The first place of blocks that come while the client looks."""

Golden = dict[str, Any]


# A recorded turn -----------------------------------------------------------------------------------------------


class Numbered(Scene):
    """A rig whose new ids are counted."""

    count = 0

    def _new_id(self) -> str:
        self.count += 1
        return f"id{self.count}"


async def record(loop: SteppingLoop) -> Golden:
    scene = Numbered(Path(), "mixed", cast(SessionStore, MemoryStore()))
    agent = await scene.agent()
    scene.decides(agent)
    steps: list[Golden] = [{"attached": encode.attach_json(agent.view, agent.view.catch_up())}]
    agent.view.subscribe(lambda frame: steps.append(told(agent.id, agent.view, frame)))
    await agent.followup(content("look, then touch"), id=mid("first"))
    while agent.view.state is None or agent.view.state.status != "idle":  # noqa: ASYNC110 - the loop counts steps
        await asyncio.sleep(0)
    golden = sequence("a turn with text, calls, an approval and a retry", steps, rows(agent.view))
    await scene.host.close()
    return golden


def sequence(rule: str, steps: list[Golden], blocks: Iterable[Block]) -> Golden:
    """A golden of which a client takes every step, and then holds these blocks."""
    return {"rule": rule, "steps": steps, "said": ["ok"] * len(steps), "blocks": [facts(block) for block in blocks]}


def facts(block: Block) -> Golden:
    """What a client holds of a block, but for the revision, which an append does not tell."""
    view = View("e", [block])
    (op, *_) = encode.ops_json(view.catch_up().ops)
    shown = {name: value for name, value in cast(Any, op)["block"].items() if name != "rev"}
    return shown | {"order": list(block.order), "body": block.body}


def told(agent: str, view: View, frame: Frame) -> Golden:
    """A published frame as the step that a client takes."""
    sent = json.loads(encode.frame_message(agent_id(agent), view.epoch, frame).split(b"\r\n\r\n", 1)[1])
    return {"frame" if frame.state is None else "state": sent["params"]}


def text_of(golden: Golden) -> str:
    """A golden with a line for each step and each block."""
    parts = []
    for name, value in golden.items():
        lines = ",\n".join(f"    {_line(one)}" for one in value) if name in ("steps", "blocks") else None
        parts.append(f'  "{name}": ' + (_line(value) if lines is None else f"[\n{lines}\n  ]"))
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _line(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def test_the_recorded_turn_is_what_the_server_tells_now() -> None:
    assert text_of(run_stepping(record)) == RECORDED.read_text(encoding="utf-8"), "record it again: see above"


# Random changes ------------------------------------------------------------------------------------------------


class Client:
    """The steps of a client that looks at a view, goes away, comes back and reads older pages."""

    def __init__(self, choose: Callable[[int], int]) -> None:
        self._choose = choose
        old = [block(f"o{n}", n, TEXTS[n % 6], state="done") for n in range(choose(3) * PAGE // 2 + choose(9))]
        self.view = View("e", old)
        self.steps: list[Golden] = []
        self.said: list[str] = []
        self._rev: int | None = None
        self._before: tuple[int, int] | None = None
        self._away = False
        self.view.subscribe(self._hear)
        self._attach()

    def play(self, count: int) -> Golden:
        for _ in range(count):
            match self._choose(12):
                case 0:
                    self._away = True
                case 1:
                    self._attach()
                case 2:
                    self._page(1 + self._choose(20))
                case 3:
                    self._again()
                case _:
                    self.view.publish(list(self._changes(1 + self._choose(3))))
        self._attach()
        while self._before is not None:
            self._page(PAGE)
        return sequence("random changes", self.steps, rows(self.view)) | {"said": self.said}

    def _changes(self, count: int) -> Iterator[Change]:
        """Changes of one frame, of which no append is to what the frame has dropped."""
        gone = set()
        for _ in range(count):
            change = self._change()
            if isinstance(change, Append) and change.id in gone:
                continue
            if isinstance(change, Drop):
                gone.add(change.id)
            yield change

    def _change(self) -> Change:
        # Two ids share each place.
        number = self._choose(8)
        name = f"b{number}"
        held = next((row for row in rows(self.view) if row.id == name), None)
        match self._choose(6):
            case 0 | 1 if held is not None:
                return Drop(held.id) if self._choose(3) == 0 else Append(held.id, self._text())
            case 2 if older := [row for row in rows(self.view) if row.order[0] < NEW]:
                some = older[self._choose(len(older))]
                return Put(block(some.id, some.order[0], self._text(), state="done"))
        state = "streaming" if self._choose(2) else "done"
        summary = "s" if self._choose(2) else None
        body = held.body if held is not None and self._choose(2) else self._text()
        return Put(block(name, NEW + number // 2, body, state=state, summary=summary))

    def _text(self) -> str:
        return TEXTS[self._choose(len(TEXTS)) if self._choose(8) == 0 else self._choose(6)]

    def _hear(self, frame: Frame) -> None:
        if not self._away:
            self._take(told("a", self.view, frame))
            self._rev = frame.rev

    def _attach(self) -> None:
        caught = self.view.catch_up("e", None if self._choose(4) == 0 else self._rev)
        ops: Any = encode.ops_json(caught.ops)
        state = {"agentId": "a", "epoch": "e", "rev": caught.rev}
        answer: Golden = {"state": state, "ops": ops, "reset": caught.reset, "rev": caught.rev, "epoch": "e"}
        if caught.reset:
            self._before = caught.before
            answer |= {"before": caught.before} if caught.before is not None else {}
        self._take({"attached": answer})
        self._rev, self._away = caught.rev, False

    def _page(self, limit: int) -> None:
        # One that is away would hold a page that is newer than the rest of what it holds.
        if self._before is None or self._away:
            return
        blocks, more = self.view.page(self._before, limit)
        page = Page(blocks, blocks[0].block.order if more else None)
        self._take({"page": encode.page_json(page)})
        self._before = page.before

    def _again(self) -> None:
        """A frame that is known."""
        if "frame" in self.steps[-1]:
            self._take(self.steps[-1], said="old")

    def _take(self, step: Golden, said: str = "ok") -> None:
        self.steps.append(step)
        self.said.append(said)


@pytest.fixture(scope="module")
def random_goldens(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Golden], dict[str, Golden]]:
    folder = tmp_path_factory.mktemp("random")
    goldens = {f"{seed}.json": Client(random.Random(seed).randrange).play(25) for seed in range(60)}
    for name, golden in goldens.items():
        (folder / name).write_text(_line(golden), encoding="utf-8")
    return goldens, played(folder)


def test_whatever_the_view_tells_the_plugin_holds_its_blocks(
    random_goldens: tuple[dict[str, Golden], dict[str, Golden]],
) -> None:
    goldens, found = random_goldens
    for name, golden in goldens.items():
        assert found[name]["said"] == golden["said"], name
        blocks = found[name]["blocks"] or []
        held = [{field: value for field, value in one.items() if field != "rev"} for one in blocks]
        assert held == golden["blocks"], name


def test_who_follows_only_the_changes_has_drawn_every_body_at_every_look(
    random_goldens: tuple[dict[str, Golden], dict[str, Golden]],
) -> None:
    _, found = random_goldens
    assert {name: one["lost"] for name, one in found.items() if one["lost"]} == {}


# What only a client does ---------------------------------------------------------------------------------------


def test_a_block_of_an_unknown_kind_is_held_like_any_other(tmp_path: Path) -> None:
    hologram = {
        "id": "x", "order": [1, 0], "rev": 1, "kind": "hologram", "state": "done", "title": "T", "body": "b",
        "collapsed": False,
    }  # fmt: skip
    state = {"agentId": "a", "epoch": "e", "rev": 1}
    put = {"op": "put", "block": hologram}
    answer = {"state": state, "ops": [put], "reset": True, "rev": 1, "epoch": "e"}
    (tmp_path / "kind.json").write_text(_line({"steps": [{"attached": answer}]}), encoding="utf-8")
    assert played(tmp_path)["kind.json"]["blocks"] == [hologram]


if __name__ == "__main__":
    RECORDED.write_text(text_of(run_stepping(record)), encoding="utf-8")
