"""The figures of an evaluation as Markdown for a model card, and its samples as a page for people to read."""

import html
from collections.abc import Mapping, Sequence
from typing import Any

from dgmark.rows.jsonl import Row

Figures = Mapping[str, Any]

_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>{title}</title>
<style>body{{font:17px/1.5 Georgia,serif;max-width:46em;margin:2em auto;padding:0 1em}}
h2{{font:600 15px sans-serif;margin:2.5em 0 .3em}}h3{{font:13px sans-serif;color:#555;margin:1em 0 .2em}}
p{{margin:0;white-space:pre-wrap}}b{{font-weight:600}}</style>
<h1>{title}</h1>
<p>Prompts (bold) are beginnings from held-out documents; nothing is selected by hand.</p>
{samples}
</html>
"""


def markdown(figures: Figures) -> str:
    """Render two tables, of the bounds and of the samples by cell. What was not measured is left out."""
    parts = []
    if figures.get("bounds"):
        parts.append(_bounds(figures["bounds"]))
    if figures.get("cells"):
        parts.append(_cells(figures["cells"]))
    return "\n\n".join(parts) + "\n"


def page(title: str, cells: Mapping[str, Sequence[Row]]) -> str:
    """Render one HTML page that shows every prompt with its text of each cell."""
    names = list(cells)
    blocks = []
    for number, rows in enumerate(zip(*cells.values(), strict=True), 1):
        blocks.append(f"<h2>{number}</h2>")
        for name, row in zip(names, rows, strict=True):
            text = f"<b>{html.escape(row['prompt'])}</b>{html.escape(row['text'])}"
            ended = ", ended by itself" if row["ended"] else ""
            blocks.append(f"<h3>{name}, {len(row['token_ids'])} tokens{ended}</h3>\n<p>{text}</p>")
    return _PAGE.format(title=html.escape(title), samples="\n".join(blocks))


def _bounds(bounds: Figures) -> str:
    lines = [
        "| held-out text | nats a token | Monte-Carlo error | error over rows | nats a character | rows of tokens |",
        "|---|---|---|---|---|---|",
    ]
    for name, row in bounds.items():
        error = "not measured" if row["monte_carlo_error"] is None else f"{row['monte_carlo_error']:.4f}"
        lines.append(
            f"| {name} | {row['per_token']:.3f} | {error} | {row['text_error']:.3f} | {row['per_character']:.4f} "
            f"| {row['rows']} x {row['tokens'] // row['rows']} |"
        )
    return "\n".join(lines)


def _cells(cells: Figures) -> str:
    lines = [
        "| samples | texts | tokens: median (min, max) | ended | judge perplexity (95 %) | 4-grams again | distinct-1 "
        "| distinct-2 | in runs of period 1 | 2 | 3 | 4 |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, row in cells.items():
        lengths, runs = row["lengths"], row["in_runs"]
        lines.append(
            f"| {name} | {row['texts']} | {lengths['median']:.0f} ({lengths['min']}, {lengths['max']}) "
            f"| {row['ended']:.0%} | {_perplexity(row.get('judge'))} | {row['repeated_4_grams']:.1%} "
            f"| {row['distinct_1']:.3f} | {row['distinct_2']:.3f} | {' | '.join(f'{runs[one]:.1%}' for one in runs)} |"
        )
    return "\n".join(lines)


def _perplexity(figures: Figures | None) -> str:
    if figures is None:
        return "not measured"
    if figures["low"] is None:
        return f"{figures['perplexity']:.1f}"
    return f"{figures['perplexity']:.1f} ({figures['low']:.1f}, {figures['high']:.1f})"
