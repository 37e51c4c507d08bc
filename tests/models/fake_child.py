"""Stands for the local model's process in tests: the same handshake, and an HTTP server that says what it was given.

python fake_child.py serve | breaks | dies | hangs
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def main(mode: str, *rest: str) -> None:
    key = sys.stdin.readline().strip()
    threading.Thread(target=_end_with_input, daemon=True).start()
    sys.stderr.write("loading\n\n")
    if mode == "dies":
        sys.stderr.write("no such file: weights\n")
        sys.exit(1)
    if mode == "hangs":
        for port in rest:
            socket.create_connection(("127.0.0.1", int(port))).sendall(f"{os.getpid()}\n".encode())
        threading.Event().wait()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            if mode == "breaks":
                self.send_response(200)
                self.send_header("content-length", "1000")
                self.end_headers()
                self.wfile.write(b'data: {"choices": [{"delta": {"content": "half"}}]}\n\n')
                threading.Event().wait()
            good = self.headers["authorization"] == f"Bearer {key}"
            facts = json.dumps({"pid": os.getpid(), "key": good, "env": sorted(os.environ), "path": self.path})
            body = json.dumps({"choices": [{"message": {"content": facts}, "finish_reason": "stop"}]}).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    sys.stdout.write(json.dumps({"url": f"http://127.0.0.1:{server.server_address[1]}"}) + "\n")
    sys.stdout.write("noise that nobody reads\n")
    sys.stdout.flush()
    server.serve_forever()


def _end_with_input() -> None:
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
