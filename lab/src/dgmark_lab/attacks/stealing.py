"""Theft of a key: what an adversary who counts in marked texts believes of it, and texts changed by that belief.

The adversary knows the method, the tokenizer and what is public of a key, and has marked texts and unmarked ones of the
same model. What a key prefers, a pair of tokens (rule "bigram") or a token where a residue is wanted (rule "position"),
occurs more often in marked text than in unmarked. Counting is the optimal test if occurrences are independent. Paper
appendix, "Security Considerations". Knows no model.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from jaxtyping import Bool, Float, Int, Integer

from dgmark.detection.reading.reader import ScoredIds
from dgmark.detection.statistics.pairs import DistinctPairs
from dgmark.errors import SettingsError
from dgmark.watermark.bigram import BigramSpec, matching_pairs, pair_key
from dgmark.watermark.hashes import Words
from dgmark.watermark.key import WatermarkKey
from dgmark.watermark.position import tables_of
from dgmark.watermark.spec import spec_as
from dgmark_lab.attacks.budgets import edit_count

Ids = Int[np.ndarray, " n"]
# words, ascending, and how often each occurs
Counts = tuple[Int[np.ndarray, " words"], Int[np.ndarray, " words"]]
# the share of matches that the adversary reckons with
_MATCH = 0.75
# the shape of the prior of a pair's rate, a gamma law as of one text
_PRIOR = 0.1
_ID_BITS = 24
# replacements that a thief compares
_DRAWN = 16


@dataclass(frozen=True)
class StolenKey(ABC):
    """What an adversary believes of a key: at first nothing.

    Attributes:
        words: what was counted, a word each, ascending.
        beliefs: log-odds that each of them matches.
    """

    words: Int[np.ndarray, " words"] = field(default_factory=lambda: np.zeros(0, np.int64), kw_only=True)
    beliefs: Float[np.ndarray, " words"] = field(default_factory=lambda: np.zeros(0), kw_only=True)

    @abstractmethod
    def count(self, ids: Ids) -> tuple[Int[np.ndarray, " words"], ...]:
        """What a thief counts in a text, a word each, and the indices of the tokens that belong to each."""

    @abstractmethod
    def matches(self, key: WatermarkKey, ids: Ids) -> Bool[np.ndarray, " words"]:
        """Which of the words of a text match in truth."""

    @abstractmethod
    def learn(self, marked: Sequence[Ids], unmarked: Sequence[Ids]) -> "StolenKey":
        """Believe what texts show.

        Args:
            marked: token ids of marked texts, each from its first token on.
            unmarked: token ids of texts of the same model without this key's mark.
        """

    def believed(self, words: Int[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
        """What each of these words is expected to count, from -1 to 1; 0 where nothing is known."""
        return np.tanh(known_at(words, self.words, self.beliefs) / 2)

    def right(self, key: WatermarkKey, ids: Ids) -> float:
        """The share of the words of a text of which the belief is right; where nothing is known it is a guess, 1/2."""
        belief = self.believed(self.count(ids)[0])
        return float(np.where(belief == 0, 0.5, (belief > 0) == self.matches(key, ids)).mean())

    def evidence(self, ids: Ids) -> Float[np.ndarray, " n"]:
        """What each token of a text adds to its evidence by these beliefs, over its pairs or alone."""
        words, *ends = self.count(ids)
        sums = np.zeros(len(ids))
        for end in ends:
            np.add.at(sums, end, self.believed(words))
        return sums


@dataclass(frozen=True)
class StolenPairs(StolenKey):
    """Beliefs about pairs of tokens, each counted once in a text.

    Attributes:
        spec: what is public of the key.
    """

    spec: BigramSpec

    def count(self, ids: Ids) -> tuple[Int[np.ndarray, " words"], ...]:
        """The pairs, their left and their right tokens."""
        pairs = DistinctPairs(self.spec, ScoredIds(ids, np.arange(len(ids))))
        return pairs.words[pairs.number], pairs.left, pairs.right

    def matches(self, key: WatermarkKey, ids: Ids) -> Bool[np.ndarray, " words"]:
        """Which pairs have the bit 1 under the key, or under the sub-key that it is."""
        return matching_pairs(self.count(ids)[0], pair_key(key), key.number or 0)

    def learn(
        self,
        marked: Sequence[Ids],
        unmarked: Sequence[Ids],
        shares: Float[np.ndarray, " texts"] | None = None,
    ) -> StolenKey:
        """Believe what texts show; `shares` is the probability that each has the sub-key in question, None: 1."""
        shares = np.ones(len(marked)) if shares is None else shares
        texts = [np.unique(self.count(ids)[0]) for ids in (*marked, *unmarked)]
        words, seen = counts_of(texts)
        weights = np.repeat(shares, [len(text) for text in texts[: len(marked)]])
        place = np.searchsorted(words, np.concatenate([*texts[: len(marked)], words[:0]]))
        found = np.bincount(place, weights, minlength=len(words))
        return replace(self, words=words, beliefs=odds_of_match(found, seen, shares.sum(), len(texts)))


@dataclass(frozen=True)
class StolenPositions(StolenKey):
    """Beliefs about tokens where one of two residues is wanted, counted at each place.

    Attributes:
        code: the residue that each position of a period wants; given to the adversary, since ten texts reveal it.
    """

    code: Integer[np.ndarray, " period"]

    def count(self, ids: Ids) -> tuple[Int[np.ndarray, " words"], ...]:
        """Tokens with residues, and their indices."""
        at = np.arange(len(ids))
        return residue_words(ids, self.code[at % len(self.code)].astype(np.int64)), at

    def matches(self, key: WatermarkKey, ids: Ids) -> Bool[np.ndarray, " words"]:
        """Which tokens are of the group that their position wants."""
        return tables_of(key).matching(ids, np.arange(len(ids)))

    def learn(self, marked: Sequence[Ids], unmarked: Sequence[Ids]) -> StolenKey:
        """Of two residues a token matches one, so that unmarked texts only say which tokens there are."""
        seen, usual = (counts_of([self.count(ids)[0] for ids in texts]) for texts in (marked, unmarked))
        words = np.unique(np.concatenate([seen[0], usual[0]]))
        surplus = known_at(words, *seen) - known_at(words ^ (1 << _ID_BITS), *seen)
        return replace(self, words=words, beliefs=surplus * np.log(_MATCH / (1 - _MATCH)))


_NOTHING: dict[str, Callable[[WatermarkKey], StolenKey]] = {
    "bigram": lambda key: StolenPairs(spec_as(BigramSpec, key)),
    "position": lambda key: StolenPositions(tables_of(key).code),
}


def nothing_of(key: WatermarkKey) -> StolenKey:
    """What an adversary knows of a key before any text; of the position rule, the modulus is 2.

    Raises:
        SettingsError: no thief is known for the key's rule.
    """
    if key.spec.rule not in _NOTHING:
        raise SettingsError(f"keys of rule {key.spec.rule} are not stolen here: give one of: {', '.join(_NOTHING)}")
    return _NOTHING[key.spec.rule](key)


def residue_words(tokens: Words, residues: Words) -> Words:
    """One word for each token where a residue is wanted; arrays or tensors."""
    words: Words = tokens | residues << _ID_BITS
    return words


def odds_of_match(found: np.ndarray, seen: np.ndarray, marked: np.ndarray | float, texts: int) -> np.ndarray:
    """Log-odds that a pair matches: counts are Poisson, in marked text with 2 q or 2 (1 - q) times the rate of other.

    Of all `texts`, `seen` have the pair; of the `marked` ones, `found` have it. Arrays are broadcast.
    """
    likely, unlikely = (1 + texts - marked + 2 * share * marked for share in (_MATCH, 1 - _MATCH))
    return np.asarray(found * np.log(_MATCH / (1 - _MATCH)) - (seen + _PRIOR) * np.log(likely / unlikely))


def expected_rate(odds: Float[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
    """The rate of a pair in marked text over that in other text, which these odds that it matches let expect."""
    return 1 + (2 * _MATCH - 1) * np.tanh(odds / 2)


def counts_of(words: list[Int[np.ndarray, " _"]]) -> Counts:
    """The words of several texts, ascending, and how often each occurs."""
    return np.unique(np.concatenate([*words, np.zeros(0, dtype=np.int64)]), return_counts=True)


def known_at(words: Int[np.ndarray, "*shape"], known: Ids, values: np.ndarray) -> Float[np.ndarray, "*shape"]:
    """The value of each word; 0 for one that is not known."""
    if not len(known):
        return np.zeros(words.shape)
    place = np.searchsorted(known, words).clip(max=len(known) - 1)
    return np.where(known[place] == words, values[place], 0.0)


def scrub(
    ids: Ids, stolen: StolenKey, budget: float, law: Float[np.ndarray, " vocab"], rng: np.random.Generator
) -> Ids:
    """Replace round(budget * n) tokens, those with the most evidence first, each by the worst of some draws.

    Args:
        ids: a marked text.
        stolen: what the adversary believes; if that is nothing, tokens are replaced at random.
        budget: share of tokens to replace.
        law: probability of each token as a replacement.
        rng: random generator.
    """
    edited = ids.copy()
    order = np.argsort(rng.random(len(ids)) * 1e-9 - stolen.evidence(ids))
    for place in order[: edit_count(len(ids), budget)].tolist():
        drawn = rng.choice(len(law), _DRAWN, p=law)
        evidence = []
        for token in drawn.tolist():
            edited[place] = token
            evidence.append(stolen.evidence(edited)[place])
        edited[place] = drawn[int(np.argmin(evidence))]
    return edited
