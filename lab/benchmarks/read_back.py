"""How many texts read back as the tokens they were written with, with and without the round-trip guard.

Run `python benchmarks/read_back.py --model storyteller --texts 24 --length 192`, and the same for `--model narrator
--texts 10 --length 128`. Texts are stored under runs/ and reused.
"""

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from corpus import RUNS
from dgmark import WatermarkKey, load_model
from dgmark.decode import DecodeConfig, Prepared, Request
from dgmark.decode.events import collect
from dgmark.models.denoiser import Denoiser
from dgmark.watermark.groups import WatermarkSpec
from dgmark_lab.evaluate import load_judge, perplexity
from dgmark_lab.experiments.estimates import share
from dgmark_lab.experiments.prompt_sets import BUILTIN_PROMPTS

# cell -> (code length of the key, or None for no mark; settings)
CELLS: dict[str, dict[str, tuple[int | None, dict[str, Any]]]] = {
    "storyteller": {
        "marked, T = .6": (16, {"temperature": 0.6, "cache": "dual"}),
        "unmarked, T = .6": (None, {"temperature": 0.6, "cache": "dual"}),
        "marked, T = 1": (16, {"temperature": 1.0, "cache": "dual"}),
        "unmarked, T = 1": (None, {"temperature": 1.0, "cache": "dual"}),
    },
    "narrator": {
        "marked, T = .5": (16, {"temperature": 0.5}),
        "unmarked, T = .7, top-p .9": (None, {"temperature": 0.7, "top_p": 0.9}),
    },
}
REQUESTS = [
    "Write a bedtime story about a village doctor who learns to fly in an old castle.",
    "Write a diary entry of a lonely dragon who sings for the queen.",
    "Write a diary entry of a poor fisherman who hears music at night.",
    "Describe a morning in a quiet valley, as a retired captain sees it.",
    "Describe a morning in a desert, as a shepherd boy sees it.",
    "Write a scene in which a ferryman and her grandmother talk at school.",
    "Describe a morning in a quiet valley, as a shepherd boy sees it.",
    "Tell me a fairy tale about a widow and the mayor.",
    "Tell me a story about a nurse who keeps bees.",
    "Write a scene in which a tired teacher and a stranger talk at school.",
]


def main() -> None:
    """Generate the missing texts, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", choices=CELLS, default="storyteller")
    parser.add_argument("--texts", type=int, default=24)
    parser.add_argument("--length", type=int, default=192)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--cell", action="append", help="only these cells")
    parser.add_argument("--guard", action="append", type=lambda word: word == "on", help="only with it on, or off")
    parser.add_argument("--table", action="store_true", help="generate nothing; print what there is")
    parser.add_argument("--out", type=Path, default=RUNS / "read-back.jsonl")
    args = parser.parse_args()
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.touch()
    if not args.table:
        model = load_model(args.model)
        for cell in args.cell or CELLS[args.model]:
            for guard in args.guard or (True, False):
                write(model, args, cell, guard)
    print(table(args))


def write(model: Denoiser, args: argparse.Namespace, cell: str, guard: bool) -> None:
    """Generate the missing texts of a cell."""
    code, settings = CELLS[args.model][cell]
    prompts = read_prompts(args.model)
    have = {row["text_number"] for row in rows_of(args, cell, guard)}
    todo = [number for number in range(min(args.texts, len(prompts))) if number not in have]
    prepared = Prepared.of(
        model,
        [Request(prompts[number], 100 + number, key_of(model, code)) for number in todo],
        DecodeConfig.of(model, **{"length": args.length, "round_trip_guard": guard, **settings}),
        chat=args.model == "narrator",
        batch_size=args.batch,
        pad=False,
    )
    for chunk in prepared.chunks():
        for batch in prepared.batches(chunk):
            start, redrawn, steps = time.process_time(), 0, []
            for commits in prepared.steps(batch):
                redrawn += commits.redrawn
                steps.append(commits)
            seconds = time.process_time() - start
            for number, response in zip(batch.rows, collect(model, batch.canvas, steps), strict=True):
                text = model.tokenizer.decode(response.token_ids)
                row = {
                    "model": args.model,
                    "length": args.length,
                    "cell": cell,
                    "guard": guard,
                    "text_number": todo[number],
                    "token_ids": response.token_ids,
                    "reads_back": model.tokenizer.encode(text) == response.token_ids,
                    "matched": sum(response.trace.matched),
                    "committed": len(response.trace.matched),
                    "redrawn": redrawn / len(batch.rows),
                    "seconds": seconds / len(batch.rows),
                }
                with args.out.open("a") as file:
                    file.write(json.dumps(row) + "\n")


def read_prompts(model: str) -> list[str]:
    """The prompts of a model, in the order of the texts' numbers."""
    if model == "narrator":
        return REQUESTS
    return [json.loads(line)["prompt"] for line in BUILTIN_PROMPTS.read_text().splitlines()]


def key_of(model: Denoiser, code: int | None) -> WatermarkKey | None:
    """A key that is the same in every run."""
    if code is None:
        return None
    tokenizer = model.tokenizer
    spec = WatermarkSpec(
        table_size=model.vocab_size,
        tokenizer=tokenizer.name,
        tokenizer_fingerprint=tokenizer.fingerprint,
        code_length=code,
    )
    return WatermarkKey(spec, "benchmark", bytes(range(32)))


def rows_of(args: argparse.Namespace, cell: str, guard: bool) -> Iterator[dict[str, Any]]:
    """The stored texts of a cell."""
    wanted = {"model": args.model, "length": args.length, "cell": cell, "guard": guard}
    for line in args.out.read_text().splitlines():
        row = json.loads(line)
        if all(row[name] == value for name, value in wanted.items()) and row["text_number"] < args.texts:
            yield row


def table(args: argparse.Namespace) -> str:
    """The figures of all cells as Markdown."""
    judge = load_judge(dtype="fp32") if args.model == "storyteller" else None
    lines = [
        "| texts | guard | read back | 95 % interval | match ratio | drawn again per 1,000 tokens | perplexity |",
        "|---|---|---|---|---|---|---|",
    ]
    for cell in CELLS[args.model]:
        for guard in (False, True):
            rows = list(rows_of(args, cell, guard))
            if not rows:
                continue
            read, committed = sum(row["reads_back"] for row in rows), sum(row["committed"] for row in rows)
            likely = share(read, len(rows))
            ratio = sum(row["matched"] for row in rows) / committed if CELLS[args.model][cell][0] else None
            ids = [row["token_ids"] for row in rows]
            prompts = [read_prompts(args.model)[row["text_number"]] for row in rows]
            judged = f"{perplexity(judge, ids, prompts).corpus.value:.1f}" if judge else ""
            lines.append(
                f"| {cell} | {'on' if guard else 'off'} | {read} of {len(rows)} "
                f"| {likely.low:.3f} to {likely.high:.3f} | {'' if ratio is None else f'{ratio:.3f}'} "
                f"| {1000 * sum(row['redrawn'] for row in rows) / committed:.1f} | {judged} |"
            )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
