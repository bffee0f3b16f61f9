"""Texts that match a key as a marked decode does, made without a model."""

import random
import re
from functools import cache

import numpy as np
from numpy.typing import NDArray

from dgmark.watermark.bigram import BigramSpec, matching_pairs, pair_key, pair_words
from dgmark.watermark.key import WatermarkKey
from dgmark.watermark.position import tables_of
from dgmark.watermark.spec import spec_as
from dgmark.watermark.word_classes import class_ids
from support.known_keys import builtin_tokenizer

Ids = NDArray[np.int64]

FIRST = 4  # the ids below are special


def marked_ids(key: WatermarkKey, length: int, *, rate: float = 0.85, seed: int = 0, vocabulary: int = 1500) -> Ids:
    """A response: each token fits, as `fitting` says, with probability `rate`."""
    dice = np.random.default_rng(seed)
    ids: list[int] = []
    drawn = 6
    if key.spec.rule == "position":
        drawn = 100 if tables_of(key).spec.modulus <= 8 else 400
    for _ in range(length):
        words = dice.integers(300, 300 + vocabulary, drawn)
        chosen = np.flatnonzero(fitting(key, ids, words) == (dice.random() < rate))
        ids.append(int(words[chosen[0] if len(chosen) else 0]))
    return np.array(ids)


def fitting(key: WatermarkKey, ids: list[int], words: Ids) -> NDArray[np.bool_]:
    """Which words match after these ids; under rule "bigram" those that complete the most matching pairs."""
    if key.spec.rule == "position":
        return tables_of(key).matching(words, np.full(len(words), len(ids)))
    spec = spec_as(BigramSpec, key)
    words, before = class_ids(spec, words), class_ids(spec, np.array(ids[-spec.farthest :], dtype=np.int64))[:, None]
    pairs = pair_words(before, words)
    if not spec.nearest:
        pairs = np.concatenate([pairs, pair_words(words, words)[None]])
    counts = matching_pairs(pairs, pair_key(key), key.number or 0).sum(axis=0)
    best: NDArray[np.bool_] = counts == counts.max()
    return best


@cache
def whole_words() -> list[int]:
    """Ids of " word" tokens: a text of such words is tokenized into the same ids."""
    tokenizer = builtin_tokenizer()
    words = [(token, tokenizer.decode([FIRST + 40, token])[1:]) for token in range(FIRST, 8192)]
    return [token for token, word in words if re.fullmatch(" [a-z]+", word) and tokenizer.encode(word) == [token]]


@cache
def marked_text(key: WatermarkKey, length: int, *, seed: int = 0) -> str:
    """A text from position 0 whose tokens all fit."""
    dice, words = random.Random(seed), np.array(whole_words())
    ids: list[int] = []
    for _ in range(length):
        ids.append(dice.choice(words[fitting(key, ids, words)].tolist()))
    return builtin_tokenizer().decode(ids)
