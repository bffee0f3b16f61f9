"""Random edits of a text, counted in tokens or words: substitution, deletion, insertion, crop, copy-paste, swaps.

A budget eps of a text of n units is round(eps * n) edits, halves up. If the units are tokens, the text is encoded,
edited and decoded: the edits are exact in ids, though the tokenizer may split the new text differently.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

import numpy as np

from dgmark.checkpoint.folder import BUILTIN
from dgmark.checkpoint.tokenizer import Tokenizer
from dgmark.errors import InputError, NoTexts, SettingsError
from dgmark.rows.texts import Item, read_texts
from dgmark_lab.attacks import edits
from dgmark_lab.attacks.edits import check_share
from dgmark_lab.attacks.units import (
    Word,
    check_units,
    decode,
    join_words,
    token_pool,
    tokenizer_of,
    with_cores,
    word_pool,
    words_of,
)

Dice = np.random.Generator
Unit = TypeVar("Unit")


@dataclass(frozen=True)
class _PoolEdit:
    """The options of substitution and insertion: a budget, and the pool that new units are drawn from."""

    budget: float = 0.1
    unit: str = "token"
    source: str = "vocabulary"
    words: str | None = None
    tokenizer: str | Tokenizer = BUILTIN

    def __post_init__(self) -> None:
        check_share("budget", self.budget)
        check_units(self.unit, self.source, self.words)


@dataclass(frozen=True)
class Substitution(_PoolEdit):
    """Replace a share of the tokens or words by random others.

    Attributes:
        budget: share of the units to replace, exactly round(budget * n), each by a different one.
        unit: "token" or "word" (the characters between spaces; punctuation is kept).
        source: where replacements come from: "vocabulary" (uniform over the ordinary tokens, or for words over the
            tokens that are whole words), "text" (units of this text, as frequent as there), or "words" (a list).
        words: with source "words", a file with one word a line.
        tokenizer: the tokenizer that defines tokens, by a model's name, folder or hub id.
    """

    def __call__(self, text: str, rng: Dice) -> str:
        """Return the edited text."""
        if self.unit == "token":
            tokenizer = tokenizer_of(self.tokenizer)
            ids = tokenizer.encode(text)
            edited = edits.substitute(ids, self.budget, token_pool(self.source, tokenizer, ids), rng)
            return decode(tokenizer, edited) if edited != ids else text
        lead, words = words_of(text)
        pool = word_pool(self.source, self.tokenizer, words, self.words)
        cores = edits.substitute([word.core for word in words], self.budget, pool, rng)
        return join_words(lead, with_cores(words, cores))


@dataclass(frozen=True)
class Deletion:
    """Delete a share of the tokens or words.

    Attributes:
        budget: share of the units to delete, exactly round(budget * n).
        unit: "token" or "word" (with its punctuation and the space after it).
        tokenizer: see `Substitution`.
    """

    budget: float = 0.1
    unit: str = "token"
    tokenizer: str | Tokenizer = BUILTIN

    def __post_init__(self) -> None:
        check_share("budget", self.budget)
        check_units(self.unit)

    def __call__(self, text: str, rng: Dice) -> str:
        """Return the edited text."""
        if self.unit == "token":
            tokenizer = tokenizer_of(self.tokenizer)
            ids = tokenizer.encode(text)
            kept = edits.delete(ids, self.budget, rng)
            return decode(tokenizer, kept) if len(kept) < len(ids) else text
        lead, words = words_of(text)
        return join_words(lead, edits.delete(words, self.budget, rng))


@dataclass(frozen=True)
class Insertion(_PoolEdit):
    """Insert random tokens or words before a share of the tokens or words.

    Attributes:
        budget: number of insertions as a share of the units, exactly round(budget * n), at most one before each.
        unit: "token" or "word".
        source: see `Substitution`.
        words: with source "words", a file with one word a line.
        tokenizer: see `Substitution`.
    """

    def __call__(self, text: str, rng: Dice) -> str:
        """Return the edited text."""
        if self.unit == "token":
            tokenizer = tokenizer_of(self.tokenizer)
            ids = tokenizer.encode(text)
            edited = edits.insert(ids, self.budget, token_pool(self.source, tokenizer, ids), rng)
            return decode(tokenizer, edited) if len(edited) > len(ids) else text
        lead, words = words_of(text)
        pool = word_pool(self.source, self.tokenizer, words, self.words)
        return join_words(lead, edits.insert(words, self.budget, [Word("", core, "", " ") for core in pool], rng))


@dataclass(frozen=True)
class Crop:
    """Cut off the front, the back, or both.

    Attributes:
        front: share of the units to cut off the front, exactly round(front * n).
        back: share of the units to cut off the back, likewise.
        unit: "token" or "word".
        tokenizer: see `Substitution`.
    """

    front: float = 0.25
    back: float = 0.0
    unit: str = "token"
    tokenizer: str | Tokenizer = BUILTIN

    def __post_init__(self) -> None:
        check_share("front", self.front)
        check_share("back", self.back)
        check_share("front and back together", self.front + self.back)
        check_units(self.unit)

    def __call__(self, text: str, rng: Dice) -> str:  # noqa: ARG002 (every attack has this signature)
        """Return the rest of the text."""
        if self.unit == "token":
            tokenizer = tokenizer_of(self.tokenizer)
            ids = tokenizer.encode(text)
            kept = edits.crop(ids, self.front, self.back)
            return decode(tokenizer, kept) if len(kept) < len(ids) else text
        lead, words = words_of(text)
        return join_words(lead, edits.crop(words, self.front, self.back))


@dataclass(frozen=True)
class CopyPaste:
    """Paste a stretch of the text into human text of the same length.

    Attributes:
        share: share of the result that comes from the text: round(share * n) units of n.
        hosts: human texts: a text file, a folder, or JSON Lines with "text"; one that is long enough is drawn and
            cut to n units.
        length: n, the units of the result; None for as many as the text has.
        unit: "token" or "word".
        tokenizer: see `Substitution`.
    """

    share: float = 0.25
    hosts: str = ""
    length: int | None = None
    unit: str = "token"
    tokenizer: str | Tokenizer = BUILTIN

    def __post_init__(self) -> None:
        check_share("share", self.share)
        check_units(self.unit)
        if not self.hosts:
            raise SettingsError(
                'copy-paste needs human text: give hosts=FILE (text, or JSON Lines with "text"), or a folder'
            )
        if self.length is not None and self.length < 1:
            raise SettingsError(f"length {self.length} is not at least 1")

    def __call__(self, text: str, rng: Dice) -> str:
        """Return the human text with a part of the text in it."""
        hosts = host_texts(self.hosts)
        if self.unit == "token":
            tokenizer = tokenizer_of(self.tokenizer)
            ids = tokenizer.encode(text)
            host = _draw_host(hosts, tokenizer.encode, self.length or len(ids), rng)
            return decode(tokenizer, edits.paste(ids, host, self.share, rng))
        _, words = words_of(text)
        host_words = _draw_host(hosts, lambda host: words_of(host)[1], self.length or len(words), rng)
        return join_words("", edits.paste(words, host_words, self.share, rng))


def _draw_host(hosts: Sequence[str], split: Callable[[str], list[Unit]], length: int, rng: Dice) -> list[Unit]:
    """Return the first `length` units of a random host that has that many."""
    for index in rng.permutation(len(hosts)).tolist():
        if len(units := split(hosts[index])) >= length:
            return units[:length]
    raise InputError(f"no host text has {length} units: give longer ones, or a smaller length")


@lru_cache(maxsize=2)
def host_texts(path: str) -> tuple[str, ...]:
    """Read the human texts of a file or folder.

    Raises:
        NoTexts: the file or folder holds no text.
    """
    texts = tuple(item.content for item in read_texts(path) if isinstance(item, Item) and isinstance(item.content, str))
    if not texts:
        raise NoTexts(f"{path} holds no text to paste into")
    return texts


@dataclass(frozen=True)
class SentenceSwap:
    """Swap two neighbouring sentences, several times; the space between sentences stays in place.

    Attributes:
        swaps: how many times.
        ends: the characters that end a sentence, if white space or the end of the text follows (perhaps after a
            quotation mark or bracket).
    """

    swaps: int = 4
    ends: str = ".!?"

    def __post_init__(self) -> None:
        if self.swaps < 0 or not self.ends:
            raise SettingsError("sentence-swap needs swaps of at least 0, and at least one character in ends")

    def __call__(self, text: str, rng: Dice) -> str:
        """Return the text with its sentences in another order."""
        boundary = re.compile(rf"(?<=[{re.escape(self.ends)}])([\"'”’)\]]*)(\s+)")
        sentences, gaps, start = [], [], 0
        for match in boundary.finditer(text):
            sentences.append(text[start : match.end(1)])
            gaps.append(match.group(2))
            start = match.end()
        rest = text[start:]
        if rest:
            sentences.append(rest)
            gaps.append("")
        swapped = edits.swap_neighbours(sentences, self.swaps, rng)
        return "".join(sentence + gap for sentence, gap in zip(swapped, gaps, strict=True))
