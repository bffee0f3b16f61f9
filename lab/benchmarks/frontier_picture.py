"""Draw lab/docs/results/frontier.png from decoding.csv: perplexity by diversity on both models, with the share found.

python lab/benchmarks/frontier_picture.py
"""

import csv
import re
from collections import defaultdict
from pathlib import Path

from dgmark_lab.experiments.estimates import Estimate
from dgmark_lab.experiments.figures import Line, line_panels

RESULTS = Path(__file__).parents[1] / "docs" / "results"
# the series, and the cells of decoding.csv that are points of it
SERIES = {
    "dgmark (this), default key": r"bigram 1-4, subkeys 256|rule=bigram,subkeys=256",
    "dgmark (this), one key": r"bigram 1-4|rule=bigram",
    "no mark": r"unmarked",
    "DMark, delta 2": r"dmark delta 2",
    "KGW, delta 2": r"kgw delta 2,? by confidence",
    "LR-DWM, delta 2": r"lr-dwm delta 2",
    "TANGO": r"baseline=tango",
}


def main() -> None:
    """Read the cells of each series, and draw them."""
    cells: dict[tuple[str, str, float], dict[str, Estimate]] = defaultdict(dict)
    with (RESULTS / "decoding.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            value, low, high = (float(row[name] or "nan") for name in ("value", "low", "high"))
            cell = row["model"], row["watermark"], float(row["temperature"])
            cells[cell].setdefault(row["quantity"], Estimate(value, low, high, int(row["texts"])))
    panels = {}
    for model, title in (("narrator", "narrator, 128 tokens"), ("storyteller", "storyteller, 256 tokens")):
        lines = []
        for name, pattern in SERIES.items():
            line = Line(name)
            for (of, watermark, temperature), measured in sorted(cells.items(), key=lambda one: one[0][2]):
                if of == model and temperature and re.fullmatch(pattern, watermark):
                    line.points.append((measured["distinct-2"], measured["perplexity"]))
                    found = measured.get("found, none")
                    line.labels.append("" if found is None else f"{found.value:.0%}")
            lines.append(line)
        panels[title] = lines
    figure = line_panels(panels, x="diversity (distinct-2)", y="perplexity", width=10)
    figure.savefig(RESULTS / "frontier.png", dpi=110)


if __name__ == "__main__":
    main()
