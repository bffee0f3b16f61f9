"""Rows from documents. The rows of a step depend only on (seed, step), so a run resumes by its step.

An epoch cuts every document into consecutive windows of the row length, in even epochs from its first token, in odd
ones from a random offset, and shuffles them. After a document's end a row is filled with end tokens.
"""

from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np
from jaxtyping import Int, UInt16

from dgmark_lab.training.config import Rows
from dgmark_lab.training.corpus import END, Corpus, sentence_ends

# a last window with fewer tokens than this is left out
SHORTEST = 32

# one random stream for each purpose, so that changing one setting does not change other draws
_EPOCH, _STEP, _MASKS = range(3)

Windows = Int[np.ndarray, "windows 2"]


@dataclass(frozen=True)
class RowBatch:
    """Rows of token ids, and how many ids of each row are text; the others are end tokens."""

    ids: Int[np.ndarray, "batch length"]
    sizes: Int[np.ndarray, " batch"]


@dataclass
class RowSource:
    """The rows of every step of a run with this seed."""

    corpus: Corpus
    settings: Rows
    seed: int

    def __post_init__(self) -> None:
        self._sentence_end = sentence_ends(self.corpus.tokenizer)
        # a step reads windows of at most two epochs; all sizes are kept, since each step counts through them
        self._windows = lru_cache(maxsize=2)(self.epoch)
        self._sizes = cache(lambda epoch: len(self._windows(epoch)))

    def step(self, step: int) -> RowBatch:
        """Return the rows of a step (from 0)."""
        rng = np.random.default_rng((self.seed, _STEP, step))
        batch = self.settings.batch
        windows = np.stack([self.window(index) for index in range(step * batch, (step + 1) * batch)])
        length = self.settings.length
        if rng.random() < self.settings.short_share:
            length = int(rng.choice(self.settings.short_lengths))
        ids = np.full((batch, length), END, np.int64)
        sizes = np.minimum(windows[:, 1], length)
        early = rng.random(batch) < self.settings.end_share
        cuts = rng.random(batch)
        for row, (start, _) in enumerate(windows):
            text = self.corpus.tokens[start : start + sizes[row]]
            if early[row] and len(text) == length:
                text = text[: self._cut(text, cuts[row])]
            ids[row, : len(text)] = text
            sizes[row] = len(text)
        return RowBatch(ids, sizes)

    def masks_rng(self, step: int) -> np.random.Generator:
        """Return the random generator of a step's masks."""
        return np.random.default_rng((self.seed, _MASKS, step))

    def epoch(self, epoch: int) -> Windows:
        """Return (start, tokens) of every window of an epoch, in the order in which they are read."""
        rng = np.random.default_rng((self.seed, _EPOCH, 0, epoch))
        first, size = self.corpus.documents.T
        length = self.settings.length
        offset = np.zeros_like(size)
        if epoch % 2:
            offset = np.where(size > length, rng.integers(0, length, len(size)), 0)
        count = np.maximum(1, -(-(size - offset - SHORTEST + 1) // length))
        document = np.repeat(np.arange(len(size)), count)
        within = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
        start = offset[document] + within * length
        windows = np.stack([first[document] + start, np.minimum(length, size[document] - start)], axis=1)
        return rng.permutation(windows)

    def window(self, index: int) -> Int[np.ndarray, " 2"]:
        """Return window `index` of the endless sequence of epochs."""
        epoch = 0
        while index >= self._sizes(epoch):
            index -= self._sizes(epoch)
            epoch += 1
        window: Int[np.ndarray, " 2"] = self._windows(epoch)[index]
        return window

    def _cut(self, text: UInt16[np.ndarray, " length"], at: float) -> int:
        """Return where to end a row: at the first sentence end after the share `at`, else at the last before it."""
        ends = np.flatnonzero(self._sentence_end[text]) + 1
        if not len(ends):
            return len(text)
        return int(ends[min(int(np.searchsorted(ends, at * len(text))), len(ends) - 1)])
