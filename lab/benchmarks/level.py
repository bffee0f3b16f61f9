"""Measure how often tests call unmarked text marked: the share of p-values at or below a level, by kind of text.

    python lab/benchmarks/level.py [HUMAN.jsonl] --test rule=bigram --test rule=kgw,delta=2

HUMAN has rows of `text`, `domain` and `lang`; without it only texts that a program makes are scored. A test is a rule
and its options, as `experiment run --cell` takes them; with --reader a rule that weighs pairs is tested by weights,
too. A line of the table is a test, a statistic and a kind of text. "p" is the p-value of the verdict, "whole text" that
without its parts, "published" that of a rule's publication; "z" and "z_win 8" are the paper's, whose levels are nominal
and whose texts start at position 0. Brackets hold 99.9 % (Clopper and Pearson); bold is above the level by more than 4
standard errors. "worst key" is the largest share of texts at .01 under one key, "keys with all" counts the keys under
which all are. P-values are kept in the runs folder, so that a run that was stopped goes on.
"""

import math
import time
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
from jaxtyping import Float
from scipy.stats import binomtest

from dgmark import Detector, LanguageModel, WatermarkKey
from dgmark.detection.reading.reader import ScoredIds
from dgmark.detection.statistics.bigram import BigramTest
from dgmark.detection.statistics.match_null import MatchNull
from dgmark.detection.statistics.p_values import z_score
from dgmark.detection.statistics.position import PositionTest, window_statistic
from dgmark.detection.statistics.rules import TextTest, rule_test
from dgmark.rows.item import Row
from dgmark.watermark.position import tables_of
from dgmark.watermark.spec import WatermarkSpec
from dgmark_lab.baselines.published import PublishedFigures
from dgmark_lab.experiments.figures import level_figure
from dgmark_lab.experiments.made_with import identifier
from dgmark_lab.experiments.spec import Cell
from dgmark_lab.experiments.store import Store, digest
from dgmark_lab.rule_keys import rule_key
from shared import RUNS, arguments, print_header, print_made_with, print_row, random_key
from unmarked import BUILT, texts_by_kind

WINDOW, DRAWS = 8, 20_000
LEVELS = (0.1, 0.01, 0.001, 0.0001, 0.00001)
PValues = Float[np.ndarray, "keys texts"]


def main() -> None:
    """Compute the p-values that are missing, and print the table."""
    parser = arguments()
    parser.add_argument("human", type=Path, nargs="?", help="JSON Lines of text, domain and lang")
    parser.add_argument("--test", action="append", help="a rule and its options, rule=NAME,option=value,...; repeat it")
    parser.add_argument("--passages", type=int, default=120, help="texts of each kind; 0 for all")
    parser.add_argument("--tokens", type=int, nargs=2, default=(50, 256), help="fewest and most tokens of a text")
    parser.add_argument("--keys", type=int, default=20, help="keys of each text")
    parser.add_argument("--share", choices=("all", "human", "none"), default="human", help="which texts share keys")
    parser.add_argument("--reader", help="the language model of weighted tests, such as builtin")
    parser.add_argument("--plot", type=Path, help="file for a plot of the shares over the levels, of the last test")
    args = parser.parse_args()
    if args.plot and not args.human:
        parser.error("--plot draws human texts: give HUMAN")
    model = LanguageModel(args.reader, device="cpu", dtype="fp32") if args.reader else None
    kinds, spec = texts_by_kind(args.human, args.passages, args.tokens, model), WatermarkKey.generate(subkeys=1).spec
    columns = [f"p <= {level:g}" for level in LEVELS]
    print_header(["test", "statistic", "text", "pairs", *columns, "worst key", "keys with all", "ms"])
    cells = [Cell.parse(test) for test in args.test or ["rule=bigram"]]
    both = [(cell, weighs) for cell in cells for weighs in (False, True)]
    for cell, weighs in both:
        if weighs and (model is None or not rule_test(key_of(cell, spec, 0)).weighs):
            continue
        test, found = cell.name + ", weighted" * weighs, dict[str, dict[str, PValues]]()
        for kind, texts in kinds.items():
            read = texts if weighs else [replace(one, surprisal=None) for one in texts]
            # built texts of a kind share so many tokens that a key which matches one by chance matches them all
            own = args.share == "none" or (kind in BUILT and args.share == "human")
            first = 1000 * (kind in BUILT) if own else None
            rows = rounds(cell, spec, read, model if weighs else None, args.keys, first)
            found[kind] = {name: np.array([row["p"][name] for row in rows]) for name in rows[0]["p"]}
            cost = 1000 * sum(row["seconds"] for row in rows) / len(rows) / len(texts)
            for name, p in found[kind].items():
                print_row([test, name, kind, *shares(p), *([""] * 2 if own else under_one_key(p)), f"{cost:.2f}"])
        human, built = ({kind: one for kind, one in found.items() if (kind in BUILT) == made} for made in (False, True))
        for name in next(iter(human.values()), ()):
            p = np.concatenate([one[name].ravel() for one in human.values()])[None]
            print_row([test, name, "all human text", *shares(p), "", "", ""])
    if args.plot:
        question = f"How often does {test} call unmarked text marked, over the level that is asked for?"
        flat = [{kind: one["p"].ravel() for kind, one in part.items()} for part in (human, built)]
        level_figure(*flat, question=question).savefig(args.plot)
    print_made_with(*(str(cell.rule) for cell in cells))


def shares(p: PValues) -> list[str]:
    """The number of p-values, and their share at each level."""
    cells = [str(p.size)]
    for level in LEVELS:
        low, high = binomtest(int((p <= level).sum()), p.size).proportion_ci(0.999)
        cell = f"{np.mean(p <= level):.4g} [{low:.4g}, {high:.4g}]"
        above = np.mean(p <= level) > level + 4 * math.sqrt(level * (1 - level) / p.size)
        cells.append(f"**{cell}**" if above else cell)
    return cells


def under_one_key(p: PValues) -> list[str]:
    """The largest share of texts at .01 under one key, and under how many keys all texts are."""
    of_key = (p <= LEVELS[1]).mean(axis=1)
    return [f"{of_key.max():.4f}", str(int((of_key == 1).sum()))]


# --- p-values ---


def key_of(cell: Cell, spec: WatermarkSpec, number: int) -> WatermarkKey:
    """Key `number` of a test."""
    return rule_key(str(cell.rule), random_key(spec, number), **cell.options)


def rounds(
    cell: Cell, spec: WatermarkSpec, texts: list[ScoredIds], reader: LanguageModel | None, keys: int, first: int | None
) -> list[Row]:
    """The p-values of texts under each of so many keys; with `first` each text has its own, from this on."""

    def make(chosen: list[int]) -> list[Row]:
        (number,), begin = chosen, time.process_time()
        own = [number] * len(texts)
        if first is not None:
            own = [first + number * len(texts) + place for place in range(len(texts))]
        detectors = {one: Detector(key_of(cell, spec, one), fpr=1e-3, surprisal_model=reader) for one in {*own}}
        p_values = [p_values_of(detectors[one], text) for one, text in zip(own, texts, strict=True)]
        p = {name: [each[name] for each in p_values] for name in p_values[0]}
        return [{"p": p, "seconds": time.process_time() - begin}]

    read = [[one.ids.tolist(), None if one.surprisal is None else one.surprisal.nats.tolist()] for one in texts]
    same = {"test": cell.name, "made_with": identifier(str(cell.rule)), "texts": digest(read), "first": first}
    store, todo = Store(RUNS), {str(number): number for number in range(keys)}
    store.complete("scores", digest(same), same, todo, make, batch=1)
    return list(store.read("scores", digest(same), todo).values())


def p_values_of(detector: Detector, text: ScoredIds) -> dict[str, float]:
    """The p-values of a text: "p" of the verdict, and others by the names of their statistics.

    "whole text" is that without its parts, "published" that of a rule's publication. "z" and "z_win 8" are the paper's,
    under fair coins.
    """
    test = detector.test(text)
    found = detector.detection(test, len(text.ids), 1.0)
    published = {"published": found.figures.p_published} if isinstance(found.figures, PublishedFigures) else {}
    return {"p": found.p_value, **published, **_of_rule(test, detector.key, text)}


def _of_rule(test: TextTest, key: WatermarkKey, text: ScoredIds) -> dict[str, float]:
    if isinstance(test, BigramTest):
        values = test.evidence.values
        heads = int(values[test.matches(test.subkey)].sum())
        return {"whole text": math.exp(MatchNull.of_weights(values).log_tail(heads))}
    if not isinstance(test, PositionTest):
        return {}
    tables, fair = tables_of(key), _fair_windows(len(text.ids))
    matched, modulus = tables.matching(text.ids, text.positions), tables.spec.modulus
    z = abs(z_score(int(matched.sum()), len(matched), modulus))  # two-sided, as the phase is unknown
    above = DRAWS - np.searchsorted(fair, window_statistic(matched, modulus, WINDOW))
    return {"z": min(1.0, math.erfc(z / math.sqrt(2))), f"z_win {WINDOW}": float((1 + above) / (1 + DRAWS))}


@cache
def _fair_windows(length: int) -> Float[np.ndarray, " draws"]:
    """Values of the window statistic over fair coins, sorted."""
    coins = np.random.default_rng([length, WINDOW]).random((length, DRAWS), dtype=np.float32) < 0.5
    return np.sort(window_statistic(coins, 2, WINDOW))


if __name__ == "__main__":
    main()
