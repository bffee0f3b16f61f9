"""Texts that match a key as a marked decode does, made without a model; and edits of them."""

import random
import re
from functools import cache

import numpy as np
from numpy.typing import NDArray

from dgmark.watermark.key import WatermarkKey
from support.known_keys import builtin_tokenizer

Ids = NDArray[np.int64]

FIRST = 4  # the ids below are special


def marked_ids(key: WatermarkKey, length: int, *, rate: float = 0.85, seed: int = 0, vocabulary: int = 1500) -> Ids:
    """A response: each token matches with probability `rate`."""
    dice = np.random.default_rng(seed)
    ids, drawn = [], 100 if key.spec.modulus <= 8 else 400
    for position in range(length):
        words = dice.integers(300, 300 + vocabulary, drawn)
        matching = key.tables.matching(words, np.full(drawn, position))
        ids.append(int(words[np.flatnonzero(matching == (dice.random() < rate))[0]]))
    return np.array(ids)


def cut(ids: Ids, share: float, seed: int = 1) -> Ids:
    return ids[np.random.default_rng(seed).random(len(ids)) >= share]


def filled(ids: Ids, share: float, seed: int = 1) -> Ids:
    dice = np.random.default_rng(seed)
    at = np.flatnonzero(dice.random(len(ids)) < share)
    return np.insert(ids, at, dice.integers(300, 8000, len(at)))


@cache
def whole_words() -> list[int]:
    """Ids of " word" tokens: a text of such words is tokenized into the same ids."""
    tokenizer = builtin_tokenizer()
    words = [(token, tokenizer.decode([FIRST + 40, token])[1:]) for token in range(FIRST, 8192)]
    return [token for token, word in words if re.fullmatch(" [a-z]+", word) and tokenizer.encode(word) == [token]]


def marked_text(key: WatermarkKey, length: int, *, seed: int = 0) -> str:
    """A text from position 0 whose tokens all match."""
    dice, table = random.Random(seed), key.tables.table()
    ids = [dice.choice([w for w in whole_words() if table[w] == i % key.spec.modulus]) for i in range(length)]
    return builtin_tokenizer().decode(ids)
