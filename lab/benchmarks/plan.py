"""Plan for many texts and keys: false alarms, tokens needed, and processor time, for `docs/scale.md`.

Run `python lab/benchmarks/plan.py`. Tokens are exact: the smallest number of different tokens whose
matches have a binomial p-value, times the number of phases, keys and sub-keys, at most the rate with probability .9.
Times are measured here, on unmarked texts of 256 tokens.
"""

from dataclasses import replace

import numpy as np
from scipy.stats import binom

from keys_and_tables import bench_key, print_header, print_row, random_key, simulated
from subkeys import milliseconds

DOCUMENTS = 10**10
RATES = (1e-4, 1e-6, 1e-9, 1e-12)
MATCH_RATES = (0.74, 0.89, 0.94)
# keys, sub-keys of each
SEARCHES = ((1, 1), (1, 4096), (400, 4096), (10_000, 4096))
VOCABULARY, TOKENS, TEXTS, POWER = 126_464, 256, 20, 0.9
PHASES, DAY = 2, 86_400


def main() -> None:
    """Print the tables."""
    print_header(["rate a document", "expected false alarms", *map(name, SEARCHES)])
    for rate in RATES:
        cells = [
            " / ".join(str(tokens_needed(rate / (PHASES * keys * subkeys), share)) for share in MATCH_RATES)
            for keys, subkeys in SEARCHES
        ]
        print_row([f"{rate:g}", f"{rate * DOCUMENTS:,.4g}", *cells])
    print()
    print_header(["sub-keys of a key", "ms a document and key", "core-days for 1, 400, 10,000 keys"])
    for subkeys in (1, 4096):
        key = random_key(replace(bench_key().spec, subkeys=subkeys, table_size=VOCABULARY), 1)
        rng, own = np.random.default_rng(0), key.for_text(None if subkeys == 1 else 7)
        texts = [simulated(own, TOKENS, 0.5, rng) for _ in range(TEXTS)]
        took = float(np.mean([milliseconds(key, ids) for ids in texts])) / 1000
        days = " / ".join(f"{keys * took * DOCUMENTS / DAY:,.0f}" for keys in (1, 400, 10_000))
        print_row([f"{subkeys:,}", f"{1000 * took:.2f}", days])


def name(search: tuple[int, int]) -> str:
    """A search as a column's title."""
    keys, subkeys = search
    return f"{keys:,} key{'s' * (keys > 1)}" + (f" of {subkeys:,} sub-keys" if subkeys > 1 else "")


def tokens_needed(rate: float, match_rate: float) -> int:
    """The smallest number of different tokens whose matches are rare enough, with probability `POWER` or more."""
    tokens = 1
    while True:
        needed = np.count_nonzero(binom.sf(np.arange(tokens + 1) - 1, tokens, 0.5) > rate)
        if binom.sf(needed - 1, tokens, match_rate) >= POWER:
            return tokens
        tokens += 1


if __name__ == "__main__":
    main()
