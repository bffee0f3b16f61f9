"""Rows from documents. The rows of a step depend only on (seed, step), so a run resumes by its step.

An epoch cuts every document into consecutive windows of the row length, in even epochs from its first token, in odd
ones from a random offset, and shuffles them. After a document's end a row is filled with end tokens; or, if it is to be
packed, with one end token and the beginning of another document of the same part. With a mixture, each part has its own
epochs, and the rows of a step are allotted to the parts by their shares.
"""

from dataclasses import dataclass, field
from threading import Lock

import numpy as np
from jaxtyping import Bool, Float, Int, UInt16

from dgmark.errors import SettingsError
from dgmark_lab.training.config import ROUNDING, Rows
from dgmark_lab.training.corpus import Corpus

# a last window with fewer tokens than this is left out
SHORTEST = 32

# one random stream for each purpose, so that changing one setting does not change other draws
_EPOCH, _STEP, _MASKS = range(3)

_GOLDEN = (5**0.5 - 1) / 2
Windows = Int[np.ndarray, "windows 2"]


@dataclass(frozen=True)
class RowBatch:
    """Rows of token ids, and how many ids of each row are text; the others are end tokens."""

    ids: Int[np.ndarray, "batch length"]
    sizes: Int[np.ndarray, " batch"]


@dataclass
class Part:
    """Documents with their own sequence of epochs.

    Attributes:
        documents: (start, tokens) of each document.
        length: tokens of a window.
        seed: seed of offsets and order.
    """

    documents: Windows
    length: int
    seed: tuple[int, ...]
    _sizes: list[int] = field(default_factory=list)
    _cached: dict[int, Windows] = field(default_factory=dict)

    def epoch(self, epoch: int) -> Windows:
        """Return (start, tokens) of every window of an epoch, in the order in which they are read."""
        rng = np.random.default_rng((*self.seed, epoch))
        first, size = self.documents.T
        length = self.length
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
        while True:
            if epoch == len(self._sizes):
                self._sizes.append(len(self._windows(epoch)))
            if index < self._sizes[epoch]:
                window: Int[np.ndarray, " 2"] = self._windows(epoch)[index]
                return window
            index -= self._sizes[epoch]
            epoch += 1

    def _windows(self, epoch: int) -> Windows:
        if epoch not in self._cached:
            for old in [known for known in self._cached if known < epoch - 1]:
                del self._cached[old]
            self._cached[epoch] = self.epoch(epoch)
        return self._cached[epoch]


def parts_of(corpus: Corpus, settings: Rows, seed: int) -> tuple[list[Part], Float[np.ndarray, " parts"]]:
    """Return the parts of the mixture, the documents that no name matches last, and the parts' shares of the rows.

    Raises:
        SettingsError: a name matches no document, or the names match all documents but their shares sum to less than 1.
    """
    left = np.ones(len(corpus.documents), np.bool_)
    chosen: list[tuple[Windows, float]] = []
    for name, share in settings.mixture.items():
        inside = left & np.array([document.startswith(name) for document in corpus.names], np.bool_)
        if not inside.any():
            raise SettingsError(f"rows.mixture: no document is left whose id begins with {name!r}")
        chosen.append((corpus.documents[inside], share))
        left &= ~inside
    rest = 1.0 - sum(settings.mixture.values())
    if left.any():
        chosen.append((corpus.documents[left], rest))
    elif rest > ROUNDING:
        raise SettingsError(
            f"rows.mixture: its names match all documents, so the shares must sum to 1, not {1 - rest:g}"
        )
    parts = [Part(table, settings.length, (seed, _EPOCH, number)) for number, (table, _) in enumerate(chosen)]
    return parts, np.array([share for _, share in chosen])


@dataclass
class RowSource:
    """The rows of every step.

    Attributes:
        corpus: the documents.
        settings: row length, rows of a step, shares.
        end_id: the token that fills rows that end early.
        sentence_end: for each id, whether a row may be cut after it.
        seed: seed of the run.

    Raises:
        SettingsError: the mixture does not fit the documents.
    """

    corpus: Corpus
    settings: Rows
    end_id: int
    sentence_end: Bool[np.ndarray, " vocab"]
    seed: int
    parts: list[Part] = field(init=False)
    _bounds: Float[np.ndarray, " bounds"] = field(init=False)
    _deal: Int[np.ndarray, "rows 2"] = field(init=False)
    _lock: Lock = field(default_factory=Lock)  # steps are prepared by several threads

    def __post_init__(self) -> None:
        self.parts, shares = parts_of(self.corpus, self.settings, self.seed)
        self._bounds = np.cumsum(shares)[:-1]
        self._deal = self._deal_out(0)

    def step(self, step: int) -> RowBatch:
        """Return the rows of a step (from 0)."""
        rng = np.random.default_rng((self.seed, _STEP, step))
        batch = self.settings.batch
        with self._lock:
            sources = self._sources(step)
            windows = np.stack([self.parts[part].window(index) for part, index in sources])
        length = self.settings.length
        if rng.random() < self.settings.short_share:
            length = int(rng.choice(self.settings.short_lengths))
        ids = np.full((batch, length), self.end_id, np.int64)
        sizes = np.minimum(windows[:, 1], length)
        early = rng.random(batch) < self.settings.end_share
        cuts = rng.random(batch)
        packed = rng.random(batch) < self.settings.pack_share
        for row, (start, _) in enumerate(windows):
            text = self.corpus.tokens[start : start + sizes[row]]
            if early[row] and len(text) == length:
                text = text[: self._cut(text, cuts[row])]
            elif packed[row]:
                text = self._pack(text, length, self.parts[sources[row][0]].documents, rng)
            ids[row, : len(text)] = text
            sizes[row] = len(text)
        return RowBatch(ids, sizes)

    def _pack(
        self, text: UInt16[np.ndarray, " text"], length: int, documents: Windows, rng: np.random.Generator
    ) -> Int[np.ndarray, " row"]:
        """Append beginnings of random documents to the text, with an end token before each."""
        row = text.astype(np.int64)
        while len(row) < length:
            start, size = documents[rng.integers(len(documents))]
            more = self.corpus.tokens[start : start + min(size, length)]
            row = np.concatenate([row, [self.end_id], more])[:length]
        return row

    def masks_rng(self, step: int) -> np.random.Generator:
        """Return the random generator of a step's masks."""
        return np.random.default_rng((self.seed, _MASKS, step))

    def _sources(self, step: int) -> list[tuple[int, int]]:
        """Return, for each row of a step, its part and how many rows of that part came before it since step 0."""
        first, stop = step * self.settings.batch, (step + 1) * self.settings.batch
        if stop > len(self._deal):
            self._deal = self._deal_out(2 * stop)  # twice the need, so that a run computes each row at most about twice
        return [(part, before) for part, before in self._deal[first:stop].tolist()]

    def _deal_out(self, rows: int) -> Int[np.ndarray, "rows 2"]:
        """Return (part, rows of that part before it) for the first `rows` rows."""
        # multiples of the golden ratio are spread evenly over (0, 1), so every stretch of rows has about the shares
        part = np.searchsorted(self._bounds, np.arange(rows) * _GOLDEN % 1.0, side="right")
        before = np.empty(rows, np.int64)
        for number in range(len(self.parts)):
            inside = part == number
            before[inside] = np.arange(np.count_nonzero(inside))
        return np.stack([part, before], axis=1)

    def _cut(self, text: UInt16[np.ndarray, " length"], at: float) -> int:
        """Return where to end a row: at the first sentence end after the share `at`, else at the last before it."""
        ends = np.flatnonzero(self.sentence_end[text]) + 1
        if not len(ends):
            return len(text)
        return int(ends[min(int(np.searchsorted(ends, at * len(text))), len(ends) - 1)])
