"""Compare position codes under edits: how many of the frontier's marked texts are found, and by which p-value.

Run `dgmark-lab experiment run frontier --runs runs/store` first, then `python lab/benchmarks/position_codes.py --runs
runs/store`; with the runs of several keys, each in a folder of its own, it also shows how far the keys differ. Every
cell has the same prompts; the texts are edited by words and scored from the text alone, with the detector's defaults.
Perplexity and diversity stand beside them, because settings are to be compared where these agree.
"""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

import dgmark
from dgmark_lab.attacks import Attack, attack
from dgmark_lab.experiments.cells import DGMARK, CellRows, StoredRun
from dgmark_lab.experiments.frontier import Matched, Measured, matched
from dgmark_lab.experiments.report import keys_of
from dgmark_lab.experiments.spec import load_experiment
from dgmark_lab.experiments.store import Store
from dgmark_lab.experiments.tables import with_interval
from dgmark_lab.experiments.views.frontier import quality
from keys_and_tables import RUNS, print_header, print_row

RATE = 1e-4
EDITS: dict[str, tuple[str, float]] = {
    "none": ("deletion", 0.0),
    **{f"deletion {share:g}": ("deletion", share) for share in (0.05, 0.1, 0.2)},
    **{f"insertion {share:g}": ("insertion", share) for share in (0.1, 0.2)},
    **{f"substitution {share:g}": ("substitution", share) for share in (0.1, 0.2, 0.4)},
}
ALL = "all edits"


def main() -> None:
    """Print the table of the cells, that of the codes at the diversity of unmarked text, and that of several keys."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--runs", type=Path, action="append", help="folder of the frontier's rows; one for each key that was used"
    )
    parser.add_argument("--curve", action="append", help='only these curves, such as "dgmark, code 16"')
    args = parser.parse_args()
    of_keys: dict[str, list[Matched]] = {}
    for folder in args.runs or [RUNS]:
        curves, reference = _curves(Store(folder), args.curve or ())
        for name, found in _matched(curves, reference).items():
            of_keys.setdefault(name, []).append(found)
    if len(args.runs or ()) > 1:
        _over_keys(of_keys)


def _curves(store: Store, only: Sequence[str]) -> tuple[dict[str, list[Measured]], Measured]:
    """Edit and score the texts of one store; the curves, and unmarked text."""
    run = StoredRun.read(load_experiment("frontier"), store, "builtin", keys_of(store, None))
    reference = quality(run, run.cells["unmarked, T = 1"])
    if reference is None:
        raise SystemExit("the unmarked cell lacks texts or perplexities: run `dgmark-lab experiment run frontier`")
    curves: dict[str, list[Measured]] = {}
    print_header(["decode", "perplexity", "distinct-2", ALL, *EDITS])
    for cell in run.cells.values():
        wanted = cell.cell.group in only if only else cell.cell.scheme == DGMARK
        if wanted and (one := quality(run, cell)):
            texts = [row["text"] for row in cell.rows]
            p = [_p_values(cell, texts, attack(name, budget=share, unit="word")) for name, share in EDITS.values()]
            found = {name: 100.0 * (values <= RATE) for name, values in zip(EDITS, p, strict=True)}
            one = replace(one, others={ALL: np.mean(list(found.values())[1:], axis=0)}, found=found)
            curves.setdefault(cell.cell.group, []).append(one)
            each = [f"{np.count_nonzero(values <= RATE)} ({np.median(values):.0e})" for values in p]
            print_row(
                [
                    cell.name,
                    f"{one.perplexity:.1f}",
                    f"{one.diversity.mean():.3f}",
                    f"{one.others[ALL].mean():.0f}",
                    *each,
                ]
            )
    return curves, reference


def _matched(curves: dict[str, list[Measured]], reference: Measured) -> dict[str, Matched]:
    """Print what each code costs, and what is found of it, where its texts are as diverse as the reference."""
    print_header(["as diverse as unmarked text at T = 1", "at T", "perplexity over unmarked", f"{ALL}, %", *EDITS])
    shown = {}
    for name, curve in curves.items():
        if found := matched(curve, reference):
            shown[name] = found
            figures = [found.figures[one] for one in (ALL, *EDITS)]
            print_row(
                [
                    name,
                    f"{found.temperature.value:.2f}",
                    with_interval(found.ratio, 2),
                    *(with_interval(one, 0) for one in figures),
                ]
            )
    return shown


def _over_keys(of_keys: dict[str, list[Matched]]) -> None:
    """Print how far the keys differ: mean (least to most) of each code."""
    print_header(["over the keys", "keys", "perplexity over unmarked", f"{ALL}, %"])
    for name, found in of_keys.items():
        ratios, edits = [one.ratio.value for one in found], [one.figures[ALL].value for one in found]
        print_row(
            [
                name,
                str(len(found)),
                f"{np.exp(np.log(ratios).mean()):.2f} ({min(ratios):.2f} to {max(ratios):.2f})",
                f"{np.mean(edits):.0f} ({min(edits):.0f} to {max(edits):.0f})",
            ]
        )


def _p_values(cell: CellRows, texts: list[str], edit: Attack) -> np.ndarray:
    assert cell.key is not None
    detector = dgmark.Detector(cell.key, fpr=RATE)
    edited = [edit(text, np.random.default_rng([1, number])) for number, text in enumerate(texts)]
    return np.array([detector.detect(text).p_value for text in edited])


if __name__ == "__main__":
    main()
