"""`dgmark detect`: texts and a key in, verdicts with their error rate out."""

import hashlib
import json
import sys
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer

from dgmark.cli.asked import Asked, Mode, Phase
from dgmark.cli.console import command_errors, stderr
from dgmark.cli.options import AllowOpenKey
from dgmark.cli.results import WRITERS, AnyDetector, Format, Scored, draw, to_row
from dgmark.cli.schemes import SchemeName, SchemeOptions, scheme_of
from dgmark.detection.detector import DEFAULT_FPR, DEFAULT_MAX_CROP, STATISTICS_VERSION, Detector, Ranges
from dgmark.detection.keyring import Keyring
from dgmark.detection.normalise import STEPS
from dgmark.detection.result import DETECTION_SCHEMA, Detection
from dgmark.detection.strip import save
from dgmark.errors import DgmarkError, InputError, SettingsError
from dgmark.lab.baselines import SchemeDetector
from dgmark.rows.jsonl import STDIN, BadRow, Row
from dgmark.rows.row_file import SETTINGS, append_rows, take_up
from dgmark.rows.texts import Item, read_texts
from dgmark.rows.workers import in_order


@command_errors
def detect(
    inputs: Annotated[list[str] | None, typer.Argument(help="Text files, .jsonl files, folders; - is stdin.")] = None,
    key: Annotated[Path | None, typer.Option(help="Key file to look for.", show_default=False)] = None,
    keys: Annotated[
        Path | None, typer.Option(help="Folder of key files: which of them, if any?", show_default=False)
    ] = None,
    scheme: SchemeName = None,
    scheme_option: SchemeOptions = None,
    fpr: Annotated[float, typer.Option(help="False-positive rate to hold.")] = DEFAULT_FPR,
    mode: Annotated[
        Mode,
        typer.Option(help="auto: as intact and as edited text; intact: a crop at most; edited: edits allowed for."),
    ] = Mode.AUTO,
    phase: Annotated[
        Phase, typer.Option(help="any: the front may be missing; start: the text is complete.")
    ] = Phase.ANY,
    output: Annotated[Format, typer.Option("--format", help="How to write results.")] = Format.TABLE,
    tokenizer: Annotated[
        str | None, typer.Option(help="Tokenizer folder or file; by default the one the key names.", show_default=False)
    ] = None,
    ids: Annotated[bool, typer.Option("--ids", help='Of rows with "text" and "token_ids", score the ids.')] = False,
    normalise: Annotated[
        list[str] | None, typer.Option(help=f"If needed, undo disguises: all, or {', '.join(STEPS)}; may be repeated.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Write JSON Lines here, and go on where this file stops.", show_default=False)
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Write a picture of one text's matches (.png, .svg).", show_default=False)
    ] = None,
    workers: Annotated[int, typer.Option(min=1, help="Processes.")] = 1,
    spans: Annotated[bool, typer.Option("--spans", help="Tell which stretches carry the mark.")] = False,
    show: Annotated[bool, typer.Option("--show", help="Show which tokens match.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Exit 0 if watermarked, 1 if not, 3 if uncertain.")] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="START:END",
            help="Score these characters (of ids: indices) only, chosen without the key; may be repeated.",
        ),
    ] = None,
    max_crop: Annotated[int, typer.Option(help="Rotating keys: most tokens missing at the front.")] = DEFAULT_MAX_CROP,
    allow_open_key: AllowOpenKey = False,
) -> None:
    """Tell whether texts carry the mark of a key, with a p-value that is true for any text.

    --scheme looks for another watermark than dgMARK; its options must be those that the text was made with.
    """
    asked = Asked(
        key=key,
        keys=keys,
        scheme=scheme_of(scheme, scheme_option),
        fpr=fpr,
        mode=mode,
        phase=phase,
        output=output,
        tokenizer=tokenizer,
        steps=tuple(STEPS) if "all" in (normalise or ()) else tuple(normalise or ()),
        out=out,
        plot=plot,
        spans=spans,
        show=show,
        only=tuple(only or ()),
        max_crop=max_crop,
        allow_open_key=allow_open_key,
    )
    asked.check()
    detector = asked.detector()
    detector.tokenizer  # noqa: B018 (a wrong tokenizer is an error of the key, not of each row)
    if not inputs and sys.stdin.isatty():
        raise SettingsError("give texts to score: files, folders, or - for standard input")
    sources = inputs or [STDIN]
    items = (item for source in sources for item in _read(source, ids))
    task = Task(_ranges(asked.only), spans)
    tally = _Tally()
    if out:
        _check_apart(out, sources)
        settings = _settings(detector, task, ids, asked.scheme.to_dict() if asked.scheme else None)
        _append(out, items, detector, task, workers, tally, {**asked.agreed(detector), SETTINGS: settings})
    elif plot and isinstance(detector, Detector):
        found = list(tally.count(score(detector, _the_one(items), task)))
        WRITERS[output](iter(found), detector, show)
        for row in found:
            if not isinstance(row, BadRow):
                save(draw(detector, *row), plot)
    else:
        WRITERS[output](tally.count(score(detector, items, task, workers)), detector, show)
    tally.close(check)


def _append(
    out: Path,
    items: Iterator[Item | BadRow],
    detector: AnyDetector,
    task: "Task",
    workers: int,
    tally: "_Tally",
    agreed: Row,
) -> None:
    """Score what the file has no row of yet, and append it."""
    skipped = take_up(out, items, agreed, tally.count_row)
    if skipped:
        stderr().print(f"{skipped} rows are already in {out}")
    scored = tally.count(score(detector, items, task, workers))
    deque(append_rows(out, ({**to_row(row), SETTINGS: agreed[SETTINGS]} for row in scored)), maxlen=0)
    stderr().print(tally.sentence(out))


def _check_apart(out: Path, sources: list[str]) -> None:
    """Refuse to write where the texts are read from: rows would be scored as texts, and without an end."""
    written = out.resolve()
    for source in sources:
        if source != STDIN and written.is_relative_to(Path(source).resolve()):
            raise SettingsError(f"--out {out} lies in {source}, which is read: choose a place outside of it")


def _settings(detector: AnyDetector, task: "Task", ids: bool, scheme: dict[str, Any] | None) -> str:
    """A short hash of all that a row depends on beside its text; rows of one file share it."""
    keys = detector.keys if isinstance(detector, Keyring) else [detector.key]
    all_of_them = {
        "schema": DETECTION_SCHEMA,
        "statistics": STATISTICS_VERSION,
        "keys": sorted(key.fingerprint for key in keys),
        "fpr": detector.fpr,
        "mode": detector.mode if isinstance(detector, Detector) else "auto",
        "scheme": scheme if isinstance(detector, SchemeDetector) else None,
        "phase": "any" if isinstance(detector, SchemeDetector) else detector.phase,
        "max_crop": DEFAULT_MAX_CROP if isinstance(detector, SchemeDetector) else detector.max_crop,
        "normalise": sorted(set(detector.normalise)) if isinstance(detector, Detector) else [],
        "only": list(task.only),
        "spans": task.spans,
        "ids": ids,
    }
    return hashlib.sha256(json.dumps(all_of_them, sort_keys=True).encode()).hexdigest()[:16]


def _the_one(items: Iterable[Item | BadRow]) -> list[Item | BadRow]:
    """The text there is; a second one is seen before any is scored."""
    first = list(islice(items, 2))
    if len(first) > 1:
        raise SettingsError("--plot draws one text, and there are more")
    return first


def _read(source: str, prefer_ids: bool) -> Iterator[Item | BadRow]:
    """The texts of one source; a source that cannot be read is a bad row beside the others."""
    try:
        yield from read_texts(source, prefer_ids=prefer_ids)
    except InputError as error:
        yield BadRow(source, str(error), type(error))


def _ranges(only: Iterable[str]) -> list[tuple[int, int]]:
    ranges = []
    for text in only:
        start, colon, end = text.partition(":")
        if not (colon and start.isdecimal() and end.isdecimal()):
            raise SettingsError(f"--only {text} is not START:END, two whole numbers")
        ranges.append((int(start), int(end)))
    return ranges


@dataclass(frozen=True)
class Task:
    """What to do with each text beside the detection: the ranges to score, and whether to find spans."""

    only: Ranges = ()
    spans: bool = False


def score(
    detector: AnyDetector, items: Iterable[Item | BadRow], task: Task = Task(), workers: int = 1
) -> Iterator[Scored]:
    """Detections in the order of the items, a chunk at a time; an item that cannot be scored becomes a bad row."""
    for item, found in in_order(_score_chunk, items, workers=workers, prepare=_prepare, given=(detector, task)):
        if isinstance(item, BadRow):
            yield item
        elif isinstance(found, BadRow):
            yield found
        else:
            yield item, found


_PREPARED: list[tuple[AnyDetector, Task]] = []


def _prepare(detector: AnyDetector, task: Task) -> None:
    """What each process scores with."""
    _PREPARED[:] = [(detector, task)]


def _score_chunk(chunk: list[Item | BadRow]) -> list[Detection | BadRow]:
    """Detections of a few items: texts encoded together where that goes; each list of ids, which may be bad, alone."""
    ((detector, task),) = _PREPARED
    texts = [item.content for item in chunk if isinstance(item, Item) and isinstance(item.content, str)]
    together = iter(detector.detect_many(texts) if task == Task() else ())
    return [
        item
        if isinstance(item, BadRow)
        else next(together)
        if task == Task() and isinstance(item.content, str)
        else _score_one(detector, item, task)
        for item in chunk
    ]


def _score_one(detector: AnyDetector, item: Item, task: Task) -> Detection | BadRow:
    try:
        if not isinstance(detector, Detector):
            return detector.detect(item.content)
        detection = detector.detect(item.content, only=task.only or None)
        if task.spans:
            detection = replace(detection, spans=detector.spans(item.content))
    except DgmarkError as error:
        return BadRow(item.row_id, str(error), type(error))
    return detection


class _Tally:
    """Counts verdicts and bad rows as they pass, and turns them into the exit code."""

    def __init__(self) -> None:
        self.verdicts: Counter[str] = Counter()
        self.first: BadRow | None = None
        self.bad = 0

    def count(self, scored: Iterable[Scored]) -> Iterator[Scored]:
        for row in scored:
            if isinstance(row, BadRow):
                self.first = self.first or row
                self.bad += 1
            else:
                self.verdicts[row[1].verdict] += 1
            yield row

    def count_row(self, row: Row) -> None:
        """Count a row that an earlier run wrote."""
        if "error" in row:
            self.first = self.first or BadRow(str(row["id"]), str(row["error"]))
            self.bad += 1
        else:
            self.verdicts[str(row.get("verdict"))] += 1

    def sentence(self, out: Path) -> str:
        """What the file holds."""
        counts = ", ".join(f"{count} {verdict}" for verdict, count in sorted(self.verdicts.items()))
        return f"{out}: {self.verdicts.total()} scored ({counts or 'none'}), {self.bad} cannot be used"

    def close(self, check: bool) -> None:
        """Leave with the exit code that the counts call for."""
        scored = self.verdicts.total()
        if self.first and (check or not scored):
            raise self.first.kind(f"{self.first.row_id}: {self.first.error}")
        if self.bad:
            stderr().print(f"{self.bad} of {self.bad + scored} inputs cannot be used")
        if not self.bad and not scored:
            raise InputError("there is no text to score")
        if check and "not_detected" in self.verdicts:
            raise typer.Exit(1)
        if check and "uncertain" in self.verdicts:
            raise typer.Exit(3)
