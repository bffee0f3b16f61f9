"""Attempts on a running service: clients who send or take next to nothing, and reloads while it checks texts."""

import http.client
import json
import os
import random
import re
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from soak.bench import HANGS, Bench

REQUESTS = (
    b"GET /healthz HTTP/1.1\r\nhost: localhost\r\ncontent-length: 999\r\n\r\n",
    b"OPTIONS / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 999\r\n\r\n",
    b"POST /nothing HTTP/1.1\r\nhost: localhost\r\ncontent-length: 999\r\n\r\n",
    b"POST /v1/detect HTTP/1.1\r\nhost: localhost\r\norigin: http://[\r\ncontent-length: 999\r\n\r\n",
)
PAGES = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n" * 2000  # far more than the system's buffers hold
# a client may take so long, with time for a busy machine
CLOSED_AFTER = 90


class Served:
    """A running `dgmark serve`, and requests to it."""

    def __init__(self, process: subprocess.Popen[bytes], port: int) -> None:
        self.process, self.port = process, port
        self.problems: list[str] = []

    def ask(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        """The status and the content of an answer; 0 and the reason if there is none."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=HANGS)
        try:
            connection.request(method, path, body, {"content-type": "application/json"} if body else {})
            answer = connection.getresponse()
            return answer.status, answer.read()
        except (OSError, http.client.HTTPException) as error:
            return 0, repr(error).encode()
        finally:
            connection.close()


@contextmanager
def served(bench: Bench, keys: Path) -> Iterator[Served]:
    """A service with these keys; its end adds to its problems."""
    process = bench.start(["serve", "--keys", keys, "--port", 0, "--workers", 1])
    assert process.stdout is not None
    said = b""
    while (port := re.search(rb"running on http://127\.0\.0\.1:(\d+)", said)) is None:
        part = os.read(process.stdout.fileno(), 4096)
        if not part:
            raise RuntimeError(f"an undisturbed service did not start: {said!r}")
        said += part
    one = Served(process, int(port[1]))
    while one.ask("GET", "/readyz")[0] != 200:
        time.sleep(0.2)
    yield one
    process.send_signal(signal.SIGTERM)
    one.problems += bench.problems(bench.end(process), 0)


def slow_clients(bench: Bench, rng: random.Random) -> list[str]:
    """Clients send a byte now and then after their answer, or take none of it: all are closed, others are answered."""
    slow: list[tuple[str, socket.socket]] = []
    with served(bench, bench.key_folder("slow-keys")) as service:
        for number in range(rng.randint(20, 60)):
            client = socket.create_connection(("127.0.0.1", service.port))
            client.setblocking(False)
            kind, request = ("reader", PAGES) if number % 4 == 0 else ("sender", rng.choice(REQUESTS))
            with suppress(BlockingIOError):
                client.sendall(request)
            slow.append((kind, client))
        until = time.monotonic() + CLOSED_AFTER
        while time.monotonic() < until:
            slow = [(kind, client) for kind, client in slow if not _closed(kind, client)]
            status, _ = service.ask("GET", "/healthz")
            if status != 200:
                service.problems.append(f"another client got {status}")
            if not slow:
                break
            time.sleep(1)
    for kind, client in slow:
        service.problems.append(f"a slow {kind} is still connected after {CLOSED_AFTER} s")
        client.close()
    return service.problems


def _closed(kind: str, client: socket.socket) -> bool:
    """Whether the server has closed a connection; if not, a sender sends one more byte."""
    try:
        if kind == "sender":
            if client.recv(65536) == b"":
                return True
            client.send(b"x")
        else:  # nothing is taken: that the connection was reset shows when something is sent
            client.send(b"x")
    except BlockingIOError:
        if kind == "sender":
            with suppress(BlockingIOError):
                client.send(b"x")
    except OSError:
        return True
    return False


def reload(bench: Bench, rng: random.Random) -> list[str]:
    """Keys come and go, are damaged or pipes, while texts are checked: no check is refused, and SIGTERM ends it."""
    keys = bench.key_folder("reloaded-keys")
    body = json.dumps({"text": bench.marked}).encode()
    over = threading.Event()
    with served(bench, keys) as service:

        def check() -> None:
            while not over.is_set():
                status, content = service.ask("POST", "/v1/detect", body)
                if status != 200 or json.loads(content)["verdict"] != "watermarked":
                    service.problems.append(f"a check during a reload got {status}: {content[:200]!r}")

        clients = [threading.Thread(target=check) for _ in range(4)]
        for client in clients:
            client.start()
        for _ in range(8):
            changed = keys / "changed.json"
            changed.unlink(missing_ok=True)
            match rng.choice(["none", "another key", "damaged", "pipe"]):
                case "another key":
                    changed.write_bytes(bench.other_key.read_bytes())
                    changed.chmod(0o600)
                case "damaged":
                    changed.write_text("{")
                case "pipe":
                    os.mkfifo(changed)
            service.process.send_signal(signal.SIGHUP)
            time.sleep(rng.uniform(0.05, 2))
        over.set()
        for client in clients:
            client.join(HANGS)
        changed.unlink(missing_ok=True)
        os.mkfifo(changed)
        service.process.send_signal(signal.SIGHUP)
    return service.problems
