"""Commands that make an output row of each input row: files, stdout, the progress bar, the exit code.

Every batch is on disk before the next begins, so that an interruption loses one batch at most. Knows nothing about the
meaning of the rows.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from dgmark.cli.bar import row_bar
from dgmark.cli.console import stderr, stdout, visible
from dgmark.errors import DgmarkError, InputError, ResumeMismatch, together
from dgmark.rows.detect_files import Tally
from dgmark.rows.jsonl import BadRow, Row, to_line
from dgmark.rows.row_file import RowFile

if TYPE_CHECKING:
    from dgmark.decode.texts.written import MarkTally

Content = TypeVar("Content")


@dataclass(frozen=True)
class Task(Generic[Content]):
    """The work of one row.

    Attributes:
        row_id: id of the row.
        content: the input of the work.
        same: fields that a finished row must share to be the result of this task.
    """

    row_id: str
    content: Content
    same: Row = field(default_factory=dict)


# makes a row or an error for each of some tasks; calls its second argument with the number of new tokens
Work = Callable[[list[Task[Content]], Callable[[int], None]], Sequence[Row | DgmarkError]]


def tasks_of(
    rows: Iterable[Row | BadRow], task: Callable[[Row, int], Task[Content] | BadRow], *, seed: int, purpose: str
) -> list[Task[Content] | BadRow]:
    """Make one task of each row.

    Args:
        rows: the input rows.
        task: makes the task of a row, or says what is wrong with it; the second argument is the seed of the row.
        seed: seed of the first row; row i has `seed + i`.
        purpose: what a row holds and what it is for, such as "prompt to continue"; "" if there may be no row.

    Raises:
        InputError: there is no row.
    """
    tasks = [row if isinstance(row, BadRow) else task(row, seed + index) for index, row in enumerate(rows)]
    if purpose and not tasks:
        raise InputError(f"there is no {purpose}: the input is empty")
    return tasks


@dataclass(frozen=True)
class RowOutput:
    """Where the rows of a command go.

    Attributes:
        schema: schema version of the rows.
        out: a file to append to.
        must_agree: fields that all rows of the file share.
        source: the fields of `Task.same` in words, such as "prompt or seed".
        as_json: print rows, even if they are also written to a file.
        titles: print several texts below their ids; otherwise several texts are printed as rows.
        finish: called with the rows of the file in the order of the tasks, once all are there.
    """

    schema: int
    out: Path | None = None
    must_agree: Row = field(default_factory=dict)
    source: str = "input"
    as_json: bool = False
    titles: bool = False
    finish: Callable[[Iterator[Row]], object] | None = None

    def open(self, tasks: Sequence[Task[Any] | BadRow]) -> AbstractContextManager[RowFile | None]:
        """Open the file, if there is one.

        Raises:
            ResumeMismatch: the file holds rows of other settings or inputs, or lines that are not rows.
            InputError: another process is writing the file.
        """
        if self.out is None:
            return nullcontext()
        same = {name for task in tasks if isinstance(task, Task) for name in task.same}
        return RowFile(self.out, {**self.must_agree, "schema": self.schema}, [*same])

    def print(self, rows: Sequence[Row], *, single: bool) -> None:
        """Print rows as JSON Lines, as texts, or not at all."""
        if self.as_json or (self.out is None and not single and not self.titles):
            for row in rows:
                print(to_line(row), flush=True)
        elif self.out is None:
            for row in rows:
                if "error" not in row:
                    if not single:
                        stdout().print(f"── {row['id']}", style="dim")
                    text = row["text"]
                    print(visible(text, lines=True) if sys.stdout.isatty() else text, flush=True)


def make_rows(
    tasks: Sequence[Task[Any] | BadRow],
    work: Work[Any],
    output: RowOutput,
    *,
    batch_size: int = 1,
    tokens_each: int = 0,
) -> None:
    """Make the rows that the file does not hold yet, batch by batch.

    Rows with an error are written after all others, so that the next run can cut them off and make them again.

    Args:
        tasks: the tasks, one for each row, in order; bad rows keep their place.
        work: makes the rows of a batch.
        output: where the rows go.
        batch_size: largest number of rows in a batch.
        tokens_each: largest number of tokens in a row, for the bar; 0 if it is unknown.

    Raises:
        InputError: two rows have the same id.
        ResumeMismatch: the file holds rows of other settings, or lines that are not rows.
        DgmarkError: every row failed; this is the error of the first one.
    """
    _check_ids(tasks)
    failed: dict[str, Row] = {}
    errors: list[DgmarkError] = []
    with output.open(tasks) as file:
        finished = {} if file is None else file.done
        _check_finished(tasks, finished, output)
        left = [task for task in tasks if task.row_id not in finished]
        if len(left) < len(tasks):
            done = len(tasks) - len(left)
            stderr().print(f"{done} of {len(tasks)} rows are already in {output.out}")
        with row_bar() as bar:
            bar.show("", 0, len(left), tokens_each)
            for start in range(0, len(left), batch_size):
                batch = left[start : start + batch_size]
                rows: dict[str, Row] = {}
                for task, outcome in zip(batch, _outcomes(batch, work, bar.tokens), strict=True):
                    if isinstance(outcome, DgmarkError):
                        errors.append(outcome)
                        outcome = failed[task.row_id] = BadRow(task.row_id, str(outcome)).to_row(output.schema)
                    rows[task.row_id] = outcome
                if file is not None:
                    file.append(row for row in rows.values() if "error" not in row)
                bar.rows(len(rows))
                output.print([*rows.values()], single=len(tasks) == 1)
        if file is not None and failed:
            file.append(failed.values())
        if file is not None and output.finish is not None:
            output.finish(file.rows_of(task.row_id for task in tasks))
    if errors and len(errors) == len(tasks):
        alone = len(tasks) == 1 and isinstance(tasks[0], Task)
        raise errors[0] if alone else type(errors[0])(f"{tasks[0].row_id}: {errors[0]}")
    if errors:
        stderr().print(f"errors in {len(errors)} of {len(left)} rows")


def tell_counts(out: str | Path, tally: Tally, made: str, not_made: str) -> None:
    """Say on stderr what an output holds: how many rows have what was to be made, and how many have not."""
    before = f"; of these, {tally.resumed} there already" if tally.resumed else ""
    stderr().print(f"{out}: {tally.scored} {made}, {tally.unusable} {not_made}{before}")


def tell_written(out: str, tally: Tally) -> None:
    """Say on stderr what a table of generated texts holds.

    Raises:
        DgmarkError: it holds errors alone: that of the first row.
    """
    tell_counts(out, tally, "written", "with errors")
    if tally.first_unusable and not tally.scored:
        raise tally.first_unusable.as_error()


def table_counts(columns: Iterable[str], values: Callable[[list[str]], Iterable[Row]]) -> tuple[Tally, "MarkTally"]:
    """Count the rows of a table of generated texts, and those of them that will not be found.

    Args:
        columns: the added columns of the table.
        values: gives some of these columns of each row, of lists their lengths.
    """
    from dgmark.decode.texts.written import MarkTally

    tally, marks = Tally(), MarkTally()
    wanted = ("ended", "error", "key_fingerprint", "token_ids", "choices", "verdict")
    for row in values([name for name in wanted if name in columns]):
        tally.count_row({**row, "verdict": row["ended"]})
        if row["error"] is None:
            marked = row["key_fingerprint"] is not None and row["token_ids"] > 0
            marks.count(marked=marked, choices=row["choices"], verdict=row.get("verdict"))
    return tally, marks


def tell_of_marks(tally: "MarkTally") -> None:
    """Say on stderr how many texts were found by their check, and warn of those that will not be found."""
    if tally.problem is not None:
        stderr().print(f"warning: {tally.problem}")
    elif tally.checked:
        texts = "the text is" if tally.checked == 1 else f"all {tally.checked} texts are"
        stderr().print(f"checked: {texts} found with this key")


def _outcomes(
    batch: Sequence[Task[Any] | BadRow], work: Work[Any], progress: Callable[[int], None]
) -> list[Row | DgmarkError]:
    tasks = [task.kind(task.error) if isinstance(task, BadRow) else task for task in batch]
    return together(lambda good: work(good, progress) if good else (), tasks)


def _check_ids(tasks: Sequence[Task[Any] | BadRow]) -> None:
    for row_id, count in Counter(task.row_id for task in tasks).items():
        if count > 1:
            raise InputError(f"two rows have the id {row_id!r}: give each row its own id")


def _check_finished(tasks: Sequence[Task[Any] | BadRow], finished: dict[str, Row], output: RowOutput) -> None:
    """Refuse a file that holds a row of the id of a task, but of another input."""
    for task in tasks:
        row = finished.get(task.row_id)
        if isinstance(task, Task) and row and any(row.get(name) != value for name, value in task.same.items()):
            raise ResumeMismatch(
                f"{output.out} holds a row {task.row_id!r} made from a different {output.source}; choose another --out"
            )


def rows_of(
    tasks: Sequence[Task[Content]], made: Sequence[Any], row_of: Callable[[Task[Content], Any], Row]
) -> list[Row | DgmarkError]:
    """The row of what was made for each task; an error stays one."""
    return [one if isinstance(one, DgmarkError) else row_of(task, one) for task, one in zip(tasks, made, strict=True)]
