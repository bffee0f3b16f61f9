"""`dgmark detect`: reads texts and a key, writes verdicts with their error rate."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer

from dgmark.cli import options as opt
from dgmark.cli.bar import row_bar
from dgmark.cli.console import command_errors, stderr, visible
from dgmark.cli.detect_options import DetectOptions
from dgmark.cli.option_groups import OptionGroup, option_groups
from dgmark.cli.panels import panels
from dgmark.cli.results import print_all, printer_of_each
from dgmark.cli.row_output import tell_counts
from dgmark.detection.results.words import options_of, rarity
from dgmark.detection.row_keys import AnyScorer, RowKeys
from dgmark.detection.statistics.rules import seconds_to_check, work_of
from dgmark.errors import DgmarkError, InputError, SettingsError, each, without_errors
from dgmark.files.inputs import STDIN, named_file, names_of
from dgmark.files.outputs import atomic_write, check_output
from dgmark.report.joined import MAX_REPORTS, JoinedReport
from dgmark.report.page import to_json, write_report
from dgmark.report.statement import Report
from dgmark.rows.item import Item, Row, Tally
from dgmark.rows.jsonl import to_line
from dgmark.rows.parquet import is_parquet
from dgmark.rows.run import run
from dgmark.rows.scoring import detect_file, detectors_of, score, to_score
from dgmark.rows.sinks import Result
from dgmark.rows.sources import read_sources
from dgmark.rows.tables import RowReading
from dgmark.rows.workers import MAX_WORKERS

_NAMED = 20  # skipped files that are named
_LONG_SECONDS = 10  # of a text that is announced


@command_errors
@panels(
    Test="allow_open_key tokenizer fpr fdr phase max_crop normalise context only spans payload",
    Tables="ids text_column id_column key_column prefix workers",
    Report="sign commitment public extract",
    Output="verbose output as_json check",
)
@option_groups
def detect(
    options: Annotated[DetectOptions, OptionGroup(DetectOptions)],
    inputs: Annotated[
        list[str] | None, typer.Argument(help="Documents, JSON Lines, Parquet, folders; - is standard input.")
    ] = None,
    ids: Annotated[bool, typer.Option("--ids", help='Score the "token_ids" of rows that also hold "text".')] = False,
    text_column: Annotated[
        str | None, typer.Option(help="Column of the texts, or field: messages[-1].content.", show_default="text")
    ] = None,
    id_column: opt.IdColumn = None,
    prefix: opt.Prefix = "",
    workers: Annotated[int, typer.Option(min=1, max=MAX_WORKERS, help="Number of processes.")] = 1,
    check: Annotated[bool, typer.Option("--check", help="Exit 0 if watermarked, 1 if not, 3 if uncertain.")] = False,
) -> None:
    """Check texts for the mark of a key. False alarms are limited to --fpr, whatever the text.

    Exits with 4 if any input could not be tested; the others are tested all the same.
    What to do with a finding: docs/for-checkers.md.
    """
    scorer = options.scorer()
    options.check_report(scorer)
    if not inputs and sys.stdin.isatty():
        raise SettingsError("give texts to score: files, folders, or - for standard input")
    sources = names_of(inputs or [STDIN])
    if len(sources) == 1 and " " in sources[0] and named_file(sources[0]) is None:
        raise InputError(
            f"there is no file {sources[0]}: to check a text itself, give it on standard input, as in "
            "`echo 'The text' | dgmark detect --key KEY`"
        )
    rows: dict[str, Any] = {"text_column": text_column, "id_column": id_column, "key_column": options.key_column}
    if options.out:
        tally = _write(options, scorer, sources, workers=workers, ids=ids, prefix=prefix, **rows)
        report_counts(options.out, tally)
    else:
        tally = _print(options, scorer, sources, RowReading(prefer_ids=ids, **rows), workers)
    _report_skipped(tally.skipped)
    if options.out or (tally.scored > 1 and options.form == "table"):
        _tell_of_many(tally, options.fpr)
    _check_exit(tally, check, empty=is_parquet(options.out or ""))


def _typed(sources: Iterable[str]) -> bool:
    """Whether a text is typed on the terminal, where a bar would be in the way."""
    return STDIN in sources and sys.stdin.isatty()


def _write(options: DetectOptions, scorer: AnyScorer, sources: list[str], **reading: Any) -> Tally:
    """Score the texts into a file; with --json, also print its new rows."""
    with row_bar("texts", hidden=_typed(sources)) as bar:
        bar.show("", 0, None)

        def report(rows: list[Row]) -> None:
            bar.rows(len(rows))
            for row in rows if options.as_json else ():
                print(to_line(row), flush=True)

        return detect_file(scorer, sources, options.out or "", on_rows=report, **vars(options.scoring), **reading)


def _print(options: DetectOptions, scorer: AnyScorer, sources: list[str], reading: RowReading, workers: int) -> Tally:
    """Score the texts, write the results to stdout, and write what is requested of them."""
    for written in (options.extract, *(options.report or ())):
        check_output(written, [*sources, *options.files_read])
    tally, results, print_some = Tally(), list[Result](), printer_of_each(options)
    work = partial(score, options.scoring.check(scorer), options.scoring)
    items = to_score(_with_notes(read_sources(sources, reading, on_skip=tally.skipped.append), scorer), scorer)
    if options.extract or options.report:
        items = iter(_few(items, *(("--extract", 1) if options.extract else ("--report", MAX_REPORTS))))
    at_once = None if options.fdr else print_some
    with row_bar("texts", hidden=_typed(sources)) as bar:
        bar.show("", 0, None)

        def show(batch: list[Result]) -> None:
            bar.rows(len(batch))
            results.extend(batch if at_once is None or options.extract or options.report else ())
            if at_once is not None:
                at_once(batch)

        run(items, work, tally=tally, workers=workers, on_results=show)
    if print_some is None:
        print_all(results, scorer, options)
    elif at_once is None:
        print_some(results)
    if tally.scored and options.extract:
        _extract(results[0][0].content, options.extract)
    if tally.scored and options.report:
        _write_report(options, scorer, results, ", ".join(sources))
    return tally


def _write_report(options: DetectOptions, scorer: AnyScorer, results: Sequence[Result], name: str) -> None:
    """Write the report of a text, or one report of several, which names those that could not be reported on."""
    about: Any = {"public": options.public, "commitment": options.key_commitment, "key_files": options.key_files}

    def made(result: Result) -> Report:
        item, detection = result
        return Report.of(scorer, item.name, item.content, detection=detection, notes=item.notes, **about)

    reports = each(made, [item.error or (item, detection) for item, detection in results])
    good = [report for report in reports if isinstance(report, Report)]
    if len(results) == 1 or not good:
        whole: Report | JoinedReport = without_errors(reports)[0]
    else:
        named = zip([item.name for item, _ in results], reports, strict=True)
        unanswered = [f"{of}: {report}" for of, report in named if isinstance(report, DgmarkError)]
        whole = JoinedReport.of([to_json(report).decode() for report in good], name, None, unanswered)
    for path in options.report or ():
        write_report(whole, path, signer=options.signer)


def _few(items: Iterable[Item], option: str, most: int) -> list[Item]:
    """The texts. More than an option takes are refused before any is scored."""
    first = list(islice(items, most + 1))
    if len(first) > most:
        raise SettingsError(
            f"{option} takes {'one text' if most == 1 else f'up to {most:,} texts'}, but the input holds more: give "
            f"fewer at a time, or list the verdicts on all of them with --format csv in place of {option}"
        )
    return first


def _extract(content: str | list[int], path: Path) -> None:
    """Write the text that was scored, as it was scored.

    Raises:
        SettingsError: ids were scored.
        InputError: the file cannot be written.
    """
    if not isinstance(content, str):
        raise SettingsError("--extract writes the text that is scored, but token ids were: leave --extract out")
    atomic_write(path, content.encode("utf-8", "surrogatepass"))


def _with_notes(items: Iterable[Item], scorer: AnyScorer) -> Iterator[Item]:
    """The items; to stderr go the notes on each document, once for a table, and what takes long, before it starts."""
    shown: tuple[str, ...] = ()
    keys = [detector.key for detector in detectors_of(scorer)][: 1 if isinstance(scorer, RowKeys) else None]
    for item in items:
        if item.error is None and (seconds := seconds_to_check(item.content, keys)) > _LONG_SECONDS:
            stderr().print(f"{item.name}: {work_of(keys)} takes about {seconds:.0f} seconds")
        if item.notes and item.notes != shown:
            shown = item.notes
            for note in item.notes:
                stderr().print(f"{item.name}: {note}")
        yield item


def report_counts(out: str | Path, tally: Tally) -> None:
    """Say on stderr what an output holds."""
    counts = ", ".join(f"{count} {verdict}" for verdict, count in sorted(tally.verdicts.items())) or "none"
    tell_counts(out, tally, f"scored ({counts})", "cannot be used")


def _tell_of_many(tally: Tally, fpr: float) -> None:
    """Say on stderr how many false alarms are to be expected, and which disguises may hide marks."""
    texts = f"{tally.scored:,} text{'s'[: tally.scored != 1]}"
    expected = float(f"{fpr * tally.scored:.2g}")
    stderr().print(
        f"Of {texts} at a false-positive rate of {rarity(fpr)}, up to {expected:,g} false alarms are to be expected."
    )
    if tally.disguised:
        told = ", ".join(f"{count:,} with {options_of([step])}" for step, count in tally.disguised.items())
        stderr().print(f"Disguises may hide a mark in texts in which none was found. Test them again: {told}.")


def _report_skipped(files: list[str]) -> None:
    """Name the files that were not read, as they are not documents."""
    if files:
        more = f" and {len(files) - _NAMED} more" if len(files) > _NAMED else ""
        stderr().print(
            f"not read, as their endings are those of no document, or they hold keys: "
            f"{', '.join(map(visible, files[:_NAMED]))}{more}"
        )


def _check_exit(tally: Tally, check: bool, *, empty: bool) -> None:
    """Exit with the code that the counts require: an input that could not be tested comes before every verdict.

    Args:
        tally: the counts.
        check: whether verdicts decide.
        empty: whether a table without rows is an answer.
    """
    if tally.first_unusable:
        raise tally.failed()
    if not (tally.scored or empty):
        raise InputError("there is no text to score")
    if check and "not_detected" in tally.verdicts:
        raise typer.Exit(1)
    if check and "uncertain" in tally.verdicts:
        raise typer.Exit(3)
