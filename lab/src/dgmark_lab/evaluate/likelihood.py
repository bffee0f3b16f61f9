"""Perplexity of texts under a judge, with intervals over texts.

Perplexities are comparable only under the same judge; nats per character and per byte do not depend on how a tokenizer
splits the text.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import exp
from typing import Any

import numpy as np
from jaxtyping import Float

from dgmark.checkpoint.tokenizer import well_formed
from dgmark.errors import InputError
from dgmark_lab.evaluate.intervals import Bootstrap, Interval
from dgmark_lab.evaluate.judge import Judge
from dgmark_lab.evaluate.nats import BATCH_TOKENS, Text, ids_of, token_nats
from dgmark_lab.evaluate.paired import compare_ratios


@dataclass(frozen=True)
class ScoredText:
    """One text under a judge.

    Attributes:
        nats: sum of -ln p over its scored tokens.
        tokens: number of scored tokens, in the judge's tokenizer.
        characters: number of scored characters.
        bytes: number of scored bytes, as UTF-8.
    """

    nats: float
    tokens: int
    characters: int
    bytes: int

    @property
    def perplexity(self) -> float | None:
        """exp(nats per token); None if no token was scored."""
        return exp(self.nats / self.tokens) if self.tokens else None

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {**asdict(self), "perplexity": self.perplexity}


@dataclass(frozen=True)
class Perplexity:
    """Texts under one judge.

    Texts without a scored token are left out of all figures.

    Attributes:
        corpus: exp(nats per token) over all texts together ("perplexity of the corpus").
        mean: mean of the perplexities of single texts.
        median: median of the perplexities of single texts.
        nats_per_token: over all texts together; its exp is `corpus`.
        nats_per_character: over all texts together.
        nats_per_byte: over all texts together.
        texts: the single texts, in order.
        judge: the judge's name.
        dtype: number format of its forward.
        context: most tokens that it read at once.
        bootstrap: how the intervals were computed.
    """

    corpus: Interval
    mean: Interval
    median: Interval
    nats_per_token: Interval
    nats_per_character: Interval
    nats_per_byte: Interval
    texts: tuple[ScoredText, ...]
    judge: str
    dtype: str
    context: int
    bootstrap: Bootstrap

    @property
    def tokens(self) -> int:
        """Scored tokens of all texts."""
        return sum(text.tokens for text in self.texts)

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values, without the single texts."""
        content = {name: value for name, value in asdict(self).items() if name != "texts"}
        return {**content, "num_texts": len(self.texts), "num_tokens": self.tokens}


@dataclass(frozen=True)
class PerplexityDifference:
    """Two sets of texts over the same prompts, under one judge; differences are second minus first.

    Attributes:
        corpus: difference of the two corpus perplexities.
        ratio: ratio of the two corpus perplexities, second over first.
        pairs: number of pairs.
    """

    corpus: Interval
    ratio: Interval
    pairs: int


def perplexity(
    judge: Judge,
    texts: Sequence[Text],
    prompts: Sequence[Text] | None = None,
    *,
    bootstrap: Bootstrap | None = None,
    stride: int | None = None,
    batch_tokens: int = BATCH_TOKENS,
) -> Perplexity:
    """Compute the perplexity of texts after their prompts.

    Args:
        judge: a judge from `load_judge`.
        texts: responses, as texts or as ids of the judge's tokenizer.
        prompts: the prompt of each text, which conditions it and is not scored; None for no prompts.
        bootstrap: how to compute intervals.
        stride: see `dgmark_lab.evaluate.token_nats`.
        batch_tokens: most tokens of one forward; see `dgmark_lab.evaluate.token_nats`.

    Raises:
        InputError: no text has a token to score, or the numbers of prompts and texts differ.
        SettingsError: the stride does not fit the context.
    """
    scored = score_texts(judge, texts, prompts, stride=stride, batch_tokens=batch_tokens)
    return summarise(judge, scored, bootstrap)


def _scored_part(judge: Judge, text: Text, tokens: int) -> str:
    """Return the text without a first token that nothing was there to predict from."""
    ids = ids_of(judge, text)
    if tokens == len(ids) and isinstance(text, str):
        return well_formed(text)
    return judge.tokenizer.decode(ids[len(ids) - tokens :])


def score_texts(
    judge: Judge,
    texts: Sequence[Text],
    prompts: Sequence[Text] | None = None,
    *,
    stride: int | None = None,
    batch_tokens: int = BATCH_TOKENS,
) -> list[ScoredText]:
    """Score the texts one by one; for arguments and errors see `perplexity`."""
    nats = token_nats(judge, texts, prompts, stride=stride, batch_tokens=batch_tokens)
    scored = []
    for text, own in zip(texts, nats, strict=True):
        plain = _scored_part(judge, text, len(own))
        scored.append(ScoredText(float(own.sum()), len(own), len(plain), len(plain.encode())))
    return scored


def summarise(judge: Judge, texts: Sequence[ScoredText], bootstrap: Bootstrap | None = None) -> Perplexity:
    """Compute the figures of scored texts.

    Raises:
        InputError: no text has a scored token.
    """
    bootstrap = bootstrap or Bootstrap()
    counted = [text for text in texts if text.tokens]
    if not counted:
        raise InputError("no text has a token to score: every response is empty, or is one token without a prompt")
    nats, tokens = _column(counted, "nats"), _column(counted, "tokens")
    own = np.exp(nats / tokens)
    per_token = bootstrap.ratio(nats, tokens)
    return Perplexity(
        corpus=per_token.map(exp),
        mean=bootstrap.mean(own),
        median=bootstrap.interval(lambda drawn: np.median(own[drawn], axis=1), len(own)),
        nats_per_token=per_token,
        nats_per_character=bootstrap.ratio(nats, _column(counted, "characters")),
        nats_per_byte=bootstrap.ratio(nats, _column(counted, "bytes")),
        texts=tuple(texts),
        judge=judge.name,
        dtype=judge.dtype,
        context=judge.context_length,
        bootstrap=bootstrap,
    )


def compare_perplexities(
    first: Sequence[ScoredText], second: Sequence[ScoredText], bootstrap: Bootstrap | None = None
) -> PerplexityDifference:
    """Compare two sets of texts over the same prompts; pairs in which a text has no scored token are left out.

    Raises:
        InputError: there is no pair, or the sets differ in length.
    """
    if len(first) != len(second):
        raise InputError(f"the sets hold {len(first)} and {len(second)} texts: each pair needs one of both")
    pairs = [(one, two) for one, two in zip(first, second, strict=True) if one.tokens and two.tokens]
    columns = [
        (_column(side, "nats"), _column(side, "tokens"))
        for side in ([one for one, _ in pairs], [two for _, two in pairs])
    ]
    (nats, tokens), (other_nats, other_tokens) = columns
    ratio = compare_ratios((nats, tokens), (other_nats, other_tokens), bootstrap).map(exp)

    def difference(drawn: Any) -> Any:
        before = np.exp(nats[drawn].sum(1) / tokens[drawn].sum(1))
        return np.exp(other_nats[drawn].sum(1) / other_tokens[drawn].sum(1)) - before

    return PerplexityDifference((bootstrap or Bootstrap()).interval(difference, len(pairs)), ratio, len(pairs))


def _column(texts: Sequence[ScoredText], name: str) -> Float[np.ndarray, " n"]:
    return np.array([getattr(text, name) for text in texts], np.float64)
