"""Commands that turn each input row into an output row: files, stdout, the progress bar, the exit code."""

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from dgmark.cli.bar import row_bar
from dgmark.cli.console import stderr, stdout, visible
from dgmark.errors import DgmarkError
from dgmark.rows.jsonl import BadRow, Row, to_line
from dgmark.rows.row_file import RowFile
from dgmark.rows.runner import RowRun, Task

_NAMED = 20  # skipped files that are named
Content = TypeVar("Content")
# makes a row or an error for each task of a batch; calls its second argument with the number of new tokens
Work = Callable[[list[Task[Content]], Callable[[int], None]], Sequence[Row | DgmarkError]]


@dataclass(frozen=True)
class RowOutput:
    """Where the rows of a command go.

    Attributes:
        schema: schema version of the rows.
        out: a file to append to.
        must_agree: fields that all rows of the file share.
        remembered: fields of the file's finished rows that the command needs, in addition to those of `Task.same`.
        source: the fields of `Task.same` in words.
        as_json: print rows, even if they are also written to a file.
        titles: print several texts below their ids; otherwise several texts are printed as rows.
    """

    schema: int
    out: Path | None = None
    must_agree: Row = field(default_factory=dict)
    remembered: Sequence[str] = ()
    source: str = "input"
    as_json: bool = False
    titles: bool = False

    def open(self, tasks: Sequence[Task[Any] | BadRow]) -> AbstractContextManager[RowFile | None]:
        """Open the file, if there is one.

        Raises:
            ResumeMismatch: the file holds rows of other settings, or lines that are not rows.
            InputError: another process is writing the file.
        """
        if self.out is None:
            return nullcontext()
        same = {name for task in tasks if isinstance(task, Task) for name in task.same}
        return RowFile(self.out, {**self.must_agree, "schema": self.schema}, [*same, *self.remembered])

    def print(self, rows: Sequence[Row], *, single: bool) -> None:
        """Print rows as JSON Lines, as texts, or not at all."""
        if self.as_json or (self.out is None and not single and not self.titles):
            for row in rows:
                print(to_line(row), flush=True)
        elif self.out is None:
            for row in rows:
                if "error" not in row:
                    if not single:
                        stdout().print(f"── {row['id']}", style="dim", markup=False)
                    text = row["text"]
                    print(visible(text, lines=True) if sys.stdout.isatty() else text, flush=True)


def make_rows(
    tasks: Sequence[Task[Any] | BadRow],
    work: Work[Any],
    output: RowOutput,
    *,
    batch_size: int = 1,
    tokens_each: int = 0,
    take: Callable[[list[Row]], None] | None = None,
) -> dict[str, Row]:
    """Make the rows that the file does not hold yet, batch by batch, and print them.

    Args:
        tasks: the tasks, one for each row, in order.
        work: makes the rows of a batch.
        output: where the rows go.
        batch_size: largest number of rows in a batch.
        tokens_each: largest number of tokens in a row, for the bar; 0 if it is unknown.
        take: called with each batch of rows, which is then not printed.

    Returns:
        The rows that the file held before, by id, each with the fields of `Task.same` and `RowOutput.remembered`.

    Raises:
        InputError: two rows have the same id.
        ResumeMismatch: the file holds rows of other settings, or lines that are not rows.
        DgmarkError: every row failed; this is the error of the first one.
    """
    with output.open(tasks) as file:
        run = RowRun(tasks, file, source=output.source)
        before = {} if file is None else dict(file.done)
        if run.finished:
            stderr().print(f"{run.finished} of {run.total} rows are already in {output.out}", markup=False)
        with row_bar() as bar:
            bar.show("", 0, len(run.open), tokens_each)
            for rows in run.batches(lambda batch: work(batch, bar.tokens), batch_size, output.schema):
                bar.rows(len(rows))
                if take is None:
                    output.print(rows, single=run.total == 1)
                else:
                    take(rows)
    run.check_some_done()
    if run.errors:
        stderr().print(f"{len(run.errors)} of {len(run.open)} rows have errors")
    return before


def report_skipped(files: list[str]) -> None:
    """Count and name the files of folders that were not read, as they are no documents."""
    if files:
        more = f" and {len(files) - _NAMED} more" if len(files) > _NAMED else ""
        stderr().print(
            f"{len(files)} files were not read, as their endings are those of no document: "
            f"{', '.join(map(visible, files[:_NAMED]))}{more}",
            markup=False,
        )


def report_resumed(out: Path, rows: int) -> None:
    """Report how many rows the file held before this run."""
    if rows:
        stderr().print(f"{rows} rows are already in {out}", markup=False)
