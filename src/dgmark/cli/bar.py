"""One progress bar on stderr: rows done, tokens per second, time left. Without a terminal there is no bar."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.progress import BarColumn, Progress, Task, TextColumn, TimeRemainingColumn

from dgmark.cli.console import bar_on, stderr


class RowBar:
    """A progress bar over rows.

    Attributes:
        shown: whether there is a terminal that shows it.
    """

    def __init__(self, progress: Progress, unit: str) -> None:
        self._progress, self._unit = progress, unit
        self.shown = not progress.disable

    def show(self, what: str, done: int, total: float | None, tokens_each: int = 0) -> None:
        """Show a count of rows; a new `what` replaces the bar by a new one.

        Args:
            what: the work, in a word or two.
            done: number of finished rows.
            total: number of all rows; None if it is unknown.
            tokens_each: largest number of tokens in a row, so that the bar moves within a row; 0 if it is unknown.
        """
        label = self._label(what, done, total)
        if self._task and self._task.fields["what"] == what:
            self._progress.update(self._task.id, completed=done, rows=done, description=label)
            return
        self.clear()
        fields: dict[str, Any] = {"what": what, "rows": done, "tokens": 0, "tokens_each": tokens_each, "rate": ""}
        self._progress.add_task(label, total=total, completed=done, **fields)

    def rows(self, count: int) -> None:
        """Count rows that are finished."""
        if self._task:
            self.show(self._task.fields["what"], self._task.fields["rows"] + count, self._task.total)

    def _label(self, what: str, rows: int, total: float | None) -> str:
        of_all = "" if total is None else f"/{total:.0f}"
        unit = self._unit.removesuffix("s") if (rows if total is None else total) == 1 else self._unit
        return f"{what} {rows}{of_all} {unit}".lstrip()

    def tokens(self, count: int) -> None:
        """Count tokens of rows that are not finished yet."""
        if self._task:
            fields = self._task.fields
            tokens = fields["tokens"] + count
            step = count / fields["tokens_each"] if fields["tokens_each"] else 0
            rate = f"{tokens / max(self._task.elapsed or 0, 1e-9):.0f} tokens/s"
            self._progress.update(self._task.id, advance=step, tokens=tokens, rate=rate)

    def clear(self) -> None:
        """Remove the bar."""
        if self._task:
            self._progress.remove_task(self._task.id)

    @property
    def _task(self) -> Task | None:
        return self._progress.tasks[0] if self._progress.tasks else None


@contextmanager
def row_bar(unit: str = "rows", *, hidden: bool = False) -> Iterator[RowBar]:
    """A bar that is removed at the end of the block.

    Args:
        unit: what is counted.
        hidden: show no bar on a terminal either.
    """
    console = stderr()
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
    )
    hidden = hidden or not console.is_terminal
    # output stays on stdout, unless stdout and stderr are the same terminal
    redirect = sys.stdout.isatty()
    progress = Progress(*columns, console=console, transient=True, disable=hidden, redirect_stdout=redirect)
    if hidden:  # before rich 14.3, a bar that is not shown ends in an empty line
        yield RowBar(progress, unit)
        return
    with bar_on(console), progress:
        yield RowBar(progress, unit)
