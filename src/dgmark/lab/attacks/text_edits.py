"""Random edits of a text, counted in tokens or words: substitution, deletion, insertion, crop, copy-paste, swaps.

Every budget eps of a text of n units is round(eps * n) edits, halves up. Counted in tokens, the text is encoded,
edited and decoded: the edits are exact in ids, and the tokenizer may read the new text otherwise.
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
from dgmark.lab.attacks import edits
from dgmark.lab.attacks.edits import check_share
from dgmark.lab.attacks.units import (
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
from dgmark.rows.texts import Item, read_texts

Dice = np.random.Generator
Unit = TypeVar("Unit")


@dataclass(frozen=True)
class _PoolEdit:
    """What substitution and insertion take: a budget, and the pool that new units are drawn from."""

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
        budget: share of the units that is replaced, exactly round(budget * n), each by a different one.
        unit: "token", or "word": what stands between spaces, its punctuation kept.
        source: where replacements come from: "vocabulary" (uniform over the ordinary tokens; of words, over the tokens
            that are whole words), "text" (units of this text, as often as they stand there), or "words" (a list).
        words: of source "words", a file with one word a line.
        tokenizer: whose tokens; a model's name, folder or hub id.
    """

    def __call__(self, text: str, rng: Dice) -> str:
        """The edited text."""
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
    """Leave a share of the tokens or words out.

    Attributes:
        budget: share of the units that goes, exactly round(budget * n).
        unit: "token" or "word" (with its punctuation and the space behind it).
        tokenizer: whose tokens.
    """

    budget: float = 0.1
    unit: str = "token"
    tokenizer: str | Tokenizer = BUILTIN

    def __post_init__(self) -> None:
        check_share("budget", self.budget)
        check_units(self.unit)

    def __call__(self, text: str, rng: Dice) -> str:
        """The edited text."""
        if self.unit == "token":
            tokenizer = tokenizer_of(self.tokenizer)
            ids = tokenizer.encode(text)
            kept = edits.delete(ids, self.budget, rng)
            return decode(tokenizer, kept) if len(kept) < len(ids) else text
        lead, words = words_of(text)
        return join_words(lead, edits.delete(words, self.budget, rng))


@dataclass(frozen=True)
class Insertion(_PoolEdit):
    """Put random tokens or words before a share of the tokens or words.

    Attributes:
        budget: number of insertions as a share of the units, exactly round(budget * n), at most one before each.
        unit: "token" or "word".
        source: as in substitution.
        words: of source "words", a file with one word a line.
        tokenizer: whose tokens.
    """

    def __call__(self, text: str, rng: Dice) -> str:
        """The edited text."""
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
        front: share of the units that is cut off the front, exactly round(front * n).
        back: the same of the back.
        unit: "token" or "word".
        tokenizer: whose tokens.
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

    def __call__(self, text: str, rng: Dice) -> str:  # noqa: ARG002 (every attack is called alike)
        """What is left of the text."""
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
        share: of the result that comes from the text: round(share * n) units of n.
        hosts: human texts: a text file, a folder, or JSON Lines with "text"; one of those long enough is drawn and
            cut to n units.
        length: n, the units of the result; None for as many as the text has.
        unit: "token" or "word".
        tokenizer: whose tokens.
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
                'copy-paste needs human text: hosts=FILE (text, or JSON Lines with "text"), or a folder'
            )
        if self.length is not None and self.length < 1:
            raise SettingsError(f"length {self.length} is not at least 1")

    def __call__(self, text: str, rng: Dice) -> str:
        """The human text with a part of the text in it."""
        hosts = host_texts(self.hosts)
        if self.unit == "token":
            tokenizer = tokenizer_of(self.tokenizer)
            ids = tokenizer.encode(text)
            host = _drawn(hosts, tokenizer.encode, self.length or len(ids), rng)
            return decode(tokenizer, edits.paste(ids, host, self.share, rng))
        _, words = words_of(text)
        host_words = _drawn(hosts, lambda host: words_of(host)[1], self.length or len(words), rng)
        return join_words("", edits.paste(words, host_words, self.share, rng))


def _drawn(hosts: Sequence[str], split: Callable[[str], list[Unit]], length: int, rng: Dice) -> list[Unit]:
    """The first `length` units of a random host that has as many."""
    for index in rng.permutation(len(hosts)).tolist():
        if len(units := split(hosts[index])) >= length:
            return units[:length]
    raise InputError(f"no host text has {length} units: give longer ones, or a smaller length")


@lru_cache(maxsize=2)
def host_texts(path: str) -> tuple[str, ...]:
    """The human texts of a file or folder.

    Raises:
        NoTexts: there are none.
    """
    texts = tuple(item.content for item in read_texts(path) if isinstance(item, Item) and isinstance(item.content, str))
    if not texts:
        raise NoTexts(f"{path} holds no text to paste into")
    return texts


@dataclass(frozen=True)
class SentenceSwap:
    """Swap two neighbouring sentences, several times; the space between sentences stays where it is.

    Attributes:
        swaps: how many times.
        ends: the characters that end a sentence, where a quotation mark or bracket and a space, or the end, follow.
    """

    swaps: int = 4
    ends: str = ".!?"

    def __post_init__(self) -> None:
        if self.swaps < 0 or not self.ends:
            raise SettingsError("sentence-swap takes swaps of at least 0 and the characters that end a sentence")

    def __call__(self, text: str, rng: Dice) -> str:
        """The text with its sentences in another order."""
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
