"""`dgmark detect`: reads texts and a key, writes verdicts with their error rate."""

import sys
from collections.abc import Iterable
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from dgmark.cli.console import command_errors, stderr
from dgmark.cli.detect_options import DetectingOptions, DetectOptions
from dgmark.cli.option_groups import option_groups
from dgmark.cli.options import DETECTION, OUTPUT, SPEED
from dgmark.cli.results import WRITERS, draw
from dgmark.detection.detector import Detector
from dgmark.detection.many import Tally, Task, detect_file, read_sources, score
from dgmark.detection.result import Detection
from dgmark.detection.scorer import Scorer, one_key
from dgmark.detection.strip import save
from dgmark.errors import InputError, SettingsError
from dgmark.report import Report, write_report
from dgmark.rows.jsonl import STDIN, BadRow
from dgmark.rows.texts import Item


@command_errors
@option_groups
def detect(
    options: DetectingOptions,
    inputs: Annotated[
        list[str] | None, typer.Argument(help="Text, .jsonl and .parquet files, folders; - is standard input.")
    ] = None,
    ids: Annotated[
        bool,
        typer.Option("--ids", help='Score the "token_ids" of rows that also hold "text".', rich_help_panel=DETECTION),
    ] = False,
    workers: Annotated[int, typer.Option(min=1, help="Number of processes.", rich_help_panel=SPEED)] = 1,
    check: Annotated[
        bool, typer.Option("--check", help="Exit 0 if watermarked, 1 if not, 3 if uncertain.", rich_help_panel=OUTPUT)
    ] = False,
) -> None:
    """Check texts for the mark of a key, with a p-value that is valid for any text.

    --scheme tests for another watermark than dgMARK; give the options that the text was generated with.
    """
    scorer = options.scorer()
    scorer.reader.tokenizer  # noqa: B018 (a wrong tokenizer is an error of the key, not of each row)
    if not inputs and sys.stdin.isatty():
        raise SettingsError("give texts to score: files, folders, or - for standard input")
    sources = inputs or [STDIN]
    if options.out:
        tally = detect_file(
            scorer,
            sources,
            options.out,
            workers=workers,
            ids=ids,
            only=options.only,
            spans=options.spans,
            on_resume=partial(_report_resumed, options.out),
        )
        stderr().print(_file_summary(tally, options.out), markup=False)
    else:
        tally = _show(options, scorer, sources, ids, workers)
    _check_exit(tally, check)


def _show(options: DetectOptions, scorer: Scorer, sources: list[str], ids: bool, workers: int) -> Tally:
    """Score the texts, write the results to stdout, and draw the picture and write the reports that are requested."""
    tally, task = Tally(), Task(options.only, options.spans)
    items = read_sources(sources, prefer_ids=ids)
    if not (options.plot or options.reports):
        WRITERS[options.output](tally.count(score(scorer, items, task, workers)), scorer, options.show)
        return tally
    rows = list(tally.count(score(scorer, _single_text(items), task)))
    WRITERS[options.output](iter(rows), scorer, options.show)
    for row in rows:
        if not isinstance(row, BadRow):
            if options.plot:
                save(draw(one_key(scorer), *row), options.plot)
            if options.reports:
                _write_reports(options, one_key(scorer), *row)
    return tally


def _write_reports(options: DetectOptions, detector: Detector, item: Item, detection: Detection) -> None:
    report = Report.of(detector, item.row_id, item.content, detection=detection, public=options.public)
    for path in options.reports:
        write_report(report, path, signer=options.signer)


def _single_text(items: Iterable[Item | BadRow]) -> list[Item | BadRow]:
    """The only text. More than one is refused before any is scored."""
    first = list(islice(items, 2))
    if len(first) > 1:
        raise SettingsError(
            "--plot and --report show one text, but the input holds more: give one text, or leave them out"
        )
    return first


def _report_resumed(out: Path, rows: int) -> None:
    """Report how many rows the file held before this run."""
    if rows:
        stderr().print(f"{rows} rows are already in {out}", markup=False)


def _file_summary(tally: Tally, out: Path) -> str:
    """The counts of the file's rows, in one line."""
    counts = ", ".join(f"{count} {verdict}" for verdict, count in sorted(tally.verdicts.items()))
    return f"{out}: {tally.scored} scored ({counts or 'none'}), {tally.unusable} cannot be used"


def _check_exit(tally: Tally, check: bool) -> None:
    """Exit with the code that the counts require."""
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
