"""`agentls sessions`: what is stored, without a server."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from agentls.core.events import Event
    from agentls.store.reading import Beside
    from agentls.store.store import Salvage

WHOLE = 0
DAMAGED = 1
REFUSED = 2

_ENDINGS = {"jsonl": ".jsonl", "markdown": ".md"}
_TOLD = 5
"""Damaged parts of a session that are told one by one; the file has all of them."""


def run(options: argparse.Namespace) -> int:
    """Write what is left of sessions; the exit status: 0 for whole ones, 1 where something of them is damaged, 2 where
    nothing could be done."""
    from agentls import settings
    from agentls.core.errors import UserError
    from agentls.store.reading import beside
    from agentls.store.sqlite import DRAFTS_FILE, SESSIONS_FILE

    folder = settings.state_folder(os.environ, options.state_dir)
    database = Path(options.database) if options.database is not None else folder / SESSIONS_FILE
    drafts = folder / DRAFTS_FILE if options.database is None else None
    try:
        with beside(database, drafts) as store:
            return _export(store, options)
    except BrokenPipeError:
        # Whoever read has had enough; the interpreter must not complain about it when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return DAMAGED
    except UserError as error:
        return _refuse(str(error))
    except OSError as error:
        return _refuse(f'cannot write "{error.filename or "standard output"}": {error.strerror}')


def _export(store: Beside, options: argparse.Namespace) -> int:
    from agentls.core.errors import UserError

    ids = store.ids() if options.all else (options.id,)
    output = Path(options.output) if options.output is not None else None
    if options.all and output is not None:
        output.mkdir(parents=True, exist_ok=True)
    status = DAMAGED if store.wrong else WHOLE
    for sentence in store.wrong:
        _say(sentence)
    for session in ids:
        try:
            left = store.salvage(session)
        except UserError as error:
            if not options.all:
                raise
            _say(str(error))
            status = DAMAGED
            continue
        if output is None:
            _write(left, options.format, sys.stdout.buffer)
            sys.stdout.buffer.flush()
        else:
            path = output / f"{_name(session)}{_ENDINGS[options.format]}" if options.all else output
            if not _write_new(left, options.format, path):
                status = REFUSED
                continue
        if _tell(left):
            status = max(status, DAMAGED)
    if options.all and not ids:
        _say("there are no sessions")
    return status


def _write_new(left: Salvage, form: str, path: Path) -> bool:
    """Write a session to a file that is not there yet; false, and a sentence, where it is."""
    try:
        # What was said in a session is its owner's business.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        _say(f'"{path}" is there already and is not overwritten; name another file or move it away')
        return False
    try:
        with open(descriptor, "wb") as file:
            _write(left, form, file)
    except BaseException:
        with suppress(OSError):
            path.unlink()  # Half a session looks like all of it.
        raise
    return True


def _write(left: Salvage, form: str, file: BinaryIO) -> None:
    if form == "markdown":
        file.writelines(_markdown(left))
    else:
        from agentls.store import jsonl

        file.writelines(jsonl.lines(left))


def _markdown(left: Salvage) -> Iterator[bytes]:
    from agentls.agent.read_only import rendered
    from agentls.core.events import SessionTitle
    from agentls.core.visible import one_line

    header = left.header
    events = _events(left)
    titles = [event.data.title for event in events if isinstance(event.data, SessionTitle)]
    yield _text(f"# {one_line(titles[-1]) if titles else 'Session ' + one_line(header.id)}\n")
    yield _text(f"\nSession `{one_line(header.id)}` in `{one_line(header.cwd)}`.\n")
    if left.fault is not None:
        yield _text(f"\nThis session is damaged: {one_line(left.fault, 1000)}.\n")
    for block in rendered(left):
        body = block.body.strip() or (block.summary or "")
        yield _text(f"\n## {block.title}\n" + (f"\n{body}\n" if body else ""))


def _events(left: Salvage) -> Iterable[Event]:
    from agentls.store.store import Damaged

    return [part for part in left.log if not isinstance(part, Damaged)]


def _tell(left: Salvage) -> bool:
    """Say what of a session is damaged, and whether anything is."""
    from agentls.store.store import Damaged

    name = left.header.id
    damaged = [part for part in left.log if isinstance(part, Damaged)]
    if left.fault is not None:
        _say(f'session "{name}" is damaged: {left.fault}')
    for part in damaged[:_TOLD]:
        where = f"event {part.first}" if part.stop == part.first + 1 else f"events {part.first} to {part.stop - 1}"
        kept = "" if part.event is None else "; what it seems to hold is written and may be wrong"
        _say(f'session "{name}" is damaged at {where}: {part.why}{kept}')
    if len(damaged) > _TOLD:
        _say(f'session "{name}" is damaged in {len(damaged) - _TOLD} more places')
    return bool(damaged) or left.fault is not None


def _name(session: str) -> str:
    from agentls.store.lock import file_name

    return file_name(session).removesuffix(".lock")


def _text(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")


def _refuse(problem: str) -> int:
    _say(problem)
    return REFUSED


def _say(text: str) -> None:
    with suppress(OSError):
        os.write(2, f"agentls: {text}\n".encode(errors="replace"))
