"""Commands that make a row of each row: rows on disk and on stdout, a bar on stderr, the exit code."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from dgmark.cli.bar import row_bar
from dgmark.cli.console import stderr, stdout
from dgmark.errors import DgmarkError
from dgmark.rows.jsonl import BadRow, Row, to_line
from dgmark.rows.row_file import RowFile
from dgmark.rows.runner import RowRun, Task

Content = TypeVar("Content")
# the rows of a batch of tasks, or their errors; the second argument is told of tokens as they come
Work = Callable[[list[Task[Content]], Callable[[int], None]], Sequence[Row | DgmarkError]]


@dataclass(frozen=True)
class RowOutput:
    """Where the rows of a command go.

    Attributes:
        schema: of the rows.
        out: a file to append to.
        must_agree: fields that all rows of the file share.
        remembered: fields of its finished rows that the command needs, besides those of `Task.same`.
        source: the fields of `Task.same` in words.
        as_json: print rows, with a file too.
        titles: print several texts below their ids; else several texts are printed as rows.
    """

    schema: int
    out: Path | None = None
    must_agree: Row = field(default_factory=dict)
    remembered: Sequence[str] = ()
    source: str = "input"
    as_json: bool = False
    titles: bool = False

    def open(self, tasks: Sequence[Task[Any] | BadRow]) -> AbstractContextManager[RowFile | None]:
        """The file, if there is one.

        Raises:
            ResumeMismatch: it holds rows made with other settings, or no rows.
        """
        if self.out is None:
            return nullcontext()
        same = {name for task in tasks if isinstance(task, Task) for name in task.same}
        return RowFile(self.out, self.must_agree, [*same, *self.remembered])

    def print(self, rows: Sequence[Row], *, single: bool) -> None:
        """Print rows as rows, as texts, or not at all."""
        if self.as_json or (self.out is None and not single and not self.titles):
            for row in rows:
                print(to_line(row), flush=True)
        elif self.out is None:
            for row in rows:
                if "error" not in row:
                    if not single:
                        stdout().print(f"── {row['id']}", style="dim", markup=False)
                    print(row["text"], flush=True)


def make_rows(
    tasks: Sequence[Task[Any] | BadRow],
    work: Work[Any],
    output: RowOutput,
    *,
    batch_size: int = 1,
    tokens_each: int = 0,
    take: Callable[[list[Row]], None] | None = None,
) -> dict[str, Row]:
    """Make the rows that are not there yet, batch by batch, and print them.

    Args:
        tasks: the work, a row each, in order.
        work: makes the rows of a batch.
        output: where to.
        batch_size: most rows of a batch.
        tokens_each: most tokens of a row, for the bar; 0 if nobody knows.
        take: gets each batch of rows instead of stdout.

    Returns:
        The rows that were there before, by id: the fields that the file was to remember.

    Raises:
        InputError: two rows have one id.
        ResumeMismatch: the file holds rows of something else.
        DgmarkError: not one row could be made; the first one's.
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
