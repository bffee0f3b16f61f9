"""Attempts on a running service: clients who send or take next to nothing, and reloads while it checks texts."""

import json
import os
import random
import re
import shutil
import signal
import socket
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from soak.bench import HANGS, TEXT, Bench

REQUESTS = (
    b"GET /healthz HTTP/1.1\r\nhost: localhost\r\ncontent-length: 999\r\n\r\n",
    b"OPTIONS / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 999\r\n\r\n",
    b"POST /nothing HTTP/1.1\r\nhost: localhost\r\ncontent-length: 999\r\n\r\n",
    b"POST /v1/detect HTTP/1.1\r\nhost: localhost\r\norigin: http://[\r\ncontent-length: 999\r\n\r\n",
)
PAGES = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n" * 2000  # far more than the system's buffers hold
# a client may take so long, with time for a busy machine
CLOSED_AFTER = 180


class Served(NamedTuple):
    """A running `dgmark serve`: its process, its port, and its folder of keys."""

    pid: int
    port: int
    keys: Path

    def ask(self, path: str, body: bytes | None = None) -> bytes:
        """The content of an answer with status 200; others are errors."""
        address = f"http://127.0.0.1:{self.port}{path}"
        request = urllib.request.Request(address, body, {"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=HANGS) as answer:  # noqa: S310
            return bytes(answer.read())


@pytest.fixture
def served(bench: Bench, tmp_path: Path) -> Iterator[Served]:
    """A service with one key, which SIGTERM ends."""
    shutil.copy(bench.key, tmp_path)
    process = bench.start(["serve", "--keys", tmp_path, "--port", 0, "--workers", 1])
    assert process.stdout is not None
    said = b""
    while (port := re.search(rb"running on http://127\.0\.0\.1:(\d+)", said)) is None:
        said += os.read(process.stdout.fileno(), 4096) or pytest.fail(f"no service started: {said!r}")
    one, ready = Served(process.pid, int(port[1]), tmp_path), False
    while not ready:
        assert process.poll() is None, "the service ended before it was ready"
        with suppress(OSError):
            ready = bool(one.ask("/readyz"))
        time.sleep(0.2)
    yield one
    process.terminate()
    bench.end(process, 0)


def test_slow_clients(served: Served, rng: random.Random) -> None:
    """Clients send a byte now and then after their answer, or take none of it: all are closed, others are answered."""
    senders, readers = list[socket.socket](), list[socket.socket]()
    for number in range(rng.randint(20, 60)):
        client = socket.create_connection(("127.0.0.1", served.port))
        client.setblocking(False)
        with suppress(BlockingIOError):
            client.sendall(PAGES if number % 4 == 0 else rng.choice(REQUESTS))
        (readers if number % 4 == 0 else senders).append(client)
    until = time.monotonic() + CLOSED_AFTER
    while senders or readers:
        assert time.monotonic() < until, f"{len(senders)} slow senders and {len(readers)} readers are still connected"
        assert served.ask("/healthz")
        senders = [client for client in senders if _open(client, takes=True)]
        readers = [client for client in readers if _open(client, takes=False)]
        time.sleep(1)


def _open(client: socket.socket, *, takes: bool) -> bool:
    """Whether a connection is open; it is sent one more byte, which shows a reset to clients that take nothing."""
    closed = False
    try:
        with suppress(BlockingIOError):
            closed = takes and client.recv(65536) == b""
        with suppress(BlockingIOError):
            client.send(b"x")
    except OSError:
        closed = True
    if closed:
        client.close()
    return not closed


def test_reload(served: Served, bench: Bench, rng: random.Random) -> None:
    """Keys come and go, are damaged or pipes, while texts are checked: no check is refused, and SIGTERM ends it."""
    body = json.dumps({"text": TEXT}).encode()
    over, problems = threading.Event(), list[str]()

    def check() -> None:
        while not over.is_set():
            try:
                answer = json.loads(served.ask("/v1/detect", body))
                problems.extend([] if answer["verdict"] == "watermarked" else [str(answer)])
            except OSError as error:
                problems.append(repr(error))

    clients = [threading.Thread(target=check) for _ in range(4)]
    for client in clients:
        client.start()
    changed = served.keys / "changed.json"
    for kind in [*(rng.choice(["none", "another key", "damaged", "pipe"]) for _ in range(8)), "pipe"]:
        changed.unlink(missing_ok=True)
        match kind:
            case "another key":
                bench.run("keygen", changed)
            case "damaged":
                changed.write_text("{")
            case "pipe":
                os.mkfifo(changed)
        os.kill(served.pid, signal.SIGHUP)
        time.sleep(rng.uniform(0.05, 2))
    over.set()
    for client in clients:
        client.join(HANGS)
    assert not problems
