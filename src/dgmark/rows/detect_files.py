"""Many texts: scored in order, on several processes, into a file of rows that resumes where it stopped.

Knows nothing of how a text is scored.
"""

import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import chain, islice
from pathlib import Path
from typing import cast

from dgmark.arguments.checks import as_path, flag, instance
from dgmark.arguments.digests import sha256_of
from dgmark.detection.detector import Detector
from dgmark.detection.keyring import Keyring
from dgmark.detection.reading.reader import Ranges, checked_ranges
from dgmark.detection.results.legibility import of_document
from dgmark.detection.results.result import DETECT_FIELDS, DETECTION_SCHEMA, STATISTICS_VERSION, Detection
from dgmark.detection.row_keys import AnyScorer, RowKeys, detect_rows
from dgmark.detection.scorer import Scorer
from dgmark.errors import DgmarkError, InputError, ResumeMismatch, SettingsError, each
from dgmark.files.inputs import names_of
from dgmark.files.outputs import check_output
from dgmark.rows.jsonl import SOURCE_SHA256, BadRow, Row
from dgmark.rows.parquet import is_parquet
from dgmark.rows.parquet_target import ParquetTarget
from dgmark.rows.row_file import SETTINGS, RowFile
from dgmark.rows.texts import ANY_ROWS, Item, RowReading, files_of, read_texts, unreadable
from dgmark.rows.workers import CHUNK, check_workers, map_in_order
from dgmark.watermark.key import WatermarkKey, check_key

Scored = tuple[Item, Detection] | BadRow
Source = str | os.PathLike[str]


def keys_of(scorer: AnyScorer) -> Sequence[WatermarkKey]:
    """The keys that a scorer knows."""
    if isinstance(scorer, RowKeys):
        return [*scorer.keys.values()]
    return scorer.keys if isinstance(scorer, Keyring) else [one_key(scorer).key]


def one_key(scorer: AnyScorer) -> Detector:
    """The scorer as a `Detector`, which spans, ranges, and tokens for display need.

    Raises:
        SettingsError: the scorer looks for several keys.
    """
    if isinstance(scorer, Detector):
        return scorer
    raise SettingsError(f"spans, ranges and single tokens need one key: use a Detector, not a {type(scorer).__name__}")


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

    @property
    def plain(self) -> bool:
        """Whether only the plain detection is computed."""
        return not (self.only or self.spans)

    def check(self, scorer: AnyScorer | WatermarkKey) -> AnyScorer:
        """The scorer, or the detector of a key, once it can do this and its tokenizer is loaded.

        Raises:
            SettingsError: it is neither a scorer nor a key; ranges or spans are requested without one key, or together
                with normalisation; spans with a key whose rule finds none; or payloads without keys that have
                sub-keys.
            ModelNotFound: the tokenizer is unavailable.
        """
        if not isinstance(scorer, AnyScorer):
            check_key(scorer)
            scorer = Detector(scorer)
        keys = keys_of(scorer)
        if self.payload and all(key.spec.subkeys == 1 for key in keys):
            raise SettingsError(
                "a payload is the sub-key of a text, and no key here has sub-keys: leave the payload out, or make a "
                "key with `dgmark keygen --subkeys`"
            )
        if not self.plain and one_key(scorer).normalise:
            raise SettingsError("ranges and spans refer to the unchanged text: leave normalisation out")
        if self.spans and (why := one_key(scorer).no_spans):
            raise SettingsError(why, field="spans")
        if isinstance(scorer, Scorer):
            scorer.reader.tokenizer  # noqa: B018 (a wrong tokenizer is an error of the key, not of each row)
        return scorer


@dataclass
class Tally:
    """Counts of the rows of one run or file.

    Attributes:
        verdicts: number of scored texts for each verdict.
        unusable: number of inputs that could not be scored.
        first_unusable: the first of these inputs.
        resumed: number of rows that the file held before the run; the other counts include them.
        skipped: the files of folders whose endings are those of no document.
    """

    verdicts: Counter[str] = field(default_factory=Counter)
    unusable: int = 0
    first_unusable: BadRow | None = None
    resumed: int = 0
    skipped: list[str] = field(default_factory=list)

    @property
    def scored(self) -> int:
        """Number of scored texts."""
        return self.verdicts.total()

    def count(self, scored: Iterable[Scored]) -> Iterator[Scored]:
        """Count the rows while passing them on."""
        for row in scored:
            if isinstance(row, BadRow):
                self._count_unusable(row)
            else:
                self.verdicts[row[1].verdict] += 1
            yield row

    def count_row(self, row: Row) -> None:
        """Count a row that an earlier run wrote."""
        if row.get("error") is not None:
            self._count_unusable(BadRow(str(row.get("id")), str(row["error"])))
        else:
            self.verdicts[str(row.get("verdict"))] += 1

    def _count_unusable(self, row: BadRow) -> None:
        self.first_unusable = self.first_unusable or row
        self.unusable += 1


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
        SettingsError: `scorer` is neither a scorer nor a key, `workers` is not a whole number from 1 to 256, ranges or
            spans are requested without one dgMARK key or for Parquet, an argument has the wrong type, the output lies
            among the inputs, or is Parquet that is not made from Parquet.
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
    job = _Job(scoring.check(scorer), reading, scoring, workers, on_rows)
    if is_parquet(as_path(out, "the output")):
        return job.into_table(os.fspath(out), names_of(inputs), instance("the prefix", prefix, str))
    return job.into_rows(Path(out), names_of(inputs))


@dataclass(frozen=True)
class _Job:
    """How texts are read, scored and written; see `detect_file`, of which these are arguments."""

    scorer: AnyScorer
    reading: RowReading
    scoring: ScoringOptions
    workers: int
    on_rows: Callable[[list[Row]], object] | None

    @cached_property
    def _settings(self) -> str:
        return settings_hash(self.scorer, self.scoring, ids=self.reading.prefer_ids)

    def into_rows(self, out: Path, inputs: Sequence[str]) -> Tally:
        """Write a file of rows."""
        sources, tally = [one if is_parquet(one) else str(Path(one)) for one in inputs], Tally()
        check_output(out, sources)
        items = read_sources(sources, self.reading, on_skip=tally.skipped.append)
        with self._written(out, items, tally):
            return tally

    def into_table(self, out: str, inputs: Sequence[str], prefix: str) -> Tally:
        """Write a Parquet file, from a file of rows beside it."""
        if not self.scoring.plain:
            raise SettingsError("columns of Parquet hold no spans: leave spans and ranges out, or write JSON Lines")
        columns = [self.reading.text_column, self.reading.id_column, self.reading.key_column]
        made_with = {"settings": self._settings, "columns": columns}
        target, tally = ParquetTarget(out, files_of(inputs), made_with, DETECT_FIELDS, prefix), Tally()
        target.schema  # noqa: B018 (before the work)
        if target.is_finished():
            for row in target.values([*DETECT_FIELDS]):
                tally.count_row(row)
            tally.resumed = tally.scored + tally.unusable
            return tally
        items = chain.from_iterable(read_texts(one, self.reading) for one in target.sources)
        with self._written(target.rows_file, items, tally) as file:
            target.write(file.rows())
        return tally

    @contextmanager
    def _written(self, path: Path, items: Iterator[Item | BadRow], tally: Tally) -> Iterator[RowFile]:
        """A file of the rows of all items, of which the missing ones are made, and which are counted."""
        shared = {"schema": DETECTION_SCHEMA, **shared_fields(self.scorer), SETTINGS: self._settings}
        with RowFile(path, shared) as file:
            tally.resumed = _skip_finished(file, items, tally, self.scorer)
            scored = tally.count(score(self.scorer, items, self.scoring, self.workers))
            while chunk := [to_row(one, payload=self.scoring.payload) for one in islice(scored, CHUNK)]:
                file.append(chunk)
                if self.on_rows is not None:
                    self.on_rows(chunk)
            yield file


def _skip_finished(file: RowFile, items: Iterator[Item | BadRow], tally: Tally, scorer: AnyScorer) -> int:
    """Advance the items past those that the file has rows for, count these rows, and return how many there are.

    Raises:
        ResumeMismatch: the rows are not those of the first items, in this order, or were made from other texts or with
            other keys.
    """
    resumed = 0
    for row in file.rows():
        item = next(items, None)
        if item is None or row["id"] != item.row_id:
            there = repr(item.row_id) if item else "no more"
            raise ResumeMismatch(
                f"{file.path} holds row {row['id']!r} where the inputs have {there}; "
                "give the same inputs in the same order, choose another --out, or delete the file to start again"
            )
        if row.get(SOURCE_SHA256) != (sha256_of(item.content) if isinstance(item, Item) else None):
            raise ResumeMismatch(
                f"{file.path} holds a row {row['id']!r} made from a different text; "
                "choose another --out, or delete the file to start again"
            )
        if isinstance(scorer, RowKeys) and isinstance(item, Item) and not scorer.tested(item.key, row):
            raise ResumeMismatch(
                f"{file.path} holds a row {row['id']!r} that was tested with another key than {item.key!r}; choose "
                "another --out, or delete the file to start again"
            )
        tally.count_row(row)
        resumed += 1
    return resumed


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


def read_sources(
    sources: Sequence[str], reading: RowReading = ANY_ROWS, *, on_skip: Callable[[str], object] | None = None
) -> Iterator[Item | BadRow]:
    """Read the texts of all sources (see `read_texts`). A source that cannot be read becomes a bad row."""
    reading = replace(reading, name_files=len(sources) > 1)
    for source in sources:
        try:
            yield from read_texts(source, reading, on_skip=on_skip)
        except InputError as error:
            yield unreadable(source, error)


def to_row(scored: Scored, *, payload: bool = False) -> Row:
    """A detection or a bad row as a row of the output; with `payload`, the sub-key found is in it."""
    if isinstance(scored, BadRow):
        return scored.to_row(DETECTION_SCHEMA)
    item, detection = scored
    document: Row = {"file": item.file} if item.file is not None else {}
    if item.kind is not None:
        document["kind"] = item.kind
    if item.kind is not None or item.notes:
        document["notes"] = list(item.notes)
    return {**detection.to_row(item.row_id, payload=payload), **document, SOURCE_SHA256: sha256_of(item.content)}


def score(
    scorer: AnyScorer,
    items: Iterable[Item | BadRow],
    scoring: ScoringOptions = ScoringOptions(),
    workers: int = 1,
) -> Iterator[Scored]:
    """Score the items in their order, a chunk at a time. An item that cannot be scored becomes a bad row."""
    results = map_in_order(_score_chunk, items, workers=workers, shared=(scorer, scoring), size=_length)
    for item, result in results:
        yield result if isinstance(result, BadRow) else (cast(Item, item), result)


def _length(item: Item | BadRow) -> int:
    return len(item.content) if isinstance(item, Item) else 0


def _score_chunk(scorer: AnyScorer, scoring: ScoringOptions, chunk: list[Item | BadRow]) -> list[Detection | BadRow]:
    """Score a few items: together, unless spans or ranges are wanted."""
    items = [item for item in chunk if isinstance(item, Item)]
    if scoring.plain:
        found = detect_rows(scorer, [(item.content, item.key) for item in items])
    else:
        found = each(partial(_detect, one_key(scorer), scoring), items)
    detected = iter(found)
    return [item if isinstance(item, BadRow) else _checked(next(detected), scorer, item) for item in chunk]


def _checked(detection: Detection | DgmarkError, scorer: AnyScorer, item: Item) -> Detection | BadRow:
    """What was found in an item, in the light of what its document lacks; a bad row if it cannot be scored."""
    try:
        if isinstance(detection, DgmarkError):
            raise detection
        if item.kind is None or isinstance(scorer, RowKeys):  # documents name no key
            return detection
        return of_document(
            detection,
            scorer.reader,
            item.content,
            incomplete=item.incomplete,
            uncertain_because=item.uncertain_because,
        )
    except DgmarkError as error:
        return BadRow(item.row_id, str(error), type(error), sha256_of(item.content), item.file)


def _detect(detector: Detector, scoring: ScoringOptions, item: Item) -> Detection:
    detection = detector.detect(item.content, only=scoring.only or None)
    return detection.with_spans(detector.spans(item.content), item.content) if scoring.spans else detection
