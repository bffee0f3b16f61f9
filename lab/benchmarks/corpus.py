"""Generate the texts for the quality figures: 100 held-out prompts, marked and unmarked, T = 1 and greedy.

Run `python benchmarks/corpus.py`; it resumes where it stopped. The key is derived from a public phrase, so that
everybody gets the same texts on a machine with the same rounding; it protects nothing.
"""

import argparse
import hashlib
import subprocess
import sys
from pathlib import Path

from dgmark.watermark.key import WatermarkKey
from dgmark_lab.experiments.prompt_sets import BUILTIN_PROMPTS

HERE = Path(__file__).parent
RUNS = HERE.parent / "runs"
SAMPLING = {"multinomial": "1.0", "greedy": "0"}
MARKS = ("marked", "unmarked")


def bench_key() -> WatermarkKey:
    """Make the benchmark's key: the paper's i mod 2, no rotation, bound to the built-in model."""
    fresh = WatermarkKey.generate(code_length=0)
    secret = hashlib.sha256(b"dgmark benchmark key: not a secret").digest()
    return WatermarkKey(spec=fresh.spec, key_id="benchmark", secret=secret)


def corpus_file(sampling: str, mark: str) -> Path:
    """Return the path of one cell's texts."""
    return RUNS / f"{sampling}-{mark}.jsonl"


def main() -> None:
    """Generate the missing texts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--sampling", choices=SAMPLING, action="append", help="only these cells")
    parser.add_argument("--mark", choices=MARKS, action="append", help="only these cells")
    parser.add_argument("--limit", type=int, default=100, help="number of prompts, from the first on")
    args = parser.parse_args()
    RUNS.mkdir(exist_ok=True)
    key_file = RUNS / "key.json"
    if not key_file.exists():
        bench_key().save(key_file)
    prompts = RUNS / f"prompts-{args.limit}.jsonl"
    prompts.write_text("".join(BUILTIN_PROMPTS.read_text().splitlines(keepends=True)[: args.limit]))
    for sampling in args.sampling or SAMPLING:
        for mark in args.mark or MARKS:
            command = [sys.executable, "-m", "dgmark", "generate", "--prompts", str(prompts)]
            command += [
                "--out",
                str(corpus_file(sampling, mark)),
                "--temperature",
                SAMPLING[sampling],
                "--batch-size",
                "4",
            ]
            command += ["--key", str(key_file)] if mark == "marked" else ["--no-watermark"]
            print(" ".join(command), file=sys.stderr)
            subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
