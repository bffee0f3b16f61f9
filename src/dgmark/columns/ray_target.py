"""The target of a run on Ray Data: a folder of Parquet files, what it was made with, and which rows are finished.

Beside the folder TARGET stands TARGET.dgmark: `state.json`, and Ray Data's checkpoint, whose files name the ids of the
rows in the file of TARGET of the same name. It is no part of TARGET, from which Ray Data deletes each file that is
named as an unfinished part of the checkpoint is. Does not import Ray.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dgmark.columns.parquet import located, read_whole
from dgmark.errors import InputError, ResumeMismatch
from dgmark.rows.detect_files import Tally
from dgmark.rows.jsonl import BadRow
from dgmark.rows.row_file import lock

_PENDING = ".pending"  # what Ray Data calls a part of the checkpoint whose rows are still being written


@dataclass(frozen=True)
class RayTarget:
    """A target, and what it is made with.

    Attributes:
        place: the folder, as a path or a URL.
        made_with: everything that its rows depend on except the rows of the source, as plain JSON values.
        id_column: the column of the rows' ids.
        error: the column of the rows' errors.
    """

    place: str
    made_with: dict[str, Any]
    id_column: str
    error: str

    @property
    def checkpoint(self) -> str:
        """The place of Ray Data's checkpoint."""
        return f"{self._beside}/checkpoint"

    @property
    def _beside(self) -> str:
        return f"{self.place.rstrip('/')}.dgmark"

    @contextmanager
    def open(self) -> Iterator[int]:
        """Make the target ready to be written, or to be gone on with; lock it, where files can be.

        Rows with errors are taken out, so that they are tried again, and so is what names rows that are not there.

        Yields:
            The number of finished rows.

        Raises:
            ResumeMismatch: the target was made with anything else, or not by dgmark.
            InputError: another run writes it.
        """
        filesystem, beside = located(self._beside)
        if not filesystem.exists(f"{beside}/state.json") and self._files():
            raise ResumeMismatch(
                f"{self.place} exists, and dgmark-ray did not write it, or {self._beside} is missing: choose another "
                "target, or delete it"
            )
        filesystem.makedirs(located(self.checkpoint)[1], exist_ok=True)
        if "://" in self.place:
            yield self._prepared(filesystem, f"{beside}/state.json")
            return
        with open(os.path.join(beside, ".lock"), "ab") as held:
            lock(held, Path(self.place))
            yield self._prepared(filesystem, f"{beside}/state.json")

    def _prepared(self, filesystem: Any, state: str) -> int:
        text = json.dumps(self.made_with, sort_keys=True)
        if not (filesystem.exists(state) and (self._files() or _parquet_in(self.checkpoint))):
            filesystem.pipe_file(state, text.encode())  # also over that of a run that wrote nothing
        found, wanted = json.loads(filesystem.cat_file(state)), json.loads(text)
        different = sorted(name for name in {*found, *wanted} if found.get(name) != wanted.get(name))
        if different:
            raise ResumeMismatch(
                f"{self.place} was made by another run, which differs in {', '.join(different)}; choose another "
                f"target, or delete it and {self._beside} to start again"
            )
        return self._take_out_errors()

    def _take_out_errors(self) -> int:
        """Take rows with errors out of the target, and return how many others are finished.

        The checkpoint goes before the rows: a stop in between leaves rows that the next run takes out. Files whose part
        of the checkpoint is pending are left to Ray Data, which deletes them.
        """
        parts = {_stem(name): name for name in _parquet_in(self.checkpoint)}
        files = {_stem(name).rpartition("-")[0]: name for name in self._files()}
        filesystem = located(self.checkpoint)[0]
        for stem in parts.keys() - files.keys():
            if not stem.endswith(_PENDING):
                filesystem.rm(parts[stem])  # somebody deleted its rows
        finished = 0
        for stem, name in files.items():
            if stem + _PENDING in parts:
                continue
            failed = pc.is_valid(_read(name, filesystem, [self.error]).column(0))
            if pc.any(failed).as_py():
                rows = _read(name, filesystem)
                if stem in parts:
                    _keep_others(filesystem, parts[stem], rows.filter(failed).column(self.id_column))
                _replace(filesystem, name, rows.filter(pc.invert(failed)))
            finished += len(failed) - (pc.sum(failed).as_py() or 0)
        return finished

    def tally(self, counted: str) -> Tally:
        """Count the rows by the values of a column."""
        tally = Tally()
        for rows in self.tables([*{self.id_column, counted, self.error}]):
            tally.verdicts.update(
                {one["values"]: one["counts"] for one in rows.column(counted).drop_null().value_counts().to_pylist()}
            )
            bad = rows.filter(pc.is_valid(rows.column(self.error))).select([self.id_column, self.error])
            tally.unusable += len(bad)
            if len(bad) and tally.first_unusable is None:
                row_id, error = bad.slice(0, 1).to_pylist()[0].values()
                tally.first_unusable = BadRow(f"row {row_id}", error)
        return tally

    def tables(self, columns: list[str]) -> Iterator[pa.Table]:
        """Some columns of each file."""
        filesystem = located(self.place)[0]
        return (_read(name, filesystem, columns) for name in self._files())

    def _files(self) -> list[str]:
        return _parquet_in(self.place)


def _parquet_in(place: str) -> list[str]:
    """The Parquet files of a folder, by name; none if there is no such folder.

    Raises:
        InputError: it is a file.
    """
    filesystem, folder = located(place)
    if filesystem.isfile(folder):
        raise InputError(f"{place} is a file: give a folder, into which Parquet files are written")
    try:
        return sorted(name for name in filesystem.ls(folder, detail=False, refresh=True) if name.endswith(".parquet"))
    except FileNotFoundError:
        return []


def _stem(name: str) -> str:
    return name.rpartition("/")[2].removesuffix(".parquet")


def _read(name: str, filesystem: Any, columns: list[str] | None = None) -> Any:
    with filesystem.open(name, "rb") as file:
        return read_whole(file, columns)


def _keep_others(filesystem: Any, part: str, ids: Any) -> None:
    """Take ids out of a part of the checkpoint, and delete it if none are left."""
    kept = _read(part, filesystem)
    rest = kept.filter(pc.invert(pc.is_in(kept.column(0), ids.combine_chunks())))
    if len(rest):
        _replace(filesystem, part, rest)
    else:
        filesystem.rm(part)


def _replace(filesystem: Any, name: str, rows: pa.Table) -> None:
    """Write a file anew, whole or not at all."""
    with filesystem.open(f"{name}.unfinished", "wb") as out:
        pq.write_table(rows, out)
    filesystem.mv(f"{name}.unfinished", name)
