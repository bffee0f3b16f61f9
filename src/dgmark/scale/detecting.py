"""Detection over Ray datasets: `detect` for a dataset, `detect_files` for files into a folder."""

from collections.abc import Callable, Iterable
from functools import partial

import pyarrow as arrow
import ray
from ray.data import Dataset

from dgmark.detection.detector import Detector
from dgmark.detection.many import Extras, Tally, score, settings_hash, to_row
from dgmark.detection.scorer import Scorer
from dgmark.documents.document import TEXT_COLUMN
from dgmark.rows.texts import MAX_CHARS, item_of
from dgmark.scale.folder import DONE, ERROR, KIND, ROW, workers_of
from dgmark.scale.running import Files, Kind, run_files
from dgmark.scale.source import from_dataset
from dgmark.watermark.key import WatermarkKey, check_key

# some hundred texts for a worker at a time, some thousand rows for a file
BLOCK_BYTES, FILE_ROWS = 2**17, 4096
_TEXT, _WHOLE, _NUMBER = arrow.string(), arrow.int64(), arrow.float64()
_FIELDS = {
    "verdict": _TEXT,
    "p_value": _NUMBER,
    "z_score": _NUMBER,
    "green_fraction": _NUMBER,
    "num_tokens_scored": _WHOLE,
    "num_tokens_matched": _WHOLE,
    "fpr": _NUMBER,
    "shift": _WHOLE,
    "shifts_tested": _WHOLE,
    "key_fingerprint": _TEXT,
    "guaranteed": arrow.bool_(),
    "summary": _TEXT,
    "mode": _TEXT,
    "p_intact": _NUMBER,
    "p_aligned": _NUMBER,
    "draws": _WHOLE,
    "edited_fraction": _NUMBER,
    "z_window": _NUMBER,
    "normalised": arrow.list_(_TEXT),
    "spans": None,
    "keys_tested": _WHOLE,
    "scheme": _TEXT,
    "p_published": _NUMBER,
    "uncertain_because": _TEXT,
    "subkeys_tested": _WHOLE,
    "source_sha256": _TEXT,
    "schema": _WHOLE,
    "settings": _TEXT,
}
_SPAN = {"start": _WHOLE, "end": _WHOLE, "num_tokens_scored": _WHOLE, "p_value": _NUMBER}


def columns_of(*, payload: bool = False) -> arrow.Schema:
    """The columns of detections: those of the rows of `dgmark detect --out`, with `row`, `kind` and `error`.

    Args:
        payload: with the sub-key found.
    """
    span = {**_SPAN, "subkey": _WHOLE} if payload else _SPAN
    fields = {ROW: _TEXT, "id": _TEXT, KIND: _TEXT, ERROR: _TEXT, **_FIELDS, "spans": arrow.list_(arrow.struct(span))}
    if payload:
        fields |= {"subkey": _WHOLE, "subkey_confidence": _NUMBER}
    return arrow.schema(fields)


class Detect:
    """Scores batches in one process of the cluster. Its name is what Ray's bars and logs show."""

    def __init__(self, scorer: "ray.ObjectRef[Scorer]", extras: Extras, settings: str) -> None:
        """Fetch the scorer, which holds the keys, from Ray's store of objects."""
        self._scorer: Scorer = ray.get(scorer)
        self._extras, self._settings = extras, settings
        self._columns = columns_of(payload=extras.payload)

    def __call__(self, batch: arrow.Table) -> arrow.Table:
        """Score the rows of a table in their order."""
        given = batch.to_pylist()
        scored = score(self._scorer, map(from_dataset, given), self._extras)
        rows = [to_row(one, payload=self._extras.payload) for one in scored]
        for row, source in zip(rows, given, strict=True):
            row |= {ROW: source.get(ROW), KIND: ERROR if "error" in row else DONE, "settings": self._settings}
        return arrow.Table.from_pylist(rows, schema=self._columns)


def detect(
    dataset: Dataset,
    scorer: Scorer | WatermarkKey,
    *,
    spans: bool = False,
    payload: bool = False,
    workers: int | None = None,
    batch_size: int = 64,
) -> Dataset:
    """Score the texts of a dataset.

    The keys are an object in Ray's store: they stand in no log and in no name of a task.

    Args:
        dataset: rows with `id`, and `text` or `token_ids`.
        scorer: a `Detector`, a `Keyring`, or a key, for which a `Detector` is made.
        spans: also find the spans that carry the mark.
        payload: also state the sub-key found, which is the payload of the text.
        workers: number of processes; by default as many as the cluster has processors for.
        batch_size: rows scored at a time.

    Returns:
        A row for each row, see `columns_of`; one that cannot be scored has `kind` "error" and an `error`. It is lazy:
        Ray scores what is read or written of it.

    Raises:
        SettingsError: `scorer` is neither a scorer nor a key, or cannot do what is asked for.
    """
    scorer, extras = _checked(scorer, Extras(spans=bool(spans), payload=bool(payload)))
    return _detect(dataset, scorer, extras, settings_hash(scorer, extras, ids=False), workers, batch_size)


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
    """Score the texts of many files on a cluster into a folder, as `dgmark detect --ray` does.

    A second run with the same settings scores the rows that are missing: after a crash, and of files that were added.

    Args:
        scorer: a `Detector`, a `Keyring`, or a key, for which a `Detector` is made.
        inputs: .jsonl and .parquet files (columns id, text, token_ids), and folders of these: paths that all nodes
            see, or addresses such as `s3://bucket/folder`.
        out: the folder to write, a path or an address; see `dgmark.scale.folder`.
        address: "local" for this machine alone, "auto", or the address of a Ray cluster. Where Ray is connected
            already, that cluster is used.
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
        InputError: an input does not exist, or the folder cannot be written.
        ResumeMismatch: the folder holds another run.
        InputError: another run is writing the folder.
    """
    scorer, extras = _checked(scorer, Extras(spans=bool(spans), payload=bool(payload)))
    settings = settings_hash(scorer, extras, ids=bool(ids))
    item = partial(item_of, prefer_ids=bool(ids), text_column=text_column, max_chars=max_chars)
    return run_files(
        Files(inputs, out, address, on_resume),
        Kind(item, text_column, max_chars, "verdict", BLOCK_BYTES, FILE_ROWS),
        {"command": "detect", "settings": settings, "text_column": text_column, **scorer.shared_fields},
        settings,
        lambda texts: _detect(texts, scorer, extras, settings, workers, 64),
    )


def _checked(scorer: Scorer | WatermarkKey, extras: Extras) -> tuple[Scorer, Extras]:
    if not isinstance(scorer, Scorer):
        check_key(scorer)
        scorer = Detector(scorer)
    extras.check(scorer)
    scorer.reader.tokenizer  # noqa: B018 (a wrong tokenizer is an error of the key, not of each row)
    return scorer, extras


def _detect(
    dataset: Dataset, scorer: Scorer, extras: Extras, settings: str, workers: int | None, batch_size: int
) -> Dataset:
    return dataset.map_batches(
        Detect,
        fn_constructor_kwargs={"scorer": ray.put(scorer), "extras": extras, "settings": settings},
        batch_size=batch_size,
        batch_format="pyarrow",
        compute=workers_of(workers),
    )
