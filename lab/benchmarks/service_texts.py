"""Speed of the service when it writes: tokens a second with and without the mark, and the wait for the first block.

Each client sends its next request when it has the answer to the last one. Texts are written with the built-in
storyteller; phases with and without the mark take turns, so that a busy machine slows both. The processor time of the
service says what a token costs, whatever else the machine does.

With --cost: what the mark costs, from the model worker's processor time for the same texts with and without it.
"""

import argparse
import http.client
import json
import math
import os
import statistics
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from dgmark.watermark.key import WatermarkKey
from keys_and_tables import family, print_header, print_row
from service import in_threads, running


def main() -> None:
    """Start the service, run the clients, print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10, help="of each phase")
    parser.add_argument("--tokens", type=int, default=128, help="of a text")
    parser.add_argument("--rounds", type=int, default=3, help="phases with, and phases without the mark")
    parser.add_argument("--subkeys", type=int, default=1, help="of the key")
    parser.add_argument("--cost", type=int, help="in place of the table: so many pairs with and without the mark")
    parser.add_argument("--together", type=int, default=1, help="with --cost: texts that are written at once")
    options = parser.parse_args()
    key = WatermarkKey.generate(rule="bigram", subkeys=options.subkeys)
    with running(key, "--workers", "1", "--model", "storyteller") as (port, process):
        if options.cost:
            _cost(port, process, options.tokens, options.cost, options.together)
        else:
            _table(port, process, options.tokens, options.seconds, options.rounds)


@dataclass
class Written:
    """What the clients of one phase saw: tokens, and the seconds until the first block of each text was full."""

    tokens: int = 0
    first_block: list[float] = field(default_factory=list)


def _table(port: int, process: int, tokens: int, seconds: float, rounds: int) -> None:
    """Print the speed of generation."""
    _written(port, 1, 3.0, marked=True, tokens=tokens, lengths=1)
    print(f"texts of {tokens} tokens, {rounds} phases of {seconds:g} s each, {os.cpu_count()} processors")
    print_header(["clients", "prompts", "tokens/s", "ratio", "tokens/processor second", "ratio", "first block, p50, s"])
    for clients, lengths in ((1, 1), (4, 1), (16, 1), (16, 16)):
        phases: dict[bool, list[Written]] = {True: [], False: []}
        costs = {True: 0.0, False: 0.0}
        for _ in range(rounds):
            for marked in phases:
                before = cpu_seconds(process)
                one = _written(port, clients, seconds, marked=marked, tokens=tokens, lengths=lengths)
                costs[marked] += cpu_seconds(process) - before
                phases[marked].append(one)
        count = {marked: sum(one.tokens for one in several) for marked, several in phases.items()}
        speed = {marked: count[marked] / rounds / seconds for marked in phases}
        thrift = {marked: count[marked] / costs[marked] for marked in phases}
        waits = [wait for several in phases.values() for one in several for wait in one.first_block]
        prompts = "of one length" if lengths == 1 else f"of {lengths} lengths"
        ratios = [f"{figure[True] / figure[False]:.2f}" for figure in (speed, thrift)]
        wait = f"{statistics.median(waits or [float('nan')]):.2f}"
        print_row([clients, prompts, f"{speed[True]:.0f}", ratios[0], f"{thrift[True]:.0f}", ratios[1], wait])


def _written(port: int, clients: int, seconds: float, *, marked: bool, tokens: int, lengths: int) -> Written:
    written, lock, ends = Written(), threading.Lock(), time.monotonic() + seconds
    in_threads(clients, lambda n: _writer(port, "word " * (10 + n % lengths), marked, tokens, ends, written, lock))
    return written


def _writer(
    port: int, prompt: str, marked: bool, tokens: int, ends: float, written: Written, lock: threading.Lock
) -> None:
    """Ask for texts until the time is over, which ends the last one in the middle."""
    body = json.dumps({"prompt": prompt, "max_tokens": tokens, "watermark": marked, "stream": True})
    while time.monotonic() < ends:
        connection = http.client.HTTPConnection("127.0.0.1", port)
        began, full = time.monotonic(), False
        connection.request("POST", "/v1/generate", body, {"content-type": "application/json"})
        answer = connection.getresponse()
        if answer.status != 200:
            raise SystemExit(f"the service answered {answer.status}")
        for line in answer:
            if not line.startswith(b'data: {"step"'):
                continue
            step = json.loads(line[6:])
            with lock:
                written.tokens += len(step["tokens"])
                if step["block"] and not full:
                    written.first_block.append(time.monotonic() - began)
            full = full or step["block"] > 0
            if time.monotonic() >= ends:
                break
        connection.close()


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
    steps: list[int] = []

    def read(place: int) -> None:
        """One client, who reads a text."""
        with _ask(port, tokens, watermark=marked, seed=seed + place) as answer:
            steps.append(sum(line.startswith(b'data: {"step"') for line in answer))

    in_threads(number, read)
    return sum(steps)


def model_worker(process: int) -> int:
    """The process of a service that runs the model: the one that has loaded torch (Linux)."""
    for one in family(process):
        if one != process and "libtorch" in Path(f"/proc/{one}/maps").read_text():
            return one
    raise SystemExit("no process of the service has loaded torch")


def cpu_seconds(process: int) -> float:
    """Processor time of a process and of those that it started (Linux), whatever else the machine does meanwhile."""
    return sum(map(running_seconds, family(process)))


def running_seconds(process: int) -> float:
    """Processor time of a process, finer than the hundredths of /proc (Linux)."""
    return time.clock_gettime((~process << 3) | 2)  # CPUCLOCK_SCHED: the clock of another process


if __name__ == "__main__":
    main()
