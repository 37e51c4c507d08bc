"""The command line: which command is meant. Nothing but the standard library is imported before that is known."""

from __future__ import annotations

import argparse
import importlib
import os
from collections.abc import Sequence

import agentls

LOG_VARIABLE = "AGENTLS_LOG"
LEVELS = ("debug", "info", "warning", "error")


def run(arguments: Sequence[str]) -> int:
    """Run a command; its exit status, where 2 means that it was asked wrongly."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.command is None:
        parser.error("no command; agentls serve speaks LSP on standard input and output")
    if options.log_level not in LEVELS:
        parser.error(f'{LOG_VARIABLE} is "{options.log_level}"; set it to one of {", ".join(LEVELS)}')
    status: int = importlib.import_module(options.module).run(options)
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="agentls", description=agentls.__doc__)
    parser.add_argument("--version", action="version", version=f"agentls {agentls.__version__}")
    commands = parser.add_subparsers(dest="command", metavar="command")
    serve = _server(commands, "serve", "speak LSP on standard input and output, or on a Unix socket")
    serve.add_argument("--socket", metavar="PATH", help="listen on a socket that only you can open, for many clients")
    # The bridge to a daemon of its own will take the place of this one.
    _server(commands, "stdio", "speak LSP on standard input and output, as editors start it").set_defaults(socket=None)
    _sessions(commands)
    return parser


def _sessions(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    sessions = commands.add_parser("sessions", help="what is stored", description="What is stored, without a server.")
    actions = sessions.add_subparsers(dest="action", metavar="action", required=True)
    does = "write what is left of sessions, also of damaged ones and while a server has them open"
    export = actions.add_parser("export", help=does, description=f"{does[0].upper()}{does[1:]}; no lock is taken.")
    export.set_defaults(module="agentls.cli.sessions", log_level="warning")
    which = export.add_mutually_exclusive_group(required=True)
    which.add_argument("id", metavar="ID", nargs="?", help="the session to write")
    which.add_argument("--all", action="store_true", help="write every session")
    export.add_argument(
        "--format", choices=("jsonl", "markdown"), default="jsonl", help="every event as JSON (default), or to be read"
    )
    export.add_argument(
        "--output", metavar="PATH", help="a new file, with --all a folder; nothing that exists is overwritten"
    )
    where = export.add_mutually_exclusive_group()
    where.add_argument("--state-dir", metavar="DIR", help="where sessions are kept")
    where.add_argument("--database", metavar="FILE", help="read this file, such as one that was set aside as damaged")


def _server(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], name: str, does: str
) -> argparse.ArgumentParser:
    server = commands.add_parser(name, help=does, description=f"{does[0].upper()}{does[1:]}.")
    server.set_defaults(module="agentls.cli.serve")
    server.add_argument("--state-dir", metavar="DIR", help="where sessions are kept")
    server.add_argument("--model", metavar="NAME", help="the model of new agents, as provider/id")
    server.add_argument("--base-url", metavar="URL", help="an OpenAI-compatible endpoint; needs --model-id")
    server.add_argument("--model-id", metavar="ID", help="the model to ask for at that endpoint")
    server.add_argument("--key-variable", metavar="VAR", help="the environment variable that holds its key")
    server.add_argument("--max-retries", metavar="N", help="how often a failed request is tried again; 0 is never")
    server.add_argument("--script", metavar="FILE", help="let the scripted model replay this file")
    server.add_argument(
        "--log-level",
        choices=LEVELS,
        type=str.lower,
        default=(os.environ.get(LOG_VARIABLE) or "warning").lower(),
        help=f"how much is told on standard error (else {LOG_VARIABLE}, else warning)",
    )
    return server
