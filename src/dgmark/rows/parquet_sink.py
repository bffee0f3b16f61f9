"""A Parquet file with the rows of other ones and more columns, written once, at the end, from a file of rows.

Knows nothing of the meaning of the columns.
"""

import hashlib
import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

from dgmark.arguments.column_names import Fields, check_added
from dgmark.errors import InputError, NoTexts, ResumeMismatch, SettingsError
from dgmark.files.outputs import atomic_file, check_output
from dgmark.rows.item import Item, Row
from dgmark.rows.parquet import batches_of, is_parquet, is_url, located, open_parquet, opened, values_in, version_of
from dgmark.rows.sinks import RowFile
from dgmark.rows.workers import chunks

# rows of a row group, and bytes of these in memory, of which the first that is reached counts
_GROUP_ROWS, _GROUP_BYTES = 65_536, 2**25
# the field of the file's metadata that holds what it was made with
_METADATA = b"dgmark"


class ParquetFile(RowFile):
    """A Parquet file with the rows of other ones and the columns of what was made of each row.

    What is made of the rows stands in a file of rows beside it, until the target is written whole.

    Args:
        place: the file.
        sources: the files of the rows, in order.
        made_with: everything that the added columns depend on except the rows, as plain JSON values.
        fields: the added columns.
        prefix: what their names begin with.
        columns_of: the added columns of a row of the file of rows; by default its fields.
        of_rows: the other arguments of `RowFile`.
    """

    def __init__(
        self,
        place: str,
        sources: Sequence[str],
        made_with: Row,
        fields: Fields,
        prefix: str,
        columns_of: Callable[[Row], Row] = lambda row: row,
        **of_rows: Any,
    ) -> None:
        if not all(map(is_parquet, sources)):
            raise SettingsError(
                "Parquet is made from Parquet: give files that end in .parquet, or write JSON Lines with --out x.jsonl"
            )
        if not is_url(place):
            check_output(Path(place), [source for source in sources if not is_url(source)])
        self.place, self.sources, self.fields, self.prefix = place, sources, fields, prefix
        self._made_with, self._columns_of = made_with, columns_of
        self.schema  # noqa: B018 (before the work)
        self._versions = [version_of(source) for source in sources]
        self._finished = self._is_finished()
        if not self._finished:  # the file of rows of a URL lies in the working folder
            super().__init__(f"{place.rpartition('/')[2] if is_url(place) else place}.jsonl", **of_rows)

    def __exit__(self, *_: object) -> None:
        if not self._finished:
            super().__exit__()

    def missing(self, items: Iterable[Item], count: Callable[[Row], object]) -> Iterable[Item]:
        """The items without a row, of which a target that is finished has none; see `RowFile`."""
        if not self._finished:
            return super().missing(items, count)
        for row in values_in([self.place], [*self.fields], self.prefix):
            count(row)
        return []

    def finish(self) -> None:
        """Write the target, whole or not at all, and remove the file of rows.

        Raises:
            InputError: the target cannot be written; the file of rows stays.
        """
        if not self._finished:
            super().finish()
            self._write_target(map(self._columns_of, self.rows_of_items()))

    @cached_property
    def schema(self) -> Any:
        """The columns of the sources, and the added ones.

        Raises:
            NoTexts: a source cannot be read.
            InputError: the sources have different columns, or columns of the names of added ones.
        """
        schemas = []
        for source in self.sources:
            with open_parquet(source) as file:
                schemas.append(file.schema_arrow)
            if not schemas[-1].equals(schemas[0]):
                raise InputError(
                    f"{source} has other columns than {self.sources[0]}, or columns of other types: write a target of "
                    "its own for each"
                )
        added = {self.prefix + name: kind for name, kind in self.fields.items()}
        check_added(schemas[0].names, [*added])
        for field in arrow_schema(added):
            schemas[0] = schemas[0].append(field)
        return schemas[0]

    def _is_finished(self) -> bool:
        """Whether the target exists; a ResumeMismatch if it is of other sources or settings, or not from dgmark."""
        filesystem, path = located(self.place)
        if not filesystem.exists(path):
            return False
        try:
            with open_parquet(self.place) as file:
                found = json.loads((file.schema_arrow.metadata or {}).get(_METADATA, b"null"))
        except (NoTexts, ValueError):
            found = None
        if not isinstance(found, dict):
            raise ResumeMismatch(
                f"{self.place} exists, and dgmark did not write it: choose another --out, or delete it"
            )
        state = self._state()
        different = [name for name in state if found.get(name) != state[name]]
        if different:
            raise ResumeMismatch(
                f"{self.place} was made by another run, which differs in {', '.join(different)}; choose another --out, "
                "or delete it to start again"
            )
        return True

    def _state(self) -> Row:
        """What a finished target is held to: what it was made with, and the content of the sources."""
        whole = hashlib.sha256()
        for source in self.sources:
            with opened(source) as file:
                whole.update(hashlib.file_digest(file, "sha256").digest())
        return {**self._made_with, "prefix": self.prefix, "source": whole.hexdigest()}

    def _write_target(self, rows: Iterator[Row]) -> None:
        """Write the target with the columns of these rows, one for each row of the sources, in order."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        schema = self.schema
        metadata = {**(schema.metadata or {}), _METADATA: json.dumps(self._state()).encode()}
        made = (self._added(batch, rows) for source in self.sources for batch in batches_of(source))
        try:
            with self._new_file() as path, pq.ParquetWriter(path, schema.with_metadata(metadata)) as writer:
                for group in chunks(made, (len, _GROUP_ROWS), (lambda batch: batch.nbytes, _GROUP_BYTES)):
                    writer.write_table(pa.Table.from_batches(group, schema))
                self._check_unchanged()
        except OSError as error:
            raise InputError(
                f"{self.place} cannot be written: {error.strerror or error}; the results are kept in {self.path}: "
                "make room, and run the same command again"
            ) from error
        self.path.unlink(missing_ok=True)

    def _check_unchanged(self) -> None:
        for source, seen in zip(self.sources, self._versions, strict=True):
            if version_of(source) != seen:
                raise InputError(f"{source} changed while it was read: run the same command again")

    def _added(self, batch: Any, rows: Iterator[Row]) -> Any:
        """A batch with the columns of its rows."""
        import pyarrow as pa

        added = pa.RecordBatch.from_pylist([*islice(rows, len(batch))], arrow_schema(self.fields))
        return pa.RecordBatch.from_arrays([*batch.columns, *added.columns], schema=self.schema)

    @contextmanager
    def _new_file(self) -> Iterator[Path]:
        """A file that takes the target's place if the block succeeds."""
        if not is_url(self.place):
            with atomic_file(Path(self.place)) as path:
                yield path
            return
        filesystem, target = located(self.place)
        with tempfile.TemporaryDirectory() as folder:
            yield (path := Path(folder, "whole.parquet"))
            filesystem.makedirs(target.rpartition("/")[0], exist_ok=True)
            filesystem.put_file(str(path), target)


def arrow_schema(fields: Fields) -> Any:
    """Columns as a schema of pyarrow."""
    import pyarrow as pa

    return pa.schema([(name, arrow_type(kind)) for name, kind in fields.items()])


def arrow_type(kind: str) -> Any:
    """A type as one of pyarrow's."""
    import pyarrow as pa

    return nested_type(kind, pa.type_for_alias, pa.list_, lambda fields: pa.struct([*fields.items()]))


def nested_type(kind: str, flat: Callable[[str], Any], list_of: Callable[..., Any], struct: Callable[..., Any]) -> Any:
    """A type as one of a library, by what makes its flat types, its lists and its structs."""
    outer, _, inner = kind.removesuffix(">").partition("<")
    if outer == "list":
        return list_of(nested_type(inner, flat, list_of, struct))
    if outer == "struct":
        return struct({name: flat(of) for name, of in (field.split(":") for field in inner.split(","))})
    return flat(kind)
