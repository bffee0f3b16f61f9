"""The block statistic: a quick look at how well a text follows a key, if tokens may have been deleted or inserted.

The text is cut into blocks, in each of which the phase is taken to be constant: the likelihood ratio of that, averaged
over the phases of each block, over a few lengths of the blocks, and over two strengths. It takes a few sums in place
of a step for each token, so it ranks many keys at once (`keyring.py`) and tells which texts are worth a closer look
(`aligned.py`). Knows the alignment model only. Ours.
"""

import numpy as np
from jaxtyping import Float, Int, UInt8

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
    mirrored = model.mirrored and wanted is None
    size = max(1, _AT_ONCE // max(1, model.wanted.size))
    parts = []
    for begin in range(0, groups.shape[1], size):
        part = slice(begin, begin + size)
        residues = model.wanted[..., None] if wanted is None else wanted[..., part]
        if mirrored:
            residues = residues[:, :1]
        parts.append(_of_matches(groups[:, part][model.items] == residues, model.modulus, mirrored=mirrored))
    return np.concatenate(parts) if parts else np.zeros(0)


def _of_matches(matched: np.ndarray, modulus: int, *, mirrored: bool) -> Float[np.ndarray, " keys"]:
    """The statistic from (n, states, keys) matches; of two phases in which opposite tokens match, one is given."""
    n = len(matched)
    if not n:
        return np.zeros(matched.shape[2])
    edges = np.arange(0, n, SHORTEST)
    counts = np.add.reduceat(matched.view(np.uint8), edges, axis=0, dtype=np.uint8).astype(np.int32)
    sizes = np.minimum(SHORTEST, n - edges)
    logs = []
    while True:
        for strength in STRENGTHS:
            missed = np.log1p(-strength)
            gain = np.log1p((modulus - 1) * strength) - missed
            ratios = _of_mirrored(counts, sizes, gain) if mirrored else _over_states(counts * gain)
            logs.append(ratios.sum(axis=0) + missed * n)
        if len(sizes) == 1:
            break
        pairs = np.arange(0, len(sizes), 2)
        counts, sizes = np.add.reduceat(counts, pairs, axis=0), np.add.reduceat(sizes, pairs)
    total: Float[np.ndarray, " keys"] = np.logaddexp.reduce(logs, axis=0) - np.log(len(logs))
    return total


def _over_states(values: Float[np.ndarray, "blocks states keys"]) -> Float[np.ndarray, "blocks keys"]:
    """Logarithm of the mean over the states."""
    best = values.max(axis=1)
    return np.asarray(np.log(np.exp(values - best[:, None]).mean(axis=1)) + best)


def _of_mirrored(
    counts: Int[np.ndarray, "blocks 1 keys"], sizes: Int[np.ndarray, " blocks"], gain: float
) -> Float[np.ndarray, "blocks keys"]:
    """The same for two phases, looked up: what does not match in one of them matches in the other."""
    ratios = np.empty((len(counts), counts.shape[2]))
    for size in np.unique(sizes).tolist():
        possible = np.arange(size + 1)
        values = _over_states(np.stack([possible, size - possible], axis=1)[..., None] * gain)[:, 0]
        ratios[sizes == size] = values[counts[sizes == size, 0]]
    return ratios
