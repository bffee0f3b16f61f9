"""Speed of the service when it writes: tokens a second with and without the mark, and the wait for the first block.

Each client sends its next request when it has the answer to the last one. Texts are written with the built-in
storyteller; phases with and without the mark take turns, so that a busy machine slows both. The processor time of the
service says what a token costs, whatever else the machine does.
"""

import argparse
import http.client
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from dgmark.watermark.key import WatermarkKey
from service import cpu_seconds, free_port, memory, wait_for


def main() -> None:
    """Start the service, run the clients, print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10, help="of each phase")
    parser.add_argument("--tokens", type=int, default=128, help="of a text")
    parser.add_argument("--rounds", type=int, default=3, help="phases with, and phases without the mark")
    parser.add_argument("--subkeys", type=int, default=1, help="of the key")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        WatermarkKey.generate(subkeys=options.subkeys).save(Path(folder) / "main.json")
        port = free_port()
        command = ["serve", "--keys", folder, "--port", str(port), "--workers", "1", "--model", "storyteller"]
        server = subprocess.Popen([sys.executable, "-m", "dgmark", *command], stderr=subprocess.DEVNULL)
        try:
            wait_for(port)
            _table(port, server.pid, options.tokens, options.seconds, options.rounds)
            print(f"memory of the service and its workers: {memory(server.pid) >> 20} MB")
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(30)


@dataclass
class Written:
    """What the clients of one phase saw: tokens, and the seconds until the first block of each text was full."""

    tokens: int = 0
    first_block: list[float] = field(default_factory=list)


def _table(port: int, process: int, tokens: int, seconds: float, rounds: int) -> None:
    """Print the speed of generation."""
    _written(port, 1, 3.0, marked=True, tokens=tokens, lengths=1)
    print(f"texts of {tokens} tokens, {rounds} phases of {seconds:g} s each, {os.cpu_count()} processors")
    print("| clients | prompts | tokens/s | ratio | tokens/processor second | ratio | first block, p50, s |")
    print("|---" * 7 + "|", flush=True)
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
        print(
            f"| {clients} | {prompts} | {speed[True]:.0f} | {speed[True] / speed[False]:.2f} | {thrift[True]:.0f} "
            f"| {thrift[True] / thrift[False]:.2f} | {statistics.median(waits or [float('nan')]):.2f} |",
            flush=True,
        )


def _written(port: int, clients: int, seconds: float, *, marked: bool, tokens: int, lengths: int) -> Written:
    written, lock, ends = Written(), threading.Lock(), time.monotonic() + seconds
    threads = [
        threading.Thread(target=_writer, args=(port, "word " * (10 + n % lengths), marked, tokens, ends, written, lock))
        for n in range(clients)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
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


if __name__ == "__main__":
    main()
