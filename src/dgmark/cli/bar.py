"""One progress bar on stderr: rows done, tokens per second, time left. Without a terminal there is no bar."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from dgmark.cli.console import stderr

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


class RowBar:
    """A progress bar over rows; without a terminal it accepts the same calls and shows nothing."""

    def __init__(self, progress: "Progress | None" = None, unit: str = "rows") -> None:
        self._progress, self._unit = progress, unit
        self._task: TaskID | None = None
        self._what = ""
        self._total: int | None = None
        self._rows = self._tokens = self._tokens_each = 0
        self._begun = time.monotonic()

    @property
    def shown(self) -> bool:
        """Whether there is a terminal that shows the bar."""
        return self._progress is not None

    def show(self, what: str, done: int, total: int | None, tokens_each: int = 0) -> None:
        """Show a count of rows; a new `what` replaces the bar by a new one.

        Args:
            what: the work, in a word or two.
            done: number of finished rows.
            total: number of all rows; None if it is unknown.
            tokens_each: largest number of tokens in a row, so that the bar moves within a row; 0 if it is unknown.
        """
        if self._progress is None:
            return
        if self._task is None or what != self._what:
            self.clear()
            self._what, self._tokens, self._tokens_each = what, 0, tokens_each
            self._begun = time.monotonic()
        self._rows, self._total = done, total
        if self._task is None:
            self._task = self._progress.add_task(self._label(), total=total, completed=done, rate="")
        self.rows(0)

    def rows(self, count: int) -> None:
        """Count rows that are finished."""
        if self._progress is not None and self._task is not None:
            self._rows += count
            self._progress.update(self._task, completed=self._rows, description=self._label())

    def _label(self) -> str:
        total = "" if self._total is None else f"/{self._total}"
        return f"{self._what} {self._rows}{total} {self._unit}".lstrip()

    def tokens(self, count: int) -> None:
        """Count tokens of rows that are not finished yet."""
        if self._progress is None or self._task is None:
            return
        self._tokens += count
        rate = self._tokens / max(time.monotonic() - self._begun, 1e-9)
        step = count / self._tokens_each if self._tokens_each else 0
        self._progress.update(self._task, advance=step, rate=f"{rate:.0f} tokens/s")

    def clear(self) -> None:
        """Remove the bar."""
        if self._progress is not None and self._task is not None:
            self._progress.remove_task(self._task)
            self._task = None


@contextmanager
def row_bar(unit: str = "rows") -> Iterator[RowBar]:
    """A bar that is removed at the end of the block."""
    console = stderr()
    if not console.is_terminal:
        yield RowBar()
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
    )
    # output stays on stdout, unless stdout and stderr are the same terminal
    with Progress(*columns, console=console, transient=True, redirect_stdout=sys.stdout.isatty()) as progress:
        yield RowBar(progress, unit)
