"""Compare marks, ours and baselines: quality and diversity of texts, and what is found of them before and after edits.

Run `python lab/benchmarks/rules.py --cells lab/benchmarks/rule_cells.txt`. A cell is a row of settings: `model`, `rule`
and what else belongs to a key, or `baseline` and its options (neither: unmarked text), and options of decoding. All
cells of a model have the same prompts, and four keys that each mark a quarter of them. Texts, attacked ones too, are
stored in --out and reused, so clear it after a change of decoding. They are edited by words and scored from the text
alone, with the detector's defaults.

Cells that differ in their temperature alone are a curve. A second table compares the curves where their texts are as
diverse as those of the model's first unmarked cell, between two temperatures that were run; the worst decile of the
perplexities stands there beside the perplexity, and the worst edit beside the mean over edits.

What survives what: `--conditions attacks --cells lab/benchmarks/attack_cells.txt --plot survival.png`.
"""

import argparse
import hashlib
import json
import sys
from collections.abc import Sequence
from dataclasses import fields
from functools import cache
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from conditions import CONDITIONS, EDITS, FIRST, Attacks, Condition, Options
from dgmark import Detector, WatermarkKey, load_model
from dgmark.decode import Generation, generate
from dgmark.detection.normalise import STEPS
from dgmark.models.chat import chat_prompt
from dgmark.models.loaded import LoadedModel
from dgmark.rows.outputs import atomic_write
from dgmark_lab.attacks import attack
from dgmark_lab.baselines import BASELINES, Baseline, baseline
from dgmark_lab.evaluate.diversity import distinct_ngrams, repeated_ngrams
from dgmark_lab.evaluate.judge import Judge, load_judge
from dgmark_lab.evaluate.likelihood import token_nats
from dgmark_lab.experiments.estimates import mean, percent, perplexity
from dgmark_lab.experiments.figures import heat_figure
from dgmark_lab.experiments.frontier import Matched, Measured, matched
from dgmark_lab.experiments.tables import with_interval
from dgmark_lab.training.narrator.folders import write_base
from keys_and_tables import HERE, RUNS, builtin_prompts, print_header, print_made_with, print_row, random_key

RATE = 1e-4
KEYS = 4
EDITED = "mean of edits"
WIDE = 20  # a table of more columns is printed with its columns as rows
TITLES = {"bigram 1-4": "bigram (the default)", "position": "position (the paper's)"}  # in the picture
REPEATED = "repeated 4-grams"
KEY_OPTIONS = {"rule", "code_length", "nearest", "farthest", "subkeys"}
PROMPTS = 64  # of the storyteller; the narrator has all requests
# settings of a model where a cell names no others
SETTINGS: dict[str, dict[str, Any]] = {
    "storyteller": {"length": 256, "cache": "dual"},
    "narrator": {"length": 128, "top_p": 0.9, "chat": True},
}
REQUESTS = (HERE / "requests.jsonl", HERE.parent / "docs/results/narrator/requests.jsonl")

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
            others = [f"{name} {self.mark[name]}" for name in ("code_length", "subkeys") if name in self.mark]
            mark = ", ".join([f"{self.mark.get('rule', 'unmarked')} {distances}".strip(), *others])
        rest = [f"{name} {value}" for name, value in self.decoding.items() if name != "temperature"]
        return ", ".join([self.model, mark, *rest])

    @property
    def made_with(self) -> list[str]:
        """What its figures depend on."""
        name = self.mark.get("baseline")
        marks = [name, f"decoding-{name}"] if name else [key.spec.rule for key in self.watermark_keys()[:1] if key]
        return [*marks, self.model, *(["judge"] if self.model == "storyteller" else [])]

    def watermark_keys(self) -> list[WatermarkKey | None]:
        """The keys of the cell, of a fixed series, without sub-keys unless it asks for some; none for unmarked text."""
        if not self.mark:
            return []
        options = {"subkeys": 1} if self.baseline else {"subkeys": 1, **self.mark}
        spec = WatermarkKey.generate(_model(self.model), **options).spec
        return [random_key(spec, number) for number in range(KEYS)]


def main() -> None:
    """Generate the missing texts, then print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--cell", action="append", default=[], help="setting=value,...")
    parser.add_argument("--cells", type=Path, help="a file with one cell a line")
    parser.add_argument("--conditions", choices=CONDITIONS, default="edits", help="what is done to the texts")
    parser.add_argument("--plot", type=Path, help="file for a heat map of what is found at equal diversity")
    parser.add_argument("--out", type=Path, default=RUNS / "rules")
    parser.add_argument("--stored-only", action="store_true", help="show no other cells than those that are stored")
    args = parser.parse_args()
    conditions = CONDITIONS[args.conditions]
    print_header(["decode", "T", "texts", "perplexity", "distinct-2", REPEATED, *conditions])
    curves: dict[str, dict[str, list[Measured]]] = {}
    parts = ["decoding"]
    for line in [*args.cell, *(args.cells.read_text().splitlines() if args.cells else [])]:
        cell = Cell.of(line)
        rows = _texts(cell, args.out, stored_only=args.stored_only)
        if rows:
            p_values = _p_values(cell, rows, conditions, args.out)
            measured = _measured(cell, rows, p_values)
            curves.setdefault(cell.model, {}).setdefault(cell.curve, []).append(measured)
            print_row(_row(cell, measured, p_values))
            parts += cell.made_with
    for model, of_model in curves.items():
        found = _at_equal_diversity(model, of_model, list(conditions))
        if args.plot and found:
            _plot(args.plot, found, list(conditions))
    print_made_with(*parts)


def _row(cell: Cell, measured: Measured, p_values: dict[str, PerText]) -> list[str]:
    quality = [
        with_interval(perplexity(measured.nats, measured.tokens), 1),
        with_interval(mean(measured.diversity), 3),
        f"{measured.others[REPEATED].mean():.3f}",
    ]
    found = [f"{with_interval(percent(p <= RATE), 0)} ({np.median(p):.0e})" for p in p_values.values()]
    return [cell.curve, f"{measured.temperature:g}", str(len(measured.nats)), *quality, *found]


def _at_equal_diversity(model: str, curves: dict[str, list[Measured]], conditions: list[str]) -> dict[str, Matched]:
    """Print what each curve costs, and what is found of it, where its texts are as diverse as unmarked text."""
    reference = next((cells[0] for name, cells in curves.items() if name.startswith(f"{model}, unmarked")), None)
    matches = {} if reference is None else {name: matched(cells, reference) for name, cells in curves.items()}
    found = {name: one for name, one in matches.items() if one is not None}
    if reference is None or not found:
        return {}
    diversity = f"distinct-2 {reference.diversity.mean():.3f}"
    print(f"\nAs diverse as unmarked text at T = {reference.temperature:g}, {diversity}\n")
    kinds = ["decode", "at T", "perplexity over unmarked", "worst decile", REPEATED]
    table = [[*kinds, *conditions, EDITED, "worst edit"]]
    for name, one in found.items():
        cost = [with_interval(one.ratio, 2), with_interval(one.figures["worst decile"], 1)]
        cost.append(with_interval(one.figures[REPEATED], 3))
        shown = [kind for kind in (*conditions, EDITED) if kind in one.figures]
        shares = [with_interval(one.figures[kind], 0) for kind in shown]
        if len(table[0]) > WIDE:
            shares = [f"{share}{_median(one, kind)}" for share, kind in zip(shares, shown, strict=True)]
        table.append([name, f"{one.temperature.value:.2f}", *cost, *shares, _worst(one, conditions)])
    head, *rows = zip_longest(*table, fillvalue="") if len(table[0]) > WIDE else table
    print_header(head)
    for row in rows:
        print_row(row)
    return {name: one for name, one in found.items() if conditions[0] in one.figures}


def _median(one: Matched, condition: str) -> str:
    """The median p-value, in brackets."""
    log_p = one.figures.get(f"p {condition}")
    return "" if log_p is None else f" ({10**log_p.value:.0e})"


def _worst(one: Matched, conditions: list[str]) -> str:
    """What the fewest whole texts are found after; of equals, that with the largest median p."""
    known = [name for name in conditions if name in one.figures and name != f"{FIRST} tokens"]
    return min(known, key=lambda name: (one.figures[name].value, -one.figures[f"p {name}"].value), default="")


def _plot(path: Path, curves: dict[str, Matched], conditions: list[str]) -> None:
    """Draw what is found of each curve; the rows are in the order of the first one."""
    first = next(iter(curves.values())).figures
    rows = sorted(conditions, key=lambda name: (-first[name].value, first[f"p {name}"].value))
    titles = {name: TITLES.get(rule := name.partition(", ")[2], rule) for name in curves}
    columns = {titles[name]: {row: one.figures[row] for row in rows} for name, one in curves.items()}
    heat_figure(columns, title=f"What survives what: texts found at p <= {RATE:g}").savefig(path, dpi=130)


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
    path = _path(out, cell).with_suffix(".jsonl")
    if not path.exists() and not stored_only:
        print(cell.curve, cell.decoding, file=sys.stderr, flush=True)
        out.mkdir(parents=True, exist_ok=True)
        atomic_write(path, "".join(json.dumps(row) + "\n" for row in _made(cell, out)))
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _path(out: Path, cell: Cell, *attacks: tuple[str, Options]) -> Path:
    """Where the texts of a cell are stored, or what attacks made of them; without a suffix."""
    made_from = [cell.model, cell.mark, cell.decoding, SETTINGS[cell.model], _prompts(cell.model), *attacks]
    return out / f"{cell.model}-{hashlib.sha256(json.dumps(made_from).encode()).hexdigest()[:16]}"


def _made(cell: Cell, out: Path) -> Rows:
    model, settings, rows = _model(cell.model), {**SETTINGS[cell.model], **cell.decoding}, Rows()
    for number, key in enumerate(cell.watermark_keys() or [None] * KEYS):
        prompts = _prompts(cell.model)[number::KEYS]
        options: Options = {"seed": 1000 * number, "batch_size": len(prompts), "pad": True, **settings}
        made = generate(model, prompts, key=key, baseline=cell.baseline, **options)
        for one, of_one in zip(made, _nats(cell.model, made, out), strict=True):
            row = one.to_row(f"{number}-{len(rows)}", with_trace=False)
            rows.append({**row, "key": number, "nats": float(of_one.sum()), "judge_tokens": len(of_one)})
    return rows


def _nats(model: str, made: Sequence[Generation], out: Path) -> list[Float[np.ndarray, " tokens"]]:
    """The nats of each judge token of texts, given their prompts."""
    prompts = [str(one.prompt) for one in made]
    asked = [chat_prompt(_model(model), prompt) for prompt in prompts] if made[0].chat else prompts
    return token_nats(_judge(model, out), [one.text for one in made], asked)


def _attacked(cell: Cell, rows: Rows, attacks: Attacks, out: Path) -> list[str]:
    """The texts of a cell after attacks, one after the other; the texts after each are stored."""
    if not attacks:
        return [row["text"] for row in rows]
    path = _path(out, cell, *attacks).with_suffix(".json")
    if not path.exists():
        before, (kind, options) = _attacked(cell, rows, attacks[:-1], out), attacks[-1]
        hosts = {"hosts": _human(out)} if kind == "copy-paste" else {}
        change, number = attack(kind, **options, **hosts), len(attacks) - 1
        texts = [change(text, np.random.default_rng([1, place, number])) for place, text in enumerate(before)]
        atomic_write(path, json.dumps(texts))
    return list(json.loads(path.read_text()))


def _human(out: Path) -> str:
    """A file of human text: the built-in prompts, which are passages of books in the public domain."""
    path = out / "human.jsonl"
    if not path.exists():
        atomic_write(path, "".join(json.dumps({"text": prompt}) + "\n" for prompt in builtin_prompts()))
    return str(path)


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text  # a word, such as a rule


# --- scores ---


def _measured(cell: Cell, rows: Rows, p_values: dict[str, PerText]) -> Measured:
    found = {name: 100.0 * (p <= RATE) for name, p in p_values.items()}
    edited = [of_edit for name, of_edit in found.items() if name in EDITS and EDITS[name].attacks]
    return Measured(
        temperature=float(cell.decoding["temperature"]),
        diversity=np.array([distinct_ngrams(row["token_ids"], 2) for row in rows]),
        nats=np.array([row["nats"] for row in rows]),
        tokens=np.array([float(row["judge_tokens"]) for row in rows]),
        others={
            REPEATED: np.array([repeated_ngrams(row["token_ids"]) for row in rows]),
            **({EDITED: np.mean(edited, axis=0)} if edited else {}),
        },
        found=found,
        medians={f"p {name}": np.log10(p) for name, p in p_values.items()},
    )


def _p_values(cell: Cell, rows: Rows, conditions: dict[str, Condition], out: Path) -> dict[str, PerText]:
    """The p-value of each text under its key, in each condition; none for unmarked texts."""
    keys, made = [key for key in cell.watermark_keys() if key], cell.baseline
    decode = _model(cell.model).tokenizer.decode
    detectors = {
        undo: [made.detector(key, fpr=RATE) if made else Detector(key, fpr=RATE, normalise=steps) for key in keys]
        for undo, steps in {False: (), True: tuple(STEPS)}.items()
    }
    p_values = {}
    for name, condition in conditions.items() if keys else ():
        texts = _attacked(cell, rows, condition.attacks, out)
        if condition.first:
            texts = [decode(row["token_ids"][: condition.first]) for row in rows]
        scorers = detectors[condition.normalise]
        found = [scorers[row["key"]].detect(text).p_value for row, text in zip(rows, texts, strict=True)]
        p_values[name] = np.array(found)
    return p_values


if __name__ == "__main__":
    main()
