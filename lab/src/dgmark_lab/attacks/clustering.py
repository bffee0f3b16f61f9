"""A thief who faces sub-keys: he finds out which texts share one, so as to learn the groups of each by itself.

Two texts of one sub-key have the tokens that they share at positions of the same parity more often than chance. This
gives each pair of texts a likelihood ratio, and each pair of groups of texts as well. The thief merges from the surest
pair on, as long as a merger is likelier than not, and then moves each text to where it fits best. He knows the method,
the tokenizer, the number of sub-keys, and where texts begin. For modulus 2. Knows no model and no key. Ours.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float, Float32, Int, Int8

# differences of counts beyond this add nothing
_MAX_DIFFERENCE = 6
# no token is believed to be in a group more surely: real tokens do not all follow the mark
_SURE = 0.97
_AT_ONCE = 1000
_SWEEPS = 2


def leanings(texts: Sequence[Int[np.ndarray, " _"]], table_size: int) -> Int8[np.ndarray, "texts vocab"]:
    """How much more often each token stands at even positions than at odd ones, in each text.

    Args:
        texts: token ids of texts from position 0 on.
        table_size: tokens of the (padded) vocabulary.
    """
    differences = np.zeros((len(texts), table_size), dtype=np.int8)
    for row, text in zip(differences, texts, strict=True):
        np.add.at(row, text, (1 - 2 * (np.arange(len(text)) % 2)).astype(np.int8))
    return differences


@dataclass
class Thief:
    """What the thief believes: which texts share a sub-key.

    Args:
        leaning: the texts, from `leanings`.
        subkeys: how many sub-keys the key has.
        match: share of positions that he believes to match.
        seeds: how many texts he compares pair by pair; the others join the groups found among these, or form none.

    Attributes:
        labels: number of each text's group.
    """

    leaning: Int8[np.ndarray, "texts vocab"]
    subkeys: int
    match: float = 0.9
    seeds: int = 10_000
    labels: Int[np.ndarray, " texts"] = field(init=False)

    def __post_init__(self) -> None:
        self._odds = float(np.log(self.match / (1 - self.match)))
        # 1 in N pairs shares a sub-key: so sure must the evidence be that a merger is likelier than not
        self._threshold = float(np.log(self.subkeys))
        self.labels = np.arange(len(self.leaning))
        self._merge()
        for _ in range(_SWEEPS):
            self._move()

    def groups(self) -> list[Int[np.ndarray, " _"]]:
        """The texts of each group, the largest group first."""
        _, labels, counts = np.unique(self.labels, return_inverse=True, return_counts=True)
        return [np.flatnonzero(labels == label) for label in np.argsort(-counts, kind="stable").tolist()]

    def group_of(self, leaning: Int8[np.ndarray, " vocab"]) -> Int[np.ndarray, " _"] | None:
        """The texts that probably share the sub-key of another text; None if no group fits."""
        groups = self.groups()
        scores = [float(self._evidence(leaning, self._sum(group))) for group in groups]
        best = int(np.argmax(scores))
        return groups[best] if scores[best] > self._threshold else None

    def pair_scores(
        self, some: Int8[np.ndarray, "some vocab"], others: Int8[np.ndarray, "others vocab"]
    ) -> Float32[np.ndarray, "some others"]:
        """Logarithm of the likelihood ratio that two texts share a sub-key, for all pairs.

        A token's term is a function of its two differences. Two products of functions of one difference each come
        close to it: the first odd and the first even eigenvector of its table, in which small differences count most,
        as they are most frequent.
        """
        differences = np.arange(-_MAX_DIFFERENCE, _MAX_DIFFERENCE + 1)
        often = np.exp2(-np.abs(differences))
        terms = np.log1p(np.outer(self._belief(differences), self._belief(differences)))
        values, vectors = np.linalg.eigh(terms * np.outer(often, often))
        scores = np.zeros((len(some), len(others)), dtype=np.float32)
        for place in (0, -1):
            weigh = (vectors[:, place] / often).astype(np.float32)
            weigh[_MAX_DIFFERENCE] = 0
            left, right = (
                weigh[np.clip(each, -_MAX_DIFFERENCE, _MAX_DIFFERENCE) + _MAX_DIFFERENCE] for each in (some, others)
            )
            scores += np.float32(values[place]) * (left @ right.T)
        return scores

    # --- merging -----------------------------------------------------------------------------------

    def _merge(self) -> None:
        """Merge groups along the pairs, the surest first, where all their texts together say so."""
        root = list(range(len(self.leaning)))
        sums: dict[int, Int[np.ndarray, " vocab"]] = {}

        def find(text: int) -> int:
            while root[text] != text:
                root[text] = root[root[text]]
                text = root[text]
            return text

        for one, other in self._pairs():
            left, right = find(one), find(other)
            if left == right:
                continue
            of_left, of_right = (sums.get(each, self.leaning[each].astype(np.int64)) for each in (left, right))
            if self._evidence(of_left, of_right) > self._threshold:
                root[right] = left
                sums[left] = of_left + of_right
                sums.pop(right, None)
        self.labels = np.array([find(text) for text in range(len(root))])

    def _pairs(self) -> Iterator[tuple[int, int]]:
        """The pairs among the seeds that likelier share a sub-key than not, the surest first."""
        used = np.flatnonzero(np.count_nonzero(self.leaning, axis=0) > 1)
        seeds = self.leaning[: self.seeds, used]
        found, scores = [], []
        for begin in range(0, len(seeds), _AT_ONCE):
            for further in range(begin, len(seeds), _AT_ONCE):
                block = self.pair_scores(seeds[begin : begin + _AT_ONCE], seeds[further : further + _AT_ONCE])
                if begin == further:
                    block[np.tril_indices(len(block))] = -np.inf
                one, other = np.nonzero(block > self._threshold)
                found.append(np.stack([one + begin, other + further], axis=1))
                scores.append(block[one, other])
        pairs = np.concatenate(found)[np.argsort(-np.concatenate(scores), kind="stable")]
        return ((int(one), int(other)) for one, other in pairs)

    # --- moving ------------------------------------------------------------------------------------

    def _move(self) -> None:
        """Move each text to the group that it fits best without itself, or to none."""
        names, members, counts = np.unique(self.labels, return_inverse=True, return_counts=True)
        several = np.flatnonzero(counts > 1)
        if not len(several):
            return
        place_of = {int(group): place for place, group in enumerate(several)}
        sums = np.stack([self._sum(np.flatnonzero(members == group)) for group in several])
        belief = self._belief(sums).T.astype(np.float32)
        moved = self.labels.copy()
        for text, leaning in enumerate(self.leaning):
            tokens = np.flatnonzero(leaning)
            own = self._belief(leaning[tokens]).astype(np.float32)
            scores = np.log1p(own[:, None] * belief[tokens]).sum(axis=0)
            group = place_of.get(int(members[text]))
            if group is not None:
                scores[group] = self._evidence(leaning, sums[group] - leaning)
            best = int(scores.argmax())
            # a text that fits nowhere gets a label of its own, which no group has
            moved[text] = names[several[best]] if scores[best] > self._threshold else len(self.labels) + text
        self.labels = np.unique(moved, return_inverse=True)[1]

    def _sum(self, texts: Int[np.ndarray, " _"]) -> Int[np.ndarray, " vocab"]:
        total: Int[np.ndarray, " vocab"] = self.leaning[texts].sum(axis=0, dtype=np.int64)
        return total

    def _evidence(self, one: Int[np.ndarray, " vocab"], other: Int[np.ndarray, " vocab"]) -> float:
        """Logarithm of the likelihood ratio that two texts, or two groups of texts, share a sub-key."""
        both = np.flatnonzero((one != 0) & (other != 0))
        return float(np.log1p(self._belief(one[both]) * self._belief(other[both])).sum())

    def _belief(self, difference: Int[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
        """How surely a token belongs to the group of even positions (1) or of odd ones (-1)."""
        belief: Float[np.ndarray, "*shape"] = _SURE * np.tanh(self._odds * difference / 2)
        return belief
