"""What a deployed key finds in traffic that nobody marked: the shares of small p-values, and texts of one template.

The level of a test holds over random keys for each text. Texts of one template share their pairs, and so their luck
under one key: the shares under a deployed key are not those over keys. Knows no command.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from dgmark.arguments.contents import Content
from dgmark.detection.detector import Detector
from dgmark.detection.statistics.match_null import MatchNull

LEVELS = (0.1, 0.01, 1e-3, 1e-4)
# the level at which the texts of a template are counted, and the chance at most that one stands out by luck
TEMPLATE_LEVEL = 0.1
_LUCK = 0.01
# Two texts are of one template if they share this much of their samples of pairs; a sample holds so many.
_SHARED = 0.5
_SAMPLE = 64
_FEWEST = 3
_Z = 1.959964  # of an interval of 95 %


class LevelShare(NamedTuple):
    """How many texts have a p-value of at most a level, their share, and the ends of its 95 % interval (Wilson).

    The interval takes the texts as independent.
    """

    level: float
    texts: int
    share: float
    low: float
    high: float


class Template(NamedTuple):
    """Texts that share most of their pairs and stand out under this key.

    Their ids, how many of them have p-values of at most `TEMPLATE_LEVEL`, and the smallest of their p-values.
    """

    ids: tuple[str, ...]
    found: int
    smallest: float


@dataclass(frozen=True)
class KeyCheck:
    """What a key finds in texts that it did not mark.

    Attributes:
        texts: how many were tested.
        shares: for each of `LEVELS` the share of p-values at or below it.
        templates: the groups of texts that stand out, the smallest p-value first.
        caution: what its holder should know of any such key; None for nothing.
    """

    texts: int
    shares: tuple[LevelShare, ...]
    templates: tuple[Template, ...]
    caution: str | None = None

    @property
    def above(self) -> tuple[LevelShare, ...]:
        """The shares that are clearly above their level."""
        return tuple(share for share in self.shares if share.low > share.level)

    @property
    def advice(self) -> str:
        """What follows for the key, in sentences."""
        return self._advice if self.caution is None else f"{self._advice} Of any such key: {self.caution}."

    @property
    def _advice(self) -> str:
        if not self.texts:
            return "No text was tested, so nothing is known of this key."
        if self.above:
            levels = ", ".join(f"{share.level:g}" for share in self.above)
            return (
                f"More of these texts are found than the level allows (at {levels}): draw another key for this traffic "
                "and check it on other texts, or ask for smaller p-values."
            )
        if self.templates:
            return (
                "No share is clearly above its level, but the texts of a template stand out together: draw another "
                "key if this traffic holds many of them."
            )
        fewest = math.ceil(_Z**2 / LEVELS[-1])
        more = f" {self.texts:,} texts say little of levels below {_Z**2 / self.texts:.1g}." * (self.texts < fewest)
        return f"No share is above its level: the key can stay.{more}"


def check_on_texts(detector: Detector, texts: Iterable[tuple[str, Content]]) -> KeyCheck:
    """Test texts that the key did not mark, or their token ids, each with its id, by the deployed key's detector."""
    ids, p_values, samples = list[str](), list[float](), list[frozenset[int]]()
    for name, content in texts:
        ids.append(name)
        p_values.append(detector.detect(content).p_value)
        samples.append(_sample_of(detector.reader.read(content).ids))
    p = np.array(p_values)
    shares = tuple(_share(level, int(np.count_nonzero(p <= level)), len(p)) for level in LEVELS)
    templates = _standing_out(ids, p_values, _groups(samples))
    return KeyCheck(len(p), shares, templates, detector.key.spec.caution)


def _share(level: float, found: int, of: int) -> LevelShare:
    if not of:
        return LevelShare(level, 0, 0.0, 0.0, 1.0)
    share, spread = found / of, _Z**2 / of
    middle = (share + spread / 2) / (1 + spread)
    half = _Z * math.sqrt(share * (1 - share) / of + spread / of / 4) / (1 + spread)
    return LevelShare(level, found, share, max(0.0, middle - half), min(1.0, middle + half))


# --- templates ---


def _sample_of(ids: Int[np.ndarray, " n"]) -> frozenset[int]:
    """Some of the distinct pairs of neighbours of a text: those with the smallest hashes, which similar texts share."""
    words = np.unique(ids[:-1].astype(np.uint64) << np.uint64(32) | ids[1:].astype(np.uint64))
    words ^= words >> np.uint64(31)
    hashes = words * np.uint64(0x9E3779B97F4A7C15)
    return frozenset(np.sort(hashes)[:_SAMPLE].tolist())


def _groups(samples: Sequence[frozenset[int]]) -> list[list[int]]:
    """The groups of texts each of which shares most of its sample with the first of its group."""
    holders, groups = defaultdict[int, list[int]](list), list[list[int]]()
    for text, sample in enumerate(samples):
        shared = defaultdict[int, int](int)
        for pair in sample:
            for group in holders[pair]:
                shared[group] += 1
        best = max(shared, key=lambda group: (shared[group], -group), default=None)
        if best is not None and shared[best] >= _SHARED * len(sample):
            groups[best].append(text)
            continue
        for pair in sample:
            holders[pair].append(len(groups))
        groups.append([text])
    return groups


def _standing_out(ids: Sequence[str], p_values: Sequence[float], groups: list[list[int]]) -> tuple[Template, ...]:
    """The groups of which more texts are at `TEMPLATE_LEVEL` than luck explains, were texts independent."""
    several, chosen = [group for group in groups if len(group) >= _FEWEST], list[Template]()
    for group in several:
        found = sum(p_values[text] <= TEMPLATE_LEVEL for text in group)
        luck = MatchNull.of_distinct(len(group), round(1 / TEMPLATE_LEVEL)).tail(found)
        if luck * len(several) <= _LUCK:
            chosen.append(Template(tuple(ids[text] for text in group), found, min(p_values[text] for text in group)))
    return tuple(sorted(chosen, key=lambda template: (template.smallest, template.ids)))
