"""The surprisal of the scored tokens, from any language model that reads the text: without the prompt and the key.

A model may split the text otherwise than the key's tokenizer. Its surprisal is then spread evenly over the characters
of each of its tokens, and summed for each scored one. Knows no torch: models are in `dgmark.models`.
"""

import unicodedata
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Int

from dgmark.checkpoint.tokenizer import Tokenizer
from dgmark.errors import ModelFault

Offsets = Int[np.ndarray, "_ 2"]
# of ids that a text is not read back as, so many are decoded together to find their characters
_DECODED_TOGETHER = 64


@runtime_checkable
class SurprisalModel(Protocol):
    """A language model that says how surprised it is by each token of a text."""

    @property
    def name(self) -> str:
        """Its name, for rows and reports."""
        ...

    @property
    def fingerprint(self) -> str:
        """Identifies it: the same fingerprint and text give the same surprisal, but for rounding."""
        ...

    def surprisals(self, texts: Sequence[str]) -> list[tuple[Offsets, Float[np.ndarray, " _"]]]:
        """The characters [start, end) of each of its own tokens of each text, and their surprisal in nats.

        A token that it cannot predict, such as a first one, has 0 nats.

        Raises:
            ModelError: the model cannot be run, or it gives no numbers.
        """
        ...


def checked_surprisal(text: str, read: Any, name: str) -> tuple[Offsets, Float[np.ndarray, " _"]]:
    """What a model of this name gave for a text, as arrays or lists, once its tokens are known to be those of the text.

    A surprisal that is negative or no number is a ModelFault, as are tokens without one, out of order, beyond the text,
    or that leave out some of what it shows.
    """
    try:
        offsets, nats = np.asarray(read[0]).reshape(-1, 2), np.asarray(read[1], dtype=np.float64).reshape(-1)
        if len(offsets) and offsets.dtype.kind not in "iu":
            raise TypeError("offsets are whole numbers")
    except (TypeError, ValueError, IndexError, KeyError) as error:
        raise ModelFault(f"{name} gave no characters and surprisals of the tokens of a text: {error}") from error
    offsets = offsets.astype(np.int64)
    if len(nats) != len(offsets) or not np.all(np.isfinite(nats)) or np.any(nats < -1e-3):
        raise ModelFault(f"{name} gave surprisals of a text that are not numbers of at least 0, one for each token")
    starts, ends = offsets.T
    if len(offsets) and (
        starts[0] < 0 or ends.max() > len(text) or np.any(starts > ends) or np.any(np.diff(starts) < 0)
    ):
        raise ModelFault(f"{name} gave tokens that are not in the order of the text, or reach beyond its characters")
    left_out = np.flatnonzero(_over_characters(offsets, np.ones(len(offsets)), len(text)) == 0)
    unread = next((place for place in left_out.tolist() if _is_seen(text[place])), None)
    if unread is not None:
        raise ModelFault(
            f"{name} gave tokens of which none holds character {unread} of a text: the tokens of a text are all that "
            "it shows, and their places are counted in characters from 0"
        )
    return offsets, np.maximum(nats, 0.0)


def _is_seen(character: str) -> bool:
    """Whether a character is one that no tokenizer leaves out: neither white space nor a control."""
    return not character.isspace() and not unicodedata.category(character).startswith("C")


def nats_of_tokens(offsets: Offsets, of_model: Offsets, nats: Float[np.ndarray, " _"]) -> Float[np.ndarray, " _"]:
    """The surprisal of tokens by their characters, from that of a model's own tokens of the same text by theirs."""
    if np.array_equal(offsets, of_model):
        return nats
    size = max((int(each[:, 1].max()) for each in (offsets, of_model) if len(each)), default=0)
    lengths = of_model[:, 1] - of_model[:, 0]
    shown = lengths > 0
    density = _over_characters(of_model[shown], nats[shown] / lengths[shown], size)
    # characters that several tokens share, as bytes of one character do, are shared out evenly
    sharing = np.maximum(_over_characters(offsets, np.ones(len(offsets)), size), 1)
    so_far = np.concatenate([[0.0], (density / sharing).cumsum()])
    summed: Float[np.ndarray, " _"] = np.maximum(so_far[offsets[:, 1]] - so_far[offsets[:, 0]], 0.0)
    return summed


def _over_characters(offsets: Offsets, values: Float[np.ndarray, " _"], size: int) -> Float[np.ndarray, " _"]:
    """For each character the sum of the values of the tokens that cover it."""
    begins, ends = (np.bincount(edge, values, minlength=size + 1) for edge in offsets.T)
    sums: Float[np.ndarray, " _"] = np.maximum((begins - ends).cumsum()[:size], 0.0)
    return sums


def text_of_ids(tokenizer: Tokenizer, ids: list[int]) -> tuple[str, Offsets]:
    """The text of token ids, and the characters of each."""
    text = tokenizer.decode(ids)
    encoded = tokenizer.encode_with_offsets(text)
    if encoded.ids == ids:
        return text, np.array(encoded.offsets, dtype=np.int64).reshape(-1, 2)
    texts, offsets, begin = list[str](), list[tuple[int, int]](), 0
    for first in range(0, len(ids), _DECODED_TOGETHER):
        some = ids[first : first + _DECODED_TOGETHER]
        ends = [len(tokenizer.decode(some[: number + 1])) for number in range(len(some))]
        ends = np.maximum.accumulate(ends).tolist()
        offsets += [(begin + start, begin + end) for start, end in zip([0, *ends[:-1]], ends, strict=True)]
        texts.append(tokenizer.decode(some)[: ends[-1]])
        begin += ends[-1]
    return "".join(texts), np.array(offsets, dtype=np.int64).reshape(-1, 2)
