"""Disguises: what leaves a text looking the same and changes its tokens. `dgmark detect --normalise` undoes them.

Budgets are exact: round(eps * n), halves up, of the n places that a disguise can touch.
"""

import re
from collections.abc import Callable, Container
from dataclasses import dataclass

import numpy as np

from dgmark.lab.attacks.edits import check_share, places

Dice = np.random.Generator

# Latin letters and the Cyrillic ones that look like them in most fonts
_LATIN = "aceijopsxyhABCEHIKMOPSTXY"
_CYRILLIC = "асеіјорѕхуһАВСЕНІКМОРЅТХУ"
HOMOGLYPHS = dict(zip(_LATIN, _CYRILLIC, strict=True))
# spaces that show as one plain space, and characters that show as nothing
SPACES = "\u00a0\u2004\u2005\u202f\u205f"
ZERO_WIDTH = "\u200b\u200c\u200d\u2060\ufeff"

_INSIDE_WORD = re.compile(r"(?<=[^\W\d_])(?=[^\W\d_])")


def _exchanged(text: str, among: Container[str], budget: float, rng: Dice, other: Callable[[str], str]) -> str:
    """The text with `other` in place of a share of the characters that are `among`."""
    characters = list(text)
    open_to = [place for place, character in enumerate(characters) if character in among]
    for place in places(len(open_to), budget, rng):
        characters[open_to[place]] = other(characters[open_to[place]])
    return "".join(characters)


@dataclass(frozen=True)
class _Disguise:
    """What all disguises take: a budget."""

    budget: float = 0.1

    def __post_init__(self) -> None:
        check_share("budget", self.budget)


@dataclass(frozen=True)
class Homoglyphs(_Disguise):
    """Replace a share of the letters that have a Cyrillic look-alike by it.

    Attributes:
        budget: share of these letters, exactly round(budget * n).
    """

    def __call__(self, text: str, rng: Dice) -> str:
        """The text in disguise."""
        return _exchanged(text, HOMOGLYPHS, self.budget, rng, HOMOGLYPHS.__getitem__)


@dataclass(frozen=True)
class Whitespace(_Disguise):
    """Replace a share of the plain spaces by other spaces of Unicode.

    Attributes:
        budget: share of the spaces, exactly round(budget * n).
    """

    def __call__(self, text: str, rng: Dice) -> str:
        """The text in disguise."""
        return _exchanged(text, " ", self.budget, rng, lambda _: SPACES[int(rng.integers(len(SPACES)))])


@dataclass(frozen=True)
class ZeroWidth(_Disguise):
    """Put characters that show as nothing between a share of the neighbouring letters of words.

    Attributes:
        budget: share of the places between two letters, exactly round(budget * n).
    """

    def __call__(self, text: str, rng: Dice) -> str:
        """The text in disguise."""
        between = [match.start() for match in _INSIDE_WORD.finditer(text)]
        pieces, start = [], 0
        for place in places(len(between), self.budget, rng):
            pieces += [text[start : between[place]], ZERO_WIDTH[int(rng.integers(len(ZERO_WIDTH)))]]
            start = between[place]
        return "".join([*pieces, text[start:]])
