"""Perplexity of texts under a judge, given their prompts, with intervals over texts.

Perplexities are comparable only under the same judge; nats per byte do not depend on how a tokenizer splits the text.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import exp

import numpy as np

from dgmark.arguments.contents import TextOrIds, contents_of
from dgmark.checkpoint.tokenizer import well_formed
from dgmark.errors import InputError
from dgmark.models.language_model import LanguageModel
from dgmark.models.token_nats import ids_of, token_nats
from dgmark_lab.evaluate import estimates
from dgmark_lab.evaluate.estimates import Estimate, mean, quantile, ratio

_AT_ONCE = 64  # texts between two steps of the progress


@dataclass(frozen=True)
class ScoredText:
    """One text under a judge.

    Attributes:
        nats: sum of -ln p over its scored tokens.
        tokens: number of scored tokens, in the judge's tokenizer.
        bytes: number of scored bytes, as UTF-8.
    """

    nats: float
    tokens: int
    bytes: int

    @property
    def perplexity(self) -> float | None:
        """exp(nats per token); None if no token was scored."""
        return exp(self.nats / self.tokens) if self.tokens else None


@dataclass(frozen=True)
class Perplexity:
    """Texts under one judge.

    Texts without a scored token are left out of all figures.

    Attributes:
        corpus: exp(nats per token) over all texts together ("perplexity of the corpus").
        mean: mean of the perplexities of single texts.
        median: median of the perplexities of single texts.
        nats_per_byte: over all texts together.
        texts: the single texts, in order.
        judge: the judge's name.
        dtype: number format of its forward.
        context: most tokens that it read at once.
    """

    corpus: Estimate
    mean: Estimate
    median: Estimate
    nats_per_byte: Estimate
    texts: tuple[ScoredText, ...]
    judge: str
    dtype: str
    context: int

    @property
    def tokens(self) -> int:
        """Scored tokens of all texts."""
        return sum(text.tokens for text in self.texts)


def perplexity(
    judge: LanguageModel,
    texts: Sequence[TextOrIds],
    prompts: Sequence[TextOrIds] | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> Perplexity:
    """Compute the perplexity of texts after their prompts.

    Args:
        judge: an autoregressive model.
        texts: responses, as texts or as ids of the judge's tokenizer.
        prompts: the prompt of each text, which conditions it and is not scored; None for no prompts.
        progress: called with the number of texts that were scored since the last call.

    Raises:
        InputError: no text has a token to score, or the numbers of prompts and texts differ.
    """
    scored: list[ScoredText] = []
    for start in range(0, len(texts), _AT_ONCE):
        some = slice(start, start + _AT_ONCE)
        scored += score_texts(judge, texts[some], None if prompts is None else prompts[some])
        progress(len(texts[some]))
    counted = [text for text in scored if text.tokens]
    if not counted:
        raise InputError("no text has a token to score: every response is empty, or is one token without a prompt")
    nats, tokens, sizes = np.array([[one.nats, one.tokens, one.bytes] for one in counted], np.float64).T
    own = np.exp(nats / tokens)
    return Perplexity(
        corpus=estimates.perplexity(nats, tokens),
        mean=mean(own),
        median=quantile(own, 0.5),
        nats_per_byte=ratio(nats, sizes),
        texts=tuple(scored),
        judge=judge.name,
        dtype=judge.dtype,
        context=judge.context_length,
    )


def score_texts(
    judge: LanguageModel, texts: Sequence[TextOrIds], prompts: Sequence[TextOrIds] | None = None
) -> list[ScoredText]:
    """Score the texts one by one; for arguments and errors see `perplexity`."""
    scored, texts = [], contents_of(texts)
    for text, own in zip(texts, token_nats(judge, texts, prompts), strict=True):
        ids = ids_of(judge, text)
        if isinstance(text, str) and len(own) == len(ids):
            plain = well_formed(text)
        else:  # without a first token that nothing was there to predict from
            plain = judge.tokenizer.decode(ids[len(ids) - len(own) :])
        scored.append(ScoredText(float(own.sum()), len(own), len(plain.encode())))
    return scored
