"""Which responses of a key share a sub-key, by a mixture that expectation-maximization fits to their pairs.

For a thief who does not know the sub-keys but their number N, which is public. The responses of a sub-key share the
pairs that match under it more often than others do, and all sub-keys are equally frequent. The method is that of
Dempster et al. (1977); the first steps believe a part of the evidence alone (deterministic annealing, Ueda and Nakano
1998). Knows no model.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from scipy.sparse import csr_array
from scipy.special import logsumexp, softmax

from dgmark_lab.attacks.stealing import Ids, StolenPairs, counts_of, expected_rate, known_at, odds_of_match

# pairs of more texts than this share of them tell of what texts are about
_COMMON = 0.3
_STEPS = 40
# how much of the evidence the first step believes; all of it from four fifths of the steps on
_FIRST = 0.05
_BALANCING = 30


def subkey_shares(
    stolen: StolenPairs, marked: Sequence[Ids], unmarked: Sequence[Ids], subkeys: int, rng: np.random.Generator
) -> tuple[Float[np.ndarray, "texts subkeys"], Float[np.ndarray, " subkeys"]]:
    """The probability that each text has each of N unknown sub-keys, and the evidence for each of these.

    Args:
        stolen: a thief who knows nothing, for what he counts.
        marked: token ids of marked texts.
        unmarked: token ids of texts of the same model without this key's mark.
        subkeys: N; which of the N columns is which sub-key cannot be known.
        rng: random generator, for the first assignments.

    Returns:
        Probabilities, and the log-likelihood that each sub-key adds to that of its texts.
    """
    words = [np.unique(stolen.count(ids)[0]) for ids in marked]
    known, found = counts_of(words)
    seen = found + known_at(known, *counts_of([np.unique(stolen.count(ids)[0]) for ids in unmarked]))
    telling = known[(found > 1) & (seen <= _COMMON * (len(marked) + len(unmarked)))]
    seen = known_at(telling, known, seen)
    held = [np.flatnonzero(np.isin(telling, each)) for each in words]
    texts = np.repeat(np.arange(len(held)), [len(each) for each in held])
    columns = np.concatenate(held)
    occurs = csr_array((np.ones(len(texts)), (texts, columns)), shape=(len(held), len(telling)))
    adds = csr_array((np.ones(len(texts)), (texts, np.arange(len(texts)))), shape=(len(held), len(texts)))
    shares = softmax(rng.normal(size=(len(held), subkeys)) / 2, axis=1)
    for step in range(_STEPS):
        # what a text shows of a pair says nothing about the text
        found_elsewhere = (occurs.T @ shares)[columns] - shares[texts]
        marked_elsewhere = shares.sum(axis=0) - shares[texts]
        odds = odds_of_match(
            found_elsewhere, seen[columns, None] - 1, marked_elsewhere, len(marked) + len(unmarked) - 1
        )
        evidence = adds @ np.log(expected_rate(odds))
        trust = min(1.0, _FIRST ** (1 - step / (0.8 * _STEPS)))
        # equal sizes keep sub-keys from joining while little is known; in the end a lucky one may have more texts
        shares = _balanced(trust * evidence) if step < _STEPS - 1 else softmax(evidence, axis=1)
    return shares, (shares * evidence).sum(axis=0)


def _balanced(evidence: Float[np.ndarray, "texts subkeys"]) -> Float[np.ndarray, "texts subkeys"]:
    """Probabilities by this evidence, for sub-keys of equally many texts (Sinkhorn's iteration)."""
    texts, subkeys = evidence.shape
    weight = np.zeros(subkeys)
    for _ in range(_BALANCING):
        row = logsumexp(evidence + weight, axis=1, keepdims=True)
        weight = np.log(texts / subkeys) - logsumexp(evidence - row, axis=0)
    return np.asarray(softmax(evidence + weight, axis=1))
