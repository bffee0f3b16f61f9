"""The work of a run that detects: items scored, and the rows of their detections.

Knows nothing of how a text is scored.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from dgmark.arguments.checks import as_path, flag, instance
from dgmark.arguments.contents import TextOrIds, sha256_of
from dgmark.detection.detector import Detector
from dgmark.detection.keyring import Keyring
from dgmark.detection.reading.reader import Ranges, checked_ranges
from dgmark.detection.results.detection import (
    DETECT_FIELDS,
    DETECTION_SCHEMA,
    SPAN_FIELDS,
    STATISTICS_VERSION,
    Detection,
)
from dgmark.detection.results.legibility import of_document
from dgmark.detection.row_keys import AnyScorer, RowKeys, detect_rows
from dgmark.detection.scorer import Scorer
from dgmark.errors import DgmarkError, SettingsError, each
from dgmark.files.inputs import names_of
from dgmark.files.outputs import check_output
from dgmark.rows.item import SOURCE_SHA256, Item, Row, Tally
from dgmark.rows.parquet import is_parquet
from dgmark.rows.parquet_sink import ParquetFile
from dgmark.rows.run import run
from dgmark.rows.sinks import SETTINGS, RowFile
from dgmark.rows.sources import files_of, read_sources, read_texts
from dgmark.rows.tables import RowReading
from dgmark.rows.workers import check_workers
from dgmark.watermark.key import WatermarkKey, check_key

Source = str | os.PathLike[str]


def detectors_of(scorer: AnyScorer) -> Sequence[Detector]:
    """The detector of each key of a scorer."""
    return scorer.detectors if isinstance(scorer, Keyring | RowKeys) else [one_key(scorer)]


def detector_of(scorer: AnyScorer, detection: Detection) -> Detector:
    """The detector of the key of a detection, which pays for the other keys of the scorer.

    Raises:
        SettingsError: the detection is of another key.
    """
    for detector in detectors_of(scorer):
        if detector.key.fingerprint == detection.key_fingerprint:
            return detector
    raise SettingsError("the detection is of a key that is not looked for: give the scorer that made it")


def with_spans(scorer: AnyScorer, detection: Detection, content: TextOrIds) -> Detection:
    """A detection with the spans of its key, if its rule finds any.

    Raises:
        SettingsError: the text is too long for finding spans.
    """
    detector = detector_of(scorer, detection)
    if detection.spans is not None or detector.no_spans:
        return detection
    return detection.with_spans(detector.spans(content), content)


def one_key(scorer: AnyScorer) -> Detector:
    """The scorer as a `Detector`, which ranges and commitments need; one of several keys is a SettingsError."""
    if isinstance(scorer, Detector):
        return scorer
    raise SettingsError(f"ranges and commitments need one key: use a Detector, not a {type(scorer).__name__}")


@dataclass(frozen=True)
class ScoringOptions:
    """What to do with each text in addition to the plain detection.

    Attributes:
        only: ranges [start, end) to score, in characters (in indices for ids); the whole text by default.
        spans: whether to find the spans that carry the mark.
        payload: whether rows state the sub-key found, which is the payload of the text.
    """

    only: Ranges = ()
    spans: bool = False
    payload: bool = False

    def check(self, scorer: AnyScorer | WatermarkKey) -> AnyScorer:
        """The scorer, or the detector of a key, once it can do this and its tokenizer is loaded.

        Raises:
            SettingsError: it is neither a scorer nor a key; ranges are requested without one key, or together with
                normalisation; spans with keys whose rules find none; or payloads without keys that have
                sub-keys.
            ModelNotFound: the tokenizer is unavailable.
        """
        if not isinstance(scorer, AnyScorer):
            check_key(scorer)
            scorer = Detector(scorer)
        detectors = [one_key(scorer)] if self.only else detectors_of(scorer)
        if self.payload and all(detector.key.spec.subkeys == 1 for detector in detectors):
            raise SettingsError(
                "a payload is the sub-key of a text, and no key here has sub-keys: leave the payload out, or make a "
                "key with `dgmark keygen --subkeys`"
            )
        if self.only and detectors[0].normalise:
            raise SettingsError("ranges refer to the unchanged text: leave normalisation out")
        why = detectors[0].no_spans
        if self.spans and why and all(detector.no_spans for detector in detectors):
            raise SettingsError(why, field="spans")
        if isinstance(scorer, Scorer):
            scorer.reader.tokenizer  # noqa: B018 (a wrong tokenizer is an error of the key, not of each row)
        return scorer


def detect_file(
    scorer: AnyScorer | WatermarkKey,
    inputs: Source | Iterable[Source],
    out: Source,
    *,
    workers: int = 1,
    ids: bool = False,
    only: Ranges = (),
    spans: bool = False,
    payload: bool = False,
    text_column: str | None = None,
    id_column: str | None = None,
    key_column: str | None = None,
    prefix: str = "",
    on_rows: Callable[[list[Row]], object] | None = None,
) -> Tally:
    """Score the texts of files into a file, one row a text, in order, as `dgmark detect --out` does.

    Each row is written to a JSON Lines file as soon as it is scored. If that already holds rows of the same inputs and
    settings, they stay and the missing rows are added; a line that a crash cut off, and error rows at the end, are
    scored again. An input that cannot be scored becomes a row with an `error` and does not stop the others. Memory does
    not grow with the number of texts.

    A Parquet file is made from Parquet files: their rows with the columns of `DetectColumns`. It is written at the end,
    from a file of rows beside it (`found.parquet.jsonl`), which is then removed.

    Args:
        scorer: a `Detector`, a `Keyring`, a `RowKeys`, or a key, for which a `Detector` is made.
        inputs: documents that `read_document` reads, JSON Lines (.jsonl, .ndjson, also .gz; fields id, text,
            token_ids), Parquet, folders of these, or "-" for standard input.
        out: the file to write or to resume; it must lie outside the inputs.
        workers: number of processes. With more than one, a script must be a file, and needs
            `if __name__ == "__main__":` around its calls.
        ids: score the "token_ids" of rows that also hold "text".
        only: ranges [start, end) to score, in characters (in indices for ids), chosen without the key.
        spans: also find the spans that carry the mark.
        payload: also state the sub-key found, which is the payload of the text.
        text_column: the column or field that holds the texts of rows and tables; by default "text".
        id_column: the column or field that holds the ids of rows.
        key_column: the column or field that names the key of each row, for a `RowKeys`.
        prefix: what the names of the columns begin with that are added to those of Parquet files.
        on_rows: called with each list of rows, once they are in the file of rows.

    Returns:
        The counts of all rows of the file, including those of earlier runs.

    Raises:
        SettingsError: `scorer` is neither a scorer nor a key, `workers` is not a whole number from 1 to 256, ranges are
            requested without one key or for Parquet, spans of keys whose rules find none, an argument has the wrong
            type, the output lies among the inputs, or is Parquet that is not made from Parquet.
        ModelNotFound: the tokenizer is unavailable.
        MissingExtra: reading an input needs a package that is not installed.
        ResumeMismatch: the file holds rows of other inputs or settings, or a text changed under its id; the file is
            left unchanged.
        InputError: the file cannot be written, or another process is writing it.
    """
    if on_rows is not None and not callable(on_rows):
        raise SettingsError(f"on_rows is a function of a list of rows, not a {type(on_rows).__name__}")
    if isinstance(scorer, RowKeys) == (key_column is None):
        raise SettingsError("a column of keys belongs to a RowKeys, which has the keys that it names: give both")
    check_workers(workers)
    reading = RowReading(text_column, id_column, key_column, flag("ids", ids))
    scoring = ScoringOptions(checked_ranges(only), flag("spans", spans), flag("payload", payload))
    scorer = scoring.check(scorer)
    settings, tally = settings_hash(scorer, scoring, ids=ids), Tally()
    of_rows: dict[str, Any] = {
        "shared": {"schema": DETECTION_SCHEMA, **shared_fields(scorer), SETTINGS: settings},
        "row_of": partial(to_row, payload=payload),
        "in_order": True,
        "source": "text or key",
        **({} if on_rows is None else {"on_rows": on_rows}),
    }
    if is_parquet(as_path(out, "the output")):
        if scoring.only:
            raise SettingsError("ranges are those of one text, not of the rows of Parquet: leave them out")
        sources, prefix = files_of(names_of(inputs)), instance("the prefix", prefix, str)
        made_with = {"settings": settings, "columns": [text_column, id_column, key_column]}
        fields = {**DETECT_FIELDS, **(SPAN_FIELDS if spans else {})}
        sink: RowFile = ParquetFile(os.fspath(out), sources, made_with, fields, prefix, **of_rows)
        items: Iterator[Item] = chain.from_iterable(read_texts(source, reading) for source in sources)
    else:
        sources = [name if is_parquet(name) else str(Path(name)) for name in names_of(inputs)]
        check_output(Path(out), sources)
        sink = RowFile(Path(out), **of_rows)
        items = read_sources(sources, reading, on_skip=tally.skipped.append)
    return run(to_score(items, scorer), partial(score, scorer, scoring), sink, tally=tally, workers=workers)


def shared_fields(scorer: AnyScorer) -> Row:
    """The fields that all detections of a scorer have in common."""
    if isinstance(scorer, RowKeys):
        return {"fpr": scorer.settings["fpr"], "keys_tested": 1}
    keys = scorer.settings["keys"]
    one_of_them = {"key_fingerprint": keys[0].partition("/")[0]} if len(keys) == 1 else {}
    return {"fpr": scorer.settings["fpr"], "keys_tested": len(keys), **one_of_them}


def settings_hash(scorer: AnyScorer, scoring: ScoringOptions, *, ids: bool) -> str:
    """A short hash of everything that a row depends on except its text. All rows of one file share it."""
    everything = {
        "schema": DETECTION_SCHEMA,
        "statistics": STATISTICS_VERSION,
        **scorer.settings,
        "only": list(scoring.only),
        "spans": scoring.spans,
        "ids": ids,
        **({"payload": True} if scoring.payload else {}),
    }
    return hashlib.sha256(json.dumps(everything, sort_keys=True).encode()).hexdigest()[:16]


def to_score(items: Iterable[Item], scorer: AnyScorer) -> Iterator[Item]:
    """The items with what their rows state of their sources: the hash of the text, and the key that the row names."""
    for item in items:
        source: Row = {SOURCE_SHA256: None if item.content is None else sha256_of(item.content)}
        if isinstance(scorer, RowKeys):
            (detector,) = each(scorer.detector, [item.key])
            source["key_fingerprint"] = detector.key.fingerprint if isinstance(detector, Detector) else None
        yield replace(item, source=source)


def to_row(item: Item, detection: Detection | None, *, payload: bool = False) -> Row:
    """A detection, or the error of its item, as a row; with `payload`, the sub-key found is in it."""
    if detection is None:
        return item.error_row(DETECTION_SCHEMA, **item.source)
    about: Row = {name: value for name in ("file", "place", "kind") if (value := getattr(item, name)) is not None}
    if item.kind is not None or item.notes:
        about["notes"] = list(item.notes)
    sha256 = item.source[SOURCE_SHA256]
    return {**detection.to_row(item.row_id, payload=payload), **about, SOURCE_SHA256: sha256}


def score(scorer: AnyScorer, scoring: ScoringOptions, items: Sequence[Item]) -> list[Detection | DgmarkError]:
    """Score some texts: together, unless ranges are wanted. In the place of one that cannot be, its error."""
    if scoring.only:
        found = each(lambda item: one_key(scorer).detect(item.content, only=scoring.only), items)
    else:
        found = detect_rows(scorer, [(item.content, item.key) for item in items])
    pairs = zip(items, found, strict=True)
    return each(
        partial(_in_document, scorer, scoring),
        [result if isinstance(result, DgmarkError) else (item, result) for item, result in pairs],
    )


def _in_document(scorer: AnyScorer, scoring: ScoringOptions, found: tuple[Item, Detection]) -> Detection:
    """What was found in an item, with its spans if they are wanted, in the light of what its document lacks."""
    item, detection = found
    if scoring.spans:
        detection = with_spans(scorer, detection, item.content)
    if item.kind is None:
        return detection
    about: dict[str, Any] = {"incomplete": item.incomplete, "uncertain_because": item.uncertain_because}
    return of_document(detection, detector_of(scorer, detection).reader, item.content, **about)
