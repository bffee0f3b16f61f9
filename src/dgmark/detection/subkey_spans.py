"""Which stretches of a text carry the mark of any sub-key, with the family-wise error controlled over all of them.

A text may be pasted together from several marked ones, each with a sub-key of its own. The scan statistic (`scan.py`)
of the best stretch ranks the sub-keys; those that come first are searched one after another, each at its share of the
false-positive rate, until one shows nothing. Knows tokens and their positions only. Ours.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from jaxtyping import Bool, Float, Int

from dgmark.detection.alignment import Alignment
from dgmark.detection.blocks import SHORTEST
from dgmark.detection.candidates import parts_of
from dgmark.detection.ranking import Part, best_of
from dgmark.detection.reader import ScoredIds
from dgmark.detection.scan import Grid, grids_of, scan
from dgmark.detection.shares import bonferroni_p
from dgmark.detection.spans import Search, Stretch
from dgmark.watermark.key import WatermarkKey

# sub-keys that are searched at most
_SEARCHED = 16
# tokens x states x sub-keys whose stretches are in memory at once
_AT_ONCE = 2**18


def find_subkey_stretches(key: WatermarkKey, tokens: ScoredIds, fpr: float) -> list[tuple[int, Stretch]]:
    """Find the stretches that carry the mark of a sub-key, each with its sub-key, in order.

    Stretches do not overlap: one is cut back to its longest part that is in none with a smaller p-value, if this part
    passes by itself, and left out if not.

    Args:
        key: a key with sub-keys.
        tokens: the scored tokens.
        fpr: the largest chance to report any stretch without marked text, over all sub-keys.
    """
    if len(tokens.ids) < SHORTEST:
        return []
    level = fpr / key.spec.subkeys
    searches: dict[int, Search] = {}
    found = []
    for subkey in _ranked(key, tokens):
        searches[subkey] = Search(key.subkey(subkey).tables, tokens.ids, tokens.positions)
        stretches = searches[subkey].stretches(level)
        if not stretches:
            break
        found += [(subkey, stretch) for stretch in stretches]
    found.sort(key=lambda one: one[1].p_value)
    kept = sorted(_disjoint(found, searches, level, len(tokens.ids)), key=lambda one: one[1].first)
    return [(subkey, replace(s, p_value=bonferroni_p(s.p_value, key.spec.subkeys))) for subkey, s in kept]


def _ranked(key: WatermarkKey, tokens: ScoredIds) -> list[int]:
    """The sub-keys with the best stretches, the best first."""
    model = Alignment.of(tokens.ids, tokens.positions, key.subkey(0).tables)
    grids = grids_of(len(tokens.ids))
    best = best_of(parts_of([key], model.distinct), lambda part: _best_stretches(model, grids, part), _SEARCHED)
    return [int(number) for number in best.numbers]


def _best_stretches(model: Alignment, grids: list[Grid], part: Part) -> Float[np.ndarray, " count"]:
    """The statistic of the best stretch under each sub-key."""
    at_once = max(1, _AT_ONCE // model.wanted.size)
    best = []
    for begin in range(0, len(part.numbers), 1 if part.codes is not None else at_once):
        own = model if part.codes is None else replace(model, wanted=part.codes[begin][model.places])
        groups = part.groups[:, begin : begin + (1 if part.codes is not None else at_once)]
        best.append(scan(own, grids, groups).max(axis=0))
    return np.concatenate(best)


def _disjoint(
    found: list[tuple[int, Stretch]], searches: dict[int, Search], level: float, n: int
) -> Iterator[tuple[int, Stretch]]:
    """The stretches, each cut back to its longest part that is in none before it; a part that fails is left out."""
    free: Bool[np.ndarray, " n"] = np.ones(n, dtype=bool)
    for subkey, stretch in found:
        edges: Int[np.ndarray, " edges"] = np.flatnonzero(
            np.diff(free[stretch.first : stretch.last], prepend=False, append=False)
        )
        parts = (edges + stretch.first).reshape(-1, 2).tolist()
        first, last = max(parts, key=lambda part: part[1] - part[0], default=(0, 0))
        whole = (first, last) == (stretch.first, stretch.last)
        kept = stretch if whole else searches[subkey].part(first, last, level)
        if kept:
            free[first:last] = False
            yield subkey, kept
