"""`detect_files`: score the texts of many files on a Ray cluster into a folder."""

from collections.abc import Callable, Iterable
from functools import partial

import pyarrow as arrow
import ray
from ray.data import Dataset

from dgmark.detection.detect_files import ScoringOptions, Tally, score, settings_hash, shared_fields, to_row
from dgmark.detection.result import Scorer
from dgmark.documents.document import TEXT_COLUMN
from dgmark.rows.texts import MAX_CHARS, item_of
from dgmark.scale.cluster import workers_of
from dgmark.scale.folder import ERROR, KIND, ROW, labels, run_files
from dgmark.scale.source import item_in, tables_of
from dgmark.watermark.key import WatermarkKey

# some hundred texts for a worker at a time, some thousand rows for a file
BLOCK_BYTES, FILE_ROWS, _BATCH = 2**17, 4096, 64
_TEXTS = (
    *(ROW, "id", KIND, ERROR, "verdict", "key_fingerprint", "summary", "baseline", "uncertain_because"),
    *("source_sha256", "settings"),
)
_NUMBERS = (
    *("p_value", "z_score", "green_fraction", "fpr"),
    *("p_published", "subkey_confidence", "marked_share"),
)
_COUNTS = (*("num_tokens_scored", "num_tokens_matched", "keys_tested", "subkeys_tested", "subkey", "schema"),)
_SPAN = dict.fromkeys(("start", "end", "num_tokens_scored", "subkey"), arrow.int64()) | {"p_value": arrow.float64()}
_PAIRS = dict.fromkeys(("scored", "matched"), arrow.int64())
_POSITION = dict.fromkeys(("shift", "shifts_tested"), arrow.int64()) | {"z_window": arrow.float64()}
# those of the rows of `dgmark detect --out`, with `row`, `kind` and `error`
COLUMNS = arrow.schema(
    dict.fromkeys(_TEXTS, arrow.string())
    | dict.fromkeys(_NUMBERS, arrow.float64())
    | dict.fromkeys(_COUNTS, arrow.int64())
    | {"guaranteed": arrow.bool_(), "normalised": arrow.list_(arrow.string())}
    | {"spans": arrow.list_(arrow.struct(_SPAN)), "pairs": arrow.struct(_PAIRS), "position": arrow.struct(_POSITION)}
)


class Detect:
    """Scores batches in one process of the cluster. Its name is what Ray's bars and logs show."""

    def __init__(self, scorer: "ray.ObjectRef[Scorer]", scoring: ScoringOptions, settings: str) -> None:
        self._scorer: Scorer = ray.get(scorer)
        self._scoring, self._settings = scoring, settings

    def __call__(self, batch: arrow.Table) -> arrow.Table:
        """Score the rows of a table in their order."""
        given = batch.to_pylist()
        scored = score(self._scorer, map(item_in, given), self._scoring)
        rows = [to_row(one, payload=self._scoring.payload) for one in scored]
        for row, source in zip(rows, given, strict=True):
            row |= {**labels(source, error="error" in row), "settings": self._settings}
        return arrow.Table.from_pylist(rows, schema=COLUMNS)


def detect_files(
    scorer: Scorer | WatermarkKey,
    inputs: str | Iterable[str],
    out: str,
    *,
    address: str = "local",
    workers: int | None = None,
    ids: bool = False,
    spans: bool = False,
    payload: bool = False,
    text_column: str = TEXT_COLUMN,
    max_chars: int = MAX_CHARS,
    on_resume: Callable[[int], object] | None = None,
) -> Tally:
    """Score the texts of many files on a cluster into a folder.

    A second run with the same settings scores the rows that are missing: after a crash, and of files that were added.
    The keys are an object in Ray's store: they stand in no log and in no name of a task.

    Args:
        scorer: a `Detector`, a `Keyring`, or a key, for which a `Detector` is made.
        inputs: .jsonl and .parquet files with columns `id` and `text` or `token_ids`, see `run_files`.
        out: the folder to write, see `run_files`.
        address: "local", "auto", or the address of a Ray cluster, see `cluster`.
        workers: number of processes; by default as many as the cluster has processors for.
        ids: score the "token_ids" of rows that also hold "text".
        spans: also find the spans that carry the mark.
        payload: also state the sub-key found, which is the payload of the text.
        text_column: the column or field that holds the texts.
        max_chars: characters of the longest text.
        on_resume: called with the number of rows that the folder holds, before any text is scored.

    Returns:
        The counts of all rows of the folder, including those of earlier runs.

    Raises:
        SettingsError: `scorer` cannot do what is asked for, an input is of another kind, or no cluster answers.
        InputError: an input does not exist, the folder cannot be written, or another run is writing it.
        ResumeMismatch: the folder holds another run.
    """
    scoring = ScoringOptions(spans=bool(spans), payload=bool(payload))
    scorer = scoring.check(scorer)
    settings = settings_hash(scorer, scoring, ids=bool(ids))
    item = partial(item_of, prefer_ids=bool(ids), text_column=text_column, max_chars=max_chars)

    def work(texts: Dataset) -> Dataset:
        return texts.map_batches(
            Detect,
            fn_constructor_kwargs={"scorer": ray.put(scorer), "scoring": scoring, "settings": settings},
            batch_size=_BATCH,
            batch_format="pyarrow",
            **workers_of(workers, on_gpu=False),
        )

    return run_files(
        inputs,
        out,
        work,
        partial(tables_of, item=item, settings=settings, column=text_column, max_chars=max_chars),
        {"command": "detect", "settings": settings, "text_column": text_column, **shared_fields(scorer)},
        address=address,
        counted="verdict",
        block_bytes=BLOCK_BYTES,
        file_rows=FILE_ROWS,
        on_resume=on_resume,
    )
