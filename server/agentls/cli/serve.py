"""`agentls serve` and `agentls stdio`: the server process."""

from __future__ import annotations

import argparse
import asyncio
import faulthandler
import logging
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agentls.settings import Settings

CLOSE_SECONDS = 10
"""How long agents may take to come to rest at the end, before the process ends without them."""


def run(options: argparse.Namespace) -> int:
    """Serve until the client or a signal ends it; the exit status."""
    if options.socket is not None:
        where: tuple[int, int] | Path = Path(options.socket)
    else:
        from agentls.lsp.transport import take_stdio

        # Before anything is imported that might print: standard output is the protocol.
        try:
            where = take_stdio()
        except OSError:
            return _refuse("standard input or output is closed; start it from an editor, or use --socket PATH")
    _log(options.log_level)

    from agentls import settings
    from agentls.core.errors import UserError

    try:
        given = settings.resolve(
            os.environ,
            state_dir=options.state_dir,
            model=options.model,
            base_url=options.base_url,
            model_id=options.model_id,
            key_variable=options.key_variable,
            script=options.script,
            max_retries=options.max_retries,
        )
        return asyncio.run(_serve(given, where))
    except UserError as error:
        return _refuse(str(error))
    finally:
        if os.isatty(2):
            # A terminal is one file for all who use it, and the shell wants it to wait.
            os.set_blocking(2, True)


async def _serve(given: Settings, where: tuple[int, int] | Path) -> int:
    from agentls import app
    from agentls.lsp.server import serve_socket, serve_stdio

    # The loop parses model streams in slices of 2 ms, and the writer thread waits for the interpreter at each step of a
    # commit: at the default of 5 ms a durable commit under such a load took twice as long at the median (measured).
    sys.setswitchinterval(0.0005)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    host = app.build_host(given)
    try:
        if not isinstance(where, Path):
            return await serve_stdio(host, where, stop)
        await serve_socket(host, where, stop, lambda: _say(f'listening on "{where}"'))
        return 0
    finally:
        # Whatever hangs from here on, a thread of a library as well, must not keep the process.
        faulthandler.dump_traceback_later(2 * CLOSE_SECONDS, exit=True, file=2)
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await host.close()
        except TimeoutError:
            logging.getLogger(__name__).error("agents did not come to rest in %d s", CLOSE_SECONDS)


def _log(level: str) -> None:
    logging.basicConfig(
        level=level.upper(), stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    # These log the bodies of messages and the addresses of requests at lower levels.
    for noisy in ("pygls", "aiohttp", "asyncio"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


def _refuse(problem: str) -> int:
    _say(problem)
    return 2


def _say(text: str) -> None:
    # Not by sys.stderr, which is None in a process that was started without one.
    with suppress(OSError):
        os.write(2, f"agentls: {text}\n".encode(errors="replace"))
