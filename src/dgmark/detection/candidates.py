"""The sub-keys that a scan ranks, with their groups of a text's tokens.

Whatever is ranked, each sub-key keeps its share of the rate, so this decides what is found, and never whether a p-value
is valid. Knows tokens and positions only. Ours.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Int

from dgmark.detection.ranking import Part
from dgmark.watermark.key import WatermarkKey


def parts_of(keys: Sequence[WatermarkKey], distinct: Int[np.ndarray, "rows 2"]) -> Iterator[Part]:
    """All sub-keys of keys of one spec, numbered through, with their groups of tokens.

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
