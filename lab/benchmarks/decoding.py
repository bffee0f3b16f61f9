"""Compare decoding options by their texts: strength of the mark, repetition, judged perplexity, on the same prompts.

Run `python benchmarks/decoding.py --prompts 16`. The judge reads the model's own token ids, so it needs the built-in
tokenizer: use the built-in judge, or a folder. Texts are stored under runs/ and reused.
"""

import argparse
import hashlib
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from statistics import fmean, median
from typing import Any

from corpus import RUNS, bench_key
from dgmark import Detector, WatermarkKey
from dgmark.watermark.groups import WatermarkSpec
from dgmark_lab.evaluate import BUILTIN_JUDGE, Judge, load_judge, perplexity
from dgmark_lab.evaluate.diversity import periodic, repeated_ngrams
from dgmark_lab.experiments.prompt_sets import BUILTIN_PROMPTS

RATE = 1e-4
FIRST = 32  # tokens: nearly every mark is detected in a whole text, so strength is compared on beginnings
BASE = "--cache dual --pad"
# cell -> (changes to the benchmark's key, or None for no mark; options of `dgmark generate` in addition to BASE)
CELLS: dict[str, tuple[dict[str, int] | None, str]] = {
    "unmarked": (None, ""),
    "k = 1": ({}, ""),
    "k = 3": ({}, "--lookahead 3"),
    "k = 5": ({}, "--lookahead 5"),
    "k = 3, kept": ({}, "--lookahead 3 --lookahead-proposals kept"),
    **{f"guard {tau}": ({}, f"--guard {tau}") for tau in (0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7)},
    **{f"k = 3, guard {tau}": ({}, f"--lookahead 3 --guard {tau}") for tau in (0.1, 0.3)},
    "repetition guard": ({}, "--repetition-guard"),
    **{f"m = {m}": ({"modulus": m}, "") for m in (3, 4, 8)},
    **{f"code {length}": ({"code_length": length}, "") for length in (2, 8, 16, 32, 64)},
    "rotation 32": ({"rotation": 32}, ""),
    "k = 3, code 32": ({"code_length": 32}, "--lookahead 3"),
    "code 32, guard 0.1": ({"code_length": 32}, "--guard 0.1"),
    "threshold .9": ({}, "--commit threshold"),
    "threshold .5": ({}, "--commit threshold --threshold 0.5"),
    "2 a step": ({}, "--steps 64"),
    "2 a step, unmarked": (None, "--steps 64"),
    "greedy, unmarked": (None, "--temperature 0"),
    "greedy, k = 1": ({}, "--temperature 0"),
    "greedy, k = 3": ({}, "--temperature 0 --lookahead 3"),
    **{f"greedy, code {length}": ({"code_length": length}, "--temperature 0") for length in (2, 8, 16, 32)},
    "greedy, repetition guard": ({}, "--temperature 0 --repetition-guard"),
    "greedy, guard 0.3": ({}, "--temperature 0 --guard 0.3"),
    "uncached, unmarked": (None, "--cache none --no-pad"),
    "uncached, k = 1": ({}, "--cache none --no-pad"),
    "uncached, k = 3": ({}, "--cache none --no-pad --lookahead 3"),
    "uncached, k = 3, canvas": ({}, "--cache none --no-pad --lookahead 3 --lookahead-scope canvas"),
    "prefix, k = 1": ({}, "--cache prefix"),
}


def main() -> None:
    """Generate the missing texts, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--prompts", type=int, default=16)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--judge", default=BUILTIN_JUDGE)
    parser.add_argument("--cell", choices=CELLS, action="append", help="only these cells")
    args = parser.parse_args()
    folder = RUNS / f"decoding-{args.length}"
    folder.mkdir(parents=True, exist_ok=True)
    prompts = folder / f"prompts-{args.prompts}.jsonl"
    prompts.write_text("".join(BUILTIN_PROMPTS.read_text().splitlines(keepends=True)[: args.prompts]))
    judge = load_judge(args.judge, dtype="fp32")
    print(
        "| option | texts | match ratio | median p | p <= 1e-4 | of 32 tokens | 4-grams again | echoes of 2 "
        "| in runs of 2 | judge perplexity |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    for name in args.cell or CELLS:
        spec, options = CELLS[name]
        rows = _texts(folder, name, spec, options, prompts, args.length)
        print(_line(name, rows[: args.prompts], cell_key(spec or {}), judge), flush=True)


def cell_key(changes: dict[str, Any]) -> WatermarkKey:
    """Return the benchmark's key with another modulus or position code."""
    key = bench_key()
    spec: WatermarkSpec = replace(key.spec, **changes)
    return replace(key, spec=spec, key_id="-".join(["decoding", *map(str, changes.values())]))


def _texts(
    folder: Path, name: str, spec: dict[str, int] | None, options: str, prompts: Path, length: int
) -> list[dict[str, Any]]:
    stem = hashlib.sha256(name.encode()).hexdigest()[:8]
    out, key_file = folder / f"{stem}.jsonl", folder / f"{stem}.key"
    command = [sys.executable, "-m", "dgmark", "generate", "--prompts", str(prompts), "--out", str(out)]
    command += ["--length", str(length), "--batch-size", "8", *BASE.split(), *options.split()]
    if spec is None:
        command += ["--no-watermark"]
    else:
        if not key_file.exists():
            cell_key(spec).save(key_file)
        command += ["--key", str(key_file)]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    return [json.loads(line) for line in out.read_text().splitlines()]


def _line(name: str, rows: list[dict[str, Any]], key: WatermarkKey, judge: Judge) -> str:
    """Format one row of the table; repetition and perplexity are measured on the model's own token ids."""
    ids = [row["token_ids"] for row in rows if len(row["token_ids"]) > 4]
    detector = Detector(key, fpr=RATE, mode="intact", phase="start")
    whole = detector.detect_many(ids)
    beginnings = detector.detect_many([one[:FIRST] for one in ids])
    loops = [periodic(one, 2) for one in ids]
    judged = perplexity(judge, [row["token_ids"] for row in rows], [row["prompt"] for row in rows]).corpus.value
    return (
        f"| {name} | {len(ids)} | {fmean(one.green_fraction for one in whole):.3f} "
        f"| {median(one.p_value for one in whole):.0e} | {sum(one.p_value <= RATE for one in whole)} "
        f"| {sum(one.p_value <= RATE for one in beginnings)} | {fmean(repeated_ngrams(one) for one in ids):.1%} "
        f"| {fmean(one.echoes for one in loops):.1%} | {fmean(one.in_runs for one in loops):.1%} | {judged:.1f} |"
    )


if __name__ == "__main__":
    main()
