"""Classes of tokens that read as the same word, whatever its case, the white space around it and its quotation marks.

" Hello", "Hello" and "hello" are three token ids. A key of words gives its bits to pairs of classes, so that a text
keeps its mark where an editor, a mail or a web page changes what a reader hardly sees. Knows no secret. Ours.

The table of classes must be the same in ten years. So letters and digits are those of Unicode 3.2, which Python keeps
for good, and Unicode promises that case folding of a character that it has never changes. A key names the hash of its
table: another tokenizer or another way of folding is an error, never a weak result.
"""

import hashlib
import re
import unicodedata
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from jaxtyping import Int

from dgmark.checkpoint.tokenizer import Tokenizer, load_tokenizer
from dgmark.errors import ModelNotFound, TokenizerMismatch
from dgmark.watermark.spec import WatermarkSpec

VERSION: Final = "dgmark/word-classes/v1"
_SPACE: Final = "\t\n\x0b\x0c\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a" + (
    "\u2028\u2029\u202f\u205f\u3000"
)
_STRAIGHT: Final = dict.fromkeys(map(ord, "\u201c\u201d\u201e\u201f"), '"') | dict.fromkeys(
    map(ord, "\u2018\u2019\u201a\u201b"), "'"
)
_ASCII_WORD = re.compile("[0-9A-Za-z]")
_UNICODE = unicodedata.ucd_3_2_0
_PART_OF_A_CHARACTER = "\ufffd"


@dataclass(frozen=True, eq=False)
class WordClasses:
    """The classes of a tokenizer's ids.

    Attributes:
        table: for each id the lowest id that reads as the same word; read-only.
        fingerprint: hash of the table, which keys name: 16 hex digits.
    """

    table: Int[np.ndarray, " vocab"]
    fingerprint: str

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> "WordClasses":
        """The classes of a tokenizer, computed once in a process."""
        if tokenizer.fingerprint not in _of_tokenizers:
            table = _class_table(tokenizer)
            table.setflags(write=False)
            digest = hashlib.sha256(VERSION.encode() + b"\0" + table.astype("<u4").tobytes()).hexdigest()[:16]
            _known[digest] = _of_tokenizers[tokenizer.fingerprint] = cls(table, digest)
        return _of_tokenizers[tokenizer.fingerprint]


# by the fingerprint of the tokenizer, and by their own
_of_tokenizers: dict[str, WordClasses] = {}
_known: dict[str, WordClasses] = {}


def folded_word(text: str) -> str | None:
    """What a token reads as, by which ids share a class; None for one that is a class of its own.

    Letters of Unicode 3.2 are replaced by their full case folding, curly quotation marks by straight ones, and white
    space around the text is left out. A token without a letter or digit of Unicode 3.2, or with a part of a character,
    is a class of its own.
    """
    if text.isascii():
        return text.lower().strip(_SPACE) if _ASCII_WORD.search(text) else None
    if _PART_OF_A_CHARACTER in text or not any(map(_is_word, text)):
        return None
    return "".join(map(_folded_character, text)).strip(_SPACE)


@lru_cache(maxsize=2**16)
def _is_word(character: str) -> bool:
    return _UNICODE.category(character)[0] in "LN"


@lru_cache(maxsize=2**16)
def _folded_character(character: str) -> str:
    return character.casefold() if _is_word(character) else _STRAIGHT.get(ord(character), character)


def _class_table(tokenizer: Tokenizer) -> Int[np.ndarray, " vocab"]:
    # "the", " The", "." and " ." with the ids 0 to 3 have the classes 0 0 2 3
    ids, first = range(tokenizer.vocab_size), dict[str, int]()
    texts = tokenizer.backend.decode_batch([[token_id] for token_id in ids], skip_special_tokens=False)
    words = [None if token_id in tokenizer.special_ids else folded_word(text) for token_id, text in enumerate(texts)]
    classes = [i if word is None else first.setdefault(word, i) for i, word in enumerate(words)]
    return np.array(classes, dtype=np.int64)


def check_word_classes(spec: WatermarkSpec, tokenizer: Tokenizer) -> None:
    """Refuse a tokenizer with other classes of words than the key's with a TokenizerMismatch."""
    if spec.word_classes is None:
        return
    found = WordClasses.of(tokenizer).fingerprint
    if found != spec.word_classes:
        raise TokenizerMismatch(
            f"the key's bits are of the classes of words {spec.word_classes}, and those of the tokenizer "
            f"{tokenizer.name!r} are {found}: use the tokenizer that the key was made for, with its decoder"
        )


@lru_cache(maxsize=64)
def class_table(spec: WatermarkSpec) -> Int[np.ndarray, " vocab"] | None:
    """The class of each id of the padded vocabulary, read-only; None for a key of exact tokens.

    It is that of the tokenizer that was last checked against the key (`WatermarkKey.check_tokenizer`), or of the one
    that the key names.
    """
    if spec.word_classes is None:
        return None
    if spec.word_classes not in _known:
        try:
            check_word_classes(spec, load_tokenizer(spec.tokenizer))
        except ModelNotFound as error:
            raise ModelNotFound(
                f"the key's bits are of classes of words, and the tokenizer {spec.tokenizer!r} that it names is "
                "unavailable: call key.check_tokenizer with the model's tokenizer first, or name it in the setting "
                "`tokenizer` of an engine"
            ) from error
    table = np.arange(spec.table_size)
    own = _known[spec.word_classes].table
    table[: len(own)] = own
    table.setflags(write=False)
    return table


def class_ids(spec: WatermarkSpec, ids: Int[np.ndarray, "*shape"]) -> Int[np.ndarray, "*shape"]:
    """The classes of token ids under a key, see `class_table`: the ids themselves for a key without classes."""
    table = class_table(spec)
    return ids if table is None else table[ids]
