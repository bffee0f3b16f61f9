"""Rows of texts that commands write: made, printed or kept in a file, counted, and told of on stderr."""

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from dgmark.cli.bar import row_bar
from dgmark.cli.console import stderr, stdout, visible
from dgmark.errors import InputError
from dgmark.rows.item import ONE_TEXT, Item, Row, Tally
from dgmark.rows.jsonl import to_line
from dgmark.rows.run import run
from dgmark.rows.sinks import Result, RowFile

# makes a result or an error of each of some items; calls its second argument with the number of new tokens
Work = Callable[[list[Item], Callable[[int], None]], Sequence[Any]]


def items_of(
    items: Iterable[Item], make: Callable[[Item, int], Item], *, seed: int = 0, purpose: str = ""
) -> list[Item]:
    """The items of a run, each made of an item that was read.

    Args:
        items: what was read.
        make: makes an item of one and its seed, or raises the `InputError` that takes its place.
        seed: seed of the first item; item i has `seed + i`.
        purpose: what an item is, such as "prompt to continue"; "" if there may be none.

    Raises:
        InputError: there is no item.
    """
    made = []
    for number, item in enumerate(items):
        try:
            made.append(make(item, seed + number) if item.error is None else item)
        except InputError as error:
            made.append(item.failed(error))
    if purpose and not made:
        raise InputError(f"there is no {purpose}: the input is empty")
    return made


@dataclass
class RowOutput:
    """Where the rows of a run go, and what is shown of them.

    Attributes:
        schema: schema version of the rows.
        shared: fields that all rows of the file share.
        out: the file; without one the rows are printed: one as its text, several as JSON Lines.
        file: opens the file.
        source: the fields of `Item.source` in words, such as "prompt or seed".
        as_json: print rows as JSON Lines, also those of a file.
        titles: print several texts below their ids, in place of rows.
        hidden: show no bar.
        tally: counts the rows.
        batch_size: largest number of rows in a batch.
        tokens_each: largest number of tokens in a row, for the bar; 0 if it is unknown.
    """

    schema: int
    shared: Row
    out: str | Path | None = None
    file: Callable[..., RowFile] = RowFile
    source: str = "input"
    as_json: bool = False
    titles: bool = False
    hidden: bool = False
    tally: Tally = field(default_factory=Tally)
    batch_size: int = 1
    tokens_each: int = 0

    def write(self, items: Sequence[Item], work: Work, row_of: Callable[[Item, Any], Row]) -> None:
        """Make the rows, see `write_rows`."""

        def whole_row(item: Item, made: Any) -> Row:
            return row_of(item, made) if item.error is None else item.error_row(self.schema)

        show = partial(self._show, single=len(items) == 1)
        of_file = {"shared": {**self.shared, "schema": self.schema}, "row_of": whole_row, "source": self.source}
        sink = self.file(self.out, on_rows=show, **of_file) if self.out else None
        with row_bar(hidden=self.hidden) as bar:

            def start(left: int | None) -> None:
                if self.tally.resumed and self.file is RowFile:
                    stderr().print(f"{self.tally.resumed} of {len(items)} rows are already in {self.out}")
                bar.show("", 0, left, self.tokens_each)

            def count(results: list[Result]) -> None:
                bar.rows(len(results))
                show(() if self.out else (whole_row(*result) for result in results))

            of_run: Any = {"tally": self.tally, "batch_size": self.batch_size, "on_start": start, "on_results": count}
            run(items, lambda batch: work(batch, bar.tokens), sink, **of_run)

    def _show(self, rows: Iterable[Row], *, single: bool) -> None:
        for row in rows:
            if self.as_json or not (self.out or single or self.titles):
                print(to_line(row), flush=True)
            elif not self.out and "error" not in row:
                if not single:
                    stdout().print(f"── {row['id']}", style="dim")
                print(visible(row["text"], lines=True) if sys.stdout.isatty() else row["text"], flush=True)

    def tell(self, items: Sequence[Item]) -> None:
        """Say on stderr what a table holds, or how many rows failed.

        Raises:
            DgmarkError: every row failed; this is the error of the first one.
        """
        first, number = self.tally.first_unusable, len(items)
        if self.file is not RowFile:
            tell_counts(str(self.out), self.tally, "written", "with errors")
        if first and first.error and not self.tally.scored:
            unnamed = number == 1 and (items[0].error is None or items[0].row_id == ONE_TEXT)
            raise first.error if unnamed else first.raised()
        if first and self.file is RowFile:
            stderr().print(f"errors in {self.tally.unusable} of {number - self.tally.resumed} rows")


def write_rows(
    items: Sequence[Item], work: Work, row_of: Callable[[Item, Any], Row] = lambda _, row: row, **output: Any
) -> None:
    """Make the rows that a file does not hold yet, batch by batch, with a bar, or print them, and say what failed.

    Args:
        items: the items, one for each row, in order.
        work: makes the results of a batch.
        row_of: the row of an item and of its result; by default this is the row.
        output: the fields of `RowOutput`.

    Raises:
        InputError: two rows have the same id.
        ResumeMismatch: the file holds rows of other settings, or lines that are not rows.
        DgmarkError: every row failed; this is the error of the first one.
    """
    for row_id, times in Counter(item.row_id for item in items).items():
        if times > 1:
            raise InputError(f"two rows have the id {row_id!r}: give each row its own id")
    to = RowOutput(**output)
    to.write(items, work, row_of)
    to.tell(items)


# --- what is said of them


@dataclass
class MarkedTally(Tally):
    """Counts of rows, and of the marks of their texts.

    Attributes:
        marks: counts the marks.
    """

    def __post_init__(self) -> None:
        from dgmark.decode.texts.written import MarkTally

        self.marks = MarkTally()

    def count(self, item: Item, made: Any) -> None:
        """Count an item and the text that was written for it."""
        super().count(item, made)
        if item.error is None:
            self.marks.add(made)

    def count_row(self, row: Row) -> None:
        """Count a row of a file, or of the added columns of a table."""
        super().count_row(row)
        if row.get("error") is None:
            marked = row["key_fingerprint"] is not None and bool(row["token_ids"])
            verdict = (row.get("check") or row).get("verdict")
            self.marks.count(marked=marked, choices=row["choices"], verdict=verdict)

    def tell(self) -> None:
        """Say on stderr how many texts were found by their check, and warn of those that will not be found."""
        if self.marks.problem is not None:
            stderr().print(f"warning: {self.marks.problem}")
        elif self.marks.checked:
            texts = "the text is" if self.marks.checked == 1 else f"all {self.marks.checked} texts are"
            stderr().print(f"checked: {texts} found with this key")


def tell_counts(out: str | Path, tally: Tally, made: str, not_made: str) -> None:
    """Say on stderr what an output holds: how many rows have what was to be made, and how many have not."""
    before = f"; of these, {tally.resumed} there already" if tally.resumed else ""
    stderr().print(f"{out}: {tally.scored} {made}, {tally.unusable} {not_made}{before}")
