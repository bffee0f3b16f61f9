"""Rows of texts that commands write: made, printed or kept in a file, counted, and told of on stderr."""

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dgmark.cli.bar import row_bar
from dgmark.cli.console import stderr, stdout, visible
from dgmark.errors import InputError
from dgmark.rows.item import ONE_TEXT, Item, Row, Tally
from dgmark.rows.jsonl import to_line
from dgmark.rows.run import run
from dgmark.rows.sinks import Result, RowFile

if TYPE_CHECKING:
    from dgmark.decode.texts.written import MarkTally

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


def write_rows(
    items: Sequence[Item],
    work: Work,
    row_of: Callable[[Item, Any], Row] = lambda _, row: row,
    *,
    schema: int,
    shared: Row,
    out: str | Path | None = None,
    file: Callable[..., RowFile] = RowFile,
    source: str = "input",
    as_json: bool = False,
    titles: bool = False,
    hidden: bool = False,
    tally: Tally | None = None,
    batch_size: int = 1,
    tokens_each: int = 0,
) -> None:
    """Make the rows that a file does not hold yet, batch by batch, with a bar, or print them, and say what failed.

    Args:
        items: the items, one for each row, in order.
        work: makes the results of a batch.
        row_of: the row of an item and of its result; by default this is the row.
        schema: schema version of the rows.
        shared: fields that all rows of the file share.
        out: the file; without one the rows are printed: one as its text, several as JSON Lines.
        file: opens the file.
        source: the fields of `Item.source` in words, such as "prompt or seed".
        as_json: print rows as JSON Lines, also those of a file.
        titles: print several texts below their ids, in place of rows.
        hidden: show no bar.
        tally: what counts the rows; by default a new one.
        batch_size: largest number of rows in a batch.
        tokens_each: largest number of tokens in a row, for the bar; 0 if it is unknown.

    Raises:
        InputError: two rows have the same id.
        ResumeMismatch: the file holds rows of other settings, or lines that are not rows.
        DgmarkError: every row failed; this is the error of the first one.
    """
    for row_id, times in Counter(item.row_id for item in items).items():
        if times > 1:
            raise InputError(f"two rows have the id {row_id!r}: give each row its own id")
    tally, single = Tally() if tally is None else tally, len(items) == 1

    def whole_row(item: Item, made: Any) -> Row:
        return row_of(item, made) if item.error is None else item.error_row(schema)

    def show(rows: Iterable[Row]) -> None:
        for row in rows:
            if as_json or not (out or single or titles):
                print(to_line(row), flush=True)
            elif not out and "error" not in row:
                _print_text(row, titled=not single)

    of_file = {"shared": {**shared, "schema": schema}, "row_of": whole_row, "source": source, "on_rows": show}
    sink = file(out, **of_file) if out else None
    with row_bar(hidden=hidden) as bar:

        def start(left: int | None) -> None:
            if tally.resumed and file is RowFile:
                stderr().print(f"{tally.resumed} of {len(items)} rows are already in {out}")
            bar.show("", 0, left, tokens_each)

        def count(results: list[Result]) -> None:
            bar.rows(len(results))
            show(() if out else (whole_row(*result) for result in results))

        listening: Any = {"on_start": start, "on_results": count}
        run(items, lambda batch: work(batch, bar.tokens), sink, tally=tally, batch_size=batch_size, **listening)
    if file is not RowFile:
        tell_counts(str(out), tally, "written", "with errors")
    first = tally.first_unusable
    if first and first.error and not tally.scored:
        unnamed = single and (items[0].error is None or items[0].row_id == ONE_TEXT)
        raise first.error if unnamed else first.raised()
    if first and file is RowFile:
        stderr().print(f"errors in {tally.unusable} of {len(items) - tally.resumed} rows")


def _print_text(row: Row, *, titled: bool) -> None:
    if titled:
        stdout().print(f"── {row['id']}", style="dim")
    print(visible(row["text"], lines=True) if sys.stdout.isatty() else row["text"], flush=True)


# --- what is said of them


def _new_marks() -> "MarkTally":
    from dgmark.decode.texts.written import MarkTally

    return MarkTally()


@dataclass
class MarkedTally(Tally):
    """Counts of rows, and of the marks of their texts.

    Attributes:
        marks: counts the marks.
    """

    marks: "MarkTally" = field(default_factory=_new_marks)

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
