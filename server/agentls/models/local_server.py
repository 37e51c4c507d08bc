"""The child process of the local model: llama.cpp's own HTTP server from the `xllamacpp` wheel.

    python -m agentls.models.local_server WEIGHTS [--ctx N] [--threads N] [--alias NAME]

It reads one line from standard input, the key that requests must carry (an argument could be read by every user of the
machine), then writes one JSON line `{"url": …}` once it listens on a port of 127.0.0.1 that the kernel chose. It ends
when its standard input closes, which happens at any death of the parent.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
from collections.abc import Sequence


def main(arguments: Sequence[str]) -> None:
    """Serve until standard input closes; never returns."""
    parser = argparse.ArgumentParser(prog="local_server")
    parser.add_argument("weights")
    parser.add_argument("--ctx", type=int, default=2048)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--alias", default="local")
    options = parser.parse_args(arguments)
    # llama.cpp writes logs wherever it likes; the parent reads one line of ours and nothing else.
    answer = os.dup(1)
    os.dup2(2, 1)
    key = sys.stdin.readline().strip()
    threading.Thread(target=_end_with_input, daemon=True).start()
    if not key:
        sys.exit("local_server: no key on the first line of standard input")
    url = _serve(options.weights, options.ctx, options.threads, options.alias, key)
    os.write(answer, json.dumps({"url": url}).encode() + b"\n")
    os.close(answer)
    threading.Event().wait()


def _end_with_input() -> None:
    while sys.stdin.read(4096):
        pass
    # At once: the threads of llama.cpp are not ours to stop, and nobody waits for their work.
    os._exit(0)


def _serve(weights: str, context: int, threads: int, alias: str, key: str) -> str:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = weights
    params.model_alias = {alias}
    params.n_ctx = context
    params.n_parallel = 1  # each slot would get its share of the context only
    params.n_batch = params.n_ubatch = 512
    params.cpuparams.n_threads = threads
    params.cpuparams_batch.n_threads = threads
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.use_jinja = True
    params.warmup = False
    # Comments while it reads a long prompt, so that the reader knows that it is alive.
    params.sse_ping_interval = 10
    params.api_keys = [key]
    server = xllamacpp.Server(params)
    _servers.append(server)
    return str(server.listening_address)


_servers: list[object] = []
"""Kept here, since a server that is collected stops."""


if __name__ == "__main__":
    main(sys.argv[1:])
