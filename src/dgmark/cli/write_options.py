"""The options of commands that write a text for each row: which key and seed it has, and where it goes."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dgmark.arguments.column_names import Fields
from dgmark.cli import options as opt
from dgmark.cli.row_output import MarkedTally, items_of, write_rows
from dgmark.columns.row_schema import CHECK_FIELDS
from dgmark.decode.config import Settings
from dgmark.detection.keyring import named_keys
from dgmark.detection.row_keys import key_named
from dgmark.errors import ResumeMismatch, SettingsError
from dgmark.files.outputs import check_output
from dgmark.rows.item import Item, Row
from dgmark.rows.parquet import is_parquet
from dgmark.rows.parquet_sink import ParquetFile
from dgmark.rows.tables import RowReading
from dgmark.watermark.key import WatermarkKey, check_has_key, subkey_of

if TYPE_CHECKING:
    from dgmark.models.denoiser import Denoiser


@dataclass(frozen=True)
class WriteOptions:
    """How the text of each row is marked, and where it goes.

    Raises:
        SettingsError: not one way of marking is given, or options do not go together.
        KeyFileError: a key file is unusable.
    """

    key: Annotated[
        Path | None,
        typer.Option(
            "--key", "-k", help="Key to mark with: a file, a name given to `dgmark keygen`, or - for standard input."
        ),
    ] = None
    no_watermark: opt.NoWatermark = False
    allow_open_key: opt.AllowOpenKey = False
    keys: Annotated[Path | None, typer.Option(help="Folder of key files, of which each row names one.")] = None
    key_column: opt.KeyColumn = None
    id_column: opt.IdColumn = None
    subkey: Annotated[int | None, typer.Option(help="Sub-key of every text: the payload.", show_default="drawn")] = None
    seed: Annotated[int, typer.Option(help="Random seed; row i, counted from 0, uses seed + i.")] = 0
    check: opt.Check = False
    out: Annotated[
        str | None,
        typer.Option(
            "--out", "-o", help="Append to this JSON Lines file, or write Parquet from Parquet; the rows there stay."
        ),
    ] = None
    prefix: opt.Prefix = ""
    as_json: opt.AsRows = False

    def __post_init__(self) -> None:
        if [self.key is not None, self.no_watermark, self.keys is not None].count(True) != 1:
            raise SettingsError(
                "give --key KEY to mark the text, --keys FOLDER to mark rows with the keys that they name, or "
                "--no-watermark to leave it unmarked (one of these)"
            )
        if (self.keys is None) != (self.key_column is None):
            raise SettingsError(
                "--keys FOLDER and --key-column NAME belong together, as each row names its key: give both"
            )
        if self.id_column is not None and self.subkey is not None:
            raise SettingsError("with --id-column the ids give the sub-keys: leave --subkey or --id-column out")
        keys = self.all_keys  # read before standard input is, which may hold one
        if self.check:
            check_has_key(keys)

    @cached_property
    def named(self) -> dict[str, WatermarkKey]:
        """The keys that rows name."""
        return {} if self.keys is None else named_keys(self.keys, allow_open=self.allow_open_key)

    @cached_property
    def all_keys(self) -> list[WatermarkKey | None]:
        """The keys of the rows; None for text without a mark."""
        if self.keys is not None:
            return [*self.named.values()]
        return [None if self.key is None else WatermarkKey.load(self.key, allow_open=self.allow_open_key)]

    @property
    def table(self) -> bool:
        """Whether a Parquet file is written."""
        return is_parquet(self.out or "")

    def check_output(self, source: str | None) -> None:
        """Refuse an output that is read; that of Parquet is checked with its columns."""
        check_output(None if self.out is None or self.table else Path(self.out), [source])

    def reading(self, column: str) -> RowReading:
        """What is read of rows whose texts or prompts stand in this column."""
        return RowReading(column, self.id_column, self.key_column)

    def shared(self, model: "Denoiser", settings: Settings) -> Row:
        """The fields that all rows share; where rows name their keys, each states its own."""
        from dgmark.decode.texts.written import shared_fields

        shared = shared_fields(model, self.all_keys[0], settings)
        return {name: value for name, value in shared.items() if self.keys is None or name != "key_fingerprint"}

    def items(self, read: Iterable[Item], name: str, content_of: Callable[[Row], Any], purpose: str) -> list[Item]:
        """The items of rows, each of what is decoded and what marks it.

        Args:
            read: the rows.
            name: the field of a written row that states what was decoded.
            content_of: what is decoded of a row, or an `InputError` that takes its place.
            purpose: what an item is, such as "prompt to continue".

        Raises:
            InputError: there is no row, and no table is written.
        """

        def marked(item: Item, seed: int) -> Item:
            content = content_of(item.content)
            marks, stated = self._marks(item, seed)
            return replace(item, content=(content, marks), source={name: content, **stated})

        return items_of(read, marked, seed=self.seed, purpose="" if self.table else purpose)

    def _marks(self, item: Item, seed: int) -> tuple[Row, Row]:
        """What marks a row, as arguments of `generate` and `infill`, and the fields of its row that follow from this.

        With a column of ids, the seed and the sub-key follow from the id.

        Raises:
            InputError: there is no key of the name that the row gives.
        """
        key = self.all_keys[0] if self.keys is None else key_named(self.named, item.key)
        subkey = self.subkey
        if self.id_column is not None:
            from dgmark.decode.texts.requests import seed_of

            seed = seed_of(self.seed, item.row_id)
            subkey = subkey_of(key, item.row_id) if key is not None and key.spec.subkeys > 1 else None
        stated: Row = {"key_fingerprint": key.fingerprint} if self.keys is not None and key is not None else {}
        stated |= {"seed": seed, **({} if subkey is None else {"subkey": subkey})}
        return {"key": key, "seed": seed, "subkey": subkey}, stated

    def write(
        self,
        items: Sequence[Item],
        texts_of: Callable[..., Sequence[Any]],
        row_of: Callable[[Item, Any], Row],
        *,
        source_file: str | None,
        column: str,
        shared: Row,
        fields: Fields,
        source: str = "text",
        **output: Any,
    ) -> None:
        """Write the rows of texts, and say what will be found.

        Args:
            items: what is written, of `items`.
            texts_of: writes texts, as `generate` and `infill` do for a list of what is decoded.
            row_of: the row of an item and its text.
            source_file: the file that the items are read from.
            column: the column of the texts or prompts.
            shared: fields that all rows share.
            fields: the columns that are added to Parquet, without those of a check.
            source: what texts are made from, in a word.
            output: other fields of `RowOutput`.
        """

        def work(batch: list[Item], progress: Callable[[int], None]) -> Sequence[Any]:
            contents, marks = zip(*(item.content for item in batch), strict=True)
            of_rows = {name: [mark[name] for mark in marks] for name in marks[0]}
            return texts_of(contents, check=self.check, progress=progress, **of_rows)

        tally, source = MarkedTally(), f"{source} or seed" if self.subkey is None else f"{source}, seed or sub-key"
        if self.table:
            made_with = {**shared, "keys": sorted(key.fingerprint for key in self.all_keys if key), "seed": self.seed}
            made_with |= {"columns": [column, self.id_column, self.key_column], "check": self.check}
            fields = {**fields, **(CHECK_FIELDS if self.check else {})}
            of_table: Any = {"sources": [source_file or ""], "made_with": made_with, "prefix": self.prefix}
            output["file"] = partial(ParquetFile, fields=fields, columns_of=self._columns, **of_table)
        output |= {"out": self.out, "source": source, "shared": shared, "as_json": self.as_json, "tally": tally}
        write_rows(items, work, row_of, **output)
        tally.tell()

    def _columns(self, row: Row) -> Row:
        """The added columns of a row, in which the fields of its check stand by themselves."""
        if self.check and "error" not in row and not row.get("check"):
            raise ResumeMismatch(f"{self.out}.jsonl holds texts that were not checked: leave --check out, or delete it")
        return {**row, **(row.get("check") or {})}
