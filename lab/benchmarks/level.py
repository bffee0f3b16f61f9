"""Measure how often unmarked text is called marked: by p-values, and by the paper's z and z_win at nominal thresholds.

Run `python lab/benchmarks/level.py HUMAN.jsonl` with rows of `id`, `domain`, `lang`, `text`. Synthetic text (CSV,
tables, JSON, code, verse, loops) is also scored. All human texts are scored with the same few keys, so that the worst
key can be seen. Synthetic texts of a kind share so many tokens that a key that matches one by chance matches all, so
each of their (text, key) pairs has its own key. The table is printed as Markdown; the paper's statistics have no
meaning under rule "bigram", and are left out.

With --baselines: how often the baselines call human text marked, by their exact and their published p-values, each text
under a key of its own.
"""

import json
import random
import time
from collections import defaultdict
from collections.abc import Callable
from functools import cache, partial
from math import erfc, sqrt
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from dgmark.checkpoint.tokenizer import load_tokenizer
from dgmark.detection.detector import Detector
from dgmark.detection.p_values import z_score
from dgmark.detection.position import window_statistic
from dgmark.detection.reader import ScoredIds
from dgmark.rows.jsonl import read_good_rows
from dgmark.watermark.key import WatermarkKey
from dgmark.watermark.position import PositionSpec, tables_of
from dgmark.watermark.spec import spec_as
from dgmark_lab.baselines import BASELINES
from dgmark_lab.experiments.figures import level_figure
from dgmark_lab.rule_keys import rule_key
from shared import arguments, bench_key, print_header, print_made_with, print_row, random_key

ALPHAS: tuple[float, ...] = (0.1, 0.01, 0.001, 0.0001, 0.00001)
TOKENS = 256
MIN_TOKENS = 50
# levels of the paper's statistics: 20,000 draws show no smaller share
NOMINAL = ALPHAS[:4]
WINDOW = 8


def p_values_of(key: WatermarkKey, ids: Int[np.ndarray, " n"]) -> tuple[float, ...]:
    """The p-value of ids that start at position 0, and under the position rule those of the paper's z and z_win.

    The paper's statistics assume this phase; ours finds it. z is two-sided, as the phase is unknown.
    """
    positions = np.arange(len(ids))
    p_value = Detector(key).score(ScoredIds(ids, positions)).p_value
    others = _PUBLISHED.get(key.spec.rule)
    return (p_value, *(others(key, ids, positions) if others else ()))


def _of_positions(key: WatermarkKey, ids: Int[np.ndarray, " n"], positions: Int[np.ndarray, " n"]) -> tuple[float, ...]:
    modulus = spec_as(PositionSpec, key).modulus
    matched = tables_of(key).matching(ids, positions)
    z = abs(z_score(int(matched.sum()), len(ids), modulus))
    windows = float(window_statistic(matched, modulus, WINDOW))
    return min(1.0, erfc(z / sqrt(2))), nominal(windows, len(ids))


# by rule, the p-values of published statistics that its test does not use
_PUBLISHED = {"position": _of_positions}


# --- synthetic text ---


def csv(dice: random.Random) -> str:
    """Make rows of small whole numbers."""
    return "\n".join(",".join(str(dice.randint(0, 99)) for _ in range(5)) for _ in range(60))


def markdown(dice: random.Random) -> str:
    """Make a table of symbols and numbers."""
    rows = (f"| item {n} | {dice.choice('xo-')} | {dice.randint(0, 20)} |" for n in range(60))
    return "| name | mark | count |\n|---|---|---|\n" + "\n".join(rows)


def json_rows(dice: random.Random) -> str:
    """Make objects of one shape."""
    return json.dumps([{"id": n, "x": dice.random(), "ok": dice.random() < 0.5} for n in range(40)], indent=1)


def code(dice: random.Random) -> str:
    """Make functions of one shape."""
    names = [dice.choice(["width", "count", "total", "index", "limit"]) for _ in range(20)]
    return "\n\n".join(f"def get_{n}(self):\n    if self.{n} < {dice.randint(0, 9)}:\n        return 0" for n in names)


def verse(dice: random.Random) -> str:
    """Make couplets with a refrain."""
    ends = ["day", "way", "bay", "may", "sea", "tree", "lee", "me"]
    lines = (f"And all the {dice.choice(ends)} went down the {dice.choice(ends)},\nO, sing hey ho!" for _ in range(40))
    return "\n".join(lines)


def loop(dice: random.Random) -> str:
    """Repeat one sentence."""
    words = ["the", "cat", "sat", "on", "a", "mat", "and", "saw", "it", "rain", "while", "old", "men", "sang"]
    return (" ".join(dice.sample(words, dice.randint(3, 12))).capitalize() + ". ") * 80


BUILT: dict[str, Callable[[random.Random], str]] = {
    "built: CSV": csv,
    "built: Markdown tables": markdown,
    "built: JSON": json_rows,
    "built: code": code,
    "built: verse": verse,
    "built: a repeated sentence": loop,
}


# without ReplayMark, whose test is binomial over coins and reads each text with a model
BASELINE_FORMS: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, {}) for name in BASELINES if name != "replaymark"},
    "pattern-mark, m = 4": ("pattern-mark", {"pattern_length": 4}),
    "gloaguen, offsets -1,1": ("gloaguen", {"offsets": (-1, 1)}),
}


def main() -> None:
    """Print the table."""
    parser = arguments()
    parser.add_argument("human", type=Path, help="JSON Lines with domain, lang and text")
    parser.add_argument("--passages", type=int, default=120, help="passages of each kind; 0 for all")
    parser.add_argument("--keys", type=int, default=20)
    parser.add_argument("--rule", choices=("bigram", "position"), default="position")
    parser.add_argument("--code-length", type=int, default=0, help="position code of the keys; 0 for i mod 2")
    parser.add_argument("--baselines", type=int, metavar="TEXTS", help="measure the baselines, on so many human texts")
    parser.add_argument("--plot", type=Path, help="file for a plot of the shares found over the levels")
    args = parser.parse_args()
    if args.baselines:
        every = [ids for name, texts in kinds(args.human, 0).items() if name not in BUILT for ids in texts]
        of_baselines(every[: args.baselines])
        return
    published = args.rule in _PUBLISHED
    spec = WatermarkKey.generate(rule=args.rule, code_length=args.code_length if published else None, subkeys=1).spec
    key_of = cache(partial(random_key, spec))  # keys keep their tables
    found: dict[str, Any] = {}
    print(f"{args.keys} keys, at most {args.passages or 'all'} passages of a kind, first {TOKENS} tokens each\n")
    header = [f"p {alpha:g}" for alpha in ALPHAS]
    header += [f"{name} {alpha:g}" for name in ("z", "z_win 8") for alpha in NOMINAL] if published else []
    print_header(["text", "pairs", "worst key p .01", *header])
    for name, texts in kinds(args.human, args.passages).items():
        keys = np.arange(args.keys)[:, None].repeat(len(texts), axis=1)
        if name in BUILT:
            keys = np.arange(keys.size).reshape(keys.shape) + 1000
        p_values = np.array(
            [[p_values_of(key_of(int(n)), ids) for n, ids in zip(row, texts, strict=True)] for row in keys]
        )
        print_row(line(name, p_values))
        found[name] = p_values[..., 0].ravel()
    human = np.concatenate([p for name, p in found.items() if name not in BUILT])
    shares = [f"{np.mean(human <= alpha) / alpha:.2f}" for alpha in ALPHAS]
    print_row(["all human text, share / level", str(human.size), "", *shares])
    print_made_with(args.rule)
    if args.plot:
        of_human = {name: p for name, p in found.items() if name not in BUILT}
        of_built = {name: p for name, p in found.items() if name in BUILT}
        question = f"How often does rule {args.rule} call unmarked text marked, over the level that is asked for?"
        level_figure(of_human, of_built, question=question).savefig(args.plot)


def of_baselines(texts: list[Int[np.ndarray, " n"]]) -> None:
    """Print the share of p-values at or below each level, exact and published, and the cost of a detection."""
    spec, tokenizer, levels = bench_key().spec, load_tokenizer(), ALPHAS[:3]
    print(f"{len(texts)} human texts of {MIN_TOKENS} to {TOKENS} tokens, each with its own key\n")
    print_header(["baseline", *(f"{kind} <= {a:g}" for kind in ("p", "published") for a in levels), "ms"])
    for form, (name, options) in BASELINE_FORMS.items():
        keys = [rule_key(name, random_key(spec, number), **options) for number in range(len(texts))]
        detectors = [Detector(key, fpr=1e-3, tokenizer=tokenizer) for key in keys]
        begin = time.process_time()
        found = [detector.detect(ids.tolist()) for detector, ids in zip(detectors, texts, strict=True)]
        cost = 1000 * (time.process_time() - begin) / len(texts)
        p_values = np.array([(one.p_value, one.p_published) for one in found], dtype=float)
        print_row([form, *(f"{np.mean(p_values[:, kind] <= a):.4f}" for kind in (0, 1) for a in levels), f"{cost:.2f}"])
    print_made_with(*(name for name, _ in BASELINE_FORMS.values()))


def kinds(human: Path, most: int) -> dict[str, list[Int[np.ndarray, " n"]]]:
    """Return the token ids of each kind of text, cut to length; texts of fewer than 50 tokens are left out."""
    texts = defaultdict(list)
    for passage in read_good_rows(str(human)):
        name = passage["domain"] if passage["lang"] == "en" else f"{passage['domain']}, {passage['lang']}"
        texts[name].append(passage["text"])
    for name, build in BUILT.items():
        texts[name] = [build(random.Random(f"{name} {n}")) for n in range(most or 120)]
    tokenizer = load_tokenizer()
    result = {}
    for name, passages in texts.items():
        random.Random(name).shuffle(passages)
        encoded = [np.array(ids[:TOKENS]) for ids in tokenizer.encode_batch(passages[: most or None])]
        if long := [ids for ids in encoded if len(ids) >= MIN_TOKENS]:
            result[name] = long
    return result


def line(name: str, p_values: Float[np.ndarray, "keys texts tests"]) -> list[str]:
    """One line of the table: the share of (text, key) pairs called marked at each nominal level."""
    ours, *papers = np.moveaxis(p_values, -1, 0)
    worst = "" if name in BUILT else f"{np.mean(ours <= 0.01, axis=1).max(initial=0.0):.4f}"
    cells = [name, str(ours.size), worst]
    for p, alphas in [(ours, ALPHAS), *((p, NOMINAL) for p in papers)]:
        for alpha in alphas:
            share = np.mean(p <= alpha)
            over = share > alpha + 4 * sqrt(alpha * (1 - alpha) / p.size)
            cells.append(f"**{share:.4g}**" if over else f"{share:.4g}")
    return cells


def nominal(statistic: float, length: int) -> float:
    """Return the p-value of z_win at w = 8 under fair coins, by 20,000 draws."""
    fair = _fair_draws(length)
    return float((1 + len(fair) - np.searchsorted(fair, statistic)) / (1 + len(fair)))


@cache
def _fair_draws(length: int) -> Float[np.ndarray, " draws"]:
    """Draw 20,000 values of the window statistic over fair coins, sorted."""
    coins = np.random.default_rng([length, WINDOW]).random((length, 20_000), dtype=np.float32) < 0.5
    return np.sort(window_statistic(coins, 2, WINDOW))


if __name__ == "__main__":
    main()
