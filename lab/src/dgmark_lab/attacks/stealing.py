"""Theft of a key: what an adversary who counts in marked texts believes of it, and texts changed by that belief.

The adversary knows the method, the tokenizer and what is public of a key, and has marked texts and unmarked ones of the
same model. What a key prefers, a pair of tokens (rule "bigram") or a token where a residue is wanted (rule "position"),
occurs more often in marked text than in unmarked. Counting is the optimal test if occurrences are independent. Paper
appendix, "Security Considerations". Knows no model.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int, Integer

from dgmark.watermark.bigrams import pair_words, pairs_of
from dgmark.watermark.hashes import Words
from dgmark.watermark.spec import WatermarkSpec
from dgmark_lab.attacks.budgets import edit_count

Ids = Int[np.ndarray, " n"]
# the share of matches that the adversary reckons with
_MATCH = 0.75
# the shape of the prior of a pair's rate, a gamma law as of one text
_PRIOR = 0.1
_ID_BITS = 24
# replacements that a thief compares
_DRAWN = 16


@dataclass(frozen=True)
class StolenKey:
    """What an adversary believes of a key.

    Attributes:
        spec: what is public of the key.
        code: the residue that each position of a period wants; given to the adversary, since ten texts reveal it.
        features: the words of what was counted, ascending.
        beliefs: log-odds that each of them matches.
    """

    spec: WatermarkSpec
    code: Integer[np.ndarray, " period"]
    features: Int[np.ndarray, " features"]
    beliefs: Float[np.ndarray, " features"]

    @classmethod
    def learn(
        cls,
        spec: WatermarkSpec,
        marked: Sequence[Int[np.ndarray, " _"]],
        unmarked: Sequence[Int[np.ndarray, " _"]],
        code: Integer[np.ndarray, " period"] | None = None,
    ) -> "StolenKey":
        """Estimate a key.

        Args:
            spec: what is public of the key; of the position rule, the modulus is 2.
            marked: token ids of marked texts, each from its first token on.
            unmarked: token ids of texts of the same model without this key's mark.
            code: the key's position code; None for i mod 2.
        """
        code = np.arange(2) if code is None else code
        seen, usual = (_count(spec, code, texts) for texts in (marked, unmarked))
        features = np.unique(np.concatenate([seen[0], usual[0]]))
        found, other = (_at(features, *counts) for counts in (seen, usual))
        odds = found * np.log(_MATCH / (1 - _MATCH))
        if spec.rule == "position":  # of two residues a token matches one
            odds -= _at(features ^ (1 << _ID_BITS), *seen) * np.log(_MATCH / (1 - _MATCH))
        else:  # counts are Poisson, in marked text with 2 q times the rate of other text, or 2 (1 - q) times
            likely, unlikely = (1 + len(unmarked) + 2 * share * len(marked) for share in (_MATCH, 1 - _MATCH))
            odds -= (found + other + _PRIOR) * np.log(likely / unlikely)
        return cls(spec, code, features, odds)

    def believed(self, words: Int[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
        """What each of these words is expected to count, from -1 to 1; 0 where nothing is known."""
        return np.tanh(_at(words, self.features, self.beliefs) / 2)

    def right(self, words: Int[np.ndarray, " n"], matches: Bool[np.ndarray, " n"]) -> float:
        """The share of these words of which the belief is right; where nothing is known it is a guess, 1/2."""
        belief = self.believed(words)
        return float(np.where(belief == 0, 0.5, (belief > 0) == matches).mean())

    def levels(self, ids: Ids) -> Float[np.ndarray, " n"]:
        """What each token of a text adds to its evidence by these beliefs, over its pairs or alone."""
        words, *ends = words_of(self.spec, self.code, ids)
        sums = np.zeros(len(ids))
        for end in ends:
            np.add.at(sums, end, self.believed(words))
        return sums


def words_of(
    spec: WatermarkSpec, code: Integer[np.ndarray, " period"], ids: Int[np.ndarray, " _"]
) -> tuple[Int[np.ndarray, " words"], ...]:
    """What a thief counts in a text, a word each, and the indices of the tokens that belong to each.

    Returns:
        The pairs, their left and their right tokens; under the position rule tokens with residues, and their indices.
    """
    at = np.arange(len(ids))
    if spec.rule == "position":
        return residue_words(ids, code[at % len(code)].astype(np.int64)), at
    left, right = pairs_of(at, spec.nearest, spec.farthest)
    return pair_words(ids[left], ids[right]), left, right


def residue_words(tokens: Words, residues: Words) -> Words:
    """One word for each token where a residue is wanted; arrays or tensors."""
    words: Words = tokens | residues << _ID_BITS
    return words


def _count(
    spec: WatermarkSpec, code: Integer[np.ndarray, " period"], texts: Sequence[Int[np.ndarray, " _"]]
) -> tuple[Ids, Ids]:
    """The words of texts and the number of texts that have each; one with a residue counts at each place."""
    words = [words_of(spec, code, ids)[0] for ids in texts]
    if spec.rule == "bigram":
        words = [np.unique(each) for each in words]
    return np.unique(np.concatenate([*words, np.zeros(0, dtype=np.int64)]), return_counts=True)


def _at(words: Int[np.ndarray, "*shape"], known: Ids, values: np.ndarray) -> Float[np.ndarray, "*shape"]:
    """The value of each word; 0 for one that is not known."""
    if not len(known):
        return np.zeros(words.shape)
    place = np.searchsorted(known, words).clip(max=len(known) - 1)
    return np.where(known[place] == words, values[place], 0.0)


def scrub(
    ids: Ids, stolen: StolenKey, budget: float, law: Float[np.ndarray, " vocab"], rng: np.random.Generator
) -> Ids:
    """Replace round(budget * n) tokens, those with the highest levels first, each by the worst of some draws.

    Args:
        ids: a marked text.
        stolen: what the adversary believes; if that is nothing, tokens are replaced at random.
        budget: share of tokens to replace.
        law: probability of each token as a replacement.
        rng: random generator.
    """
    edited = ids.copy()
    order = np.argsort(rng.random(len(ids)) * 1e-9 - stolen.levels(ids))
    for place in order[: edit_count(len(ids), budget)].tolist():
        drawn = rng.choice(len(law), _DRAWN, p=law)
        levels = []
        for token in drawn.tolist():
            edited[place] = token
            levels.append(stolen.levels(edited)[place])
        edited[place] = drawn[int(np.argmin(levels))]
    return edited
