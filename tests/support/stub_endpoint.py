"""A local server with OpenAI's interface, which answers from a script and keeps all requests."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from dgmark_lab.endpoint import Endpoint

Reply = tuple[int, Any, dict[str, str]]  # status, body, headers

GOOD = {"coherence": 4, "clarity": 5, "naturalness": 3.5, "overall": 4.17}  # a rating


def answer(content: object) -> Reply:
    """A completion whose text is `content`, as JSON if it is not text."""
    text = content if isinstance(content, str) or content is None else json.dumps(content)
    message = {"role": "assistant", "content": text}
    return 200, {"id": "x", "object": "chat.completion", "created": 0, "model": "stub",
                 "choices": [{"index": 0, "finish_reason": "stop", "message": message}]}, {}  # fmt: skip


class StubEndpoint:
    """A server whose n-th answer to a text is the n-th of `script` (then its last for ever); it keeps all requests."""

    def __init__(self) -> None:
        self.script: list[Callable[[], Reply]] = [lambda: answer(GOOD)]
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        stub = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                stub.headers.append({name.lower(): value for name, value in self.headers.items()})
                stub.requests.append({**body, "path": self.path})
                text = body["messages"][-1]["content"]
                times = sum(one["messages"][-1]["content"] == text for one in stub.requests)
                status, content, headers = stub.script[min(times, len(stub.script)) - 1]()
                payload = content if isinstance(content, bytes) else json.dumps(content).encode()
                try:
                    self.send_response(status)
                    for name, value in {"Content-Type": "application/json", **headers}.items():
                        self.send_header(name, value)
                    self.send_header("Content-Length", str(len(payload)))
                    self.end_headers()
                    self.wfile.write(payload)
                except (BrokenPipeError, ConnectionResetError):  # the client gave up waiting
                    pass

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    @property
    def url(self) -> str:
        """The base URL of the server."""
        return f"http://127.0.0.1:{self.server.server_port}/v1"

    @property
    def texts(self) -> list[str]:
        """The last message of each request."""
        return [one["messages"][-1]["content"] for one in self.requests]

    def endpoint(self, **changes: Any) -> Endpoint:
        """A client of the server."""
        return Endpoint(model="stub", base_url=self.url, **changes)


@contextmanager
def stub_endpoint() -> Iterator[StubEndpoint]:
    """A server that runs for the length of a block."""
    stub = StubEndpoint()
    try:
        yield stub
    finally:
        stub.server.shutdown()
        stub.server.server_close()
