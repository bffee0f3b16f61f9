"""The formats of detections: for a person, or as JSON, JSON Lines or CSV; and a picture of one."""

import csv
import json
import sys
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np

from dgmark.checkpoint.tokenizer import well_formed
from dgmark.cli.card import View, show_results
from dgmark.detection.detector import Detector
from dgmark.detection.many import Scored, to_row
from dgmark.detection.result import DETECTION_FIELDS, PAYLOAD_FIELDS, Detection
from dgmark.detection.scorer import Scorer
from dgmark.detection.strip import match_strip
from dgmark.rows.jsonl import SOURCE_SHA256, to_line
from dgmark.rows.texts import Item

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COLUMNS = ["id", *DETECTION_FIELDS, "schema", SOURCE_SHA256, "kind", "notes", "error"]
_SUBKEY_COLUMNS = ["subkeys_tested", *PAYLOAD_FIELDS]


class Format(StrEnum):
    """The output formats."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"
    CSV = "csv"


def _write_jsonl(scored: Iterator[Scored], _scorer: Scorer, view: View) -> None:
    for row in scored:
        print(to_line(to_row(row, payload=view.payload)), flush=True)


def _write_json(scored: Iterator[Scored], _scorer: Scorer, view: View) -> None:
    print(json.dumps([to_row(row, payload=view.payload) for row in scored], indent=2, allow_nan=False))


def _write_csv(scored: Iterator[Scored], _scorer: Scorer, view: View) -> None:
    columns = _COLUMNS + _SUBKEY_COLUMNS if view.payload else _COLUMNS
    writer = csv.DictWriter(sys.stdout, columns, lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    for row in scored:
        writer.writerow({name: _cell(value) for name, value in to_row(row, payload=view.payload).items()})


def _cell(value: object) -> object:
    if isinstance(value, list):
        return json.dumps(value)
    return well_formed(value) if isinstance(value, str) else value


def draw(detector: Detector, item: Item, detection: Detection) -> "Figure":
    """Draw the matches along one text, with its spans."""
    tokens = detector.reader.locate(item.content)
    matched = detector.matched(tokens.ids, tokens.positions, detection)
    spans = [
        (int(np.searchsorted(tokens.offsets[:, 0], span.start)), int(np.searchsorted(tokens.offsets[:, 0], span.end)))
        for span in detection.spans or ()
    ]
    title = (
        f"{well_formed(item.row_id)}: {detection.verdict}, p = {detection.p_value:.2g}, key {detection.key_fingerprint}"
    )
    return match_strip(matched, detector.key.spec.modulus, spans=spans, title=title)


WRITERS: dict[Format, Callable[[Iterator[Scored], Scorer, View], None]] = {
    Format.TABLE: show_results,
    Format.JSON: _write_json,
    Format.JSONL: _write_jsonl,
    Format.CSV: _write_csv,
}
