"""`dgmark detect`: texts and a key in, verdicts with their error rate out."""

import csv
import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from dgmark.cli.console import speaks, stderr, stdout
from dgmark.cli.highlight import highlight, legend
from dgmark.detector import DEFAULT_FPR, DEFAULT_MAX_CROP, DETECTION_SCHEMA, Detection, Detector, Ranges
from dgmark.errors import DgmarkError, InputError, SettingsError
from dgmark.key import WatermarkKey
from dgmark.keyring import Keyring, load_keys
from dgmark.records import STDIN, BadRow, to_line
from dgmark.texts import Item, read_texts

_CHUNK = 64
_STYLES = {"watermarked": "bold green", "not_detected": "bold", "uncertain": "bold yellow"}
_COLUMNS = ["id", *Detection.__dataclass_fields__, "schema", "error"]

Scored = tuple[Item, Detection] | BadRow


class Format(StrEnum):
    """How results are written."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"
    CSV = "csv"


class Mode(StrEnum):
    """Which tests decide."""

    AUTO = "auto"
    INTACT = "intact"
    EDITED = "edited"


class Phase(StrEnum):
    """Whether the front of a text may be missing."""

    ANY = "any"
    START = "start"


@speaks
def detect(
    inputs: Annotated[list[str] | None, typer.Argument(help="Text files, .jsonl files, folders; - is stdin.")] = None,
    key: Annotated[Path | None, typer.Option(help="Key file to look for.", show_default=False)] = None,
    keys: Annotated[
        Path | None, typer.Option(help="Folder of key files: which of them, if any?", show_default=False)
    ] = None,
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
    spans: Annotated[bool, typer.Option("--spans", help="Tell which stretches carry the mark.")] = False,
    show: Annotated[bool, typer.Option("--show", help="Show which tokens match.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Exit 0 if watermarked, 1 if not, 3 if uncertain.")] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="START:END", help="Score these characters (of ids: indices) only; may be repeated."),
    ] = None,
    max_crop: Annotated[int, typer.Option(help="Rotating keys: most tokens missing at the front.")] = DEFAULT_MAX_CROP,
    allow_open_key: Annotated[bool, typer.Option(help="Accept a key file that every user can read.")] = False,
) -> None:
    """Tell whether texts carry the mark of a key, with a p-value that is true for any text."""
    if (key is None) == (keys is None):
        raise SettingsError("give --key FILE, the key to look for, or --keys FOLDER, but not both")
    if show and output is not Format.TABLE:
        raise SettingsError("--show is for --format table")
    options: dict[str, Any] = {"tokenizer": tokenizer, "fpr": fpr, "phase": phase.value, "max_crop": max_crop}
    detector: Detector | Keyring
    if key is not None:
        detector = Detector(WatermarkKey.load(key, allow_open=allow_open_key), mode=mode.value, **options)
    elif keys is not None:
        if mode is not Mode.AUTO or show or spans or only:
            raise SettingsError(
                "--keys goes with mode auto, and without --show, --spans and --only: find the key first"
            )
        detector = Keyring(load_keys(keys, allow_open=allow_open_key), **options)
    detector.tokenizer  # noqa: B018 (a wrong tokenizer is an error of the key, not of each row)
    if not inputs and sys.stdin.isatty():
        raise SettingsError("give texts to score: files, folders, or - for standard input")
    sources = inputs or [STDIN]
    items = (item for source in sources for item in _read(source, ids))
    tally = _Tally()
    _WRITERS[output](tally.count(score(detector, items, Task(_ranges(only or []), spans))), detector, show)
    tally.close(check)


def _read(source: str, prefer_ids: bool) -> Iterator[Item | BadRow]:
    """The texts of one source; a source that cannot be read is a bad row beside the others."""
    try:
        yield from read_texts(source, prefer_ids=prefer_ids)
    except InputError as error:
        yield BadRow(source, str(error), type(error))


def _ranges(only: list[str]) -> list[tuple[int, int]]:
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


def score(detector: Detector | Keyring, items: Iterable[Item | BadRow], task: Task = Task()) -> Iterator[Scored]:
    """Detections in the order of the items, a chunk at a time; an item that cannot be scored becomes a bad row."""
    items = iter(items)
    while chunk := list(islice(items, _CHUNK)):
        yield from score_chunk(detector, chunk, task)


def score_chunk(detector: Detector | Keyring, chunk: list[Item | BadRow], task: Task) -> list[Scored]:
    """Detections of a few items, encoded together where that goes."""
    good = [item for item in chunk if isinstance(item, Item)]
    together = task == Task() and _score_together(detector, good)
    rest = iter(together or [_score_one(detector, item, task) for item in good])
    return [item if isinstance(item, BadRow) else next(rest) for item in chunk]


def _score_together(detector: Detector | Keyring, items: list[Item]) -> list[Scored] | None:
    try:
        return list(zip(items, detector.detect_many([item.content for item in items]), strict=True))
    except DgmarkError:
        return None


def _score_one(detector: Detector | Keyring, item: Item, task: Task) -> Scored:
    try:
        if isinstance(detector, Keyring):
            return item, detector.detect(item.content)
        detection = detector.detect(item.content, only=task.only or None)
        if task.spans:
            detection = replace(detection, spans=detector.spans(item.content))
    except DgmarkError as error:
        return BadRow(item.row_id, str(error), type(error))
    return item, detection


class _Tally:
    """Counts verdicts and bad rows as they pass, and turns them into the exit code."""

    def __init__(self) -> None:
        self.verdicts: list[str] = []
        self.bad: list[BadRow] = []

    def count(self, scored: Iterable[Scored]) -> Iterator[Scored]:
        for row in scored:
            if isinstance(row, BadRow):
                self.bad.append(row)
            else:
                self.verdicts.append(row[1].verdict)
            yield row

    def close(self, check: bool) -> None:
        """Leave with the exit code that the counts call for."""
        if self.bad and (check or not self.verdicts):
            first = self.bad[0]
            raise first.kind(f"{first.row_id}: {first.error}")
        if self.bad:
            stderr().print(f"{len(self.bad)} of {len(self.bad) + len(self.verdicts)} inputs cannot be used")
        if not self.bad and not self.verdicts:
            raise InputError("there is no text to score")
        if check and "not_detected" in self.verdicts:
            raise typer.Exit(1)
        if check and "uncertain" in self.verdicts:
            raise typer.Exit(3)


def _row(scored: Scored) -> dict[str, object]:
    if isinstance(scored, BadRow):
        return scored.to_row(DETECTION_SCHEMA)
    item, detection = scored
    return detection.to_row(item.row_id)


def _write_jsonl(scored: Iterator[Scored], _detector: Detector | Keyring, _show: bool) -> None:
    for row in scored:
        print(to_line(_row(row)), flush=True)


def _write_json(scored: Iterator[Scored], _detector: Detector | Keyring, _show: bool) -> None:
    print(json.dumps([_row(row) for row in scored], indent=2, allow_nan=False))


def _write_csv(scored: Iterator[Scored], _detector: Detector | Keyring, _show: bool) -> None:
    writer = csv.DictWriter(sys.stdout, _COLUMNS, lineterminator="\n")
    writer.writeheader()
    for row in scored:
        writer.writerow(_row(row))


def _write_table(scored: Iterator[Scored], detector: Detector | Keyring, show: bool) -> None:
    rows = list(scored)
    if len(rows) == 1 and not isinstance(rows[0], BadRow):
        stdout().print(card(rows[0][1]))
    elif len(rows) > 1:
        stdout().print(_table(rows))
    if show:
        for row in rows:
            if not isinstance(row, BadRow) and isinstance(row[0].content, str) and isinstance(detector, Detector):
                stdout().print(Text(f"\n── {row[0].row_id}  ", style="dim"), legend())
                stdout().print(highlight(row[0].content, detector.tokens(row[0].content, row[1])))


def card(detection: Detection) -> Table:
    """One detection for a person to read."""
    table = Table.grid(padding=(0, 2))
    table.add_row("verdict", Text(detection.verdict, style=_STYLES[detection.verdict]))
    table.add_row("p-value", f"{detection.p_value:.3g}  (held to a false-positive rate of {detection.fpr:g})")
    table.add_row("z-score", f"{detection.z_score:.2f}  (fair coins; for comparison only)")
    matches = f"{detection.num_tokens_matched} of {detection.num_tokens_scored} tokens"
    table.add_row("green fraction", f"{detection.green_fraction:.3f}  ({matches})")
    table.add_row("tests", _tests(detection))
    if detection.spans is not None:
        spans = ", ".join(f"{span.start}-{span.end} (p {span.p_value:.2g})" for span in detection.spans)
        table.add_row("spans", spans or "none found")
    tried = f"  (the likeliest of {detection.keys_tested})" if detection.keys_tested > 1 else ""
    table.add_row("key", detection.key_fingerprint + tried)
    table.add_row("", Text(detection.summary))
    return table


def _tests(detection: Detection) -> str:
    """The p-value of each test made."""
    made = []
    if detection.p_intact is not None:
        made.append(f"intact {detection.p_intact:.3g}")
    if detection.p_edited is not None:
        made.append(f"edited {detection.p_edited:.3g} ({detection.draws} keys drawn)")
    if detection.edited_fraction is not None:
        made.append(f"about {detection.edited_fraction:.0%} of tokens put in or cut out")
    return ", ".join(made)


def _table(rows: list[Scored]) -> Table:
    table = Table("id", "verdict")
    for name in ("p-value", "z", "green", "tokens"):
        table.add_column(name, justify="right")
    for row in rows:
        if isinstance(row, BadRow):
            table.add_row(Text(row.row_id), Text(row.error, style="red"))
            continue
        item, found = row
        table.add_row(
            Text(item.row_id),
            Text(found.verdict, style=_STYLES[found.verdict]),
            Text(f"{found.p_value:.3g}"),
            Text(f"{found.z_score:.2f}"),
            Text(f"{found.green_fraction:.3f}"),
            Text(str(found.num_tokens_scored)),
        )
    return table


_WRITERS = {
    Format.TABLE: _write_table,
    Format.JSON: _write_json,
    Format.JSONL: _write_jsonl,
    Format.CSV: _write_csv,
}
