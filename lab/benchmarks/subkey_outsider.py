"""Whether an outsider sees that a service marks, from REAL responses of the built-in model and as many without a mark.

Run `python benchmarks/subkey_outsider.py texts 1000`, which makes so many responses under 4,096 sub-keys and as many
unmarked ones, by turns, and a tenth as many under one key, and resumes where it stopped; then `test`. The two samples
have the same prompts and other seeds. Where fewer responses than all are compared, they are drawn anew in each trial.
"""

import sys

import numpy as np
from jaxtyping import Int8

from corpus import RUNS
from dgmark_lab.attacks.clustering import leanings
from stealing import header, table_row
from subkey_texts import BATCH, make_texts, stored
from subkey_theft import LEVEL, OUTSIDERS

SIZE, SUBKEYS, LENGTH = 8192, 4096, 64
SEEN, TRIALS = (10, 30, 60, 300, 1000), 20
STORES = {name: RUNS / f"outsider-{name}.jsonl" for name in ("sub-keys", "unmarked", "plain")}
# seeds of the unmarked responses begin here, so that no two samples share one; a multiple of the number of prompts
OTHER_SEEDS = 100_000


def main() -> None:
    """Do what the first word on the command line says."""
    if sys.argv[1] == "texts":
        texts(int(sys.argv[2]))
    else:
        table()


def texts(count: int) -> None:
    """Make the responses that are missing."""
    subkeys = np.random.default_rng([23, 0]).integers(0, SUBKEYS, count).tolist()
    for begin in range(0, count, BATCH):
        numbers = range(begin, min(count, begin + BATCH))
        make_texts(STORES["sub-keys"], [(n, subkeys[n]) for n in numbers], LENGTH)
        make_texts(STORES["unmarked"], [(OTHER_SEEDS + n, None) for n in numbers], LENGTH)
        if 10 * begin < count:
            make_texts(STORES["plain"], [(2 * OTHER_SEEDS + n, 0) for n in numbers], LENGTH)


def table() -> None:
    """Print how often each test has p <= .05; of all responses together, its p-value."""
    samples = {name: _leanings(name) for name in STORES}
    unmarked = samples.pop("unmarked")
    print(", ".join(f"{len(each)} {name}" for name, each in [*samples.items(), ("unmarked", unmarked)]) + "\n")
    header("service", ["seen in", *(f"{count:,} responses" for count in SEEN), "all responses"])
    for name, theirs in (("unmarked", None), *samples.items()):
        cells = {test: [*_shares(test, theirs, unmarked), _all(test, theirs, unmarked)] for test in OUTSIDERS}
        for test, row in cells.items():
            print(table_row(name, [test, *row]), flush=True)


def _leanings(name: str) -> Int8[np.ndarray, "texts vocab"]:
    """How much oftener each token of each response stands at even positions than at odd ones, by number of response."""
    return leanings([ids[:LENGTH] for _, ids in sorted(stored(STORES[name]).items())], SIZE)


def _shares(
    test: str, theirs: Int8[np.ndarray, "texts vocab"] | None, unmarked: Int8[np.ndarray, "others vocab"]
) -> list[str]:
    """The share of trials with p <= .05, by the number of responses; None compares unmarked ones with each other."""
    shares = []
    for count in SEEN:
        marked, plain = (unmarked[::2], unmarked[1::2]) if theirs is None else (theirs, unmarked)
        if min(len(marked), len(plain)) < count:
            shares.append("")
            continue
        p = []
        for trial in range(TRIALS):
            rng = np.random.default_rng([24, trial])
            some = [each[rng.choice(len(each), count, replace=False)] for each in (marked, plain)]
            p.append(OUTSIDERS[test](some[0], some[1], rng))
        shares.append(f"{np.mean(np.array(p) <= LEVEL):.2f}")
    return shares


def _all(test: str, theirs: Int8[np.ndarray, "texts vocab"] | None, unmarked: Int8[np.ndarray, "others vocab"]) -> str:
    """The p-value of the first responses of both samples, as many as the smaller one has."""
    marked, plain = (unmarked[::2], unmarked[1::2]) if theirs is None else (theirs, unmarked)
    count = min(len(marked), len(plain))
    p = OUTSIDERS[test](marked[:count], plain[:count], np.random.default_rng([25, count]))
    return f"p = {p:.3f} ({count:,})"


if __name__ == "__main__":
    main()
