"""`dgmark-lab evaluate`: measure perplexity and diversity of texts, and compare two sets over the same prompts."""

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from math import exp
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from dgmark.cli import options as opt
from dgmark.cli.console import command_errors, stderr, stdout
from dgmark.cli.option_groups import option_groups
from dgmark.cli.row_runs import RowOutput, Task, make_rows
from dgmark.errors import InputError, SettingsError
from dgmark.rows.inputs import STDIN
from dgmark.rows.jsonl import BadRow, Row, read_good_rows
from dgmark.rows.outputs import check_output
from dgmark.rows.texts import read_texts
from dgmark_lab.evaluate.diversity import Diversity, diversity
from dgmark_lab.evaluate.intervals import Comparison, Interval, compare_paired
from dgmark_lab.evaluate.judge import Judge, load_judge
from dgmark_lab.evaluate.likelihood import Perplexity, ScoredText, score_texts, summarise

EVALUATION_SCHEMA = 1
NO_JUDGE = "none"
_AT_ONCE = 64  # rows of a batch: an interruption loses one batch at most
_SCORES = ("nats", "tokens", "characters", "bytes")
_TITLES = {
    "perplexity": "perplexity of texts",
    "nats_per_token": "nats per token",
    "log_diversity": "log diversity",
    "repeated_4": "repeated 4-grams",
}


@dataclass(frozen=True)
class Written:
    """One text to evaluate: `content` and `prompt`, each as text or as ids of the judge's tokenizer."""

    row_id: str
    prompt: str | list[int]
    content: str | list[int]

    @property
    def fingerprint(self) -> str:
        """A hash of prompt and text, which tells whether a finished row belongs to this text."""
        content = json.dumps([self.prompt, self.content]).encode()
        return hashlib.sha256(content).hexdigest()[:16]


@dataclass(frozen=True)
class Evaluated:
    """A set of texts with their diversity, and with their perplexity if there is a judge."""

    texts: list[Written]
    diversity: Diversity
    perplexity: Perplexity | None


@command_errors
@option_groups
def evaluate(
    source: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help='.jsonl file of rows with "id", "prompt", "text" (- is standard input), a document, or a folder.',
        ),
    ],
    *,
    against: Annotated[
        str | None,
        typer.Option(help="Second file, to compare with; rows with the same id are pairs.", show_default=False),
    ] = None,
    judge: Annotated[
        str,
        typer.Option(
            help="Autoregressive model that measures perplexity: builtin, a folder, or a hub id; none: no perplexity.",
        ),
    ] = "builtin",
    ids: Annotated[
        bool,
        typer.Option("--ids", help='Evaluate "token_ids" instead of "text"; the judge must have the same tokenizer.'),
    ] = False,
    loading: Annotated[opt.Loading, opt.loading_options("device", "dtype", "revision", "device_map")],
    context: Annotated[
        int | None,
        typer.Option(
            help="Number of tokens that the judge reads at once.",
            show_default="the judge's own limit",
        ),
    ] = None,
    out: opt.RowsOut = None,
    as_json: opt.OneObject = False,
) -> None:
    """Measure perplexity (given the prompt), repetition and diversity of texts, each with a 95 % interval.

    With --against OTHER, also measure the differences between the two sets: OTHER minus FILE.
    """
    if source == against == STDIN:
        raise SettingsError("both files are standard input: give at least one of them by name")
    sources = [source] if against is None else [source, against]
    outs = [_out(out, number) for number in range(len(sources))]
    for one in outs:
        check_output(one, sources)
    sets = [_read(one, ids) for one in sources]
    if against is not None:
        sets = _shared(*sets)
    loaded = None if judge == NO_JUDGE else load_judge(judge, context=context, **loading)
    evaluated = [_evaluated(one, loaded, to, ids) for one, to in zip(sets, outs, strict=True)]
    differences = _differences(evaluated) if against is not None else {}
    if as_json:
        print(json.dumps(_document(sources, evaluated, differences)))
        return
    stdout().print(_table(sources, evaluated, differences))


def _read(source: str, ids: bool) -> list[Written]:
    """Read the texts of a file.

    Raises:
        InputError: a row is unusable, two rows have the same id, or there is no row.
    """
    texts: dict[str, Written] = {}
    for row in _rows(source):
        written = _written(row, ids)
        if written.row_id in texts:
            raise InputError(f"two rows of {source} have the id {written.row_id!r}: give each row its own id")
        texts[written.row_id] = written
    if not texts:
        raise InputError(f"{'standard input' if source == STDIN else source} holds no text")
    return list(texts.values())


def _rows(source: str) -> Iterator[Row]:
    """The rows of a JSON Lines file or of standard input, or documents as rows without a prompt.

    Raises:
        InputError: a row or a document cannot be read.
    """
    if source == STDIN or source.lower().endswith(".jsonl"):
        yield from read_good_rows(source)
        return
    for item in read_texts(source):
        if isinstance(item, BadRow):
            raise item.kind(f"{item.row_id}: {item.error}")
        yield {"id": item.row_id, "token_ids" if isinstance(item.content, list) else "text": item.content}


def _written(row: Row, ids: bool) -> Written:
    prompt, content = row.get("prompt", ""), row.get("token_ids" if ids else "text")
    if not isinstance(content, list if ids else str):
        name = "token_ids" if ids else "text"
        raise InputError(f"row {row['id']!r}: {row.get('error') or f'no {name}'}; leave such rows out")
    if isinstance(prompt, list) and not ids:
        raise InputError(f"row {row['id']!r}: the prompt is token ids; give --ids, and a judge with the same tokenizer")
    return Written(row["id"], prompt, content)


def _shared(first: list[Written], second: list[Written]) -> list[list[Written]]:
    """Both sets without the texts whose id only one of them has, in the order of the first.

    Raises:
        InputError: no id is in both sets, or the texts of a pair have different prompts.
    """
    other = {one.row_id: one for one in second}
    pairs = [(one, other[one.row_id]) for one in first if one.row_id in other]
    if not pairs:
        raise InputError(
            "the two files share no id, and only rows with the same id are compared: give files with the same ids"
        )
    differing = sum(one.prompt != two.prompt for one, two in pairs)
    if differing:
        raise InputError(
            f"{differing} of {len(pairs)} pairs have different prompts: the texts of a pair need the same prompt"
        )
    if len(pairs) < max(len(first), len(second)):
        stderr().print(
            f"{len(pairs)} pairs; {len(first) + len(second) - 2 * len(pairs)} rows are in no pair and are left out"
        )
    return [[one for one, _ in pairs], [two for _, two in pairs]]


def _out(out: Path | None, number: int) -> Path | None:
    """The output file of a set: rows.jsonl for the first, rows.against.jsonl for the second."""
    if out is None or number == 0:
        return out
    return out.with_name(f"{out.stem}.against{out.suffix}")


def _evaluated(texts: list[Written], judge: Judge | None, out: Path | None, ids: bool) -> Evaluated:
    measured = diversity([one.content for one in texts])
    if judge is None:
        return Evaluated(texts, measured, None)
    return Evaluated(texts, measured, summarise(judge, _scores(texts, measured, judge, out, ids)))


def _scores(texts: list[Written], measured: Diversity, judge: Judge, out: Path | None, ids: bool) -> list[ScoredText]:
    """Score the texts; scores that the file `out` holds are read from it, and new ones are appended to it."""
    settings = {"judge": judge.name, "dtype": judge.dtype, "context": judge.context_length, "ids": ids}
    agree: Row = {"settings": settings, "schema": EVALUATION_SCHEMA}
    varieties = {one.row_id: asdict(variety) for one, variety in zip(texts, measured.texts, strict=True)}

    def score(batch: list[Task[Written]], _: Callable[[int], None]) -> list[Row]:
        some = [task.content for task in batch]
        scored = score_texts(judge, [one.content for one in some], [one.prompt for one in some])
        return [
            {"id": task.row_id, **task.same, **scores.to_dict(), **varieties[task.row_id], **agree}
            for task, scores in zip(batch, scored, strict=True)
        ]

    tasks = [Task(one.row_id, one, same={"fingerprint": one.fingerprint}) for one in texts]
    output = RowOutput(EVALUATION_SCHEMA, out, agree, remembered=_SCORES, source="text", collected=True)
    rows = make_rows(tasks, score, output, batch_size=_AT_ONCE)
    return [ScoredText(**{name: rows[one.row_id][name] for name in _SCORES}) for one in texts]


def _differences(evaluated: list[Evaluated]) -> dict[str, Comparison]:
    """The comparisons of the two sets, by name of the measure."""
    first, second = (one.diversity.texts for one in evaluated)
    measured = {
        "log_diversity": compare_paired([one.log_diversity for one in first], [one.log_diversity for one in second]),
        "repeated_4": compare_paired([one.repeated_4 for one in first], [one.repeated_4 for one in second]),
    }
    scored, others = (one.perplexity for one in evaluated)
    if scored is not None and others is not None:
        pairs = [(one, two) for one, two in zip(scored.texts, others.texts, strict=True) if one.tokens and two.tokens]
        nats, other_nats = [one.nats / one.tokens for one, _ in pairs], [two.nats / two.tokens for _, two in pairs]
        measured["nats_per_token"] = compare_paired(nats, other_nats)
        measured["perplexity"] = compare_paired([*map(exp, nats)], [*map(exp, other_nats)])
    return measured


def _document(sources: list[str], evaluated: list[Evaluated], differences: dict[str, Comparison]) -> Row:
    sets = [
        {
            "source": source,
            "perplexity": None if one.perplexity is None else one.perplexity.to_dict(),
            "diversity": one.diversity.to_dict(),
        }
        for source, one in zip(sources, evaluated, strict=True)
    ]
    compared = {name: asdict(one) for name, one in differences.items()}
    return {"schema": EVALUATION_SCHEMA, "sets": sets, "differences": compared or None}


def _figures(one: Evaluated) -> dict[str, Interval]:
    figures = {}
    if one.perplexity is not None:
        figures = {
            "perplexity, all texts together": one.perplexity.corpus,
            "perplexity, mean of texts": one.perplexity.mean,
            "perplexity, median of texts": one.perplexity.median,
            "nats per token": one.perplexity.nats_per_token,
            "nats per character": one.perplexity.nats_per_character,
            "nats per byte": one.perplexity.nats_per_byte,
        }
    figures |= {f"distinct-{n}": interval for n, interval in one.diversity.distinct.items()}
    return {**figures, "repeated 4-grams": one.diversity.repeated_4, "log diversity": one.diversity.log_diversity}


def _table(sources: list[str], evaluated: list[Evaluated], differences: dict[str, Comparison]) -> Table:
    """The figures of each set, and below them the differences."""
    table = Table("", *(Path(source).name for source in sources))
    counts = [f"{len(one.texts)}, {one.diversity.median_length:g} {one.diversity.unit}s (median)" for one in evaluated]
    table.add_row("texts", *counts)
    columns = [_figures(one) for one in evaluated]
    for name in columns[0]:
        table.add_row(name, *(_shown(column[name]) for column in columns))
    if differences:
        table.add_section()
    for name, one in differences.items():
        split = f"larger in {one.larger}, smaller in {one.smaller}, sign test p = {one.sign_p_value:.2g}"
        table.add_row(f"difference, {_TITLES[name]}", "", f"{_shown(one.difference)}; {split}")
    return table


def _shown(interval: Interval) -> str:
    if interval.low is None or interval.high is None:
        return f"{interval.value:.4g}"
    return f"{interval.value:.4g} ({interval.low:.4g} to {interval.high:.4g})"
