"""One bar on stderr: rows done, tokens a second, time left. Where stderr is no terminal there is none."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from dgmark.cli.console import stderr

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


class RowBar:
    """A bar over rows; without a terminal it takes the same calls and shows nothing."""

    def __init__(self, progress: "Progress | None" = None, unit: str = "rows") -> None:
        self._progress, self._unit = progress, unit
        self._task: TaskID | None = None
        self._what = ""
        self._total: int | None = None
        self._rows = self._tokens = self._tokens_each = 0
        self._begun = time.monotonic()

    @property
    def shown(self) -> bool:
        """Whether there is a terminal to show it."""
        return self._progress is not None

    def show(self, what: str, done: int, total: int | None, tokens_each: int = 0) -> None:
        """Show a count of rows; another `what` than before begins another bar in its place.

        Args:
            what: the work, in a word or two.
            done: rows.
            total: rows; None if nobody knows.
            tokens_each: most tokens of a row, so that the bar moves between two rows; 0 if nobody knows.
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
        """Tell of rows that are done."""
        if self._progress is not None and self._task is not None:
            self._rows += count
            self._progress.update(self._task, completed=self._rows, description=self._label())

    def _label(self) -> str:
        of = "" if self._total is None else f"/{self._total}"
        return f"{self._what} {self._rows}{of} {self._unit}".lstrip()

    def tokens(self, count: int) -> None:
        """Tell of tokens of rows that are not done yet."""
        if self._progress is None or self._task is None:
            return
        self._tokens += count
        rate = self._tokens / max(time.monotonic() - self._begun, 1e-9)
        step = count / self._tokens_each if self._tokens_each else 0
        self._progress.update(self._task, advance=step, rate=f"{rate:.0f} tokens/s")

    def clear(self) -> None:
        """Take the bar away."""
        if self._progress is not None and self._task is not None:
            self._progress.remove_task(self._task)
            self._task = None


@contextmanager
def row_bar(unit: str = "rows") -> Iterator[RowBar]:
    """A bar that goes away at the end."""
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
    # what goes to stdout belongs there, unless both are the one terminal
    with Progress(*columns, console=console, transient=True, redirect_stdout=sys.stdout.isatty()) as progress:
        yield RowBar(progress, unit)
