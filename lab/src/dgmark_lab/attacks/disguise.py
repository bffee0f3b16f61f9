"""Disguises: changes that leave a text looking the same but alter its tokens. `dgmark detect --normalise` undoes them.

Budgets are exact: round(eps * n), halves up, of the n places that a disguise can change.
"""

import re
from collections.abc import Callable, Container

import numpy as np
from pydantic.dataclasses import dataclass

from dgmark_lab.attacks.edits import Share, places

Dice = np.random.Generator

# Latin letters and the Cyrillic ones that look like them in most fonts
_LATIN = "aceijopsxyhABCEHIKMOPSTXY"
_CYRILLIC = "асеіјорѕхуһАВСЕНІКМОРЅТХУ"
HOMOGLYPHS = dict(zip(_LATIN, _CYRILLIC, strict=True))
# spaces that look like one plain space, and characters that are invisible
SPACES = "\u00a0\u2004\u2005\u202f\u205f"
ZERO_WIDTH = "\u200b\u200c\u200d\u2060\ufeff"

_INSIDE_WORD = re.compile(r"(?<=[^\W\d_])(?=[^\W\d_])")


def _replace(text: str, targets: Container[str], budget: float, rng: Dice, other: Callable[[str], str]) -> str:
    """Replace a share of the text's `targets` by what `other` returns for each."""
    characters = list(text)
    candidates = [place for place, character in enumerate(characters) if character in targets]
    for number in places(len(candidates), budget, rng):
        characters[candidates[number]] = other(characters[candidates[number]])
    return "".join(characters)


@dataclass(frozen=True)
class Homoglyphs:
    """Replace a share of the letters that have a Cyrillic look-alike by the look-alike.

    Attributes:
        budget: share of these letters to replace, exactly round(budget * n).
    """

    budget: Share = 0.1

    def __call__(self, text: str, rng: Dice) -> str:
        """Return the disguised text."""
        return _replace(text, HOMOGLYPHS, self.budget, rng, HOMOGLYPHS.__getitem__)


@dataclass(frozen=True)
class Whitespace:
    """Replace a share of the plain spaces by other Unicode spaces.

    Attributes:
        budget: share of the spaces to replace, exactly round(budget * n).
    """

    budget: Share = 0.1

    def __call__(self, text: str, rng: Dice) -> str:
        """Return the disguised text."""
        return _replace(text, " ", self.budget, rng, lambda _: SPACES[int(rng.integers(len(SPACES)))])


@dataclass(frozen=True)
class ZeroWidth:
    """Insert invisible characters between a share of the neighbouring letters of words.

    Attributes:
        budget: share of the places between two letters to fill, exactly round(budget * n).
    """

    budget: Share = 0.1

    def __call__(self, text: str, rng: Dice) -> str:
        """Return the disguised text."""
        between = [match.start() for match in _INSIDE_WORD.finditer(text)]
        pieces, start = [], 0
        for place in places(len(between), self.budget, rng):
            pieces += [text[start : between[place]], ZERO_WIDTH[int(rng.integers(len(ZERO_WIDTH)))]]
            start = between[place]
        return "".join([*pieces, text[start:]])
