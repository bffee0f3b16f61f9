"""`dgmark detect`: texts and a key in, verdicts with their error rate out."""

import sys
from collections.abc import Iterable
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from dgmark.cli.console import speaks, stderr
from dgmark.cli.detect_options import DetectOptions, Mode, Phase, parse_ranges, parse_steps
from dgmark.cli.options import AllowOpenKey
from dgmark.cli.results import WRITERS, Format, draw
from dgmark.cli.schemes import SchemeName, SchemeOptions, scheme_of
from dgmark.detection.detector import DEFAULT_FPR, DEFAULT_MAX_CROP
from dgmark.detection.many import Tally, Task, detect_file, read_sources, score
from dgmark.detection.normalise import STEPS
from dgmark.detection.scorer import Scorer, one_key
from dgmark.detection.strip import save
from dgmark.errors import InputError, SettingsError
from dgmark.rows.jsonl import STDIN, BadRow
from dgmark.rows.texts import Item


@speaks
def detect(
    inputs: Annotated[list[str] | None, typer.Argument(help="Text files, .jsonl files, folders; - is stdin.")] = None,
    key: Annotated[Path | None, typer.Option(help="Key file to look for.", show_default=False)] = None,
    keys: Annotated[
        Path | None,
        typer.Option(help="Folder of key files: find which of them, if any, marked the text.", show_default=False),
    ] = None,
    scheme: SchemeName = None,
    scheme_option: SchemeOptions = None,
    fpr: Annotated[float, typer.Option(help="False-positive rate to hold.")] = DEFAULT_FPR,
    mode: Annotated[
        Mode,
        typer.Option(
            help="auto: test for intact and for edited text; intact: allow for a crop only; edited: allow for edits."
        ),
    ] = Mode.AUTO,
    phase: Annotated[
        Phase, typer.Option(help="any: the front may be missing; start: the text is complete.")
    ] = Phase.ANY,
    output: Annotated[Format, typer.Option("--format", help="How to write results.")] = Format.TABLE,
    tokenizer: Annotated[
        str | None, typer.Option(help="Tokenizer folder or file; by default the one the key names.", show_default=False)
    ] = None,
    ids: Annotated[bool, typer.Option("--ids", help='Score the "token_ids" of rows that also hold "text".')] = False,
    normalise: Annotated[
        list[str] | None,
        typer.Option(
            "--normalise",
            "--normalize",
            help=f"If the mark does not show, undo disguises: all, or {', '.join(STEPS)}; may be repeated.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Write JSON Lines to this file; if it exists, go on where it stops.", show_default=False),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Write a picture of one text's matches (.png, .svg).", show_default=False)
    ] = None,
    workers: Annotated[int, typer.Option(min=1, help="Processes.")] = 1,
    spans: Annotated[bool, typer.Option("--spans", help="Find the stretches that carry the mark.")] = False,
    show: Annotated[bool, typer.Option("--show", help="Show which tokens match.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Exit 0 if watermarked, 1 if not, 3 if uncertain.")] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="START:END",
            help="Score only these characters (of ids: indices); choose them without the key; may be repeated.",
        ),
    ] = None,
    max_crop: Annotated[
        int, typer.Option(help="With a rotating key: how many tokens may be missing at the front.")
    ] = DEFAULT_MAX_CROP,
    allow_open_key: AllowOpenKey = False,
) -> None:
    """Check texts for the mark of a key, with a p-value that holds for any text.

    --scheme looks for another watermark than dgMARK; give the options that the text was made with.
    """
    options = DetectOptions(
        key=key,
        keys=keys,
        scheme=scheme_of(scheme, scheme_option),
        fpr=fpr,
        mode=mode,
        phase=phase,
        output=output,
        tokenizer=tokenizer,
        steps=parse_steps(normalise or ()),
        out=out,
        plot=plot,
        spans=spans,
        show=show,
        only=parse_ranges(only or ()),
        max_crop=max_crop,
        allow_open_key=allow_open_key,
    )
    scorer = options.scorer()
    scorer.reader.tokenizer  # noqa: B018 (a wrong tokenizer is an error of the key, not of each row)
    if not inputs and sys.stdin.isatty():
        raise SettingsError("give texts to score: files, folders, or - for standard input")
    sources = inputs or [STDIN]
    if out:
        tally = detect_file(
            scorer,
            sources,
            out,
            workers=workers,
            ids=ids,
            only=options.only,
            spans=spans,
            on_resume=partial(_report_resumed, out),
        )
        stderr().print(_sentence(tally, out))
    else:
        tally = _show(options, scorer, sources, ids, workers)
    _leave(tally, check)


def _show(options: DetectOptions, scorer: Scorer, sources: list[str], ids: bool, workers: int) -> Tally:
    """Score the texts and write the results to stdout, and to a picture where one is wanted."""
    tally, task = Tally(), Task(options.only, options.spans)
    items = read_sources(sources, prefer_ids=ids)
    if not options.plot:
        WRITERS[options.output](tally.count(score(scorer, items, task, workers)), scorer, options.show)
        return tally
    rows = list(tally.count(score(scorer, _the_one(items), task)))
    WRITERS[options.output](iter(rows), scorer, options.show)
    for row in rows:
        if not isinstance(row, BadRow):
            save(draw(one_key(scorer), *row), options.plot)
    return tally


def _the_one(items: Iterable[Item | BadRow]) -> list[Item | BadRow]:
    """The text there is; a second one is seen before any is scored."""
    first = list(islice(items, 2))
    if len(first) > 1:
        raise SettingsError("--plot draws one text, and there are more")
    return first


def _report_resumed(out: Path, rows: int) -> None:
    """Say how many rows the file held before this run."""
    if rows:
        stderr().print(f"{rows} rows are already in {out}")


def _sentence(tally: Tally, out: Path) -> str:
    """What the file holds."""
    counts = ", ".join(f"{count} {verdict}" for verdict, count in sorted(tally.verdicts.items()))
    return f"{out}: {tally.scored} scored ({counts or 'none'}), {tally.unusable} cannot be used"


def _leave(tally: Tally, check: bool) -> None:
    """Leave with the exit code that the counts call for."""
    first = tally.first_unusable
    if first and (check or not tally.scored):
        raise first.kind(f"{first.row_id}: {first.error}")
    if tally.unusable:
        stderr().print(f"{tally.unusable} of {tally.unusable + tally.scored} inputs cannot be used")
    elif not tally.scored:
        raise InputError("there is no text to score")
    if check and "not_detected" in tally.verdicts:
        raise typer.Exit(1)
    if check and "uncertain" in tally.verdicts:
        raise typer.Exit(3)
