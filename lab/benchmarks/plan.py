"""Plan for many texts and keys: false alarms, pairs needed, and processor time, for `docs/scale.md`.

Run `python lab/benchmarks/plan.py`. Pairs are exact: the smallest number of different pairs whose matches have a
binomial p-value, times the number of keys and sub-keys, at most the rate with probability .9.
Times are measured here, on unmarked texts of 256 tokens.
"""

import time
from functools import partial
from itertools import count
from statistics import median

import numpy as np
from scipy.stats import binom

from dgmark.detection.detector import Detector
from dgmark.detection.reading.reader import ScoredIds
from dgmark.detection.statistics.parts import WHOLE_SHARE
from dgmark.watermark.bigram import DISTANCES, BigramSpec
from shared import print_header, print_made_with, print_row, random_key, seconds_of

DOCUMENTS = 10**10
RATES = (1e-4, 1e-6, 1e-9, 1e-12)
# shares of the pairs that match
SHARES = (0.6, 0.65, 0.7)
# keys, sub-keys of each
SEARCHES = ((1, 1), (1, 4096), (400, 4096), (10_000, 4096))
VOCABULARY, TOKENS, TEXTS, POWER = 126_464, 256, 20, 0.9
DAY = 86_400


def main() -> None:
    """Print the tables."""
    print_header(["rate a document", "expected false alarms", *map(name, SEARCHES)])
    for rate in RATES:
        cells = [
            " / ".join(str(pairs_needed(WHOLE_SHARE * rate / (keys * subkeys), share)) for share in SHARES)
            for keys, subkeys in SEARCHES
        ]
        print_row([f"{rate:g}", f"{rate * DOCUMENTS:,.4g}", *cells])
    print()
    print_header(["sub-keys of a key", "ms a document and key", "core-days for 1, 400, 10,000 keys"])
    for subkeys in (1, 4096, 65_536):
        took = seconds(subkeys)
        days = " / ".join(f"{keys * took * DOCUMENTS / DAY:,.0f}" for keys in (1, 400, 10_000))
        print_row([f"{subkeys:,}", f"{1000 * took:.2f}", days])
    print_made_with("bigram")


def name(search: tuple[int, int]) -> str:
    """A search as a column's title."""
    keys, subkeys = search
    return f"{keys:,} key{'s' * (keys > 1)}" + (f" of {subkeys:,} sub-keys" if subkeys > 1 else "")


def pairs_needed(rate: float, share: float) -> int:
    """The smallest number of different pairs whose matches are rare enough, with probability `POWER` or more."""
    for pairs in count(1):
        needed = np.count_nonzero(binom.sf(np.arange(pairs + 1) - 1, pairs, 0.5) > rate)
        if binom.sf(needed - 1, pairs, share) >= POWER:
            break
    return pairs


def seconds(subkeys: int) -> float:
    """Processor time of one text and one key, the median over texts of words with a power law."""
    spec = BigramSpec(nearest=DISTANCES[0], farthest=DISTANCES[1], table_size=VOCABULARY, subkeys=subkeys)
    rng, times = np.random.default_rng(0), []
    weights = 1 / np.arange(16, 916)
    for number in range(TEXTS):
        ids = rng.choice(rng.permutation(np.arange(300, 8000))[:900], TOKENS, p=weights / weights.sum())
        test, tokens = Detector(random_key(spec, number)), ScoredIds(ids, np.arange(TOKENS))
        times.append(seconds_of(partial(test.score, tokens), time.process_time))
    return median(times)


if __name__ == "__main__":
    main()
