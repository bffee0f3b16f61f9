"""Perplexity of texts under a judge, with intervals over texts.

Perplexities compare only under one judge: nats per character and per byte are those that do not depend on how a
tokenizer cuts.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import exp
from typing import Any

import numpy as np
from jaxtyping import Float

from dgmark.checkpoint.tokenizer import well_formed
from dgmark.errors import InputError
from dgmark.lab.evaluate.intervals import Bootstrap, Interval
from dgmark.lab.evaluate.judge import Judge
from dgmark.lab.evaluate.nats import BATCH_TOKENS, Text, ids_of, token_nats
from dgmark.lab.evaluate.paired import compare_ratios


@dataclass(frozen=True)
class ScoredText:
    """One text under a judge.

    Attributes:
        nats: sum of -ln p of its scored tokens.
        tokens: how many were scored, in the judge's tokenizer.
        characters: of what was scored.
        bytes: of what was scored, as UTF-8.
    """

    nats: float
    tokens: int
    characters: int
    bytes: int

    @property
    def perplexity(self) -> float | None:
        """Its exp of nats per token; None where no token was scored."""
        return exp(self.nats / self.tokens) if self.tokens else None

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {**asdict(self), "perplexity": self.perplexity}


@dataclass(frozen=True)
class Perplexity:
    """Texts under one judge.

    Texts without a scored token count in none of the figures.

    Attributes:
        corpus: exp of nats per token of all texts together ("perplexity of the corpus").
        mean: of the texts' own perplexities, each text counting the same.
        median: of the texts' own perplexities.
        nats_per_token: of all texts together; its exp is `corpus`.
        nats_per_character: of all texts together.
        nats_per_byte: of all texts together.
        texts: text by text, in order.
        judge: its name.
        dtype: number format of its forward.
        context: most tokens that it read at once.
        bootstrap: how the intervals were made.
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
        corpus: difference of the perplexities of all texts together.
        ratio: of these perplexities, second over first.
        pairs: how many.
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
    """Perplexity of texts after their prompts.

    Args:
        judge: of `load_judge`.
        texts: responses: texts, which are read with the judge's tokenizer, or ids of that very tokenizer.
        prompts: what each text continues; its tokens are given, not scored. None for nothing.
        bootstrap: how intervals are made.
        stride: see `dgmark.lab.evaluate.token_nats`; so is `batch_tokens`.
        batch_tokens: most tokens of one forward.

    Raises:
        InputError: no text has a token to score, or there are not as many prompts as texts.
        SettingsError: a stride that does not fit the context.
    """
    scored = score_texts(judge, texts, prompts, stride=stride, batch_tokens=batch_tokens)
    return summarise(judge, scored, bootstrap)


def _scored_part(judge: Judge, text: Text, tokens: int) -> str:
    """The text without a first token that there was nothing to predict from."""
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
    """The texts one by one; arguments and errors as of `perplexity`."""
    nats = token_nats(judge, texts, prompts, stride=stride, batch_tokens=batch_tokens)
    scored = []
    for text, found in zip(texts, nats, strict=True):
        plain = _scored_part(judge, text, len(found))
        scored.append(ScoredText(float(found.sum()), len(found), len(plain), len(plain.encode())))
    return scored


def summarise(judge: Judge, texts: Sequence[ScoredText], bootstrap: Bootstrap | None = None) -> Perplexity:
    """The figures of texts that were scored.

    Raises:
        InputError: no text has a scored token.
    """
    bootstrap = bootstrap or Bootstrap()
    counted = [text for text in texts if text.tokens]
    if not counted:
        raise InputError("no text has a token to judge: every response is empty, or one token without a prompt")
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
    """Compare two sets of texts over the same prompts; pairs of which either has no scored token are left out.

    Raises:
        InputError: there is no pair, or the sets are of different lengths.
    """
    if len(first) != len(second):
        raise InputError(f"the sets hold {len(first)} and {len(second)} texts: pairs need one of each")
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
