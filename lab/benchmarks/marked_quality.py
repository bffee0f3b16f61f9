"""Perplexity, diversity and evidence of a built-in model's texts under settings of your choice, marked or not.

Run `python benchmarks/marked_quality.py --judge runs/narrator/base --cell unmarked:temperature=0.8 --cell
marked:code=16,temperature=0.5,top_p=0.9`. A cell is a name and settings; `code` gives it the mark of a key with that
position code, `model` another model than the narrator. Every cell has the same prompts, the same seeds and, if marked,
the same key. Texts are stored in --out and reused. The narrator's own base is its judge, the judge "builtin" is for the
storyteller; a judge with another tokenizer reads the texts.

Evidence is measured twice: by the ids that were written, from their start, and by the text alone.
"""

import argparse
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from corpus import HERE, RUNS
from dgmark import Detector, WatermarkKey, load_model
from dgmark.checkpoint.families import BLOCK_LLAMA
from dgmark.checkpoint.folder import NARRATOR
from dgmark.decode import generate
from dgmark.models.chat import chat_prompt
from dgmark.models.load import NetworkDenoiser
from dgmark.rows.outputs import atomic_write
from dgmark_lab.evaluate import Judge, load_judge
from dgmark_lab.evaluate.diversity import distinct_ngrams, repeated_ngrams
from dgmark_lab.evaluate.intervals import Bootstrap, Interval
from dgmark_lab.evaluate.likelihood import token_nats

RATE = 1e-4
HEAD = (
    "cell",
    "texts",
    "perplexity (95 %)",
    "ratio to the first cell (95 %)",
    "median p of the ids",
    "of the text",
    "found at 1e-4 by ids",
    "by text",
    "4-grams again",
    "distinct 2-grams",
)


@dataclass(frozen=True)
class Judged:
    """The texts of a cell; one entry for each prompt.

    Attributes:
        nats: -ln p under the judge, given the prompt, summed over a text's tokens.
        tokens: tokens of each text, in the judge's tokenizer.
        by_ids: p-values of the ids; empty without a mark.
        by_text: p-values of the texts alone; empty without a mark.
        repeated: share of 4-grams that stood in the text before.
        distinct: share of 2-grams that are distinct.
    """

    nats: np.ndarray
    tokens: np.ndarray
    by_ids: np.ndarray
    by_text: np.ndarray
    repeated: np.ndarray
    distinct: np.ndarray

    def of(self, chosen: Sequence[int]) -> "Judged":
        """Return the figures of some prompts."""
        parts = (self.nats, self.tokens, self.by_ids, self.by_text, self.repeated, self.distinct)
        return Judged(*(part[list(chosen)] if len(part) else part for part in parts))


def main() -> None:
    """Generate the missing texts, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--judge", required=True, help="builtin, or a folder")
    parser.add_argument("--prompts", type=Path, default=HERE / "requests.jsonl", help="rows; ids are KIND-NUMBER")
    parser.add_argument("--limit", type=int, help="number of prompts, from the first on")
    parser.add_argument("--cell", action="append", required=True, help="NAME:setting=value,...")
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--first", type=int, help="judge this many tokens of each text")
    parser.add_argument("--seed", type=int, default=1, help="of the texts and the keys")
    parser.add_argument("--out", type=Path, default=RUNS / "marked-quality")
    args = parser.parse_args()
    requests = [json.loads(line) for line in args.prompts.read_text().splitlines()][: args.limit]
    judge = load_judge(args.judge, dtype="fp32")
    print(f"| {' | '.join(HEAD)} |\n|{'---|' * len(HEAD)}")
    first = None
    for cell in args.cell:
        name, _, settings = cell.partition(":")
        options = dict(part.split("=") for part in settings.split(",") if part)
        texts = _texts(requests, options, args.length, args.seed, args.out)
        judged = _judged(texts, options, args.first or args.length, args.seed, judge)
        first = first or judged
        for kind in ("", *dict.fromkeys(row["id"].split("-")[0] for row in requests)):
            chosen = [at for at, row in enumerate(requests) if row["id"].startswith(kind)]
            print(_line(name, kind or "all", judged.of(chosen), first.of(chosen)), flush=True)


@cache
def _model(name: str) -> NetworkDenoiser:
    return load_model(name)


def _key(model: NetworkDenoiser, code: int, seed: int) -> WatermarkKey:
    """Make a key from a public phrase: everybody gets the same texts, and it protects nothing."""
    secret = hashlib.sha256(f"dgmark benchmark key {seed}: not a secret".encode()).digest()
    return replace(WatermarkKey.generate(model, code_length=code), secret=secret)


def _texts(
    requests: list[dict[str, Any]], options: dict[str, str], length: int, seed: int, out: Path
) -> list[dict[str, Any]]:
    """Return the texts of a cell, as rows with "text" and "token_ids"."""
    made_from = json.dumps([[row["prompt"] for row in requests], sorted(options.items()), length, seed])
    path = out / f"{hashlib.sha256(made_from.encode()).hexdigest()[:16]}.jsonl"
    if not path.exists():
        model = _model(options.get("model", NARRATOR))
        settings = {name: _value(value) for name, value in options.items() if name not in ("model", "code")}
        made = generate(
            model,
            [row["prompt"] for row in requests],
            key=_key(model, int(options["code"]), seed) if "code" in options else None,
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


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text  # a word, such as a strategy


def _has_chat(model: NetworkDenoiser) -> bool:
    return model.family is BLOCK_LLAMA  # the storyteller only continues texts


def _judged(rows: list[dict[str, Any]], options: dict[str, str], first: int, seed: int, judge: Judge) -> Judged:
    model = _model(options.get("model", NARRATOR))
    ids = [row["token_ids"][:first] for row in rows]
    texts = [model.tokenizer.decode(one) for one in ids]
    prompts: list[Any] = [row["prompt"] for row in rows]
    if _has_chat(model):
        prompts = [chat_prompt(model, prompt) for prompt in prompts]
    own = [judge.tokenizer.decode(one) for one in ids] == texts  # the judge has the model's tokens
    nats = token_nats(judge, ids if own else texts, prompts if own else [row["prompt"] for row in rows])
    by_ids, by_text = np.empty(0), np.empty(0)
    if "code" in options:
        key = _key(model, int(options["code"]), seed)
        by_ids = np.array([one.p_value for one in Detector(key, mode="intact", phase="start").detect_many(ids)])
        by_text = np.array([one.p_value for one in Detector(key).detect_many(texts)])
    return Judged(
        nats=np.array([one.sum() for one in nats]),
        tokens=np.array([len(one) for one in nats]),
        by_ids=by_ids,
        by_text=by_text,
        repeated=np.array([repeated_ngrams(one) for one in ids]),
        distinct=np.array([distinct_ngrams(one, 2) for one in ids]),
    )


def _line(name: str, kind: str, judged: Judged, first: Judged) -> str:
    bootstrap = Bootstrap()
    perplexity = bootstrap.ratio(judged.nats, judged.tokens).map(np.exp)
    ratio = bootstrap.interval(
        lambda drawn: np.exp(
            judged.nats[drawn].sum(1) / judged.tokens[drawn].sum(1)
            - first.nats[drawn].sum(1) / first.tokens[drawn].sum(1)
        ),
        len(judged.nats),
    )
    evidence = [f"{median(part):.0e}" if len(part) else "" for part in (judged.by_ids, judged.by_text)]
    found = [f"{(part <= RATE).sum()}" if len(part) else "" for part in (judged.by_ids, judged.by_text)]
    varied = [f"{judged.repeated.mean():.1%}", f"{judged.distinct.mean():.3f}"]
    values = [name, f"{len(judged.nats)} {kind}", _interval(perplexity), _interval(ratio), *evidence, *found, *varied]
    return f"| {' | '.join(values)} |"


def _interval(value: Interval) -> str:
    return f"{value.value:.2f}" + (f" ({value.low:.2f}, {value.high:.2f})" if value.low is not None else "")


if __name__ == "__main__":
    main()
