"""Measure what a token carries, and compare the law of expected evidence with texts.

Run `python lab/benchmarks/evidence.py --cells lab/benchmarks/rule_cells.txt` after `rules.py`, whose texts it scores.
The law is given the share of matches in the first 128 tokens of a cell's texts; medians of p are law / measured.
Evidence by length as a picture: `--cells lab/benchmarks/evidence_cells.txt --plot lab/docs/results/evidence.png`.
"""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from conditions import EDITS, LENGTHS, Condition
from dgmark import Detector
from dgmark.detection.expected import expected_p
from dgmark.watermark.spec import WatermarkSpec
from dgmark_lab.evaluate.intervals import MIN_TEXTS
from dgmark_lab.experiments.estimates import Estimate, mean
from dgmark_lab.experiments.figures import Line, line_figure
from dgmark_lab.experiments.tables import with_interval
from keys_and_tables import RUNS, print_header, print_made_with, print_row
from rules import Cell, Rows, _p_values, _texts

TOKENS, FEWEST = 128, 64


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--cells", type=Path, required=True, help="a file with one cell a line")
    parser.add_argument("--out", type=Path, default=RUNS / "rules", help="folder of the texts")
    parser.add_argument("--plot", type=Path, help="instead of the table: file for a picture of evidence by length")
    args = parser.parse_args()
    if args.plot:
        _plot(args.plot, [Cell.of(line) for line in args.cells.read_text().splitlines()], args.out)
        return
    print_header(["decode", "T", "share of matches", "different pairs a token", "-log10 p a token", *EDITS])
    cells = [Cell.of(line) for line in args.cells.read_text().splitlines()]
    for cell in cells:
        rows = _texts(cell, args.out, stored_only=True)
        if rows and "rule" in cell.mark:
            print_row(_row(cell, rows, args.out))
    print_made_with("decoding", *(name for cell in cells if "rule" in cell.mark for name in cell.made_with))


def _plot(path: Path, cells: Sequence[Cell], out: Path) -> None:
    """Draw the mean of -log10 p over the first tokens of the texts that are as long."""
    lines = []
    for cell in cells:
        rows = _texts(cell, out, stored_only=True)
        line = Line(f"{cell.curve}, T = {cell.decoding['temperature']:g}")
        for name, p in _p_values(cell, rows, LENGTHS, out).items():
            first = LENGTHS[name].first or 0
            long = np.array([len(row["token_ids"]) >= first for row in rows])
            if long.sum() >= MIN_TEXTS:
                line.points.append((Estimate(first, first, first, 1), mean(-np.log10(p[long]))))
        lines.append(line)
    figure = line_figure(
        lines, x="tokens", y="evidence, mean -log10 p", title="Evidence by length (dotted: p = 1e-4)", log_x=True
    )
    figure.axes[0].axhline(4, color="0.5", linestyle=":")
    figure.savefig(path, dpi=130)


def _row(cell: Cell, rows: Rows, out: Path) -> list[str]:
    detectors = [Detector(key) for key in cell.watermark_keys() if key]
    scored = [(detectors[row["key"]], row["token_ids"][:TOKENS]) for row in rows]
    found = [detector.detect(detector.tokenizer.decode(ids)) for detector, ids in scored]
    found = [one for one in found if one.num_tokens_scored >= FEWEST]  # a text that ended at once has no share
    tokens = np.array([one.num_tokens_scored for one in found])
    matches = mean(np.array([one.green_fraction for one in found]))
    pairs = mean(np.array([one.pairs.scored for one in found if one.pairs]) / tokens)
    carried = mean(-np.log10([one.p_value for one in found]) / tokens)
    spec = replace(detectors[0].key.spec, expected_match=matches.value)
    whole = int(np.median([len(row["token_ids"]) for row in rows]))
    medians = {name: np.median(p) for name, p in _p_values(cell, rows, EDITS, out).items()}
    compared = [f"{_law(spec, whole, EDITS[name]):.0e} / {median:.0e}" for name, median in medians.items()]
    figures = [with_interval(matches, 3), with_interval(pairs, 2) if pairs.value else "", with_interval(carried, 4)]
    return [cell.curve, f"{cell.decoding['temperature']:g}", *figures, *compared]


def _law(spec: WatermarkSpec, tokens: int, condition: Condition) -> float:
    kind, options = condition.attacks[0] if condition.attacks else (None, {"budget": 0.0})
    return expected_p(spec, condition.first or tokens, kind, options["budget"])  # type: ignore[arg-type] # an edit


if __name__ == "__main__":
    main()
