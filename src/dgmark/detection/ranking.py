"""Which of many candidates a text is likeliest marked with: keys of a keyring, or sub-keys of a key.

Two looks: the block statistic ranks all candidates in one pass, and the bets' statistic ranks the few best. A candidate
that is tested afterwards pays for all of them, so they may be ranked in any way. Knows the alignment model, groups and
position codes only. Ours.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Int, UInt8

from dgmark.detection.alignment import Alignment
from dgmark.detection.bets import Bets
from dgmark.detection.blocks import block_statistics
from dgmark.detection.result import Mode

# residues in memory at once, which limits how many position codes are scored in one pass
_RESIDUES_AT_ONCE = 2**22


@dataclass(frozen=True)
class Part:
    """Some of the candidates, all of one spec.

    Attributes:
        numbers: the candidates' numbers.
        groups: each candidate's group of each row of the alignment's `distinct`.
        codes: each candidate's position code; None if they all have the paper's.
    """

    numbers: Int[np.ndarray, " count"]
    groups: UInt8[np.ndarray, "rows count"]
    codes: UInt8[np.ndarray, "count period"] | None = None

    def __getitem__(self, places: Int[np.ndarray, " some"]) -> "Part":
        codes = None if self.codes is None else self.codes[places]
        return Part(self.numbers[places], self.groups[:, places], codes)

    def joined(self, other: "Part") -> "Part":
        """These candidates and those of another part."""
        codes = None
        if self.codes is not None and other.codes is not None:
            codes = np.concatenate([self.codes, other.codes])
        groups = np.concatenate([self.groups, other.groups], axis=1)
        return Part(np.concatenate([self.numbers, other.numbers]), groups, codes)


def best_of(parts: Iterable[Part], statistics: Callable[[Part], Float[np.ndarray, " count"]], few: int) -> Part:
    """The few candidates with the largest statistics, the best first; of equals the first."""
    best: Part | None = None
    values: Float[np.ndarray, " few"] = np.empty(0)
    for part in parts:
        both = part if best is None else best.joined(part)
        values = np.concatenate([values, statistics(part)])
        order = np.argsort(-values, kind="stable")[:few]
        best, values = both[order], values[order]
    if best is None:
        raise ValueError("there are no candidates")
    return best


def rank_aligned(model: Alignment, parts: Iterable[Part], few: int, *, intact: bool = True) -> Part:
    """The few candidates that a text aligns with best, the best first: all ranked by blocks, the few by bets.

    Args:
        model: the alignment of the text; its residues are replaced where the candidates have codes.
        parts: all candidates.
        few: how many of them are ranked by bets.
        intact: whether the bettor also bets on text that nobody edited.
    """
    best = best_of(parts, lambda part: _by_blocks(model, part), few)
    statistics = [Bets(own, intact).play(groups).statistics for own, groups in _games(model, best)]
    return best[np.argsort(-np.concatenate(statistics), kind="stable")]


def log_winnings(model: Alignment, part: Part, mode: Mode) -> Float[np.ndarray, " count"]:
    """Logarithm of a bettor's winnings on each candidate; their mean over random groups is 1.

    Args:
        model: the alignment of the text.
        part: the candidates.
        mode: what she bets on: "intact" is text that nobody edited.
    """
    bets = [(Bets(own, mode != "edited"), groups) for own, groups in _games(model, part)]
    if mode == "intact":
        return np.concatenate([each.log_intact(groups) for each, groups in bets])
    return np.concatenate([each.play(groups).log_winnings - np.log(sum(each.stakes)) for each, groups in bets])


def _games(model: Alignment, part: Part) -> Iterator[tuple[Alignment, UInt8[np.ndarray, "rows some"]]]:
    """The candidates that share a position code, as one game each: the alignment, and the groups."""
    if part.codes is None:
        yield model, part.groups
        return
    for place, code in enumerate(part.codes):
        yield replace(model, wanted=code[model.places]), part.groups[:, place : place + 1]


def _by_blocks(model: Alignment, part: Part) -> Float[np.ndarray, " count"]:
    if part.codes is None:
        return block_statistics(model, part.groups)
    at_once = max(1, _RESIDUES_AT_ONCE // model.wanted.size)
    return np.concatenate(
        [
            block_statistics(model, part.groups[:, some], np.moveaxis(part.codes[some][:, model.places], 0, 2))
            for some in (slice(begin, begin + at_once) for begin in range(0, len(part.numbers), at_once))
        ]
    )
