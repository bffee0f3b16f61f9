"""Compare marks, ours and baselines: quality and diversity of texts, and what is found of them before and after edits.

Run `python lab/benchmarks/rules.py --cells lab/benchmarks/rule_cells.txt`. A cell is a row of settings: `model`, `rule`
and what else belongs to a key, or `baseline` and its options (neither: unmarked text), and options of decoding. All
cells of a model have the same prompts, and four keys that each mark a quarter of them. Texts are stored in --out and
reused. The texts are edited by words and scored from the text alone, with the detector's defaults.

Cells that differ in their temperature alone are a curve. A second table compares the curves where their texts are as
diverse as those of the model's first unmarked cell, between two temperatures that were run; the worst decile of the
perplexities stands there beside the perplexity, and the worst edit beside the mean over edits.
"""

import argparse
import hashlib
import json
import sys
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from dgmark import Detector, WatermarkKey, load_model
from dgmark.decode import generate
from dgmark.models.chat import chat_prompt
from dgmark.models.loaded import LoadedModel
from dgmark.rows.outputs import atomic_write
from dgmark_lab.attacks import attack
from dgmark_lab.baselines import BASELINES, Baseline, baseline
from dgmark_lab.evaluate import Judge, load_judge, token_nats
from dgmark_lab.evaluate.diversity import distinct_ngrams, repeated_ngrams
from dgmark_lab.experiments.estimates import Estimate, mean, percent, perplexity
from dgmark_lab.experiments.frontier import Measured, matched
from dgmark_lab.experiments.tables import with_interval
from dgmark_lab.training.narrator.base import write_base
from keys_and_tables import HERE, RUNS, builtin_prompts, print_header, print_row, random_key

RATE = 1e-4
KEYS = 4
FIRST = 64  # tokens of the short texts
EDITS: dict[str, tuple[str, float]] = {
    "none": ("deletion", 0.0),
    **{f"deletion {share:g}": ("deletion", share) for share in (0.1, 0.2)},
    **{f"insertion {share:g}": ("insertion", share) for share in (0.1, 0.2)},
    **{f"substitution {share:g}": ("substitution", share) for share in (0.1, 0.2, 0.4)},
}
CONDITIONS = (*EDITS, f"{FIRST} tokens")
EDITED = "mean of edits"
REPEATED = "repeated 4-grams"
KEY_OPTIONS = {"rule", "code_length", "nearest", "farthest", "subkeys"}
PROMPTS = 32  # of the storyteller; the narrator has all requests
# settings of a model where a cell names no others
SETTINGS: dict[str, dict[str, Any]] = {
    "storyteller": {"length": 256, "cache": "dual"},
    "narrator": {"length": 128, "top_p": 0.9, "chat": True},
}
REQUESTS = (HERE / "requests.jsonl", HERE.parent / "docs/results/narrator/requests.jsonl")

Options = dict[str, Any]
Rows = list[dict[str, Any]]
PerText = Float[np.ndarray, " texts"]


class Cell(NamedTuple):
    """One line of the tables: a model, what marks its texts, and options of decoding.

    The mark is what a key is made of, or a `baseline` and its options; nothing for unmarked texts.
    """

    model: str
    mark: Options
    decoding: Options

    @classmethod
    def of(cls, line: str) -> "Cell":
        """Read `setting=value,setting=value,...`."""
        options = {name: _value(value) for name, value in (part.split("=") for part in line.split(","))}
        model = options.pop("model", "storyteller")
        scheme = BASELINES.get(options.get("baseline", ""))
        of_mark = {"baseline", *({field.name for field in fields(scheme)} if scheme else KEY_OPTIONS)}
        mark = {name: options.pop(name) for name in of_mark & options.keys()}
        return cls(model, dict(sorted(mark.items())), options)

    @property
    def baseline(self) -> Baseline | None:
        """The baseline; None if the mark is ours, or there is none."""
        options = {name: value for name, value in self.mark.items() if name != "baseline"}
        return baseline(self.mark["baseline"], **options) if options != self.mark else None

    @property
    def curve(self) -> str:
        """Everything but the temperature."""
        if "baseline" in self.mark:
            mark = " ".join(
                str(value) if name == "baseline" else f"{name} {value}" for name, value in self.mark.items()
            )
        else:
            distances = "-".join(str(self.mark[name]) for name in ("nearest", "farthest") if name in self.mark)
            mark = f"{self.mark.get('rule', 'unmarked')} {distances}".strip()
        rest = [f"{name} {value}" for name, value in self.decoding.items() if name != "temperature"]
        return ", ".join([self.model, mark, *rest])

    def watermark_keys(self) -> list[WatermarkKey | None]:
        """The keys of the cell, of a fixed series; none for unmarked text."""
        if not self.mark:
            return []
        spec = WatermarkKey.generate(_model(self.model), **({} if self.baseline else self.mark)).spec
        return [random_key(spec, number) for number in range(KEYS)]


def main() -> None:
    """Generate the missing texts, then print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--cell", action="append", default=[], help="setting=value,...")
    parser.add_argument("--cells", type=Path, help="a file with one cell a line")
    parser.add_argument("--out", type=Path, default=RUNS / "rules")
    parser.add_argument("--stored-only", action="store_true", help="show no other cells than those that are stored")
    args = parser.parse_args()
    print_header(["decode", "T", "texts", "perplexity", "distinct-2", REPEATED, *CONDITIONS])
    curves: dict[str, dict[str, list[Measured]]] = {}
    for line in [*args.cell, *(args.cells.read_text().splitlines() if args.cells else [])]:
        cell = Cell.of(line)
        rows = _texts(cell, args.out, stored_only=args.stored_only)
        if rows:
            p_values = _p_values(cell, rows)
            measured = _measured(cell, rows, {name: 100.0 * (p <= RATE) for name, p in p_values.items()})
            curves.setdefault(cell.model, {}).setdefault(cell.curve, []).append(measured)
            print_row(_row(cell, measured, p_values))
    for model, of_model in curves.items():
        _at_equal_diversity(model, of_model)


def _row(cell: Cell, measured: Measured, p_values: dict[str, PerText]) -> list[str]:
    quality = [
        with_interval(perplexity(measured.nats, measured.tokens), 1),
        with_interval(mean(measured.diversity), 3),
        f"{measured.others[REPEATED].mean():.3f}",
    ]
    found = [f"{with_interval(percent(p <= RATE), 0)} ({np.median(p):.0e})" for p in p_values.values()]
    return [cell.curve, f"{measured.temperature:g}", str(len(measured.nats)), *quality, *found]


def _at_equal_diversity(model: str, curves: dict[str, list[Measured]]) -> None:
    """Print what each curve costs, and what is found of it, where its texts are as diverse as unmarked text."""
    reference = next((cells[0] for name, cells in curves.items() if name.startswith(f"{model}, unmarked")), None)
    found = {} if reference is None else {name: matched(cells, reference) for name, cells in curves.items()}
    if reference is None or not any(found.values()):
        return
    diversity = f"distinct-2 {reference.diversity.mean():.3f}"
    print(f"\nAs diverse as unmarked text at T = {reference.temperature:g}, {diversity}\n")
    kinds = ["decode", "at T", "perplexity over unmarked", "worst decile", REPEATED]
    print_header([*kinds, *CONDITIONS, EDITED, "worst edit"])
    for name, one in found.items():
        if one is not None:
            shares: list[Estimate] = [one.figures[kind] for kind in (*CONDITIONS, EDITED) if kind in one.figures]
            worst = [min(EDITS, key=lambda edit: one.figures[edit].value)] if shares else []
            cost = [with_interval(one.ratio, 2), with_interval(one.figures["worst decile"], 1)]
            cost.append(with_interval(one.figures[REPEATED], 3))
            found_there = [with_interval(share, 0) for share in shares]
            print_row([name, f"{one.temperature.value:.2f}", *cost, *found_there, *worst])


# --- texts ---


@cache
def _model(name: str) -> LoadedModel:
    return load_model(name)


@cache
def _judge(model: str, out: Path) -> Judge:
    """The built-in judge for the storyteller; the narrator's judge is its own base."""
    if model == "storyteller":
        return load_judge()
    if not (base := out / "base").exists():
        write_base(base)
    return load_judge(str(base), dtype="fp32")


def _prompts(model: str) -> list[str]:
    """Prompts to continue, or requests for prose: lists carry hardly any mark."""
    if model == "storyteller":
        return builtin_prompts()[:PROMPTS]
    rows = [json.loads(line) for file in REQUESTS for line in file.read_text().splitlines()]
    return [row["prompt"] for row in rows if not row["id"].startswith("list")]


def _texts(cell: Cell, out: Path, *, stored_only: bool) -> Rows:
    """The texts of a cell, in the order of their keys and prompts, with the nats of each under the judge."""
    made_from = json.dumps([cell.model, cell.mark, cell.decoding, SETTINGS[cell.model], _prompts(cell.model)])
    path = out / f"{cell.model}-{hashlib.sha256(made_from.encode()).hexdigest()[:16]}.jsonl"
    if not path.exists() and not stored_only:
        print(cell.curve, cell.decoding, file=sys.stderr, flush=True)
        out.mkdir(parents=True, exist_ok=True)
        atomic_write(path, "".join(json.dumps(row) + "\n" for row in _made(cell, out)))
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _made(cell: Cell, out: Path) -> Rows:
    model, settings, rows = _model(cell.model), {**SETTINGS[cell.model], **cell.decoding}, Rows()
    for number, key in enumerate(cell.watermark_keys() or [None] * KEYS):
        prompts = _prompts(cell.model)[number::KEYS]
        options: Options = {"seed": 1000 * number, "batch_size": len(prompts), "pad": True, **settings}
        made = generate(model, prompts, key=key, baseline=cell.baseline, **options)
        asked = [chat_prompt(model, prompt) for prompt in prompts] if settings.get("chat") else prompts
        nats = token_nats(_judge(cell.model, out), [one.text for one in made], asked)
        for one, of_one in zip(made, nats, strict=True):
            row = one.to_row(f"{number}-{len(rows)}", with_trace=False)
            rows.append({**row, "key": number, "nats": float(of_one.sum()), "judge_tokens": len(of_one)})
    return rows


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text  # a word, such as a rule


# --- scores ---


def _measured(cell: Cell, rows: Rows, found: dict[str, PerText]) -> Measured:
    return Measured(
        temperature=float(cell.decoding["temperature"]),
        diversity=np.array([distinct_ngrams(row["token_ids"], 2) for row in rows]),
        nats=np.array([row["nats"] for row in rows]),
        tokens=np.array([float(row["judge_tokens"]) for row in rows]),
        others={
            REPEATED: np.array([repeated_ngrams(row["token_ids"]) for row in rows]),
            **({EDITED: np.mean([found[name] for name in EDITS if name != "none"], axis=0)} if found else {}),
        },
        found=found,
    )


def _p_values(cell: Cell, rows: Rows) -> dict[str, PerText]:
    """The p-value of each text under its key: unedited, after each edit, and of its first tokens."""
    keys, made = [key for key in cell.watermark_keys() if key], cell.baseline
    detectors = [made.detector(key, fpr=RATE) if made else Detector(key, fpr=RATE) for key in keys]
    if not detectors:
        return {}
    decode = _model(cell.model).tokenizer.decode
    texts = {}
    for name, (kind, share) in EDITS.items():
        edit = attack(kind, budget=share, unit="word")
        texts[name] = [edit(row["text"], np.random.default_rng([1, number])) for number, row in enumerate(rows)]
    texts[CONDITIONS[-1]] = [decode(row["token_ids"][:FIRST]) for row in rows]
    return {
        name: np.array([detectors[row["key"]].detect(text).p_value for row, text in zip(rows, of_name, strict=True)])
        for name, of_name in texts.items()
    }


if __name__ == "__main__":
    main()
