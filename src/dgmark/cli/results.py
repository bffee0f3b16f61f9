"""The results of `dgmark detect`: one text as a card, several as a table, or all as JSON, JSON Lines or CSV.

The sentences are those of the report. Statistics are shown on request only.
"""

import csv
import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from rich.table import Table
from rich.text import Text

from dgmark.checkpoint.tokenizer import well_formed
from dgmark.cli.console import OutputConsole, stdout, visible
from dgmark.cli.detect_options import DetectOptions
from dgmark.detection.results.detection import (
    ANY_SOURCE,
    DETECTION_FIELDS,
    PAYLOAD_FIELDS,
    Detection,
    counted,
    share_of,
    verdict_sentence,
)
from dgmark.detection.results.figures import Span
from dgmark.detection.results.sentences import matches, meaning, where
from dgmark.detection.results.shading import cut
from dgmark.detection.results.words import options_of, percent_of, place, rarity
from dgmark.detection.row_keys import AnyScorer
from dgmark.detection.statistics.p_values import q_values
from dgmark.errors import SettingsError
from dgmark.report.statement import quote
from dgmark.rows.item import SOURCE_SHA256, Item, Row
from dgmark.rows.jsonl import to_line
from dgmark.rows.scoring import detector_of, to_row, with_spans
from dgmark.rows.sinks import Result

_COLUMNS = ["id", *DETECTION_FIELDS, "schema", SOURCE_SHA256, "file", "place", "kind", "notes", "error"]
_SUBKEY_COLUMNS = ["subkeys_tested", *PAYLOAD_FIELDS]
_STYLES = {"watermarked": "bold green", "not_detected": "bold", "uncertain": "bold yellow"}
# of the characters of a span, by the level of their shade
_SHADED = "Tokens that match are underlined: the bolder, the more choice the language model saw there."
_SHADES = ("green", "underline dim green", "underline green", "underline bold green")
_REASONS = {
    "empty": "nothing to test",
    "short": "too short",
    "repetitive": "too repetitive",
    "unread": "much was not read",
    "not_shown": "much is not shown",
    "markup": "words in markup",
}
_SURE = 0.9  # probability below which one payload is not stated for a text
_ID_SHARE = 0.275  # of the width of a terminal, for the names of texts in a table
_FORMULAS = ("=", "+", "-", "@", "\t", "\r")  # how cells begin that spreadsheets compute
_NUMBERS = {"tokens", "p-value", "z", "matching"}


def printer_of_each(options: DetectOptions) -> Callable[[list[Result]], None] | None:
    """What prints each batch of results, in JSON Lines and CSV; None for forms that show all results together."""
    if options.form not in ("jsonl", "csv"):
        return None
    columns = [*_COLUMNS, *(_SUBKEY_COLUMNS if options.payload else ()), *(["q_value"] if options.fdr else ())]
    writer = csv.DictWriter(sys.stdout, columns, lineterminator="\n", extrasaction="ignore")
    if options.form == "csv":
        writer.writeheader()

    def print_some(results: list[Result]) -> None:
        for row in _rows_of(results, options):
            if options.form == "csv":
                writer.writerow({name: _cell(value) for name, value in row.items()})
            else:
                print(to_line(row), flush=True)

    return print_some


def print_all(results: list[Result], scorer: AnyScorer, options: DetectOptions) -> None:
    """Print all results, as JSON or for a person."""
    if options.form == "json":
        print(json.dumps(_rows_of(results, options), indent=2, allow_nan=False))
    else:
        _show_results(results, scorer, options)


def _rows_of(results: list[Result], options: DetectOptions) -> list[Row]:
    """The rows of results; with --fdr, each has the q-value of its text among all of them."""
    rows = [to_row(*result, payload=options.payload) for result in results]
    if options.fdr is None:
        return rows
    return [{**row, **({} if q is None else {"q_value": q})} for row, q in zip(rows, _q_values(results), strict=True)]


def _q_values(results: list[Result]) -> list[float | None]:
    """The q-value of each text; None for what was not tested."""
    tested = iter(q_values([detection.p_value for item, detection in results if item.error is None]))
    return [None if item.error else next(tested) for item, _ in results]


def _cell(value: object) -> object:
    if isinstance(value, list | dict):
        return json.dumps(value)
    if not isinstance(value, str):
        return value
    text = visible(value, lines=True) if sys.stdout.isatty() else well_formed(value)
    # which a spreadsheet would compute, as a formula
    return f"'{text}" if text.startswith(_FORMULAS) else text


# --- for a person


def _show_results(results: list[Result], scorer: AnyScorer, options: DetectOptions) -> None:
    """Write the results to stdout: a card for one text, a table for several."""
    console, rows = stdout(), results
    if len(rows) == 1 and rows[0][0].error is None:
        rows = [_with_spans(scorer, rows[0], options)]
        _print_card(console, *rows[0], options)
    elif len(rows) > 1:
        marked = [item.error is None and detection.verdict == "watermarked" for item, detection in rows]
        rows = [_with_spans(scorer, row, options) if found else row for row, found in zip(rows, marked, strict=True)]
        _print_table(console, rows, options)
    if options.show:
        for row in rows:
            if row[0].error is None:
                _print_text(console, *_with_spans(scorer, row, options), scorer)


def _with_spans(scorer: AnyScorer, row: Result, options: DetectOptions) -> Result:
    """The row with its spans, where they can be found in the whole text."""
    item, detection = row
    try:
        return row if options.only else (item, with_spans(scorer, detection, item.content))
    except SettingsError:  # too long
        return row


def _print_card(console: OutputConsole, item: Item, detection: Detection, options: DetectOptions) -> None:
    first, stop, rest = verdict_sentence(detection).partition(". ")
    console.print(Text.assemble((first + stop.rstrip(), _style(detection)), " " * bool(rest), rest), "", sep="\n")
    facts = [*_basis(item, detection, options), *(_statistics(detection) if options.verbose else ())]
    if facts:
        _print_facts(console, facts)
    for sentence in meaning(detection):
        console.print(Text(sentence))


def _print_facts(console: OutputConsole, facts: Sequence[tuple[str, str]]) -> None:
    """Names and what is said of them, side by side."""
    if console.unbroken:
        width = max(len(name) for name, _ in facts)
        for name, value in facts:
            console.print(Text(f"{name:<{width}}  {value}"))
    else:
        grid = Table.grid(padding=(0, 2))
        grid.add_column(no_wrap=True)
        grid.add_column(overflow="fold")
        for name, value in facts:
            grid.add_row(name, Text(value))
        console.print(grid)
    console.print()


def _style(detection: Detection) -> str:
    return _STYLES["watermarked" if detection.spans else detection.verdict]


def _basis(item: Item, detection: Detection, options: DetectOptions) -> Iterator[tuple[str, str]]:
    """What the verdict rests on: what was tested, which spans carry the mark, and what lies between them."""
    if detection.verdict != "uncertain":
        yield "tested", counted(detection)
    if options.payload:
        yield "payload", _payload(detection)
    if detection.spans is None:
        return
    unit = "characters" if isinstance(item.content, str) else "token ids"
    if found := where(detection):
        yield "marked", found
    elif detection.verdict == "not_detected":
        yield "marked", "No span carries the watermark by itself."
    for span in detection.spans:
        payload = f", payload {span.subkey}" if options.payload else ""
        part = percent_of(share_of([span], item.content))
        yield "", f"{unit} {place(span.start, span.end)} ({part} of the text){payload}"
        if isinstance(item.content, str):
            yield "", f'"{quote(visible(item.content[span.start : span.end], lines=True))}"'
    if detection.spans and (gaps := _gaps(item.content, detection.spans)):
        yield "unmarked", f"no mark was found in {unit} {', '.join(place(*gap) for gap in gaps)}"


def _payload(detection: Detection) -> str:
    """The sub-key found, and how sure it is."""
    if detection.subkey is None:
        return "none, as no watermark was found in the text as a whole"
    if detection.subkey_confidence is None:
        return f"{detection.subkey}; the key's rule does not say how sure that is"
    if detection.subkey_confidence < _SURE:
        return (
            f"not sure: {detection.subkey} has probability {detection.subkey_confidence:.2f}; the text may hold "
            "spans of several responses, which --spans tells apart"
        )
    surely = f"{detection.subkey_confidence:.4f}" if detection.subkey_confidence < 0.9999 else "over 0.9999"
    return f"{detection.subkey}, with probability {surely}"


def _gaps(content: str | list[int], spans: Sequence[Span]) -> list[tuple[int, int]]:
    """What lies between the spans, white space left out."""
    starts, ends = [0, *(span.end for span in spans)], [*(span.start for span in spans), len(content)]
    return [
        (start, end)
        for start, end in zip(starts, ends, strict=True)
        if start < end and not (isinstance(content, str) and content[start:end].isspace())
    ]


def _statistics(detection: Detection) -> Iterator[tuple[str, str]]:
    """The numbers that decide the verdict."""
    yield "p-value", f"{detection.p_value:.3g}, held to a false-positive rate of {detection.fpr:g}"
    what, number = matches(detection)
    yield "matching", f"{number} {what} match ({detection.green_fraction:.1%})"
    yield from detection.figures.lines()
    yield "z-score", f"{detection.z_score:.2f}, as in the paper, for comparison only"
    tried = f", the likeliest of {detection.keys_tested:,}" if detection.keys_tested > 1 else ""
    if detection.subkeys_tested > 1:
        tried += f"; {detection.subkeys_tested:,} sub-keys tried, which the p-value is corrected for"
    yield "key", detection.key_fingerprint + tried


def _print_table(console: OutputConsole, rows: list[Result], options: DetectOptions) -> None:
    """Many texts as a table with the columns that any of them needs."""
    cells = [_cells(row, options) for row in rows]
    if options.fdr is not None:
        for of_row, q in zip(cells, _q_values(rows), strict=True):
            of_row["false discovery rate"] = Text(f"found, {rarity(q)}" if q and q <= options.fdr else "")
    names = list(dict.fromkeys(name for row in cells for name in row))
    ids = [visible(item.name) for item, _ in rows]
    if console.unbroken:
        print("text", *names, sep="\t")  # rich would put spaces for tabs
        for row_id, values in zip(ids, cells, strict=True):
            print(row_id, *(values.get(name, Text()).plain.replace("\n", "; ") for name in names), sep="\t")
    else:
        console.print(_boxes(console, ids, names, cells))
    if any(item.error is None and found.verdict != "watermarked" and not found.spans for item, found in rows):
        console.print(Text(ANY_SOURCE))


def _boxes(console: OutputConsole, ids: Sequence[str], names: Sequence[str], cells: Sequence[dict[str, Text]]) -> Table:
    """The table in boxes, as wide as the terminal at most."""
    table = Table()
    table.add_column("text", overflow="fold")
    for name in names:
        table.add_column(name, overflow="fold", justify="right" if name in _NUMBERS else "left")
    width = int(_ID_SHARE * console.width)
    for row_id, values in zip(ids, cells, strict=True):
        table.add_row(Text(_broken(row_id, width)), *(values.get(name, Text()) for name in names))
    return table


def _broken(name: str, width: int) -> str:
    """A name on lines of `width` characters that end after a sign: names of files hold no spaces to break at."""
    lines = [""]
    for piece in re.findall(r"[^/_\s.-]*[/_\s.-]|[^/_\s.-]+", name):
        if lines[-1] and len(lines[-1] + piece) > width:
            lines.append("")
        lines[-1] += piece
    return "\n".join(lines)


def _cells(row: Result, options: DetectOptions) -> dict[str, Text]:
    """What the table shows of one text, by the names of the columns."""
    item, detection = row
    if item.error is not None:
        return {"watermark": Text(f"not tested: {visible(str(item.error))}", style="red")}
    spans = detection.spans or ()
    marked = bool(spans) or detection.verdict == "watermarked"
    cells = {"watermark": Text(_found(detection), style=_style(detection))}
    if detection.keys_tested > 1:
        files = options.key_files
        named = [detection.key_name, files.get(detection.key_fingerprint, detection.key_fingerprint)]
        cells["key"] = Text(", ".join(filter(None, named)) if marked else "")
    if options.spans:
        cells["marked characters"] = Text("\n".join(place(span.start, span.end) for span in spans) or "none")
    chance = min(detection.p_value, detection.fpr) if detection.verdict == "watermarked" else detection.fpr
    cells["by chance at most"] = Text(rarity(chance) if marked and detection.guaranteed else "")
    if options.payload:
        cells["payload"] = Text("" if detection.subkey is None else str(detection.subkey))
    cells["tokens"] = Text(f"{detection.num_tokens_scored:,}")
    if options.verbose:
        cells["p-value"] = Text(f"{detection.p_value:.3g}")
        cells["z"] = Text(f"{detection.z_score:.2f}")
        cells["matching"] = Text(f"{detection.green_fraction:.1%} of {matches(detection)[0]}")
    return cells


def _found(detection: Detection) -> str:
    if detection.incomplete:
        return f"{_found(replace(detection, incomplete=False))}, in the part that was read"
    if detection.in_part:
        return f"found in part ({percent_of(detection.marked_share)})"
    if detection.verdict == "watermarked":
        return "found"
    if detection.uncertain_because:
        return f"inconclusive: {_REASONS[detection.uncertain_because]}"
    return f"not found; try {options_of(hidden)}" if (hidden := detection.normalise_would_change) else "not found"


def _print_text(console: OutputConsole, item: Item, detection: Detection, scorer: AnyScorer) -> None:
    """The text with its marked spans, which stand between plain characters and are green on a terminal.

    A terminal also shows which tokens match, where a language model weighs them.
    """
    if not isinstance(item.content, str):
        return
    text, shown, last = visible(item.content, lines=True), Text(), 0
    shades = detector_of(scorer, detection).shades(item.content, detection)
    for number, span in enumerate(detection.spans or (), 1):
        shown.append(text[last : span.start]).append(f"[[marked {number}: ", style="green")
        for start, end, level in cut(span.start, span.end, shades):
            shown.append(text[start:end], style=_SHADES[level])
        shown.append("]]", style="green")
        last = span.end
    unknown = "" if detection.spans is not None else ": its marked spans are not looked for"
    console.print(Text(f"\n{visible(item.name)}{unknown}", style="bold"))
    if shades and console.is_terminal:
        console.print(Text(_SHADED, style="dim"))
    console.print(shown.append(text[last:]), soft_wrap=True)
