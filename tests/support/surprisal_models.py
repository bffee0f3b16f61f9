"""Language models for the weighted test whose surprisal is computed by plain rules: no weights, no torch."""

import hashlib
import re
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

Read = tuple[NDArray[np.int64], NDArray[np.float64]]


class RuleModel:
    """A surprisal model whose tokens are words with the space before them; counts the texts that it has read.

    Args:
        name: its name.
        rule: the nats of each word, from the text and its words.
    """

    def __init__(self, name: str, rule: Callable[[str, list[str]], Sequence[float]]) -> None:
        self.name, self.fingerprint = name, hashlib.sha256(name.encode()).hexdigest()[:16]
        self._rule, self.texts_read = rule, 0

    def surprisals(self, texts: Sequence[str]) -> list[Read]:
        self.texts_read += len(texts)
        return [self._read(text) for text in texts]

    def _read(self, text: str) -> Read:
        words = list(re.finditer(r"\s*\S+|\s+", text))
        nats = self._rule(text, [word.group() for word in words])
        offsets = np.array([word.span() for word in words], dtype=np.int64).reshape(-1, 2)
        return offsets, np.array(nats, dtype=np.float64)


def _hashed(_text: str, words: list[str]) -> list[float]:
    return [hashlib.sha256(word.encode()).digest()[0] / 20 for word in words]  # 0 to 12.75 nats


def _first_seen(_text: str, words: list[str]) -> list[float]:
    return [5.0 if word not in words[:place] else 0.1 for place, word in enumerate(words)]


def _one_of_all(text: str, words: list[str]) -> list[float]:
    heavy = int(hashlib.sha256(text.encode()).hexdigest(), 16) % max(1, len(words))
    return [8.0 if place == heavy else 0.0 for place in range(len(words))]


def _all_alike(_text: str, words: list[str]) -> list[float]:
    return [2.0] * len(words)


HASHED = RuleModel("hashed", _hashed)
FIRST_SEEN = RuleModel("first seen", _first_seen)
ONE_OF_ALL = RuleModel("one of all", _one_of_all)
ALL_ALIKE = RuleModel("all alike", _all_alike)
MODELS = {model.name: model for model in (HASHED, FIRST_SEEN, ONE_OF_ALL)}
