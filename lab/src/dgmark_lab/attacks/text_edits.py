"""Random edits of a text, counted in tokens or words: substitution, deletion, insertion, crop, copy-paste, swaps.

If the units are tokens, the text is encoded, edited and decoded: the edits are exact in ids, though the tokenizer may
split the new text differently.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import lru_cache
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from dgmark.arguments.contents import text_of
from dgmark.checkpoint.folder import BUILTIN
from dgmark.checkpoint.tokenizer import Tokenizer, load_tokenizer
from dgmark.errors import InputError, NoTexts, SettingsError
from dgmark.rows.sources import read_texts
from dgmark_lab.attacks.budgets import Share, edit_count, places

Dice = np.random.Generator
ARBITRARY = ConfigDict(arbitrary_types_allowed=True)

# punctuation, letters, punctuation, space; a run without any letter counts as letters
_WORD = re.compile(r"([^\w\s]*(?=\w)|)(\S*\w|\S+)([^\w\s]*)(\s*)")
_WHOLE_WORD = re.compile(r"\s[^\W\d_]{2,}")
_SENTENCE_END = re.compile(r"""(?:(?<=[.!?])|(?<=[.!?]["'”’)\]]))(\s+)""")


# --- units ---


class Word(NamedTuple):
    """A run of characters between spaces: its letters, the punctuation around them, and the space after it."""

    before: str
    core: str
    after: str
    space: str

    def __str__(self) -> str:
        return "".join(self)


def words_of(text: str) -> tuple[str, list[Word]]:
    """Split a text into its leading space and its words; joined, they are the text."""
    lead = text[: len(text) - len(text.lstrip())]
    return lead, [Word(*match.groups()) for match in _WORD.finditer(text)]


def decode(tokenizer: Tokenizer, ids: Sequence[int]) -> str:
    """Decode ids to text; unlike in a model's output, special tokens are kept."""
    return str(tokenizer.backend.decode(list(ids), skip_special_tokens=False))


_load_once = lru_cache(maxsize=4)(load_tokenizer)


@lru_cache(maxsize=4)
def ordinary_ids(tokenizer: Tokenizer) -> np.ndarray:
    """Return the ids of a vocabulary's tokens that are not special."""
    known = set(tokenizer.backend.get_vocab(with_added_tokens=True).values())
    return np.array(sorted(known - tokenizer.special_ids))


@lru_cache(maxsize=4)
def _vocabulary_words(tokenizer: Tokenizer) -> tuple[str, ...]:
    """Return the tokens of a vocabulary that are a space and at least two letters, without the space."""
    ids = ordinary_ids(tokenizer).tolist()
    anchor = tokenizer.encode("a")  # some tokenizers drop a space at the start of a text
    start = len(decode(tokenizer, anchor))
    texts = (decode(tokenizer, [*anchor, token])[start:] for token in ids)
    return tuple(text[1:] for text in texts if _WHOLE_WORD.fullmatch(text))


@lru_cache(maxsize=2)
def _texts_of(path: str) -> tuple[str, ...]:
    """Read the texts of a file or folder.

    Raises:
        NoTexts: the file or folder holds no text.
    """
    texts = tuple(item.content for item in read_texts(path) if isinstance(item.content, str))
    if not texts:
        raise NoTexts(f"{path} holds no text")
    return texts


# --- edits of tokens or words ---


@dataclass(frozen=True, config=ARBITRARY)
class _Edit(ABC):
    """An edit of the tokens or words of a text.

    Attributes:
        unit: "token", or "word" (the characters between spaces, with the space after them).
        tokenizer: the tokenizer that defines tokens: loaded, or by a model's name, folder or hub id.
    """

    unit: Literal["token", "word"] = "token"
    tokenizer: str | Tokenizer = BUILTIN

    def __call__(self, text: str, rng: Dice) -> str:
        """Return the edited text."""
        text = text_of(text)
        if self.unit == "word":
            lead, words = words_of(text)
            return lead + "".join(map(str, self.edit(words, rng)))
        ids = self.loaded.encode(text)
        edited = self.edit(ids, rng)
        return decode(self.loaded, edited) if edited != ids else text

    @property
    def loaded(self) -> Tokenizer:
        """The tokenizer that defines tokens."""
        return _load_once(self.tokenizer) if isinstance(self.tokenizer, str) else self.tokenizer

    @abstractmethod
    def edit(self, units: list[Any], rng: Dice) -> list[Any]:
        """Return other units: ids, or words."""


@dataclass(frozen=True, config=ARBITRARY)
class _PoolEdit(_Edit):
    """An edit that puts new units into a text.

    Attributes:
        budget: number of new units as a share of the text's, exactly round(budget * n).
    """

    budget: Share = 0.1

    def pool(self) -> Sequence[Any]:
        """Return what to draw from: the vocabulary's ordinary tokens, or those that are whole words.

        Raises:
            InputError: the vocabulary has no two of them.
        """
        pool = ordinary_ids(self.loaded).tolist() if self.unit == "token" else _vocabulary_words(self.loaded)
        if len(pool) < 2:
            raise InputError(f"the vocabulary of {self.loaded.name} holds no {self.unit}s: give another tokenizer")
        return pool


@dataclass(frozen=True, config=ARBITRARY)
class Substitution(_PoolEdit):
    """Replace a share of the tokens or words by random others; the punctuation of words is kept."""

    def edit(self, units: list[Any], rng: Dice) -> list[Any]:
        """Replace units, each by a different one."""
        edited, pool = list(units), self.pool()
        for place in places(len(units), self.budget, rng):
            old = units[place]
            if self.unit == "token":
                edited[place] = _draw_other(pool, old, rng)
            else:
                edited[place] = old._replace(core=_draw_other(pool, old.core, rng))
        return edited


@dataclass(frozen=True, config=ARBITRARY)
class Insertion(_PoolEdit):
    """Insert random tokens or words before a share of the tokens or words."""

    def edit(self, units: list[Any], rng: Dice) -> list[Any]:
        """Insert units, at most one before each; a word with a space."""
        chosen = set(places(len(units), self.budget, rng))
        pool, edited = self.pool(), []
        for place, unit in enumerate(units):
            if place in chosen:
                drawn = pool[int(rng.integers(len(pool)))]
                edited.append(drawn if self.unit == "token" else Word("", drawn, "", " "))
            edited.append(unit)
        return edited


@dataclass(frozen=True, config=ARBITRARY)
class Deletion(_Edit):
    """Delete a share of the tokens or words.

    Attributes:
        budget: share of the units to delete, exactly round(budget * n).
    """

    budget: Share = 0.1

    def edit(self, units: list[Any], rng: Dice) -> list[Any]:
        """Delete units."""
        chosen = set(places(len(units), self.budget, rng))
        return [unit for place, unit in enumerate(units) if place not in chosen]


@dataclass(frozen=True, config=ARBITRARY)
class Reorder(_Edit):
    """Cut a text into pieces of 3 to 8 tokens or words, and put them in a random order."""

    def edit(self, units: list[Any], rng: Dice) -> list[Any]:
        """Put the pieces in another order."""
        ends = rng.integers(3, 9, len(units)).cumsum()
        pieces = np.split(np.arange(len(units)), ends[ends < len(units)])
        return [units[place] for piece in rng.permutation(len(pieces)) for place in pieces[piece].tolist()]


@dataclass(frozen=True, config=ARBITRARY)
class Crop(_Edit):
    """Cut off the front, the back, or both.

    Attributes:
        front: share of the units to cut off the front, exactly round(front * n).
        back: share of the units to cut off the back, likewise.
    """

    front: Share = 0.25
    back: Share = 0.0

    def __post_init__(self) -> None:
        if self.front + self.back > 1:
            raise SettingsError(f"front and back together, {self.front + self.back}, are more than 1")

    def edit(self, units: list[Any], rng: Dice) -> list[Any]:  # noqa: ARG002 (every edit has this signature)
        """Keep the rest."""
        stop = len(units) - edit_count(len(units), self.back)
        return units[edit_count(len(units), self.front) : stop]


@dataclass(frozen=True, config=ARBITRARY)
class CopyPaste(_Edit):
    """Paste the whole text into human text.

    Attributes:
        human: units of human text for each unit of the text: round(human * n) units, of hosts in a random order.
        hosts: human texts: a text file, a folder, or JSON Lines with "text"; together long enough.
    """

    human: Annotated[float, Field(ge=0)] = 3.0
    hosts: str = ""

    def __post_init__(self) -> None:
        if not self.hosts:
            raise SettingsError(
                'copy-paste needs human text: give hosts=FILE (text, or JSON Lines with "text"), or a folder'
            )

    def edit(self, units: list[Any], rng: Dice) -> list[Any]:
        """Put the units at a random place of as much human text as is asked for."""
        hosts, wanted, host = _texts_of(self.hosts), edit_count(len(units), self.human), list[Any]()
        for index in rng.permutation(len(hosts)).tolist():
            if len(host) < wanted:
                added = hosts[index].rstrip() + "\n"
                host += self.loaded.encode(added) if self.unit == "token" else words_of(added)[1]
        if len(host) < wanted:
            raise InputError(f"the hosts have {len(host)} units together, and {wanted} are asked for: give more text")
        at = int(rng.integers(wanted + 1))
        return [*host[:at], *units, *host[at:wanted]]


def _draw_other(pool: Sequence[Any], old: Any, rng: Dice) -> Any:
    """Draw a member of `pool` that is not `old`, so that every edit changes something."""
    drawn = old
    while drawn == old:
        drawn = pool[int(rng.integers(len(pool)))]
    return drawn


# --- edits of sentences ---


@dataclass(frozen=True)
class SentenceSwap:
    """Swap two neighbouring sentences, several times; the space between sentences stays in place.

    Attributes:
        swaps: how many times.
    """

    swaps: Annotated[int, Field(ge=0)] = 4

    def __call__(self, text: str, rng: Dice) -> str:
        """Return the text with its sentences in another order."""
        text = text_of(text)
        # sentences and, between them, spaces in turns; a text that ends in a space has an empty last sentence
        parts = _SENTENCE_END.split(text)
        sentences = slice(0, len(parts) - (not parts[-1]), 2)
        order = parts[sentences]
        for _ in range(self.swaps if len(order) > 1 else 0):
            at = int(rng.integers(len(order) - 1))
            order[at], order[at + 1] = order[at + 1], order[at]
        parts[sentences] = order
        return "".join(parts)
