"""`dgmark-lab evaluate`: measure perplexity and diversity of texts, and compare two sets over the same prompts."""

import json
from dataclasses import asdict
from math import exp, isnan
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from rich.table import Table

from dgmark.cli import options as opt
from dgmark.cli.bar import row_bar
from dgmark.cli.console import command_errors, stderr, stdout
from dgmark.cli.option_groups import option_groups
from dgmark.errors import InputError, SettingsError
from dgmark.files.inputs import STDIN
from dgmark.models.language_model import LanguageModel
from dgmark.rows.item import Row
from dgmark.rows.jsonl import read_good_rows
from dgmark_lab.evaluate.diversity import Diversity, diversity
from dgmark_lab.evaluate.estimates import Comparison, Estimate, compare_paired
from dgmark_lab.evaluate.likelihood import Perplexity, perplexity
from dgmark_lab.experiments.tables import with_interval

EVALUATION_SCHEMA = 1
NO_JUDGE = "none"
_TITLES = {
    "perplexity": "perplexity of texts",
    "nats_per_token": "nats per token",
    "log_diversity": "log diversity",
    "distinct_4": "distinct-4",
}


class Written(NamedTuple):
    """One text to evaluate: `content` and `prompt`, each as text or as ids of the judge's tokenizer."""

    prompt: str | list[int]
    content: str | list[int]


# texts by the ids of their rows
Texts = dict[str, Written]


class Evaluated(NamedTuple):
    """A set of texts with their diversity, and with their perplexity if there is a judge."""

    texts: Texts
    diversity: Diversity
    perplexity: Perplexity | None


@command_errors
@option_groups
def evaluate(
    source: Annotated[
        str,
        typer.Argument(
            metavar="FILE", help='JSON Lines file of rows with "id", "prompt", "text"; - is standard input.'
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
    as_json: opt.OneObject = False,
) -> None:
    """Measure perplexity (given the prompt), repetition and diversity of texts, each with a 95 % interval.

    With --against OTHER, also measure the differences between the two sets: OTHER minus FILE. With --json, also print
    the figures of each text.
    """
    if source == against == STDIN:
        raise SettingsError("both files are standard input: give at least one of them by name")
    sources = [source] if against is None else [source, against]
    sets = [_read(one, ids) for one in sources]
    if against is not None:
        sets = _shared(*sets)
    loaded = None if judge == NO_JUDGE else LanguageModel(judge, context=context, **loading)
    evaluated = [_evaluated(one, loaded) for one in sets]
    differences = _differences(evaluated) if against is not None else {}
    if as_json:
        print(json.dumps(_document(sources, evaluated, differences), allow_nan=False))
        return
    stdout().print(_table(sources, evaluated, differences))


def _read(source: str, ids: bool) -> Texts:
    """Read the texts of a file.

    Raises:
        InputError: a row is unusable, two rows have the same id, or there is no row.
    """
    texts: Texts = {}
    for row in read_good_rows(source):
        written = _written(row, ids)
        if row["id"] in texts:
            raise InputError(f"two rows of {source} have the id {row['id']!r}: give each row its own id")
        texts[row["id"]] = written
    if not texts:
        raise InputError(f"{'standard input' if source == STDIN else source} holds no text")
    return texts


def _written(row: Row, ids: bool) -> Written:
    name, kind = ("token_ids", list) if ids else ("text", str)
    prompt, content = row.get("prompt", ""), row.get(name)
    if not isinstance(content, kind):
        raise InputError(f"row {row['id']!r}: {row.get('error') or f'no {name}'}; leave such rows out")
    if isinstance(prompt, list) and not ids:
        raise InputError(f"row {row['id']!r}: the prompt is token ids; give --ids, and a judge with the same tokenizer")
    return Written(prompt, content)


def _shared(first: Texts, second: Texts) -> list[Texts]:
    """Both sets without the texts whose id only one of them has, in the order of the first.

    Raises:
        InputError: no id is in both sets, or the texts of a pair have different prompts.
    """
    pairs = [row_id for row_id in first if row_id in second]
    if not pairs:
        raise InputError(
            "the two files share no id, and only rows with the same id are compared: give files with the same ids"
        )
    differing = sum(first[row_id].prompt != second[row_id].prompt for row_id in pairs)
    if differing:
        raise InputError(
            f"{differing} of {len(pairs)} pairs have different prompts: the texts of a pair need the same prompt"
        )
    if len(pairs) < max(len(first), len(second)):
        stderr().print(
            f"{len(pairs)} pairs; {len(first) + len(second) - 2 * len(pairs)} rows are in no pair and are left out"
        )
    return [{row_id: texts[row_id] for row_id in pairs} for texts in (first, second)]


def _evaluated(texts: Texts, judge: LanguageModel | None) -> Evaluated:
    prompts, contents = zip(*texts.values(), strict=True)
    measured = diversity(contents)
    if judge is None:
        return Evaluated(texts, measured, None)
    with row_bar("texts") as bar:
        bar.show("", 0, len(texts), 0)
        return Evaluated(texts, measured, perplexity(judge, contents, prompts, bar.rows))


def _differences(evaluated: list[Evaluated]) -> dict[str, Comparison]:
    """The comparisons of the two sets, by name of the measure."""
    sets = [one.diversity.texts for one in evaluated]
    measured = {
        "log_diversity": compare_paired(*([one.log_diversity for one in texts] for texts in sets)),
        "distinct_4": compare_paired(*([one.distinct[4] for one in texts] for texts in sets)),
    }
    scored, others = (one.perplexity for one in evaluated)
    if scored is not None and others is not None:
        pairs = [(one, two) for one, two in zip(scored.texts, others.texts, strict=True) if one.tokens and two.tokens]
        nats, other_nats = [one.nats / one.tokens for one, _ in pairs], [two.nats / two.tokens for _, two in pairs]
        measured["nats_per_token"] = compare_paired(nats, other_nats)
        measured["perplexity"] = compare_paired([*map(exp, nats)], [*map(exp, other_nats)])
    return measured


def _document(sources: list[str], evaluated: list[Evaluated], differences: dict[str, Comparison]) -> Row:
    sets = []
    for source, one in zip(sources, evaluated, strict=True):
        diverse, judged, scored = _plain(one.diversity), one.perplexity, None
        texts = [{"id": row_id} | found for row_id, found in zip(one.texts, diverse.pop("texts"), strict=True)]
        diverse["num_texts"] = len(texts)
        if judged is not None:
            scored = _plain(judged)
            for text, score, found in zip(texts, scored.pop("texts"), judged.texts, strict=True):
                text |= {**score, "perplexity": found.perplexity}
            scored |= {"num_texts": len(texts), "num_tokens": judged.tokens}
        sets.append({"source": source, "perplexity": scored, "diversity": diverse, "texts": texts})
    compared = {name: _plain(one) for name, one in differences.items()}
    return {"schema": EVALUATION_SCHEMA, "sets": sets, "differences": compared or None}


def _plain(measured: Diversity | Perplexity | Comparison) -> Row:
    """As JSON values: fewer than five texts have no interval, whose bounds are NaN, which JSON does not know."""

    def fields(pairs: list[tuple[str, Any]]) -> Row:
        return {name: None if isinstance(value, float) and isnan(value) else value for name, value in pairs}

    return asdict(measured, dict_factory=fields)


def _figures(one: Evaluated) -> dict[str, Estimate]:
    figures = {}
    if one.perplexity is not None:
        figures = {
            "perplexity, all texts together": one.perplexity.corpus,
            "perplexity, mean of texts": one.perplexity.mean,
            "perplexity, median of texts": one.perplexity.median,
            "nats per byte": one.perplexity.nats_per_byte,
        }
    figures |= {f"distinct-{n}": interval for n, interval in one.diversity.distinct.items()}
    return {**figures, "log diversity": one.diversity.log_diversity}


def _table(sources: list[str], evaluated: list[Evaluated], differences: dict[str, Comparison]) -> Table:
    """The figures of each set, and below them the differences."""
    table = Table("", *(Path(source).name for source in sources))
    counts = [f"{len(one.texts)}, {one.diversity.median_length:g} {one.diversity.unit}s (median)" for one in evaluated]
    table.add_row("texts", *counts)
    columns = [_figures(one) for one in evaluated]
    for name in columns[0]:
        table.add_row(name, *(with_interval(column[name], 4) for column in columns))
    if differences:
        table.add_section()
    for name, one in differences.items():
        split = f"larger in {one.larger}, smaller in {one.smaller}, sign test p = {one.sign_p_value:.2g}"
        table.add_row(f"difference, {_TITLES[name]}", "", f"{with_interval(one.difference, 4)}; {split}")
    return table
