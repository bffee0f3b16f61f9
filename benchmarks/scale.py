"""Measure a run on Ray: rows a second with 1 and 2 workers, and memory over a long run.

Run `python benchmarks/scale.py [--rows 1000000]`. The texts are sentences of 20 to 40 words drawn from `prompts.jsonl`,
in Parquet files of 20,000 rows. Memory is the sum of the private pages of all processes of this run, read every second;
the median of the second quarter of the run, after all have started, stands beside that of the last.
"""

import argparse
import os
import random
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pyarrow as arrow
import pyarrow.parquet as parquet

from corpus import bench_key
from dgmark.rows.jsonl import read_good_rows
from dgmark.scale import detect_files

PROMPTS = Path(__file__).parent.parent / "src/dgmark/lab/experiments/prompts.jsonl"
FILE_ROWS = 20_000
MB = 2**20


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--short", type=int, default=40_000, help="rows of the runs that compare numbers of workers")
    args = parser.parse_args()
    print("| rows | workers | seconds | rows/s | memory in the second quarter, MB | in the last |")
    print("|---|---|---|---|---|---|")
    for rows, workers in ((args.short, 1), (args.short, 2), (args.rows, 2)):
        folder = Path(tempfile.mkdtemp())
        try:
            write(folder / "in", rows)
            memory: list[float] = []
            start = time.perf_counter()
            with sampled(memory):
                tally = detect_files(bench_key(), str(folder / "in"), str(folder / "out"), workers=workers)
            seconds = time.perf_counter() - start
            if tally.scored != rows:
                raise SystemExit(f"{tally.scored} of {rows} rows were scored")
            quarter = max(1, len(memory) // 4)
            second, last = (np.median(part) / MB for part in (memory[quarter : 2 * quarter], memory[-quarter:]))
            print(
                f"| {rows:,} | {workers} | {seconds:.0f} | {rows / seconds:.0f} | {second:.0f} | {last:.0f} |",
                flush=True,
            )
        finally:
            shutil.rmtree(folder)


def write(folder: Path, rows: int) -> None:
    """Write the texts."""
    dice = random.Random(0)
    words = [word for row in read_good_rows(str(PROMPTS)) for word in row["prompt"].split()]
    folder.mkdir()
    for start in range(0, rows, FILE_ROWS):
        numbers = range(start, min(start + FILE_ROWS, rows))
        texts = [" ".join(dice.choices(words, k=dice.randint(20, 40))) for _ in numbers]
        table = arrow.table({"id": [str(number) for number in numbers], "text": texts})
        parquet.write_table(table, folder / f"{start:09}.parquet")


@contextmanager
def sampled(memory: list[float]) -> Iterator[None]:
    """Append the memory of this process and of all below it, in bytes, every second."""
    done = threading.Event()

    def sample() -> None:
        while not done.wait(1):
            memory.append(sum(map(held_by, family())))

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def family() -> list[int]:
    """This process and all below it, among them Ray's."""
    parents = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            number, _, rest = status.read_text().partition(" (")
            parents[int(number)] = int(rest.rpartition(") ")[2].split()[1])
    found = [os.getpid()]
    for process in found:
        found += [child for child, parent in parents.items() if parent == process]
    return found


def held_by(process: int) -> int:
    """What a process holds for itself alone, in bytes; 0 if it has ended."""
    with suppress(OSError):
        for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
            if line.startswith("Private_Dirty"):
                return int(line.split()[1]) * 1024
    return 0


if __name__ == "__main__":
    main()
