"""`dgmark detect` and `dgmark generate` on Parquet: a file in, the same rows with more columns in another one out."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from dgmark.cli.bar import row_bar
from dgmark.cli.console import stderr
from dgmark.cli.detect_options import DetectOptions
from dgmark.cli.row_runs import tell_of_marks
from dgmark.columns.detect_columns import detected
from dgmark.columns.parquet import ParquetRun, is_parquet
from dgmark.detection.result import Scorer
from dgmark.errors import SettingsError
from dgmark.rows.detect_files import ScoringOptions, Tally, settings_hash
from dgmark.rows.jsonl import BadRow
from dgmark.rows.workers import FULL, map_in_order

if TYPE_CHECKING:
    from dgmark.columns.generate_columns import GenerateColumns
    from dgmark.decode.own_check import MarkTally

_ONE_FILE = (
    "Parquet is made from Parquet, one file at a time: give one file in.parquet and --out out.parquet, or convert it "
    "to JSON Lines"
)


def detect_parquet(options: DetectOptions, scorer: Scorer, sources: Sequence[str], column: str, workers: int) -> Tally:
    """Score the texts of a column of a Parquet file into another one.

    Raises:
        SettingsError: there is another input, or no output that is Parquet, or spans or ranges are wanted.
        InputError: see `ParquetRun.write`.
    """
    if len(sources) != 1 or not is_parquet(sources[0]) or options.out is None or not is_parquet(options.out):
        raise SettingsError(_ONE_FILE)
    if options.as_json:
        raise SettingsError("Parquet is written to a file: leave --json out")
    if options.spans or options.ranges:
        raise SettingsError("columns of Parquet hold no spans: leave --spans and --only out, or give JSON Lines")
    scoring = ScoringOptions(payload=options.payload)
    scorer = scoring.check(scorer)
    made_with = {
        "settings": settings_hash(scorer, scoring, ids=False),
        "key": scorer.settings["keys"],
        "column": column,
    }
    tally = Tally()

    def work(batches: Iterator[Any]) -> Iterator[Any]:
        shared = (scorer, column, options.payload)
        found = map_in_order(_detect_batches, batches, workers=workers, shared=shared, size=lambda _: FULL)
        return (made for _, made in found)

    run = ParquetRun(sources[0], options.out, made_with)
    _write(run, work, tally, "verdict")
    return tally


def _detect_batches(batches: list[Any], scorer: Scorer, column: str, payload: bool) -> list[Any]:
    return [detected(scorer, batch, column, payload=payload) for batch in batches]


def generate_parquet(
    write: "GenerateColumns", source: str, out: str | None, made_with: dict[str, Any], part_rows: int
) -> None:
    """Write a text for each prompt of a column of a Parquet file into another one.

    Args:
        write: writes the texts of a batch.
        source: the file of the prompts.
        out: the file to write.
        made_with: everything that the texts depend on except the rows.
        part_rows: rows after which a part is on disk.

    Raises:
        SettingsError: the output is no Parquet file.
        DgmarkError: two rows have the same id; or see `ParquetRun.write`.
    """
    if not is_parquet(source) or out is None or not is_parquet(out):
        raise SettingsError(_ONE_FILE)
    from dgmark.decode.own_check import MarkTally, MarkWarning

    tally, marks = Tally(), MarkTally()
    run = ParquetRun(source, out, made_with, part_rows=part_rows)
    run.check_ids(write.id_column)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MarkWarning)  # of single batches: one for the whole run follows
        _write(run, lambda batches: map(write, batches), tally, "ended", lambda batch: count_marks(marks, batch))
    tell_written(out, tally)
    tell_of_marks(marks)


def tell_written(out: str, tally: Tally) -> None:
    """Say on stderr what an output of generated texts holds.

    Raises:
        DgmarkError: it holds errors alone: that of the first row.
    """
    before = f"; {tally.resumed} rows were there already" if tally.resumed else ""
    stderr().print(f"{out}: {tally.scored} written, {tally.unusable} have errors{before}", markup=False)
    if tally.first_unusable and not tally.scored:
        raise tally.first_unusable.kind(f"{tally.first_unusable.row_id}: {tally.first_unusable.error}")


def count_marks(marks: "MarkTally", batch: Any) -> None:
    """Count the texts of a written batch that name a key and that will not be found with it."""
    names = ["key_fingerprint", "token_ids", "choices", *(["verdict"] if "verdict" in batch.schema.names else [])]
    for row in batch.select(names).to_pylist():
        if row["token_ids"] is not None:  # else it has an error
            marked = row["key_fingerprint"] is not None and bool(row["token_ids"])
            marks.count(marked=marked, choices=row["choices"], verdict=row.get("verdict"))


def _write(
    run: ParquetRun,
    work: Callable[[Iterator[Any]], Iterator[Any]],
    tally: Tally,
    counted: str,
    on_batch: Callable[[Any], object] = lambda _: None,
) -> None:
    """Write the file, with a bar on a terminal, and count its rows by the values of a column."""
    with row_bar() as bar:

        def count(batch: Any, rows: int) -> None:
            on_batch(batch)
            done = tally.scored + tally.unusable
            errors = batch.column(run.error).to_pylist()
            tally.verdicts.update(value for value in batch.column(counted).to_pylist() if value is not None)
            for number, error in enumerate(errors):
                if error is not None:
                    tally.unusable += 1
                    tally.first_unusable = tally.first_unusable or BadRow(f"row {done + number}", error)
            bar.show("", tally.scored + tally.unusable, rows)

        if not run.write(work, count):
            tally.resumed = tally.scored + tally.unusable
