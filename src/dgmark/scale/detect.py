"""`detect_files`: score the texts of many files on a Ray cluster into a folder."""

from collections.abc import Iterable
from functools import partial

import pyarrow as arrow

from dgmark.detection.detect_files import Extras, Tally, score, settings_hash, shared_fields, to_row
from dgmark.detection.result import Scorer
from dgmark.documents.document import TEXT_COLUMN
from dgmark.rows.jsonl import BadRow, Row
from dgmark.rows.texts import MAX_CHARS, Item, item_of
from dgmark.scale.folder import Work, run_files
from dgmark.scale.source import Reading
from dgmark.watermark.key import WatermarkKey

# some hundred texts for a worker at a time, some thousand rows for a file
BLOCK_BYTES, FILE_ROWS = 2**17, 4096
_COUNT, _NUMBER, _TEXT = arrow.int64(), arrow.float64(), arrow.string()
_SPAN = dict.fromkeys(("start", "end", "num_tokens_scored", "subkey"), _COUNT) | {"p_value": _NUMBER}
_PAIRS = dict.fromkeys(("scored", "matched"), _COUNT)
_POSITION = dict.fromkeys(("shift", "shifts_tested"), _COUNT) | {"z_window": _NUMBER}
# those of the rows of `dgmark detect --out`
COLUMNS = {
    **dict.fromkeys(("id", "verdict", "key_fingerprint", "summary", "baseline", "uncertain_because"), _TEXT),
    **dict.fromkeys(("source_sha256", "settings"), _TEXT),
    **dict.fromkeys(("p_value", "z_score", "green_fraction", "fpr"), _NUMBER),
    **dict.fromkeys(("p_published", "subkey_confidence", "marked_share"), _NUMBER),
    **dict.fromkeys(("num_tokens_scored", "num_tokens_matched", "keys_tested", "subkeys_tested"), _COUNT),
    **dict.fromkeys(("subkey", "schema"), _COUNT),
    "guaranteed": arrow.bool_(),
    "normalised": arrow.list_(_TEXT),
    "spans": arrow.list_(arrow.struct(_SPAN)),
    "pairs": arrow.struct(_PAIRS),
    "position": arrow.struct(_POSITION),
}


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

    Returns:
        The counts of all rows of the folder, including those of earlier runs.

    Raises:
        SettingsError: `scorer` cannot do what is asked for, an input is of another kind, or no cluster answers.
        InputError: an input does not exist, the folder cannot be written, or another run is writing it.
        ResumeMismatch: the folder holds another run.
    """
    extras = Extras(spans=bool(spans), payload=bool(payload))
    scorer = extras.check(scorer)
    settings = settings_hash(scorer, extras, ids=bool(ids))
    reading = Reading(
        run={"command": "detect", "settings": settings, "text_column": text_column, **shared_fields(scorer)},
        item_of=partial(item_of, prefer_ids=bool(ids), text_column=text_column, max_chars=max_chars),
        column=text_column,
        max_chars=max_chars,
    )
    work = Work(
        reading,
        rows_of=partial(_scored_rows, scorer, extras, settings),
        columns=COLUMNS,
        counted="verdict",
        batch_size=64,
        block_bytes=BLOCK_BYTES,
        file_rows=FILE_ROWS,
    )
    return run_files(work, inputs, out, address, workers)


def _scored_rows(
    scorer: Scorer, extras: Extras, settings: str, items: list[Item | BadRow], _places: list[int]
) -> list[Row]:
    scored = score(scorer, items, extras)
    return [{**to_row(one, payload=extras.payload), "settings": settings} for one in scored]
