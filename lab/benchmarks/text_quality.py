"""Perplexity, diversity, repetition and evidence of a built-in model's texts under settings of your choice.

Run `python lab/benchmarks/text_quality.py --judge builtin --cell unmarked:temperature=0.8 --cell
marked:code=16,top_p=0.9`. A cell is a name and settings; `code`, `modulus` and `rotation` give it the mark of a key
with these, `model` another model than the storyteller. `--cells FILE` reads one cell a line. Every cell has the same
prompts, the same seeds and, if marked, the same secret. Texts are stored in --out and reused. A judge with another
tokenizer reads the texts; the narrator's own base is its judge, the judge "builtin" is for the storyteller.

Evidence is measured by the ids that were written, from their start, by their first 32, and by the text alone. A text
survives re-tokenization if the tokenizer reads it as the very ids that were written.
"""

import argparse
import hashlib
import json
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from dgmark import Detector, WatermarkKey
from dgmark.checkpoint.families import BLOCK_LLAMA
from dgmark.checkpoint.folder import BUILTIN
from dgmark.decode import generate
from dgmark.models.chat import chat_prompt
from dgmark.models.loaded import LoadedModel
from dgmark.rows.outputs import atomic_write
from dgmark_lab.evaluate import Bootstrap, Interval, Judge, load_judge, token_nats
from dgmark_lab.evaluate.diversity import distinct_ngrams, periodic, repeated_ngrams
from dgmark_lab.evaluate.judge import BUILTIN_JUDGE
from keys_and_tables import HERE, RUNS, print_header, print_made_with, print_row
from rules import _model, _value

RATE = 1e-4
FIRST = 32  # tokens: nearly every mark is detected in a whole text, so strength is compared on beginnings
P_VALUES = ("by_ids", "by_first", "by_text")
KEY_OPTIONS = {"code": "code_length", "modulus": "modulus", "rotation": "rotation"}
HEAD = (
    "cell",
    "texts",
    "perplexity (95 %)",
    "ratio to the first cell (95 %)",
    "match ratio",
    "median p of the ids",
    "of the text",
    "found at 1e-4 by ids",
    f"by {FIRST} ids",
    "by text",
    "survive re-tokenization",
    "repeated 4-grams",
    "distinct 2-grams",
    "echoes of 2",
    "in runs of 2",
)


# one entry for each prompt; what needs a mark is empty without one
Judged = dict[str, np.ndarray]


def main() -> None:
    """Generate the missing texts, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--judge", required=True, help="builtin, or a folder")
    parser.add_argument("--prompts", type=Path, default=HERE / "requests.jsonl", help="rows; ids are KIND-NUMBER")
    parser.add_argument("--limit", type=int, help="number of prompts, from the first on")
    parser.add_argument("--cell", action="append", default=[], help="NAME:setting=value,...")
    parser.add_argument("--cells", type=Path, help="a file with one cell a line")
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--first", type=int, help="judge this many tokens of each text")
    parser.add_argument("--seed", type=int, default=1, help="of the texts and the keys")
    parser.add_argument("--out", type=Path, default=RUNS / "text-quality")
    args = parser.parse_args()
    requests = [json.loads(line) for line in args.prompts.read_text().splitlines()][: args.limit]
    judge = load_judge(args.judge, dtype="fp32")
    print_header(HEAD)
    first, models = None, list[str]()
    for cell in [*args.cell, *(args.cells.read_text().splitlines() if args.cells else [])]:
        name, _, settings = cell.partition(":")
        options = dict(part.split("=") for part in settings.split(",") if part)
        texts = _texts(requests, options, args.length, args.seed, args.out)
        judged = _judged(texts, options, args.first or args.length, args.seed, judge)
        first = first or judged
        for kind in ("", *dict.fromkeys(row["id"].split("-")[0] for row in requests)):
            chosen = [at for at, row in enumerate(requests) if row["id"].startswith(kind)]
            if not kind or len(chosen) > 1:
                print_row([name, f"{len(chosen)} {kind}", *_figures(_only(judged, chosen), _only(first, chosen))])
        models.append(options.get("model", BUILTIN))
    print_made_with("decoding", "position", *models, *(["judge"] if args.judge == BUILTIN_JUDGE else []))


def _only(judged: Judged, chosen: list[int]) -> Judged:
    """The figures of some prompts."""
    return {name: part[chosen] if len(part) else part for name, part in judged.items()}


def _key(model: LoadedModel, options: dict[str, str], seed: int) -> WatermarkKey | None:
    """Make a key from a public phrase: everybody gets the same texts, and it protects nothing."""
    spec: dict[str, Any] = {KEY_OPTIONS[name]: int(value) for name, value in options.items() if name in KEY_OPTIONS}
    if not spec:
        return None
    phrase = f"dgmark benchmark key {seed}: not a secret" if seed else "dgmark benchmark key: not a secret"
    made = WatermarkKey.generate(model, **{"code_length": 0, **spec})
    return replace(made, secret=hashlib.sha256(phrase.encode()).digest())


def _texts(
    requests: list[dict[str, Any]], options: dict[str, str], length: int, seed: int, out: Path
) -> list[dict[str, Any]]:
    """Return the texts of a cell, as rows with "text" and "token_ids"."""
    made_from = json.dumps([[row["prompt"] for row in requests], sorted(options.items()), length, seed])
    path = out / f"{hashlib.sha256(made_from.encode()).hexdigest()[:16]}.jsonl"
    if not path.exists():
        model = _model(options.get("model", BUILTIN))
        settings = {name: _value(value) for name, value in options.items() if name not in ("model", *KEY_OPTIONS)}
        made = generate(
            model,
            [row["prompt"] for row in requests],
            key=_key(model, options, seed),
            chat=_has_chat(model),
            seed=1000 * seed,
            length=length,
            batch_size=len(requests),
            **settings,
        )
        out.mkdir(parents=True, exist_ok=True)
        rows = [one.to_row(row["id"]) for one, row in zip(made, requests, strict=True)]
        atomic_write(path, "".join(json.dumps(row) + "\n" for row in rows))
    return [json.loads(line) for line in path.read_text().splitlines()]


def _has_chat(model: LoadedModel) -> bool:
    return model.family is BLOCK_LLAMA  # the storyteller only continues texts


def _judged(rows: list[dict[str, Any]], options: dict[str, str], first: int, seed: int, judge: Judge) -> Judged:
    model = _model(options.get("model", BUILTIN))
    ids = [row["token_ids"][:first] for row in rows]
    texts = [model.tokenizer.decode(one) for one in ids]
    prompts: list[Any] = [row["prompt"] for row in rows]
    if _has_chat(model):
        prompts = [chat_prompt(model, prompt) for prompt in prompts]
    own = [judge.tokenizer.decode(one) for one in ids] == texts  # the judge has the model's tokens
    nats = token_nats(judge, ids if own else texts, prompts if own else [row["prompt"] for row in rows])
    loops = [periodic(one, 2) for one in ids]
    judged: dict[str, Any] = {
        "nats": [one.sum() for one in nats],
        "tokens": [len(one) for one in nats],
        "match": [],
        **dict.fromkeys(P_VALUES, ()),
        "survives": [model.tokenizer.encode(row["text"]) == row["token_ids"] for row in rows],
        "repeated": [repeated_ngrams(one) for one in ids],
        "distinct": [distinct_ngrams(one, 2) for one in ids],
        "echoes": [one.echoes for one in loops],
        "in_runs": [one.in_runs for one in loops],
    }
    key = _key(model, options, seed)
    if key is not None:
        exact = Detector(key, phase="start") if key.spec.rule == "position" else Detector(key)
        by_ids = exact.detect_many(ids)
        judged["match"] = [one.green_fraction for one in by_ids]
        scored = (by_ids, exact.detect_many([one[:FIRST] for one in ids]), Detector(key).detect_many(texts))
        judged |= {name: [one.p_value for one in some] for name, some in zip(P_VALUES, scored, strict=True)}
    return {name: np.array(part) for name, part in judged.items()}


def _figures(judged: Judged, first: Judged) -> list[str]:
    bootstrap = Bootstrap()
    perplexity = bootstrap.ratio(judged["nats"], judged["tokens"]).map(np.exp)
    ratio = bootstrap.interval(
        lambda drawn: np.exp(
            judged["nats"][drawn].sum(-1) / judged["tokens"][drawn].sum(-1)
            - first["nats"][drawn].sum(-1) / first["tokens"][drawn].sum(-1)
        ),
        len(judged["nats"]),
    )
    return [
        _interval(perplexity),
        _interval(ratio),
        f"{judged['match'].mean():.3f}" if len(judged["match"]) else "",
        *(f"{median(judged[name]):.0e}" if len(judged[name]) else "" for name in ("by_ids", "by_text")),
        *(str((judged[name] <= RATE).sum()) if len(judged[name]) else "" for name in P_VALUES),
        str(judged["survives"].sum()),
        f"{judged['repeated'].mean():.1%}",
        f"{judged['distinct'].mean():.3f}",
        f"{judged['echoes'].mean():.1%}",
        f"{judged['in_runs'].mean():.1%}",
    ]


def _interval(value: Interval) -> str:
    return f"{value.value:.2f}" + (f" ({value.low:.2f}, {value.high:.2f})" if value.low is not None else "")


if __name__ == "__main__":
    main()
