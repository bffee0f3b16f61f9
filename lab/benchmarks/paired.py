"""Compare the digits of evidence of cells of a run with those of the first, prompt by prompt.

    python lab/benchmarks/paired.py EXPERIMENT CELL CELL ... --key KEY [--runs RUNS]

Digits are -log10 of the p-value of `dgmark detect`, by count. The ratio is that of the sums over the prompts of which
both texts are long enough; its interval is a bootstrap over prompts.
"""

from pathlib import Path

import numpy as np

from dgmark import WatermarkKey
from dgmark_lab.evaluate.estimates import mean, percent, ratio
from dgmark_lab.experiments.cells import CellRows, StoredRun
from dgmark_lab.experiments.spec import load_experiment
from dgmark_lab.experiments.store import Store
from dgmark_lab.experiments.tables import with_interval
from dgmark_lab.experiments.views.rivals import RATE
from shared import RUNS, arguments, print_header, print_row

Prompt = tuple[str, int]


def main() -> None:
    """Print the table."""
    parser = arguments()
    parser.add_argument("experiment", help="a name, or a file ending in .toml")
    parser.add_argument("cells", nargs="+", help="names of its cells; the first is what the others are compared with")
    parser.add_argument("--key", type=Path, required=True)
    parser.add_argument("--runs", type=Path, default=RUNS)
    args = parser.parse_args()
    key = WatermarkKey.load(args.key)
    run = StoredRun.read(load_experiment(args.experiment), Store(args.runs), "builtin", {key.fingerprint: key})
    first, *others = (digits(run.cells[name]) for name in args.cells)
    print_header(["cell", "texts", "digits of the first", "digits", "ratio", "found of the first, %", "found, %"])
    for name, other in zip(args.cells[1:], others, strict=True):
        both = [prompt for prompt in first if prompt in other]
        one, two = (np.array([found[prompt] for prompt in both]) for found in (first, other))
        shares = (with_interval(percent(each >= -np.log10(RATE)), 0) for each in (one, two))
        means = (with_interval(mean(each), 1) for each in (one, two))
        print_row([name, len(both), *means, with_interval(ratio(two, one), 2), *shares])


def digits(cell: CellRows) -> dict[Prompt, float]:
    """The digits of each text of a cell, by its prompt and seed."""
    found = -np.log10(cell.score([row["text"] for row in cell.rows], deployed=True).p)
    return {(row["prompt"], row["seed"]): float(one) for row, one in zip(cell.rows, found, strict=True)}


if __name__ == "__main__":
    main()
