"""A run over files on a cluster: from the names of its inputs to the counts of the rows in its folder."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import pyarrow.dataset as parquet_files
import ray
from ray.data import Dataset

from dgmark.detection.detect_files import Tally
from dgmark.rows.inputs import names_of
from dgmark.rows.jsonl import BadRow
from dgmark.scale.cluster import cluster
from dgmark.scale.folder import ERROR, KIND, Folder
from dgmark.scale.source import TextSource, sources_of


def run_files(
    inputs: str | Iterable[str],
    out: str,
    work: Callable[[Dataset], Dataset],
    read: "partial[TextSource]",
    run: dict[str, Any],
    *,
    address: str,
    counted: str,
    block_bytes: int,
    file_rows: int,
    on_resume: Callable[[int], object] | None,
) -> Tally:
    """Do the work that is missing in a folder.

    Args:
        inputs: .jsonl and .parquet files, and folders of these: paths that all nodes see, or addresses such as
            `s3://bucket/folder`.
        out: the folder to write, a path or an address; see `dgmark.scale.folder`.
        work: from a dataset of `ITEMS` to one of results.
        read: makes the source of the dataset from the files.
        run: what the run is: plain JSON values that its rows depend on.
        address: of the Ray cluster; see `cluster`.
        counted: the column of the results whose values are counted.
        block_bytes: what one worker gets at a time.
        file_rows: rows of a file of results.
        on_resume: called with the number of rows that the folder holds, before any work.

    Returns:
        The counts of all rows of the folder, including those of earlier runs.

    Raises:
        SettingsError: an input is of another kind, or no cluster answers.
        InputError: an input does not exist, the folder cannot be written, or another run is writing it.
        ResumeMismatch: the folder holds another run.
    """
    tally = Tally()
    sources = sources_of(names_of(inputs), out, tally.skipped.append)
    folder = Folder(out, run)
    with cluster(address, folder.checkpoint(), block_bytes), folder.taken():
        held = folder.rows()
        tally.resumed = held.count_rows() if held else 0
        if on_resume:
            on_resume(tally.resumed)
        folder.write(work(ray.data.read_datasource(read(sources), override_num_blocks=len(sources))), file_rows)
    written = folder.rows()
    if written:
        for batch in written.to_batches(columns=[counted]):
            tally.verdicts.update(batch.column(0).drop_null().to_pylist())
        bad = written.to_table(columns=["id", ERROR], filter=parquet_files.field(KIND) == ERROR)
        tally.unusable = len(bad)
        tally.first_unusable = BadRow(*bad.slice(0, 1).to_pylist()[0].values()) if len(bad) else None
    return tally
