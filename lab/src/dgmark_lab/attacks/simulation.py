"""Simulated marked texts, without a model: tokens drawn at random, matching the key at a given share of positions.

For more texts than a model could generate in reasonable time. Each position matches with probability q,
independently; its token is then drawn from a fixed law (a probability for each token), restricted to the matching
tokens or to the others. Real texts differ: their tokens depend on one another, and some are easier to steer.
"""

import numpy as np
from jaxtyping import Float, Int

from dgmark.watermark.key import WatermarkKey

Dice = np.random.Generator
Law = Float[np.ndarray, " vocab"]


def simulate_texts(
    key: WatermarkKey, law: Law, texts: int, length: int, match: float, rng: Dice
) -> Int[np.ndarray, "texts length"]:
    """Draw texts as token ids, from position 0 on.

    Args:
        key: the key whose positions match.
        law: probability of each token; 0 for tokens that never occur.
        texts: number of texts.
        length: tokens of each text.
        match: share of positions that match; 1/m is unmarked text.
        rng: random generator.
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
    """Draw only how often each token occurs at each position of such texts, whatever their number."""
    counts = np.empty((length, len(law)), dtype=np.int64)
    for position in range(length):
        inside, outside = _split(key, law, position)
        matched = rng.binomial(texts, match)
        counts[position] = rng.multinomial(matched, inside) + rng.multinomial(texts - matched, outside)
    return counts


def _split(key: WatermarkKey, law: Law, position: int) -> tuple[Law, Law]:
    """Restrict the law to the tokens that match at a position, and to the others."""
    place = np.array([position])
    group = key.tables.table(int(key.spec.segment(place)[0]))
    matches = group[: len(law)] == key.tables.residues(place)[0]
    inside, outside = law * matches, law * ~matches
    return inside / inside.sum(), outside / outside.sum()
