"""Speed of the service: detections a second and latency, for 1, 8 and 64 clients on loopback.

Each client sends its next text when it has the answer to the last one. Refusals (429) are counted, not waited for.
"""

import argparse
import http.client
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from dgmark.watermark.key import WatermarkKey
from keys_and_tables import family, print_header, print_row, resident_bytes

TEXTS = Path(__file__).parents[2] / "tests" / "texts" / "time_machine.txt"


@dataclass
class Figures:
    """What the clients saw: the seconds of each answer, and the number of refusals."""

    seconds: list[float] = field(default_factory=list)
    refused: int = 0


def main() -> None:
    """Start the service, run the clients, print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10, help="for each number of clients")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--characters", type=int, default=1200, help="of a text")
    parser.add_argument("--spans", action="store_true", help="also find the marked spans")
    options = parser.parse_args()
    whole = TEXTS.read_text(encoding="utf-8")
    starts = range(0, len(whole) - options.characters, options.characters)
    bodies = [
        json.dumps({"text": whole[start : start + options.characters], "spans": options.spans}) for start in starts
    ]
    with running(WatermarkKey.generate(), "--workers", str(options.workers)) as (port, _):
        _clients(port, bodies, 4, 2.0)
        print(f"{options.workers} workers, {options.characters} characters, {os.cpu_count()} processors")
        print_header(["clients", "detections/s", "p50, ms", "p99, ms", "refused"])
        for clients in (1, 8, 64):
            figures = _clients(port, bodies, clients, options.seconds)
            cuts = [1000 * cut for cut in statistics.quantiles(figures.seconds, n=100)]
            rate = len(figures.seconds) / options.seconds
            print_row([clients, f"{rate:.0f}", f"{cuts[49]:.1f}", f"{cuts[98]:.1f}", figures.refused])


def _clients(port: int, bodies: list[str], clients: int, seconds: float) -> Figures:
    figures, ends = Figures(), time.monotonic() + seconds
    in_threads(clients, lambda n: _client(port, bodies[n:] + bodies[:n], ends, figures))
    return figures


def _client(port: int, bodies: list[str], ends: float, figures: Figures) -> None:
    connection, number = http.client.HTTPConnection("127.0.0.1", port), 0
    while time.monotonic() < ends:
        began = time.perf_counter()
        connection.request("POST", "/v1/detect", bodies[number % len(bodies)], {"content-type": "application/json"})
        answer = connection.getresponse()
        answer.read()
        if answer.status == 429:
            figures.refused += 1
        elif answer.status == 200:
            figures.seconds.append(time.perf_counter() - began)
        else:
            raise SystemExit(f"the service answered {answer.status}")
        number += 1


# --- what the benchmarks of the service share ---


@contextmanager
def running(key: WatermarkKey, *arguments: str) -> Iterator[tuple[int, int]]:
    """Run a service with this key; its port and its process."""
    with tempfile.TemporaryDirectory() as folder, socket.socket() as free:
        key.save(Path(folder) / "main.json")
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
        free.close()
        command = [sys.executable, "-m", "dgmark", "serve", "--keys", folder, "--port", str(port), *arguments]
        server = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        try:
            _wait_for(port)
            yield port, server.pid
            print(f"memory of the service and its workers: {sum(map(resident_bytes, family(server.pid))) >> 20} MB")
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(30)


def _wait_for(port: int) -> None:
    """Wait until a service is ready."""
    for _ in range(3000):
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port)
            connection.request("GET", "/readyz")
            if connection.getresponse().status == 200:
                return
        except OSError:
            pass
        time.sleep(0.1)
    raise SystemExit("the service did not start")


def in_threads(number: int, work: Callable[[int], None]) -> None:
    """Do the work of each number in a thread of its own."""
    threads = [threading.Thread(target=work, args=(place,)) for place in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
