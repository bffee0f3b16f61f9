"""Marked-like texts without a model: tokens drawn from a law, matching the key at a given share of positions.

For numbers of texts that no two cores can generate. Each position matches with probability q, independently; given
that, its token is drawn from the law restricted to the matching tokens (or to the others). Real texts differ: tokens
follow one another, and some are steered more easily than others.
"""

import numpy as np
from jaxtyping import Float, Int

from dgmark.watermark.key import WatermarkKey

Dice = np.random.Generator
Law = Float[np.ndarray, " vocab"]


def simulate_texts(
    key: WatermarkKey, law: Law, texts: int, length: int, match: float, rng: Dice
) -> Int[np.ndarray, "texts length"]:
    """Texts as token ids, from position 0 on.

    Args:
        key: the key whose positions match.
        law: how often each token is used; zeros for those that never are.
        texts: how many.
        length: tokens of each.
        match: share of positions that match; 1/m is unmarked text.
        rng: draws them.
    """
    ids = np.empty((texts, length), dtype=np.int64)
    for position in range(length):
        inside, outside = _split(key, law, position)
        matched = rng.random(texts) < match
        ids[matched, position] = rng.choice(len(law), int(matched.sum()), p=inside)
        ids[~matched, position] = rng.choice(len(law), int((~matched).sum()), p=outside)
    return ids


def simulate_counts(
    key: WatermarkKey, law: Law, texts: int, length: int, match: float, rng: Dice
) -> Int[np.ndarray, "length vocab"]:
    """How often each token stands at each position of such texts: the same law, at any number of texts at once."""
    counts = np.empty((length, len(law)), dtype=np.int64)
    for position in range(length):
        inside, outside = _split(key, law, position)
        matched = rng.binomial(texts, match)
        counts[position] = rng.multinomial(matched, inside) + rng.multinomial(texts - matched, outside)
    return counts


def _split(key: WatermarkKey, law: Law, position: int) -> tuple[Law, Law]:
    """The law among the tokens that match at a position, and among the others."""
    place = np.array([position])
    group = key.tables.table(int(key.spec.segment(place)[0]))
    matches = group[: len(law)] == key.tables.residues(place)[0]
    inside, outside = law * matches, law * ~matches
    return inside / inside.sum(), outside / outside.sum()
