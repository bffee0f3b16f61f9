"""The block statistic: a quick look at how well a text follows a key, if tokens may have been deleted or inserted.

The text is cut into blocks, in each of which the phase is taken to be constant: the likelihood ratio of that, averaged
over the phases of each block, over a few lengths of the blocks, and over two strengths. It takes a few sums in place
of a step for each token, so it ranks many keys at once (`keyring.py`) and tells which texts are worth a closer look
(`aligned.py`). Knows the alignment model only. Ours.
"""

import numpy as np
from jaxtyping import Float, UInt8

from dgmark.detection.alignment import Alignment

SHORTEST = 8
STRENGTHS = (0.4, 0.8)
# matches in memory at once
_AT_ONCE = 2**22


def block_statistics(
    model: Alignment,
    groups: UInt8[np.ndarray, "rows keys"],
    wanted: UInt8[np.ndarray, "n states keys"] | None = None,
) -> Float[np.ndarray, " keys"]:
    """Natural logarithm of the block statistic under each of several keys.

    Args:
        model: the alignment of the text.
        groups: each key's group of each row of `model.distinct`.
        wanted: each key's own residues, if the keys' position codes differ; `model.wanted` by default.
    """
    size = max(1, _AT_ONCE // max(1, model.wanted.size))
    parts = []
    for begin in range(0, groups.shape[1], size):
        part = slice(begin, begin + size)
        residues = model.wanted[..., None] if wanted is None else wanted[..., part]
        parts.append(_of_matches(groups[:, part][model.items] == residues, model.modulus))
    return np.concatenate(parts) if parts else np.zeros(0)


def _of_matches(matched: np.ndarray, modulus: int) -> Float[np.ndarray, " keys"]:
    """The statistic from (n, states, keys) matches."""
    n = len(matched)
    if not n:
        return np.zeros(matched.shape[2])
    counts = np.add.reduceat(matched, np.arange(0, n, SHORTEST), axis=0, dtype=np.int32)
    sizes = np.minimum(SHORTEST, n - np.arange(0, n, SHORTEST))
    logs = []
    while True:
        for strength in STRENGTHS:
            missed = np.log1p(-strength)
            gain = np.log1p((modulus - 1) * strength) - missed
            values = counts * gain
            best = values.max(axis=1)
            values -= best[:, None]
            ratios = np.log(np.exp(values).mean(axis=1)) + best
            logs.append(ratios.sum(axis=0) + missed * n)
        if len(sizes) == 1:
            break
        pairs = np.arange(0, len(sizes), 2)
        counts, sizes = np.add.reduceat(counts, pairs, axis=0), np.add.reduceat(sizes, pairs)
    total: Float[np.ndarray, " keys"] = np.logaddexp.reduce(logs, axis=0) - np.log(len(logs))
    return total
