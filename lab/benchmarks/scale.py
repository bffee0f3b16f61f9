"""Measure a run on Ray: rows a second with 1 and 2 workers, and memory over a long run.

Run `python lab/benchmarks/scale.py [--rows 1000000]`. The texts are sentences of 20 to 40 words drawn from
`prompts.jsonl`, or with `--ids N` N random token ids, in Parquet files of 20,000 rows. Memory is the sum of the private
pages of all processes of this run, read every second; the median of the second quarter of the run, after all have
started, stands beside that of the last.
"""

import os
import random
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as arrow
import pyarrow.parquet as parquet

from dgmark.detection.detector import Detector
from dgmark.scale import detect_files
from dgmark_lab.experiments.prompt_sets import builtin_prompts
from shared import arguments, bench_key, family, print_header, print_row, private_bytes

FILE_ROWS = 20_000
TOKENS = 8000  # of the 8,192 of the key's vocabulary
MB = 2**20


def main() -> None:
    """Print the table."""
    parser = arguments()
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--short", type=int, default=40_000, help="rows of the runs that compare numbers of workers")
    parser.add_argument("--ids", type=int, default=0, help="token ids of a row, in place of a text")
    parser.add_argument("--workers", type=int, default=2, help="workers of the long run")
    args = parser.parse_args()
    scorer = Detector(bench_key())
    print_header(["rows", "workers", "seconds", "rows/s", "memory in the second quarter, MB", "in the last"])
    for rows, workers in ((args.short, 1), (args.short, 2), (args.rows, args.workers)):
        if not rows:
            continue
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            memory: list[float] = []
            write(folder / "in", rows, args.ids)
            start = time.perf_counter()
            with sampled(memory):
                tally = detect_files(scorer, str(folder / "in"), str(folder / "out"), workers=workers)
            seconds = time.perf_counter() - start
        if tally.scored != rows:
            raise SystemExit(f"{tally.scored} of {rows} rows were scored")
        quarter = max(1, len(memory) // 4)
        second, last = (np.median(part) / MB for part in (memory[quarter : 2 * quarter], memory[-quarter:]))
        print_row([f"{rows:,}", workers, *(f"{x:.0f}" for x in (seconds, rows / seconds, second, last))])


def write(folder: Path, rows: int, ids: int) -> None:
    """Write the texts, or token ids if `ids` says how many."""
    dice = random.Random(0)
    words = [word for prompt in builtin_prompts() for word in prompt.split()]
    folder.mkdir()
    for start in range(0, rows, FILE_ROWS):
        numbers = range(start, min(start + FILE_ROWS, rows))
        content: dict[str, Any]
        if ids:
            content = {"token_ids": [dice.choices(range(TOKENS), k=ids) for _ in numbers]}
        else:
            content = {"text": [" ".join(dice.choices(words, k=dice.randint(20, 40))) for _ in numbers]}
        table = arrow.table({"id": [str(number) for number in numbers], **content})
        parquet.write_table(table, folder / f"{start:09}.parquet")


@contextmanager
def sampled(memory: list[float]) -> Iterator[None]:
    """Append the memory of this process and of all below it, in bytes, every second."""
    done = threading.Event()

    def sample() -> None:
        while not done.wait(1):
            memory.append(sum(map(private_bytes, family(os.getpid()))))

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


if __name__ == "__main__":
    main()
