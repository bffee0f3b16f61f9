"""Measure what a thief learns of a key with sub-keys from SIMULATED responses, and whether an outsider sees the mark.

Run `python lab/benchmarks/subkey_theft.py HUMAN.jsonl`, or with `sizes`, `theft` or `outsider` for one of the tables.
Tokens are drawn from the law of human text, and each position matches the response's sub-key with a fixed probability.
A thief who does not cluster counts over all responses; one who clusters finds first which of them share a sub-key, and
forges with the largest group; one who is told knows. The detector has its default settings.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import exp, factorial
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int, Int8, UInt8

from dgmark.checkpoint.tokenizer import load_tokenizer
from dgmark.detection.detector import KeyTest
from dgmark.detection.reader import ScoredIds
from dgmark.watermark.key import WatermarkKey
from dgmark_lab.attacks.clustering import Thief, leanings
from dgmark_lab.attacks.simulation import simulate_responses, simulate_texts
from dgmark_lab.attacks.stealing import Estimate, forge, recovered_mass, scrub, steal
from keys_and_tables import bench_key, print_header, print_row, random_key
from stealing import human_texts, law_of

SUBKEYS, RESPONSES, TOLD = (1, 64, 1024, 4096), (10, 100, 1000, 10_000), 100_000
LENGTH, HOSTS, MATCH_RATES = 256, 20, (0.94, 0.74)
FORGED, SCRUBBED = (0.2, 0.3), 0.4
CELLS = [*(f"forged {budget}" for budget in FORGED), f"scrubbed {SCRUBBED}"]
# texts that the thief compares pair by pair: enough for some of each sub-key
SEEDS = 1000
TABLES = ("sizes", "theft", "outsider")
SIZES, ALL_SUBKEYS = (2, 3, 5, 10, 30), (16, 64, 256, 1024, 4096, 65_536)
Ids = Int[np.ndarray, " _"]
Law = Float[np.ndarray, " vocab"]
Leaning = Int8[np.ndarray, "texts vocab"]
Dice = np.random.Generator
# an outsider
SEEN, TRIALS, PERMUTED, LEVEL = (3, 10, 100, 1000), 20, 199, 0.05


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("human", type=Path, help="JSON Lines of human text, for hosts and the law")
    parser.add_argument("table", choices=TABLES, nargs="*", help="only these tables")
    parser.add_argument("--match", type=float, action="append", help="only these match rates")
    args = parser.parse_args()
    human = human_texts(args.human, load_tokenizer())
    law = law_of(human[1::2])
    hosts = [ids[:LENGTH] for ids in human[::2] if len(ids) >= LENGTH][:HOSTS]
    tables = args.table or TABLES
    if "sizes" in tables:
        sizes_table()
    for match in args.match or MATCH_RATES:
        if "theft" in tables:
            theft_table(law, law_of(human[::2]), hosts, match)
        if "outsider" in tables:
            outsider_table(law, match)


def key_of(subkeys: int) -> WatermarkKey:
    """A key from a public seed: it protects nothing."""
    return random_key(replace(bench_key().spec, subkeys=subkeys), 20)


def groups_of(key: WatermarkKey, subkey: int) -> UInt8[np.ndarray, "1 vocab"]:
    """The groups of one sub-key, or of a key without."""
    return (key.subkey(subkey) if key.spec.subkeys > 1 else key).tables.table()[None]


# --- theft ---


def sizes_table() -> None:
    """Print after how many responses some sub-key has marked so many of them, as often as not."""
    print_header(["sub-keys", *(f"{size} responses" for size in SIZES)])
    for subkeys in ALL_SUBKEYS:
        print_row([f"{subkeys:,}", *(f"{responses_until(size, subkeys):,}" for size in SIZES)])
    print()


def responses_until(size: int, subkeys: int) -> int:
    """The number of responses after which some sub-key has marked `size` of them with a chance of one half."""
    low, high = size, size * subkeys
    while low < high:
        middle = (low + high) // 2
        mean = middle / subkeys
        # the number of responses under each sub-key is close to Poisson's law
        fewer = exp(-mean) * sum(mean**k / factorial(k) for k in range(size))
        low, high = (low, middle) if fewer**subkeys <= 0.5 else (middle + 1, high)
    return low


@dataclass(frozen=True)
class Loot:
    """The groups of responses that a thief learns from, the largest first, and how he finds that of another response.

    Attributes:
        ids: all responses.
        groups: the responses of each group.
        group_of: the group that another response with this sub-key belongs to; None if there is none.
        match: share of positions that he believes to match.
    """

    ids: Int[np.ndarray, "texts length"]
    groups: list[Ids]
    group_of: Callable[[Ids], Ids | None]
    match: float

    def estimate(self, group: Ids) -> Estimate:
        """What the responses of a group tell of their sub-key."""
        return steal(list(self.ids[group]), 8192, match=self.match)


def loot_of(kind: str, key: WatermarkKey, ids: Int[np.ndarray, "texts length"], match: float) -> Loot:
    """What a thief of some kind has, after he saw these responses."""
    everything = np.arange(len(ids))
    if kind == "none":
        return Loot(ids, [everything], lambda _: everything, match)
    seeds = max(SEEDS, 3 * key.spec.subkeys)
    thief = Thief(leanings(list(ids), 8192), key.spec.subkeys, match, seeds)
    return Loot(ids, thief.groups(), lambda other: thief.group_of(leanings([other], 8192)[0]), match)


def theft_table(law: Law, held_out: Law, hosts: list[Ids], match: float) -> None:
    """Print what thieves learn, forge and scrub, by the number of sub-keys and of responses."""
    print(
        f"SIMULATED, q = {match}, {LENGTH} tokens a response; {len(hosts)} human texts to forge on, as many to scrub\n"
    )
    print_header(["sub-keys", "responses", "clusters", "largest", "of one sub-key", "mass", *CELLS])
    for number in SUBKEYS:
        key = key_of(number)
        rng = np.random.default_rng([20, number])
        ids, numbers = simulate_responses(key, law, max(RESPONSES), LENGTH, match, rng)
        fresh, _ = simulate_responses(key, law, len(hosts), LENGTH, match, rng)
        for count in RESPONSES:
            for kind in ("none", "found") if number > 1 else ("none",):
                loot = loot_of(kind, key, ids[:count], match)
                cells = thief_cells(key, loot, numbers, fresh, law, held_out, hosts)
                print_row([f"{number:,}", f"{count:,}", "-" if kind == "none" else kind, *cells])
        if number > 1:
            cells = told_cells(key, law, held_out, hosts, match, rng)
            print_row([f"{number:,}", f"{TOLD:,}", "told", *cells])
    print()


def thief_cells(
    key: WatermarkKey,
    loot: Loot,
    numbers: Ids,
    fresh: Int[np.ndarray, "texts length"],
    law: Law,
    held_out: Law,
    hosts: list[Ids],
) -> list[str]:
    """The largest group, what it teaches of its commonest sub-key, and what it serves to forge and to scrub."""
    largest = loot.groups[0]
    seen, times = np.unique(numbers[largest], return_counts=True)
    target = int(seen[times.argmax()])
    estimate = loot.estimate(largest)
    scrubbed = []
    for ids in fresh:
        group = loot.group_of(ids)
        known = loot.estimate(np.arange(len(loot.ids)) if group is None else group)
        scrubbed.append(not is_found(key, scrub(ids, known, SCRUBBED, law, np.random.default_rng(7))))
    return [
        f"{len(largest):,}",
        f"{times.max() / len(largest):.2f}",
        f"{recovered_mass(estimate, groups_of(key, target), held_out):.3f}",
        *forged_cells(key, estimate, law, hosts),
        f"{np.mean(scrubbed):.2f}",
    ]


def forged_cells(key: WatermarkKey, estimate: Estimate, law: Law, hosts: list[Ids]) -> list[str]:
    """The shares of human texts that pass after so many tokens were replaced."""
    forged = [
        [is_found(key, forge(ids, estimate, budget, law, np.random.default_rng([n, 7]))) for n, ids in enumerate(hosts)]
        for budget in FORGED
    ]
    return [f"{np.mean(each):.2f}" for each in forged]


def told_cells(key: WatermarkKey, law: Law, held_out: Law, hosts: list[Ids], match: float, rng: Dice) -> list[str]:
    """What the largest group of so many responses teaches; only its responses are drawn."""
    size = int(np.bincount(rng.integers(key.spec.subkeys, size=TOLD)).max())
    estimate = steal(list(simulate_texts(key.subkey(0), law, size, LENGTH, match, rng)), 8192, match=match)
    mass = recovered_mass(estimate, groups_of(key, 0), held_out)
    return [f"{size:,}", "1.00", f"{mass:.3f}", *forged_cells(key, estimate, law, hosts), ""]


def is_found(key: WatermarkKey, ids: Ids) -> bool:
    """Whether the detector with its default settings finds the mark of any sub-key."""
    return KeyTest(key).score(ScoredIds(ids, np.arange(len(ids)))).verdict == "watermarked"


# --- an outsider ---


def outsider_table(law: Law, match: float) -> None:
    """Print how often an outsider tells that a service marks, from as many responses without a mark beside its own."""
    print(
        f"SIMULATED, q = {match}: share of {TRIALS} trials with p <= .05, from so many responses and as many unmarked\n"
    )
    print_header(["sub-keys", "seen in", *(f"{count:,} responses" for count in SEEN)])
    for name, subkeys, rate in (("unmarked", 1, 0.5), ("1", 1, match), ("4,096", 4096, match)):
        key, p = key_of(subkeys), []
        for trial in range(TRIALS):
            rng = np.random.default_rng([21, trial])
            theirs, ours = (simulate_responses(key, law, SEEN[-1], LENGTH, q, rng)[0] for q in (rate, 0.5))
            marked, unmarked = (leanings(list(each), 8192) for each in (theirs, ours))
            p.append([[test(marked[:count], unmarked[:count], rng) for count in SEEN] for test in OUTSIDERS.values()])
        for test, shares in zip(OUTSIDERS, (np.array(p) <= LEVEL).mean(axis=0), strict=True):
            print_row([name, test, *(f"{share:.2f}" for share in shares)])
    print()


def by_position(theirs: Leaning, ours: Leaning, rng: Dice) -> float:
    """The p-value of a two-sample test on how often each token stands at even positions, by permutation of texts."""
    both = np.concatenate([theirs, ours]).astype(np.float32)
    weights = 1 / np.maximum(1, np.abs(both).sum(axis=0))
    signs = np.ones((1 + PERMUTED, len(both)), dtype=np.float32)
    signs[:, len(theirs) :] = -1
    rng.permuted(signs[1:], axis=1, out=signs[1:])
    return _rank(np.square(signs @ both) @ weights)


def by_repeats(theirs: Leaning, ours: Leaning, rng: Dice) -> float:
    """The p-value of a two-sample test on how often the tokens of one response return at the same parity."""
    same = np.concatenate([np.square(each.astype(np.int64)).sum(axis=1) for each in (theirs, ours)])
    labels = np.zeros((1 + PERMUTED, len(same)))
    labels[:, : len(theirs)] = 1
    rng.permuted(labels[1:], axis=1, out=labels[1:])
    return _rank(labels @ same)


def _rank(statistics: Float[np.ndarray, " permuted"]) -> float:
    """The share of the statistics that are as large as the first."""
    return float(np.mean(statistics >= statistics[0] - 1e-9))


OUTSIDERS: dict[str, Callable[[Leaning, Leaning, Dice], float]] = {
    "counts by position": by_position,
    "repeats in a response": by_repeats,
}


if __name__ == "__main__":
    main()
