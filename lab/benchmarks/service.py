"""Speed of the service: detections a second and latency, for 1, 8 and 64 clients on loopback.

Each client sends its next text when it has the answer to the last one. Refusals (429) are counted, not waited for.

With --cost: what the mark costs when the storyteller writes, from the model worker's processor time for the same texts
with and without it, whatever else the machine does.
"""

import argparse
import http.client
import json
import math
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import chain, cycle
from pathlib import Path
from typing import TypeVar
from urllib.request import urlopen

from dgmark.watermark.key import WatermarkKey
from shared import arguments, family, print_header, print_row, private_bytes

T = TypeVar("T")
TEXTS = Path(__file__).parents[2] / "tests" / "texts" / "time_machine.txt"


def main() -> None:
    """Start the service, run the clients, print a table."""
    parser = arguments()
    parser.add_argument("--seconds", type=float, default=10, help="for each number of clients")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--characters", type=int, default=1200, help="of a text")
    parser.add_argument("--spans", action="store_true", help="also find the marked spans")
    parser.add_argument("--cost", type=int, help="in place of the table: so many pairs with and without the mark")
    parser.add_argument("--tokens", type=int, default=128, help="with --cost: of a text")
    parser.add_argument("--together", type=int, default=1, help="with --cost: texts that are written at once")
    parser.add_argument("--subkeys", type=int, default=1, help="with --cost: of the key")
    options = parser.parse_args()
    if options.cost:
        key = WatermarkKey.generate(rule="bigram", subkeys=options.subkeys)
        with running(key, "--workers", "1", "--model", "storyteller") as (port, process):
            _cost(port, process, options.tokens, options.cost, options.together)
    else:
        _detections(options)


def _detections(options: argparse.Namespace) -> None:
    """Print the speed of detection."""
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
            answers = _clients(port, bodies, clients, options.seconds)
            took = [seconds for status, seconds in answers if status == 200]
            cuts = [1000 * cut for cut in statistics.quantiles(took, n=100)]
            rate = len(took) / options.seconds
            print_row([clients, f"{rate:.0f}", f"{cuts[49]:.1f}", f"{cuts[98]:.1f}", len(answers) - len(took)])


def _clients(port: int, bodies: list[str], clients: int, seconds: float) -> list[tuple[int, float]]:
    """The status and the seconds of each answer to clients that ask at once."""
    ends = time.monotonic() + seconds
    every = in_threads(clients, lambda n: _client(port, bodies[n:] + bodies[:n], ends))
    return list(chain.from_iterable(every))


def _client(port: int, bodies: list[str], ends: float) -> list[tuple[int, float]]:
    connection, answers = http.client.HTTPConnection("127.0.0.1", port), []
    for body in cycle(bodies):
        began = time.perf_counter()
        connection.request("POST", "/v1/detect", body, {"content-type": "application/json"})
        answer = connection.getresponse()
        answer.read()
        if answer.status not in (200, 429):
            raise SystemExit(f"the service answered {answer.status}")
        answers.append((answer.status, time.perf_counter() - began))
        if time.monotonic() >= ends:
            break
    return answers


# --- the cost of the mark ---


def _ask(port: int, tokens: int, **more: object) -> http.client.HTTPResponse:
    """The answer to a request for a text, which is a stream."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    body = json.dumps({"prompt": "Once upon a time", "max_tokens": tokens, "stream": True, **more})
    connection.request("POST", "/v1/generate", body, {"content-type": "application/json"})
    return connection.getresponse()


def _cost(port: int, process: int, tokens: int, pairs: int, together: int) -> None:
    """Print the processor time of marked texts over that of unmarked ones, with the interval of the mean.

    Both texts of a pair have the same seed, prompt and settings, and are written one after the other, in turns the
    marked one first. The cost is that of a step, because a text may end early.
    """
    worker, ratios, spent = model_worker(process), list[float](), {True: 0.0, False: 0.0}
    for pair in range(-2, pairs):  # the first two warm up
        costs = {}
        for marked in (True, False) if pair % 2 else (False, True):
            before = running_seconds(worker)
            steps = _together(port, tokens, together, marked=marked, seed=1000 * (pair + 2))
            costs[marked] = (running_seconds(worker) - before) / steps
            if pair >= 0:
                spent[marked] += costs[marked]
        if pair >= 0:
            ratios.append(math.log(costs[True] / costs[False]))
    mean, error = statistics.fmean(ratios), statistics.stdev(ratios) / math.sqrt(pairs)
    low, high = (math.exp(mean + side * 1.96 * error) for side in (-1, 1))
    print(f"{pairs} pairs of {together} texts of {tokens} tokens, written together")
    print(f"milliseconds a step: {1000 * spent[True] / pairs:.2f} marked, {1000 * spent[False] / pairs:.2f} not")
    print(f"ratio {math.exp(mean):.4f}, 95 % interval {low:.4f} to {high:.4f}; of the medians of pairs ", end="")
    print(f"{math.exp(statistics.median(ratios)):.4f}; standard deviation of a pair {statistics.stdev(ratios):.3f}")


def _together(port: int, tokens: int, number: int, *, marked: bool, seed: int) -> int:
    """Have so many texts written at once; the number of their steps."""

    def steps(place: int) -> int:
        """One client, who reads a text."""
        with _ask(port, tokens, watermark=marked, seed=seed + place) as answer:
            return sum(line.startswith(b'data: {"step"') for line in answer)

    return sum(in_threads(number, steps))


def model_worker(process: int) -> int:
    """The process of a service that runs the model: the one that has loaded torch (Linux)."""
    for one in family(process):
        if one != process and "libtorch" in Path(f"/proc/{one}/maps").read_text():
            return one
    raise SystemExit("no process of the service has loaded torch")


def running_seconds(process: int) -> float:
    """Processor time of a process, finer than the hundredths of /proc (Linux)."""
    return time.clock_gettime((~process << 3) | 2)  # CPUCLOCK_SCHED: the clock of another process


# --- the service ---


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
            print(f"memory of the service and its workers: {sum(map(private_bytes, family(server.pid))) >> 20} MB")
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(30)


def _wait_for(port: int) -> None:
    """Wait until a service is ready."""
    for _ in range(3000):
        with suppress(OSError), urlopen(f"http://127.0.0.1:{port}/readyz"):  # a status like 503 is an OSError
            return
        time.sleep(0.1)
    raise SystemExit("the service did not start")


def in_threads(number: int, work: Callable[[int], T]) -> list[T]:
    """Do the work of each number in a thread of its own."""
    with ThreadPoolExecutor(number) as pool:
        return list(pool.map(work, range(number)))


if __name__ == "__main__":
    main()
