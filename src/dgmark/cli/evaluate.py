"""`dgmark evaluate`: perplexity and diversity of texts, and the difference to another set over the same prompts."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from math import exp
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from dgmark.cli.console import speaks, stderr, stdout
from dgmark.cli.options import LOADING, Device, DeviceMap, Dtype, OneObject, Quantization, Revision, given
from dgmark.errors import InputError, MissingExtra, ResumeMismatch
from dgmark.lab.evaluate import Bootstrap, Comparison, Diversity, Interval, compare_paired, diversity
from dgmark.rows.jsonl import BadRow, Row, read_rows
from dgmark.rows.row_file import RowFile

if TYPE_CHECKING:
    from dgmark.lab.evaluate import Judge, Perplexity, PerplexityDifference, ScoredText

EVALUATION_SCHEMA = 1
NO_JUDGE = "none"
_AT_ONCE = 64  # rows of one go: what an interruption loses
_SCORES = ("nats", "tokens", "characters", "bytes")


@dataclass(frozen=True)
class Written:
    """One text to evaluate: `content` and `prompt` as text, or as ids of the judge's tokenizer."""

    row_id: str
    prompt: str | list[int]
    content: str | list[int]

    @property
    def fingerprint(self) -> str:
        """Names prompt and text, so that a finished row is not taken for another's."""
        content = json.dumps([self.prompt, self.content]).encode()
        return hashlib.sha256(content).hexdigest()[:16]


@dataclass(frozen=True)
class Evaluated:
    """A set of texts and their figures; no perplexity without a judge."""

    texts: list[Written]
    diversity: Diversity
    perplexity: "Perplexity | None"


@speaks
def evaluate(
    source: Annotated[str, typer.Argument(metavar="FILE", help='JSON Lines with "id", "prompt", "text"; - is stdin.')],
    against: Annotated[
        str | None, typer.Option(help="Compare with these texts, pair by pair by id.", show_default=False)
    ] = None,
    judge: Annotated[
        str,
        typer.Option(help="Autoregressive model: builtin, folder, or hub id; none for no perplexity."),
    ] = "builtin",
    ids: Annotated[
        bool, typer.Option("--ids", help='Score "token_ids" as they are; for a judge with the same tokenizer.')
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="Append a row a text; finished rows are not made again.", show_default=False)
    ] = None,
    stride: Annotated[
        int | None, typer.Option(help="Tokens a window adds, of texts over the context.", show_default="half of it")
    ] = None,
    context: Annotated[int | None, typer.Option(help="Tokens the judge reads at once.", show_default="all")] = None,
    batch_tokens: Annotated[int, typer.Option(min=1, help="Most tokens of one forward.")] = 4096,
    intervals: Annotated[str, typer.Option(help="bca or percentile.")] = "bca",
    confidence: Annotated[float, typer.Option(help="Of the intervals.")] = 0.95,
    device: Device = None,
    dtype: Dtype = None,
    revision: Revision = None,
    quantization: Quantization = None,
    device_map: DeviceMap = None,
    as_json: OneObject = False,
) -> None:
    """Measure perplexity after the prompt, repetition and diversity of texts, each with a confidence interval.

    With --against FILE, the differences between the two sets too: second (FILE) minus first.
    """
    loading = given(locals(), LOADING)
    bootstrap = Bootstrap(intervals, confidence)  # type: ignore[arg-type]
    sources = [source] if against is None else [source, against]
    sets = [_read(one, ids) for one in sources]
    if against is not None:
        sets = _shared(*sets)
    loaded = None if judge == NO_JUDGE else _load(judge, {**loading, "context": context})
    scoring = {"stride": stride, "batch_tokens": batch_tokens}
    found = [_evaluated(texts, loaded, scoring, bootstrap, _out(out, number), ids) for number, texts in enumerate(sets)]
    differences = _differences(found, bootstrap) if against is not None else {}
    if as_json:
        print(json.dumps(_document(sources, found, differences)))
        return
    stdout().print(_table(sources, found, differences))


def _read(source: str, ids: bool) -> list[Written]:
    """The texts of a file.

    Raises:
        InputError: a line cannot be used, or two have one id.
    """
    texts: dict[str, Written] = {}
    for row in read_rows(source):
        if isinstance(row, BadRow):
            raise InputError(f"{row.row_id}: {row.error}")
        written = _written(row, ids)
        if written.row_id in texts:
            raise InputError(f"two rows of {source} have the id {written.row_id!r}: ids tell which texts are a pair")
        texts[written.row_id] = written
    if not texts:
        raise InputError(f"{source} holds no text")
    return list(texts.values())


def _written(row: Row, ids: bool) -> Written:
    prompt, content = row.get("prompt", ""), row.get("token_ids" if ids else "text")
    if not isinstance(content, list if ids else str):
        wanted = "token_ids" if ids else "text"
        raise InputError(f"{row['id']}: {row.get('error') or f'no {wanted}'}; leave such rows out")
    if isinstance(prompt, list) and not ids:
        raise InputError(f"{row['id']}: the prompt is token ids; --ids scores ids, under a judge with that tokenizer")
    return Written(row["id"], prompt, content)


def _shared(first: list[Written], second: list[Written]) -> list[list[Written]]:
    """The texts of both sets whose ids both have, in the first one's order."""
    other = {one.row_id: one for one in second}
    pairs = [(one, other[one.row_id]) for one in first if one.row_id in other]
    if not pairs:
        raise InputError("the two files share no id: pairs are rows with the same id")
    differing = sum(one.prompt != two.prompt for one, two in pairs)
    if differing:
        raise InputError(f"{differing} of {len(pairs)} pairs have different prompts: they are no pairs")
    if len(pairs) < max(len(first), len(second)):
        stderr().print(f"{len(pairs)} pairs; {len(first) + len(second) - 2 * len(pairs)} rows have none")
    return [[one for one, _ in pairs], [two for _, two in pairs]]


def _load(judge: str, options: dict[str, Any]) -> "Judge":
    try:
        from dgmark.lab.evaluate import load_judge
    except ImportError as error:
        raise MissingExtra(str(error)) from None
    return load_judge(judge, **options)


def _out(out: Path | None, number: int) -> Path | None:
    """Of a second set, the file beside: rows.jsonl and rows.against.jsonl."""
    if out is None or number == 0:
        return out
    return out.with_name(f"{out.stem}.against{out.suffix}")


def _evaluated(
    texts: list[Written],
    judge: "Judge | None",
    scoring: dict[str, Any],
    bootstrap: Bootstrap,
    out: Path | None,
    ids: bool,
) -> Evaluated:
    measured = diversity([one.content for one in texts], bootstrap)
    if judge is None:
        return Evaluated(texts, measured, None)
    from dgmark.lab.evaluate import summarise

    scored = list(_scores(texts, measured, judge, scoring, out, ids))
    return Evaluated(texts, measured, summarise(judge, scored, bootstrap))


def _scores(
    texts: list[Written], measured: Diversity, judge: "Judge", scoring: dict[str, Any], out: Path | None, ids: bool
) -> "Iterator[ScoredText]":
    """Scores of the texts; with a file, those in it are taken from there, and the others put into it."""
    from dgmark.lab.evaluate import ScoredText, score_texts

    def score(some: list[Written]) -> "list[ScoredText]":
        return score_texts(judge, [one.content for one in some], [one.prompt for one in some], **scoring)

    if out is None:
        yield from score(texts)
        return
    settings = {"judge": judge.name, "dtype": judge.dtype, "context": judge.context_length, "ids": ids}
    agree: Row = {"settings": {**settings, "stride": scoring["stride"]}, "schema": EVALUATION_SCHEMA}
    with RowFile(out, agree, (*_SCORES, "fingerprint")) as file:
        varieties = {one.row_id: asdict(variety) for one, variety in zip(texts, measured.texts, strict=True)}
        todo = [one for one in texts if one.row_id not in file.done]
        for start in range(0, len(todo), _AT_ONCE):
            some = todo[start : start + _AT_ONCE]
            rows = [
                {"id": one.row_id, "fingerprint": one.fingerprint, **scores.to_dict(), **varieties[one.row_id], **agree}
                for one, scores in zip(some, score(some), strict=True)
            ]
            file.append(rows)
            file.done.update({row["id"]: row for row in rows})
        for one in texts:
            done = file.done[one.row_id]
            if done["fingerprint"] != one.fingerprint:
                raise ResumeMismatch(f"{out} holds a row {one.row_id!r} of another text; choose another --out")
            yield ScoredText(**{name: done[name] for name in _SCORES})


def _differences(found: list[Evaluated], bootstrap: Bootstrap) -> "dict[str, Comparison | PerplexityDifference]":
    """What the sets are compared in, by name."""
    first, second = found
    measured: dict[str, Any] = {
        "log_diversity": compare_paired(
            [one.log_diversity for one in first.diversity.texts],
            [one.log_diversity for one in second.diversity.texts],
            bootstrap,
        ),
        "repeated_4": compare_paired(
            [one.repeated[4] for one in first.diversity.texts],
            [one.repeated[4] for one in second.diversity.texts],
            bootstrap,
        ),
    }
    if first.perplexity is not None and second.perplexity is not None:
        from dgmark.lab.evaluate import compare_perplexities

        judged = [
            (one.nats / one.tokens, two.nats / two.tokens)
            for one, two in zip(first.perplexity.texts, second.perplexity.texts, strict=True)
            if one.tokens and two.tokens
        ]
        measured["corpus"] = compare_perplexities(first.perplexity.texts, second.perplexity.texts, bootstrap)
        nats, other_nats = [one for one, _ in judged], [two for _, two in judged]
        measured["nats_per_token"] = compare_paired(nats, other_nats, bootstrap)
        measured["perplexity"] = compare_paired([*map(exp, nats)], [*map(exp, other_nats)], bootstrap)
    return measured


def _document(sources: list[str], found: list[Evaluated], differences: dict[str, Any]) -> Row:
    sets = [
        {
            "source": source,
            "perplexity": None if one.perplexity is None else one.perplexity.to_dict(),
            "diversity": one.diversity.to_dict(),
        }
        for source, one in zip(sources, found, strict=True)
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
    return {**figures, "repeated 4-grams": one.diversity.repeated[4], "log diversity": one.diversity.log_diversity}


def _table(sources: list[str], found: list[Evaluated], differences: dict[str, Any]) -> Table:
    """The figures of each set, and below them the differences."""
    table = Table("", *(Path(source).name for source in sources))
    counts = [f"{len(one.texts)}, {one.diversity.lengths.median:g} {one.diversity.unit}s (median)" for one in found]
    table.add_row("texts", *counts)
    columns = [_figures(one) for one in found]
    for name in columns[0]:
        table.add_row(name, *(_shown(column[name]) for column in columns))
    if "corpus" in differences:
        table.add_section()
        table.add_row("difference, all texts together", "", _shown(differences["corpus"].corpus))
        table.add_row("ratio, all texts together", "", _shown(differences["corpus"].ratio))
    titles = {"perplexity": "perplexity of texts", "log_diversity": "log diversity", "repeated_4": "repeated 4-grams"}
    for name, title in titles.items():
        if name in differences:
            one = differences[name]
            split = f"larger in {one.larger}, smaller in {one.smaller}, sign test p = {one.sign_p_value:.2g}"
            table.add_row(f"difference, {title}", "", f"{_shown(one.difference)}; {split}")
    return table


def _shown(interval: Interval) -> str:
    if interval.low is None or interval.high is None:
        return f"{interval.value:.4g}"
    return f"{interval.value:.4g} ({interval.low:.4g} to {interval.high:.4g})"
