"""Detections written for a person or a program: as a card, a table, JSON, JSON Lines or CSV."""

import csv
import json
import sys
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np
from rich.table import Table
from rich.text import Text

from dgmark.checkpoint.tokenizer import well_formed
from dgmark.cli.console import stdout
from dgmark.cli.highlight import highlight, legend
from dgmark.detection.detector import Detector
from dgmark.detection.many import Scored, to_row
from dgmark.detection.result import PAYLOAD_FIELDS, Detection, Span
from dgmark.detection.scorer import Scorer, one_key
from dgmark.detection.strip import match_strip
from dgmark.rows.jsonl import SOURCE_SHA256, BadRow, to_line
from dgmark.rows.texts import Item

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_STYLES = {"watermarked": "bold green", "not_detected": "bold", "uncertain": "bold yellow"}
_SUBKEY_COLUMNS = ["subkeys_tested", *PAYLOAD_FIELDS]
_FIELDS = [name for name in Detection.__dataclass_fields__ if name not in _SUBKEY_COLUMNS]
_COLUMNS = ["id", *_FIELDS, "schema", SOURCE_SHA256, "kind", "notes", "error"]


class Format(StrEnum):
    """The output formats."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"
    CSV = "csv"


def _write_jsonl(scored: Iterator[Scored], _scorer: Scorer, _show: bool, payload: bool) -> None:
    for row in scored:
        print(to_line(to_row(row, payload=payload)), flush=True)


def _write_json(scored: Iterator[Scored], _scorer: Scorer, _show: bool, payload: bool) -> None:
    print(json.dumps([to_row(row, payload=payload) for row in scored], indent=2, allow_nan=False))


def _write_csv(scored: Iterator[Scored], _scorer: Scorer, _show: bool, payload: bool) -> None:
    columns = _COLUMNS + _SUBKEY_COLUMNS if payload else _COLUMNS
    writer = csv.DictWriter(sys.stdout, columns, lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    for row in scored:
        writer.writerow({name: _cell(value) for name, value in to_row(row, payload=payload).items()})


def _cell(value: object) -> object:
    if isinstance(value, list):
        return json.dumps(value)
    return well_formed(value) if isinstance(value, str) else value


def _write_table(scored: Iterator[Scored], scorer: Scorer, show: bool, payload: bool) -> None:
    rows = list(scored)
    if len(rows) == 1 and not isinstance(rows[0], BadRow):
        stdout().print(card(rows[0][1], payload=payload))
    elif len(rows) > 1:
        stdout().print(_table(rows, payload=payload))
    if show:
        for row in rows:
            if not isinstance(row, BadRow) and isinstance(row[0].content, str):
                stdout().print(Text(f"\n── {well_formed(row[0].row_id)}  ", style="dim"), legend())
                stdout().print(highlight(row[0].content, one_key(scorer).tokens(row[0].content, row[1])))


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


def card(detection: Detection, *, payload: bool = False) -> Table:
    """One detection for a person to read; with `payload`, the sub-key is in it."""
    table = Table.grid(padding=(0, 2))
    table.add_row("verdict", Text(detection.verdict, style=_STYLES[detection.verdict]))
    table.add_row("p-value", f"{detection.p_value:.3g}  (held to a false-positive rate of {detection.fpr:g})")
    table.add_row("z-score", f"{detection.z_score:.2f}  (fair coins; for comparison only)")
    counted = "tokens" if detection.p_published is None else "scored"
    matches = f"{detection.num_tokens_matched} of {detection.num_tokens_scored} {counted}"
    table.add_row("green fraction", f"{detection.green_fraction:.3f}  ({matches})")
    if detection.p_published is None:
        table.add_row("tests", _tests(detection))
    else:
        table.add_row("scheme", f"{detection.scheme}  (p-value as it is published: {detection.p_published:.3g})")
    if detection.spans is not None:
        spans = ", ".join(_span(span, payload=payload) for span in detection.spans)
        table.add_row("spans", spans or "none found")
    tried = f"  (the likeliest of {detection.keys_tested})" if detection.keys_tested > 1 else ""
    tried += f"  ({detection.subkeys_tested} sub-keys tried)" if detection.subkeys_tested > 1 else ""
    table.add_row("key", detection.key_fingerprint + tried)
    if payload:
        table.add_row("payload", _payload(detection))
    table.add_row("", Text(detection.summary))
    return table


def _span(span: Span, *, payload: bool) -> str:
    of = f", payload {span.subkey}" if payload and span.subkey is not None else ""
    return f"{span.start}-{span.end} (p {span.p_value:.2g}{of})"


def _payload(detection: Detection) -> str:
    """The sub-key found, and how sure it is."""
    if detection.subkey is None or detection.subkey_confidence is None:
        return "none, as no mark was found"
    surely = f"{detection.subkey_confidence:.4f}" if detection.subkey_confidence < 0.9999 else "over 0.9999"
    return f"{detection.subkey}  (with probability {surely})"


def _tests(detection: Detection) -> str:
    """The p-value of each computed test."""
    parts = []
    if detection.p_intact is not None:
        parts.append(f"intact {detection.p_intact:.3g}")
    if detection.p_aligned is not None:
        parts.append(f"aligned {detection.p_aligned:.3g} ({detection.draws} keys drawn)")
    if detection.edited_fraction is not None:
        parts.append(f"about {detection.edited_fraction:.0%} of tokens inserted or deleted")
    return ", ".join(parts)


def _table(rows: list[Scored], *, payload: bool) -> Table:
    table = Table("id", "verdict")
    for name in ("p-value", "z", "green", "tokens", *(("payload",) if payload else ())):
        table.add_column(name, justify="right")
    for row in rows:
        if isinstance(row, BadRow):
            table.add_row(Text(well_formed(row.row_id)), Text(well_formed(row.error), style="red"))
            continue
        item, detection = row
        table.add_row(
            Text(well_formed(item.row_id)),
            Text(detection.verdict, style=_STYLES[detection.verdict]),
            Text(f"{detection.p_value:.3g}"),
            Text(f"{detection.z_score:.2f}"),
            Text(f"{detection.green_fraction:.3f}"),
            Text(str(detection.num_tokens_scored)),
            *((Text("" if detection.subkey is None else str(detection.subkey)),) if payload else ()),
        )
    return table


WRITERS: dict[Format, Callable[[Iterator[Scored], Scorer, bool, bool], None]] = {
    Format.TABLE: _write_table,
    Format.JSON: _write_json,
    Format.JSONL: _write_jsonl,
    Format.CSV: _write_csv,
}
