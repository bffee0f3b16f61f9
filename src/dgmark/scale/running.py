"""A run over files on a cluster: from the names of its inputs to the counts of the rows in its folder."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import ray
from ray.data import Dataset

from dgmark.detection.many import Tally
from dgmark.rows.inputs import names_of
from dgmark.rows.jsonl import BadRow, Row
from dgmark.rows.texts import Item
from dgmark.scale.folder import Folder, cluster
from dgmark.scale.source import Texts, sources_of


@dataclass(frozen=True)
class Files:
    """What a run reads and writes, as its caller names it.

    Attributes:
        inputs: .jsonl and .parquet files, and folders of these: paths that all nodes see, or addresses.
        out: the folder to write, a path or an address; see `dgmark.scale.folder`.
        address: "local", "auto", or the address of a Ray cluster; see `cluster`.
        on_resume: called with the number of rows that the folder holds, before any work.
    """

    inputs: str | Iterable[str]
    out: str
    address: str
    on_resume: Callable[[int], object] | None


@dataclass(frozen=True)
class Kind:
    """What tells a run of one kind from those of others.

    Attributes:
        item: the text, ids or prompt of a row.
        column: the column that holds them.
        max_chars: characters of the longest one.
        counted: the column of the results whose values are counted.
        block_bytes: what one worker gets at a time.
        file_rows: rows of a file of results.
    """

    item: Callable[[Row | BadRow], Item | BadRow]
    column: str
    max_chars: int
    counted: str
    block_bytes: int
    file_rows: int


def run_files(
    files: Files, kind: Kind, run: dict[str, Any], settings: str, work: Callable[[Dataset], Dataset]
) -> Tally:
    """Do the work that is missing in a folder.

    Args:
        files: what is read and written.
        kind: how.
        run: what the run is: plain JSON values that its rows depend on.
        settings: a hash of these, by which rows are known.
        work: from a dataset of `ITEMS` to one of results.

    Returns:
        The counts of all rows of the folder, including those of earlier runs.

    Raises:
        SettingsError: an input is of another kind, or no cluster answers.
        InputError: an input does not exist, or the folder cannot be written.
        ResumeMismatch: the folder holds another run.
        InputError: another run is writing the folder.
    """
    tally = Tally()
    sources = sources_of(names_of(files.inputs), files.out, tally.skipped.append)
    folder = Folder(files.out, run)
    with cluster(files.address, folder.checkpoint(), kind.block_bytes), folder.taken():
        tally.resumed = folder.rows()
        if files.on_resume:
            files.on_resume(tally.resumed)
        texts = Texts(sources, kind.item, settings=settings, column=kind.column, max_chars=kind.max_chars)
        given = ray.data.read_datasource(texts, override_num_blocks=len(sources))
        folder.write(work(given), kind.file_rows)
    tally.verdicts, tally.unusable, tally.first_unusable = folder.counts(kind.counted)
    return tally
