"""The units of an edit: a tokenizer's tokens, or words; and the pools that replacements come from."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from dgmark.checkpoint.tokenizer import Tokenizer, load_tokenizer
from dgmark.errors import NoTexts, SettingsError
from dgmark.rows.inputs import LARGEST_LINE, checked_size, open_input
from dgmark.rows.inputs import decode as decode_utf8

UNITS = ("token", "word")
SOURCES = ("vocabulary", "text", "words")

_WORD = re.compile(r"(\S+)(\s*)")
_CORE = re.compile(r"(\W*)(.*?)(\W*)", re.DOTALL)
_WHOLE_WORD = re.compile(r"\s[^\W\d_]{2,}")


@dataclass(frozen=True)
class Word:
    """A run of characters between spaces: its letters, the punctuation around them, and the space after it."""

    before: str
    core: str
    after: str
    space: str

    def __str__(self) -> str:
        return self.before + self.core + self.after + self.space


def words_of(text: str) -> tuple[str, list[Word]]:
    """Split a text into its leading space and its words; joined, they are the text."""
    lead = text[: len(text) - len(text.lstrip())]
    return lead, [_word(*match.groups()) for match in _WORD.finditer(text)]


def _word(run: str, space: str) -> Word:
    match = _CORE.fullmatch(run)
    before, core, after = match.groups() if match else ("", run, "")
    return Word(before, core, after, space) if core else Word("", run, "", space)


def join_words(lead: str, words: Sequence[Word]) -> str:
    """Join words to a text."""
    return lead + "".join(map(str, words))


def with_cores(words: Sequence[Word], cores: Sequence[str]) -> list[Word]:
    """Return the same words with other letters."""
    return [replace(word, core=core) for word, core in zip(words, cores, strict=True)]


def tokenizer_of(tokenizer: str | Tokenizer) -> Tokenizer:
    """Return a tokenizer: load it by name, or pass it through."""
    return _load_once(tokenizer) if isinstance(tokenizer, str) else tokenizer


@lru_cache(maxsize=4)
def _load_once(name: str) -> Tokenizer:
    return load_tokenizer(name)


def decode(tokenizer: Tokenizer, ids: Sequence[int]) -> str:
    """Decode ids to text; unlike in a model's output, special tokens are kept."""
    return str(tokenizer.backend.decode(list(ids), skip_special_tokens=False))


@lru_cache(maxsize=4)
def ordinary_ids(tokenizer: Tokenizer) -> np.ndarray:
    """Return the ids of a vocabulary's tokens that are not special."""
    known = set(tokenizer.backend.get_vocab(with_added_tokens=True).values())
    return np.array(sorted(known - tokenizer.special_ids))


@lru_cache(maxsize=4)
def vocabulary_words(tokenizer: Tokenizer) -> tuple[str, ...]:
    """Return the tokens of a vocabulary that are a space and at least two letters, without the space."""
    ids = ordinary_ids(tokenizer).tolist()
    anchor = tokenizer.encode("a")  # some tokenizers drop a space at the start of a text
    start = len(decode(tokenizer, anchor))
    texts = (decode(tokenizer, [*anchor, token])[start:] for token in ids)
    return tuple(text[1:] for text in texts if _WHOLE_WORD.fullmatch(text))


@lru_cache(maxsize=4)
def listed_words(path: str) -> tuple[str, ...]:
    """Read the words of a file, one a line.

    Raises:
        NoTexts: the file is unreadable or empty.
        InputError: it is not UTF-8, or is larger than 64 MiB.
    """
    with open_input(path, "a list of words") as file:
        lines = decode_utf8(checked_size(file.read(LARGEST_LINE + 1), path), path).splitlines()
    words = tuple(line.strip() for line in lines if line.strip())
    if not words:
        raise NoTexts(f"the list of words {path} is empty: give one word a line")
    return words


def token_pool(source: str, tokenizer: Tokenizer, ids: Sequence[int]) -> Sequence[int]:
    """Return the tokens to draw replacements from: the vocabulary's ordinary ones, or the text's with repetitions."""
    return ordinary_ids(tokenizer).tolist() if source == "vocabulary" else ids


def word_pool(source: str, tokenizer: str | Tokenizer, words: Sequence[Word], path: str | None) -> Sequence[str]:
    """Return the words to draw replacements from: the vocabulary's whole words, the text's, or a list's."""
    if source == "text":
        return [word.core for word in words]
    return listed_words(path) if path is not None else vocabulary_words(tokenizer_of(tokenizer))


def check_units(unit: str, source: str = "text", path: str | None = None) -> None:
    """Refuse an invalid unit or source of replacements.

    Raises:
        SettingsError: the unit or source is unknown, or the two do not go together.
    """
    if unit not in UNITS:
        raise SettingsError(f"unit {unit!r} is not one of: {', '.join(UNITS)}")
    if source not in SOURCES:
        raise SettingsError(f"source {source!r} is not one of: {', '.join(SOURCES)}")
    if (source == "words") != (path is not None):
        raise SettingsError("source words needs words=FILE (one word a line), and no other source takes it")
    if source == "words" and unit == "token":
        raise SettingsError("a list of words replaces words: use unit word, or source vocabulary or text")
