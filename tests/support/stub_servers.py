"""A server with OpenAI's interface whose answers a test writes."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

Answer = Callable[[dict[str, Any]], dict[str, Any]]
# starts a server that answers so, with these models; returns its address and the list of what it is asked
Serve = Callable[..., tuple[str, list[dict[str, Any]]]]


def ask_again_soon(patch: pytest.MonkeyPatch) -> None:
    """Let OpenAI's client wait for no time that counts before it asks a server again."""
    patch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.001)


@contextmanager
def stub_servers() -> Iterator[Serve]:
    """What starts servers, which are stopped at the end."""
    servers = []

    def start(answer: Answer, models: tuple[str, ...] = ("small",)) -> tuple[str, list[dict[str, Any]]]:
        asked: list[dict[str, Any]] = []

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._send(200, {"object": "list", "data": [{"id": name, "object": "model"} for name in models]})

            def do_POST(self) -> None:
                asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                found = answer(asked[-1])
                self._send(found.pop("status", 200), {"id": "x", "object": "completion", **found})

            def _send(self, status: int, content: dict[str, Any]) -> None:
                body = json.dumps(content).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        # which looks for its end so often
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_port}/v1", asked

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()
