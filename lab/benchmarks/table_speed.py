"""Measure tables of texts: processor time a text of every way to check one, and the memory that many rows take.

Times are those of the processor, so that other programs disturb them little. What starts processes is measured from
outside, with all that it starts: at two numbers of texts, of which the difference leaves the start out. Memory is the
largest sum of the parts of it that are each process's own (PSS), which Linux alone tells.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import pandas as pd
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from dgmark import DetectColumns, Detector, WatermarkKey
from dgmark_lab.experiments.prompt_sets import builtin_prompts
from shared import arguments, bench_key, print_header, print_row, random_key, seconds_of

COMMANDS = {
    "`dgmark detect` on Parquet": ["dgmark", "detect", "--out", "out.parquet", "in.parquet"],
    "`dgmark-ray detect`, one actor": ["dgmark.cli.ray_command", "detect", "in.parquet", "out", "--actors", "1"],
}


def main() -> None:
    """Print the figures."""
    parser = arguments()
    parser.add_argument("--texts", type=int, default=1000, help="texts of 256 tokens; ten times as many for commands")
    parser.add_argument("--rows", type=int, nargs="*", default=[], help="numbers of short rows to measure memory with")
    parser.add_argument("--rounds", type=int, default=3, help="how often to time what runs in one process")
    given = parser.parse_args()
    several = random_key(WatermarkKey.generate(subkeys=256).spec, 0)
    os.chdir(tempfile.mkdtemp())
    print(f"import of dgmark: {import_seconds():.3f} s")
    if given.texts:
        print_header(["way", "256 sub-keys: ms a text", "one key"])
        times = [times_of(key, given.texts, given.rounds) for key in (several, bench_key("bigram"))]
        for way in times[0]:
            print_row([way, *(f"{1e3 * of[way]:.2f}" for of in times)])
    if given.rows:
        several.save("memory.json")
        memory = ["peak memory, GB", "of the largest process"]
        print_header(["command", "short rows", *memory, "processor seconds", "seconds"])
    for rows in given.rows:
        write_table([f"This is the short text number {n}." for n in range(rows)])
        for way, command in COMMANDS.items():
            used = usage_of(command, "memory.json")
            memory = [f"{used.peak / 1e9:.2f}", f"{used.largest / 1e9:.2f}"]
            print_row([way, f"{rows:,}", *memory, f"{used.processor:.0f}", f"{used.seconds:.0f}"])


def import_seconds() -> float:
    """The median seconds by which importing dgmark lengthens a process."""
    took = [
        seconds_of(lambda code=code: subprocess.run([sys.executable, "-c", code], check=True))  # type: ignore[misc]
        for _ in range(9)
        for code in ("pass", "import dgmark")
    ]
    return median(took[1::2]) - median(took[::2])


def times_of(key: WatermarkKey, count: int, rounds: int) -> dict[str, float]:
    """The processor seconds a text of each way."""
    detector = Detector(key)
    prose = detector.tokenizer.encode(" ".join(builtin_prompts()))
    windows = [prose[at : at + 256] for at in range(0, len(prose) - 256, 64)]
    texts = [detector.tokenizer.decode(windows[n % len(windows)]) for n in range(10 * count)]
    few, score = texts[:count], DetectColumns(key)
    table, frame = pa.table({"text": few}), pd.DataFrame({"text": few})
    ways: dict[str, Callable[[], object]] = {
        "`detect` in a loop": lambda: [detector.detect(text) for text in few],
        "`detect_many`": lambda: detector.detect_many(few),
        "`DetectColumns`, Arrow": lambda: score(table),
        "`DetectColumns`, pandas": lambda: score(frame),
    }
    took: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(rounds):
        for way, work in ways.items():
            took[way].append(seconds_of(work, time.process_time) / count)
    found = {way: median(times) for way, times in took.items()}
    key.save(name := f"{key.key_id}.json")
    for way, command in COMMANDS.items():
        used = []
        for some in (few, texts):
            write_table(some)
            used.append(usage_of(command, name).processor)
        found[way] = (used[1] - used[0]) / (len(texts) - len(few))
    return found


def write_table(texts: list[str]) -> None:
    """Write the texts and their numbers to in.parquet."""
    pq.write_table(pa.table({"id": range(len(texts)), "text": texts}), "in.parquet")


@dataclass
class Usage:
    """What a process and all that it started took: processor seconds, seconds, and bytes at their peak."""

    processor: float = 0
    seconds: float = 0
    peak: int = 0
    largest: int = 0


def usage_of(command: list[str], key: str) -> Usage:
    """Run a command, with nothing there of an earlier run, and measure it."""
    for name in ("out", "out.dgmark", "out.parquet", "out.parquet.jsonl"):
        subprocess.run(["rm", "-rf", name], check=True)
    module, *options = command
    arguments = [sys.executable, "-m", module, *options, "--key", key]
    processor: dict[int, float] = {}
    used, begin = Usage(), time.perf_counter()
    with open("log", "wb") as log, psutil.Popen(arguments, stdout=log, stderr=log) as run:
        while run.poll() is None:
            sizes = [0]
            for process in (run, *run.children(recursive=True)):
                with suppress(psutil.NoSuchProcess):  # it has ended
                    times = process.cpu_times()
                    processor[process.pid] = times.user + times.system
                    sizes.append(process.memory_full_info().pss)
            used.peak, used.largest = max(used.peak, sum(sizes)), max([used.largest, *sizes])
            time.sleep(0.2)
    used.seconds = time.perf_counter() - begin
    if run.returncode:
        raise SystemExit(Path("log").read_text())
    used.processor = sum(processor.values())
    return used


if __name__ == "__main__":
    main()
