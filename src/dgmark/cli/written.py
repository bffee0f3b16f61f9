"""Commands that write a text for each row: which key and seed it has, where its text goes, and what is said of it."""

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from dgmark.arguments.column_names import Fields
from dgmark.cli.bar import row_bar
from dgmark.cli.console import stderr, stdout, visible
from dgmark.cli.options import Marks
from dgmark.detection.row_keys import key_named
from dgmark.errors import InputError, ResumeMismatch, SettingsError
from dgmark.rows.item import Item, Row, Tally
from dgmark.rows.jsonl import to_line
from dgmark.rows.parquet import is_parquet
from dgmark.rows.parquet_sink import ParquetSink
from dgmark.rows.run import run
from dgmark.rows.sinks import Printed, RowSink, Sink
from dgmark.watermark.key import WatermarkKey, subkey_of

if TYPE_CHECKING:
    from dgmark.decode.texts.written import MarkTally

# makes a result or an error of each of some items; calls its second argument with the number of new tokens
Work = Callable[[list[Item], Callable[[int], None]], Sequence[Any]]


# --- the rows


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


class RowMark(NamedTuple):
    """What marks the text of a row: the key, the seed and the sub-key, which is None for one that is drawn."""

    key: WatermarkKey | None
    seed: int
    subkey: int | None


@dataclass(frozen=True)
class RowMarks:
    """What marks the texts of rows.

    Attributes:
        marks: the key of all rows, or the keys that rows name.
        subkey: the sub-key of all rows, if it was chosen.
        seed: the seed of the first row, or the one that ids are hashed with.
        id_column: the column of ids, from which seeds and sub-keys follow.
        key_column: the column that names the key of each row.

    Raises:
        SettingsError: rows are to name their keys and there is no folder of keys, or the other way round; or a sub-key
            was chosen, and follows from the ids.
    """

    marks: Marks
    subkey: int | None
    seed: int
    id_column: str | None
    key_column: str | None

    def __post_init__(self) -> None:
        if isinstance(self.marks, dict) == (self.key_column is None):
            raise SettingsError(
                "--keys FOLDER and --key-column NAME belong together, as each row names its key: give both"
            )
        if self.id_column is not None and self.subkey is not None:
            raise SettingsError("with --id-column the ids give the sub-keys: leave --subkey or --id-column out")

    @property
    def keys(self) -> list[WatermarkKey | None]:
        """The keys of the rows."""
        return [*self.marks.values()] if isinstance(self.marks, dict) else [self.marks]

    def of(self, item: Item, seed: int) -> RowMark:
        """What marks the text of a row.

        Args:
            item: the row.
            seed: its seed, if that does not follow from its id.

        Raises:
            InputError: there is no such key.
        """
        key = key_named(self.marks, item.key) if isinstance(self.marks, dict) else self.marks
        if self.id_column is None:
            return RowMark(key, seed, self.subkey)
        from dgmark.decode.texts.requests import seed_of

        subkey = subkey_of(key, item.row_id) if key is not None and key.spec.subkeys > 1 else None
        return RowMark(key, seed_of(self.seed, item.row_id), subkey)

    def stated(self, mark: RowMark) -> Row:
        """What a finished row states if it was marked with this."""
        key: Row = {"key_fingerprint": mark.key.fingerprint} if isinstance(self.marks, dict) and mark.key else {}
        return {**key, "seed": mark.seed} | ({} if mark.subkey is None else {"subkey": mark.subkey})

    def shared(self) -> Row:
        """The fields of the key that all rows share: none if rows name their keys."""
        if isinstance(self.marks, dict):
            return {}
        return {"key_fingerprint": None if self.marks is None else self.marks.fingerprint}


# --- where they go


@dataclass(frozen=True)
class RowOutput:
    """Where the rows of a command go.

    Attributes:
        schema: schema version of the rows.
        out: a file to append to.
        shared: fields that all rows of the file share.
        row_of: the row of an item and of what was made of it; by default this is the row.
        source: the fields of `Item.source` in words, such as "prompt or seed".
        as_json: print rows, even if they are also written to a file.
        titles: print several texts below their ids; otherwise several texts are printed as rows.
        table: makes the Parquet file to write, of the sink of its rows.
    """

    schema: int
    out: str | Path | None = None
    shared: Row = field(default_factory=dict)
    row_of: Callable[[Item, Any], Row] = lambda _, row: row
    source: str = "input"
    as_json: bool = False
    titles: bool = False
    table: Callable[..., ParquetSink] | None = None

    def row(self, item: Item, made: Any) -> Row:
        """The row of an item, which states its error if it failed."""
        return self.row_of(item, made) if item.error is None else item.error_row(self.schema)

    def sink(self, *, single: bool) -> Sink:
        """The sink of the rows of one item or of several."""
        if self.out is None:
            return Printed(lambda *result: self.print([self.row(*result)], single=single))
        shared = {**self.shared, "schema": self.schema}
        show = partial(self.print, single=single)
        sink_of = partial(RowSink, shared=shared, row_of=self.row, source=self.source, on_rows=show)
        return sink_of(Path(self.out)) if self.table is None else self.table(sink_of=sink_of)

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


def table_of(
    out: str | None, source: str | None, made_with: Row, fields: Fields, prefix: str, *, check: bool
) -> Callable[..., ParquetSink] | None:
    """`RowOutput.table`, if the output is Parquet.

    Args:
        out: the output.
        source: the file of the rows.
        made_with: see `ParquetSink`.
        fields: the added columns.
        prefix: what their names begin with.
        check: whether each text is checked.
    """
    if out is None or not is_parquet(out):
        return None

    def columns(row: Row) -> Row:
        if check and "error" not in row and not row.get("check"):
            raise ResumeMismatch(f"{out}.jsonl holds texts that were not checked: leave --check out, or delete it")
        return {**row, **(row.get("check") or {})}

    return partial(ParquetSink, out, [source or ""], {**made_with, "check": check}, fields, prefix, columns_of=columns)


def write_rows(
    items: Sequence[Item],
    work: Work,
    output: RowOutput,
    *,
    tally: Tally | None = None,
    batch_size: int = 1,
    tokens_each: int = 0,
) -> None:
    """Make the rows that the output does not hold yet, batch by batch, with a bar, and say what failed.

    Args:
        items: the items, one for each row, in order.
        work: makes the results of a batch.
        output: where the rows go.
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
    tally = Tally() if tally is None else tally
    with row_bar() as bar:

        def start(left: int | None) -> None:
            if tally.resumed and output.table is None:
                stderr().print(f"{tally.resumed} of {len(items)} rows are already in {output.out}")
            bar.show("", 0, left, tokens_each)

        listening: Any = {"on_start": start, "on_results": lambda results: bar.rows(len(results))}
        sink = output.sink(single=len(items) == 1)
        run(items, lambda batch: work(batch, bar.tokens), sink, tally=tally, batch_size=batch_size, **listening)
    if output.table is not None:
        tell_counts(str(output.out), tally, "written", "with errors")
    if tally.first_unusable and not tally.scored:
        alone = len(items) == 1 and items[0].error is None
        raise tally.first_unusable.error if alone and tally.first_unusable.error else tally.first_unusable.raised()
    if tally.unusable and output.table is None:
        stderr().print(f"errors in {tally.unusable} of {len(items) - tally.resumed} rows")


# --- what is said of them


@dataclass
class MarkedTally(Tally):
    """Counts of rows, and of the marks of their texts.

    Attributes:
        marks: counts the marks.
    """

    marks: "MarkTally" = field(kw_only=True)

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
