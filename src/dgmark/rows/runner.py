"""The rows of one run: find the open rows, work on them batch by batch, and keep the errors of those that fail.

Every batch is on disk before the next begins, so that an interruption loses one batch at most. Knows nothing about the
meaning of the rows, and prints nothing.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from dgmark.errors import DgmarkError, InputError, ModelFault, PromptTooLong, ResumeMismatch
from dgmark.rows.jsonl import BadRow, Row
from dgmark.rows.row_file import RowFile

Content = TypeVar("Content")

# errors that concern one row, while others may succeed
ROW_ERRORS = (InputError, PromptTooLong, ModelFault)


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


def tasks_of(
    rows: Iterable[Row | BadRow], task: Callable[[Row, int], Task[Content] | BadRow], *, seed: int, purpose: str
) -> list[Task[Content] | BadRow]:
    """Make one task of each row.

    Args:
        rows: the input rows.
        task: makes the task of a row, or says what is wrong with it; the second argument is the seed of the row.
        seed: seed of the first row; row i has `seed + i`.
        purpose: what a row holds and what it is for, such as "prompt to continue".

    Raises:
        InputError: there is no row.
    """
    tasks = [row if isinstance(row, BadRow) else task(row, seed + index) for index, row in enumerate(rows)]
    if not tasks:
        raise InputError(f"there is no {purpose}: the input is empty")
    return tasks


class RowRun(Generic[Content]):
    """The rows of one run.

    Attributes:
        total: number of rows.
        open: the rows that are not finished.
        errors: the errors of the rows that failed.
    """

    def __init__(
        self, tasks: Iterable[Task[Content] | BadRow], file: RowFile | None = None, *, source: str = "input"
    ) -> None:
        """Skip the rows that `file` has.

        Args:
            tasks: the rows in their order; bad rows keep their place.
            file: where finished rows are, and the others go; it must remember the fields that `Task.same` names.
            source: those fields in words, such as "prompt or seed".

        Raises:
            InputError: two rows have one id.
            ResumeMismatch: a finished row has the id of a task, but is of another.
        """
        self._file = file
        every = list(tasks)
        _check_ids(every)
        done: dict[str, Row] = {} if file is None else file.done
        for task in every:
            row = done.get(task.row_id)
            if isinstance(task, Task) and row and any(row.get(name) != value for name, value in task.same.items()):
                path = file.path if file else None
                raise ResumeMismatch(
                    f"{path} holds a row {task.row_id!r} made from a different {source}; choose another --out"
                )
        self.total = len(every)
        self.open = [task for task in every if task.row_id not in done]
        self.errors: list[DgmarkError] = []

    @property
    def finished(self) -> int:
        """The number of rows that were finished before this run."""
        return self.total - len(self.open)

    def batches(
        self, work: Callable[[list[Task[Content]]], Sequence[Row | DgmarkError]], size: int, schema: int
    ) -> Iterator[list[Row]]:
        """Work on the open rows; yield each batch of rows, in order, once it is on disk.

        Error rows are written behind all others, so that the next run can cut them off and make them again.

        Args:
            work: makes one row, or its error, for each task of a batch; it gets no bad rows.
            size: largest number of rows in a batch.
            schema: schema version of the error rows.
        """
        failed: list[Row] = []
        for start in range(0, len(self.open), size):
            batch = self.open[start : start + size]
            made = iter(work([task for task in batch if isinstance(task, Task)]))
            rows = []
            for task in batch:
                outcome = task.kind(task.error) if isinstance(task, BadRow) else next(made)
                if isinstance(outcome, DgmarkError):
                    self.errors.append(outcome)
                    outcome = BadRow(task.row_id, str(outcome)).to_row(schema)
                rows.append(outcome)
            if self._file is not None:
                self._file.append(row for row in rows if "error" not in row)
            failed += [row for row in rows if "error" in row]
            yield rows
        if self._file is not None and failed:
            self._file.append(failed)

    def check_some_done(self) -> None:
        """Raise the first error, with the id of its row if there are several, if no row of the run is finished."""
        if self.errors and len(self.errors) == self.total:
            first, row_id = self.errors[0], self.open[0].row_id
            alone = self.total == 1 and isinstance(self.open[0], Task)
            raise first if alone else type(first)(f"{row_id}: {first}")


def one_by_one(work: Callable[[Task[Content]], Row], tasks: Sequence[Task[Content]]) -> list[Row | DgmarkError]:
    """Work on tasks one by one; return a row for each, or an error that concerns only this row."""
    outcomes: list[Row | DgmarkError] = []
    for task in tasks:
        try:
            outcomes.append(work(task))
        except ROW_ERRORS as error:
            outcomes.append(error)
    return outcomes


def _check_ids(tasks: Sequence[Task[Any] | BadRow]) -> None:
    seen: set[str] = set()
    for task in tasks:
        if task.row_id in seen:
            raise InputError(f"two rows have the id {task.row_id!r}: give each row its own id")
        seen.add(task.row_id)
