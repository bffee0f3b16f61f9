"""Perplexity of generated texts under an autoregressive judge, with an interval from resampling the texts."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch.nn import functional

from dgmark.errors import InputError
from dgmark.tokenizer import Tokenizer
from training.networks import Network

_RESAMPLES = 2000


@dataclass(frozen=True)
class Perplexity:
    """exp of the mean nats per response token over all texts, and its 95 % bootstrap interval over texts."""

    perplexity: float
    low: float
    high: float
    texts: int
    tokens: int

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        return asdict(self)


def response_nats(judge: Network, tokenizer: Tokenizer, prompt: str, response: str, context: int) -> tuple[float, int]:
    """Nats of a response after its prompt, and its number of tokens in the judge's own tokenizer.

    Args:
        judge: the autoregressive model.
        tokenizer: the judge's.
        prompt: text before the response; its end is left out of the score.
        response: the text to score.
        context: most tokens the judge reads; of a longer prompt the end is kept.

    Raises:
        InputError: the response alone exceeds the judge's context.
    """
    before, after = tokenizer.encode(prompt), tokenizer.encode(response)
    if not after:
        return 0.0, 0
    room = context - len(after)
    if room < 1:
        raise InputError(f"a response of {len(after)} tokens exceeds the judge's {context}; generate shorter texts")
    before = before[-room:]
    ids = torch.tensor([before + after], device=judge.module.device)
    with torch.inference_mode():
        logits = judge.logits(judge.hidden(ids)[:, len(before) - 1 : -1])[0].float()
        nats = functional.cross_entropy(logits, ids[0, len(before) :], reduction="sum")
    return float(nats), len(after)


def perplexity(scores: Sequence[tuple[float, int]], seed: int = 0) -> Perplexity:
    """Perplexity over texts from their (nats, tokens).

    Raises:
        InputError: there is no token to judge.
    """
    nats, tokens = np.array(scores, np.float64).reshape(-1, 2).T
    if not tokens.sum():
        raise InputError("no text has a token to judge: every response is empty")
    rng = np.random.default_rng(seed)
    drawn = rng.integers(len(nats), size=(_RESAMPLES, len(nats)))
    sums: Float[np.ndarray, " resamples"] = nats[drawn].sum(1)
    means = sums / np.maximum(tokens[drawn].sum(1), 1)
    low, high = np.quantile(means, [0.025, 0.975])
    return Perplexity(
        perplexity=float(np.exp(nats.sum() / tokens.sum())),
        low=float(np.exp(low)),
        high=float(np.exp(high)),
        texts=len(nats),
        tokens=int(tokens.sum()),
    )
