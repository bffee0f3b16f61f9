"""Synonym substitution: words replaced by others of the same WordNet synset, read through nltk."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from dgmark.errors import MissingExtra
from dgmark_lab.attacks.edits import check_share, edit_count
from dgmark_lab.attacks.units import join_words, with_cores, words_of


@dataclass(frozen=True)
class Synonyms:
    """Replace a share of the words by WordNet synonyms.

    Attributes:
        budget: share of all words to replace, exactly round(budget * n); if fewer have a synonym, all of those.
    """

    budget: float = 0.1

    def __post_init__(self) -> None:
        check_share("budget", self.budget)
        wordnet()

    def __call__(self, text: str, rng: np.random.Generator) -> str:
        """Return the text with synonyms in it."""
        lead, words = words_of(text)
        cores = [word.core for word in words]
        left = edit_count(len(cores), self.budget)
        for place in rng.permutation(len(cores)).tolist():
            if not left:
                break
            if found := synonyms_of(cores[place]):
                cores[place] = found[int(rng.integers(len(found)))]
                left -= 1
        return join_words(lead, with_cores(words, cores))


@lru_cache(maxsize=1)
def wordnet() -> Any:
    """Return nltk's reader of WordNet.

    Raises:
        MissingExtra: nltk, or its WordNet data, is not installed.
    """
    try:
        from nltk.corpus import wordnet as reader
    except ModuleNotFoundError as error:
        raise MissingExtra(
            "synonyms come from WordNet through nltk: run `pip install ./lab` in a checkout of dgmark"
        ) from error
    try:
        reader.ensure_loaded()
    except LookupError as error:
        raise MissingExtra(
            "nltk has no WordNet data here: run `python -m nltk.downloader wordnet` on a machine with network access, "
            "and copy its nltk_data folder to where NLTK_DATA points"
        ) from error
    return reader


@lru_cache(maxsize=2**16)
def synonyms_of(word: str) -> tuple[str, ...]:
    """Return the one-word lemmas that share a synset with `word`, in its case, sorted; () if there are none."""
    found = {lemma.name() for synset in wordnet().synsets(word.lower()) for lemma in synset.lemmas()}
    alike = sorted(name for name in found if name.isalpha() and name.lower() != word.lower())
    return tuple(name.capitalize() if word[:1].isupper() else name for name in alike)
