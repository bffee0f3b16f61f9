"""Draw the pictures of lab/docs/results/decoding.md from decoding.csv.

frontier.png is perplexity by diversity, and length.png the share found by tokens.

python lab/benchmarks/pictures.py
"""

import csv
from collections import defaultdict
from pathlib import Path

from dgmark_lab.evaluate.estimates import Estimate
from dgmark_lab.experiments.figures import Line, Panel, chart

RESULTS = Path(__file__).parents[1] / "docs" / "results"
PANELS = {"narrator": "narrator, 128 tokens", "storyteller": "storyteller, 256 tokens"}
TEXTS = "n = 19 requests for prose (narrator) and 64 story openings (storyteller)"
# names in the pictures, and the watermarks of decoding.csv
SERIES = {
    "dgmark, 256 sub-keys": "bigram 1-4, subkeys 256",
    "dgmark, one key": "bigram 1-4",
    "unmarked": "unmarked",
    "DMark, delta 2": "dmark delta 2",
    "KGW, delta 2": "kgw delta 2, by confidence",
    "LR-DWM, delta 2": "lr-dwm delta 2",
}
# the temperature of each series at which lengths are shown
SHOWN = {
    "narrator": dict(zip(SERIES, (0.9, 0.9, None, 0.5, 0.9, 0.9), strict=True)),
    "storyteller": dict(zip(SERIES, (0.55, 0.55, None, 1.0, 1.1, 0.8), strict=True)),
}
SHARES = (10, 25, 50, 75, 90, 95)
Cells = dict[tuple[str, str, float], dict[str, Estimate]]


def main() -> None:
    """Draw both pictures."""
    cells = read_cells()
    chart(
        [Panel(title, frontier_lines(cells, model)) for model, title in PANELS.items()],
        question="Is marked text as diverse and as predictable as unmarked text?",
        caption=f"{TEXTS}; small numbers: temperatures. 95 % intervals: decoding.csv.",
        x="diversity (distinct-2)",
        y="perplexity",
        share_y=False,
        better="lower right",
    ).savefig(RESULTS / "frontier.png")
    chart(
        [Panel(title, length_lines(cells, model)) for model, title in PANELS.items()],
        question="How many tokens does it take to find a text at p <= 1e-4?",
        caption=f"{TEXTS}; each watermark at the temperature that decoding.md states.",
        x="tokens",
        y="texts found, %",
        top=100,
        better="upper left",
    ).savefig(RESULTS / "length.png")


def read_cells() -> Cells:
    """The quantities of each cell of decoding.csv, by model, watermark and temperature."""
    cells: Cells = defaultdict(dict)
    with (RESULTS / "decoding.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            value, low, high = (float(row[name] or "nan") for name in ("value", "low", "high"))
            cell = row["model"], row["watermark"], float(row["temperature"])
            cells[cell].setdefault(row["quantity"], Estimate(value, low, high, int(row["texts"])))
    return cells


def frontier_lines(cells: Cells, model: str) -> list[Line]:
    """Perplexity by diversity, over the temperatures above 0 of each series."""
    lines = []
    for name, series in SERIES.items():
        line = Line(name)
        for (of, watermark, temperature), measured in sorted(cells.items(), key=lambda one: one[0][2]):
            if (of, watermark) == (model, series) and temperature:
                line.points.append((measured["distinct-2"], measured["perplexity"]))
                line.labels.append(f"{temperature:g}")
        lines.append(line)
    return lines


def length_lines(cells: Cells, model: str) -> list[Line]:
    """The share of texts that are found in as many tokens."""
    lines = []
    for name, temperature in SHOWN[model].items():
        measured = cells[model, SERIES[name], temperature or 0.0]
        needed = [(measured.get(f"tokens for {share} %"), Estimate(share)) for share in SHARES]
        lines.append(Line(name, [(tokens, share) for tokens, share in needed if tokens and tokens.value > 0]))
    return lines


if __name__ == "__main__":
    main()
