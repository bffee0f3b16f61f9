"""The sub-keys that a scan ranks, with their groups of a text's tokens: all of them, or the best pairs.

Where sub-keys are pairs of numbers (`watermark/pairs.py`), the numbers of each class of tokens are ranked by the tokens
of this class alone, and the best of both classes make the pairs. Whatever is ranked, each sub-key keeps its share of
the rate, so this decides what is found, and never whether a p-value is true. Knows tokens and positions only. Ours.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
from jaxtyping import Int, UInt8

from dgmark.detection.ranking import Part
from dgmark.watermark.key import WatermarkKey
from dgmark.watermark.pairs import PairedSubkeys
from dgmark.watermark.subkeys import Subkeys

# numbers of each class that are paired
PAIRED = 64

# ranks the numbers of one class by the ids and positions of its tokens: the best few, the best first
Ranking = Callable[[Int[np.ndarray, " some"], Int[np.ndarray, " some"], Iterable[Part]], Part]


def parts_of(keys: Sequence[WatermarkKey], distinct: Int[np.ndarray, "rows 2"]) -> Iterator[Part]:
    """All sub-keys of keys of one spec, numbered through, with their groups of tokens; sub-keys are no pairs.

    Args:
        keys: the keys.
        distinct: the tokens' ids and segments.
    """
    spec = keys[0].spec
    segments = np.unique(distinct[:, 1]).tolist()
    rows = [np.flatnonzero(distinct[:, 1] == segment) for segment in segments]
    for place, key in enumerate(keys):
        streams = (
            key.subkeys.stretches(distinct[of, 0], of_segment) for of, of_segment in zip(rows, segments, strict=True)
        )
        for pieces in zip(*streams, strict=True):
            first, count = pieces[0][0], pieces[0][1].shape[1]
            groups = pieces[0][1]
            if len(segments) > 1:
                groups = np.empty((len(distinct), count), dtype=np.uint8)
                for of, (_, piece) in zip(rows, pieces, strict=True):
                    groups[of] = piece
            codes = key.subkeys.codes[first : first + count] if spec.code_length else None
            yield Part(place * spec.subkeys + first + np.arange(count), groups, codes)


def best_pairs(
    key: WatermarkKey,
    ids: Int[np.ndarray, " n"],
    positions: Int[np.ndarray, " n"],
    ranking: Ranking,
) -> Int[np.ndarray, " pairs"]:
    """The sub-keys of a key whose sub-keys are pairs, made of the best numbers of each class.

    Args:
        key: the key.
        ids: scored token ids.
        positions: their positions.
        ranking: ranks the numbers of one class; at least as many as are paired are given back.
    """
    subkeys = paired_subkeys(key)
    best = [np.zeros(1, dtype=np.int64)] * 2
    for of_class, at in enumerate(subkeys.places(ids)):
        if len(at):
            stretches = subkeys.single.stretches(np.unique(ids[at]))
            parts = (Part(first + np.arange(groups.shape[1]), groups) for first, groups in stretches)
            best[of_class] = ranking(ids[at], positions[at], parts).numbers[:PAIRED]
    pairs: Int[np.ndarray, " pairs"] = (best[0][:, None] + subkeys.numbers * best[1]).ravel()
    return pairs


def pairs_part(key: WatermarkKey, numbers: Int[np.ndarray, " pairs"], distinct: Int[np.ndarray, "rows 2"]) -> Part:
    """Some sub-keys of a key whose sub-keys are pairs, with their groups of tokens.

    Args:
        key: the key.
        numbers: the sub-keys.
        distinct: the tokens' ids and segments.
    """
    subkeys = paired_subkeys(key)
    groups = np.empty((len(distinct), len(numbers)), dtype=np.uint8)
    for rows, half in zip(subkeys.places(distinct[:, 0]), subkeys.halves(numbers), strict=True):
        groups[rows] = columns_of(subkeys.single, distinct[rows, 0], half)
    return Part(numbers, groups)


def columns_of(
    single: Subkeys, ids: Int[np.ndarray, " rows"], numbers: Int[np.ndarray, " some"]
) -> UInt8[np.ndarray, "rows some"]:
    """The groups of distinct tokens under some numbers, which may repeat."""
    wanted, place = np.unique(numbers, return_inverse=True)
    columns = np.empty((len(ids), len(wanted)), dtype=np.uint8)
    for first, groups in single.stretches(ids):
        here = (first <= wanted) & (wanted < first + groups.shape[1])
        columns[:, here] = groups[:, wanted[here] - first]
    return columns[:, place]


def paired_subkeys(key: WatermarkKey) -> PairedSubkeys:
    """The sub-keys of a key whose sub-keys are pairs."""
    subkeys = key.subkeys
    assert isinstance(subkeys, PairedSubkeys)
    return subkeys
