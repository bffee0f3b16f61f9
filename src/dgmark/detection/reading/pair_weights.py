"""The weights of the weighted test: how much choice the tokens of each pair had, as a language model sees the text.

They depend on the text and the model, never on a key. A pair whose tokens the model is sure of carries little of any
mark, and counts little. Knows tokens and their surprisal only. Ours.
"""

import hashlib
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

# weights are whole numbers of this many nats, so that rounding of a model's figures moves few of them, and by one
STEP = 0.25
# a token that the model finds less likely says no more
CAP = 4.0
# the share of the left token's surprisal in that of a pair
LEFT = 0.25
# above this an edit or a name is likelier than a draw of the model that wrote the text; such tokens count as CHANGED
SURPRISE = 9.0
CHANGED = 0.5
MAX_WEIGHT = round((1 + LEFT) * CAP / STEP)


@dataclass(frozen=True)
class Surprisal:
    """How surprised a language model is by each of some tokens.

    Attributes:
        nats: -ln p of each token under the model; 0 where the model has nothing to predict it from.
        model: the model's name.
        fingerprint: identifies the model.
    """

    nats: Float[np.ndarray, " n"]
    model: str
    fingerprint: str


def choice_of(nats: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """How much choice each token had, in nats, from its surprisal."""
    choice: Float[np.ndarray, " n"] = np.where(nats > SURPRISE, CHANGED, np.clip(nats, 0.0, CAP))
    return choice


def weights_of(
    nats: Float[np.ndarray, " n"], left: Int[np.ndarray, " pairs"], right: Int[np.ndarray, " pairs"]
) -> Int[np.ndarray, " pairs"]:
    """The weights of pairs, from 0 to `MAX_WEIGHT`, by the surprisal of all tokens and the indices of the pairs."""
    choice = choice_of(nats)
    weights: Int[np.ndarray, " pairs"] = np.rint((choice[right] + LEFT * choice[left]) / STEP).astype(np.int64)
    return weights


def digest_of(words: Int[np.ndarray, " pairs"], weights: Int[np.ndarray, " pairs"]) -> str:
    """A hash of the pairs of a text and their weights: 16 hex digits."""
    content = words.astype("<i8").tobytes() + weights.astype("<i8").tobytes()
    return hashlib.sha256(b"dgmark/weights/v1\0" + content).hexdigest()[:16]
