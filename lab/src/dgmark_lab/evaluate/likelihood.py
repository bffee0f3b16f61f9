"""Perplexity of texts under a judge, given their prompts, with intervals over texts.

Perplexities are comparable only under the same judge; nats per character and per byte do not depend on how a tokenizer
splits the text.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from math import exp
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch.nn import functional

from dgmark.checkpoint.tokenizer import well_formed
from dgmark.errors import InputError, SettingsError
from dgmark_lab.evaluate.intervals import Bootstrap, Interval
from dgmark_lab.evaluate.judge import Judge

Text = str | Sequence[int]

# Tokens of a forward: bounds the memory of its logits (2 GB for 262,144 ids in bf16).
BATCH_TOKENS = 4096


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
    stride: int | None = None,
    batch_tokens: int = BATCH_TOKENS,
) -> Perplexity:
    """Compute the perplexity of texts after their prompts.

    Args:
        judge: a judge from `load_judge`.
        texts: responses, as texts or as ids of the judge's tokenizer.
        prompts: the prompt of each text, which conditions it and is not scored; None for no prompts.
        stride: see `token_nats`.
        batch_tokens: most tokens of one forward; see `token_nats`.

    Raises:
        InputError: no text has a token to score, or the numbers of prompts and texts differ.
        SettingsError: the stride does not fit the context.
    """
    scored = score_texts(judge, texts, prompts, stride=stride, batch_tokens=batch_tokens)
    return summarise(judge, scored)


def _scored_part(judge: Judge, text: Text, tokens: int) -> str:
    """Return the text without a first token that nothing was there to predict from."""
    ids = _ids_of(judge, text)
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


def summarise(judge: Judge, texts: Sequence[ScoredText]) -> Perplexity:
    """Compute the figures of scored texts.

    Raises:
        InputError: no text has a scored token.
    """
    bootstrap = Bootstrap()
    counted = [text for text in texts if text.tokens]
    if not counted:
        raise InputError("no text has a token to score: every response is empty, or is one token without a prompt")
    nats, tokens = _column(counted, "nats"), _column(counted, "tokens")
    own = np.exp(nats / tokens)
    per_token = bootstrap.ratio(nats, tokens)
    return Perplexity(
        corpus=per_token.map(exp),
        mean=bootstrap.mean(own),
        median=bootstrap.interval(lambda drawn: np.median(own[drawn], axis=-1), len(own)),
        nats_per_token=per_token,
        nats_per_character=bootstrap.ratio(nats, _column(counted, "characters")),
        nats_per_byte=bootstrap.ratio(nats, _column(counted, "bytes")),
        texts=tuple(texts),
        judge=judge.name,
        dtype=judge.dtype,
        context=judge.context_length,
    )


def compare_perplexities(first: Sequence[ScoredText], second: Sequence[ScoredText]) -> PerplexityDifference:
    """Compare two sets of texts over the same prompts; pairs in which a text has no scored token are left out.

    Raises:
        InputError: there is no pair, or the sets differ in length.
    """
    if len(first) != len(second):
        raise InputError(f"the sets hold {len(first)} and {len(second)} texts: each pair needs one of both")
    pairs = [(one, two) for one, two in zip(first, second, strict=True) if one.tokens and two.tokens]
    columns = [[_column(side, name) for name in ("nats", "tokens")] for side in zip(*pairs, strict=True)]

    def per_token(drawn: Any) -> Any:
        return [nats[drawn].sum(-1) / tokens[drawn].sum(-1) for nats, tokens in columns]

    def difference(drawn: Any) -> Any:
        one, two = per_token(drawn)
        return np.exp(two) - np.exp(one)

    def log_ratio(drawn: Any) -> Any:
        one, two = per_token(drawn)
        return two - one

    corpus, ratio = (Bootstrap().interval(statistic, len(pairs)) for statistic in (difference, log_ratio))
    return PerplexityDifference(corpus, ratio.map(exp), len(pairs))


def _column(texts: Sequence[ScoredText], name: str) -> Float[np.ndarray, " n"]:
    return np.array([getattr(text, name) for text in texts], np.float64)


# --- nats, token by token ---


@dataclass(frozen=True)
class Window:
    """The ids of one text in one forward. Those from `scored` on are scored, as results `target` and on."""

    text: int
    ids: list[int]
    scored: int
    target: int


def _ids_of(judge: Judge, text: Text) -> list[int]:
    """Encode a text with the judge's tokenizer; ids pass through.

    Raises:
        InputError: an id is not in the judge's vocabulary.
    """
    ids = judge.tokenizer.encode(text) if isinstance(text, str) else [int(i) for i in text]
    wrong = next((i for i in ids if not 0 <= i < judge.vocab_size), None)
    if wrong is not None:
        raise InputError(
            f"id {wrong} is not among the {judge.vocab_size} ids of the judge {judge.name}: give texts, or a judge "
            "with the tokenizer of these ids"
        )
    return ids


def token_nats(
    judge: Judge,
    texts: Sequence[Text],
    prompts: Sequence[Text] | None = None,
    *,
    stride: int | None = None,
    batch_tokens: int = BATCH_TOKENS,
) -> list[Float[np.ndarray, " _"]]:
    """Compute -ln p of every scored token of every text, given the prompt and the tokens before it.

    Texts and prompts are tokenised separately, with the judge's tokenizer; lists are taken as ids of that tokenizer.
    Without a prompt and an opening token, a text's first token cannot be predicted from anything, and is not scored.

    Args:
        judge: the judge.
        texts: the texts to score.
        prompts: the prompt of each text; None for no prompts.
        stride: a text that exceeds the context with its prompt is read in windows of a whole context, each of which
            scores this many more tokens. So a token sees at least context - stride tokens before it, unless the text
            has fewer. By default half the context.
        batch_tokens: most tokens of one forward, padding included; a longer window is a batch by itself.

    Raises:
        InputError: the numbers of prompts and texts differ, or an id is not in the judge's vocabulary.
        SettingsError: the stride does not fit the context.
    """
    if prompts is not None and len(prompts) != len(texts):
        raise InputError(f"{len(texts)} texts and {len(prompts)} prompts: each text has one prompt")
    room = judge.context_length - len(judge.opening)
    step = max(1, room // 2) if stride is None else stride
    if not 0 < step < room:
        raise SettingsError(
            f"stride {step} is invalid: with a context of {judge.context_length} tokens it must be 1 to {room - 1}"
        )
    bodies = [_ids_of(judge, text) for text in texts]
    heads = [_ids_of(judge, prompt) for prompt in prompts or [""] * len(texts)]
    first = [0 if head or judge.opening else 1 for head in heads]
    results = [np.empty(max(0, len(body) - skip)) for body, skip in zip(bodies, first, strict=True)]
    windows = [
        window
        for text, (head, body, skip) in enumerate(zip(heads, bodies, first, strict=True))
        for window in _windows(text, head + body, len(head) + skip, judge.opening, room, step)
    ]
    for batch in _batches(windows, batch_tokens):
        for window, nats in zip(batch, _score(judge, batch), strict=True):
            results[window.text][window.target : window.target + len(nats)] = nats
    return results


def _windows(
    text: int, ids: list[int], first: int, opening: tuple[int, ...], room: int, stride: int
) -> Iterator[Window]:
    """Yield windows that score ids[first:], each token once."""
    begin = first
    while begin < len(ids):
        stop = min(len(ids), max(room, begin + stride))
        start = max(0, stop - room)
        window = [*opening, *ids[start:stop]]
        yield Window(text, window, len(opening) + begin - start, begin - first)
        begin = stop


def _batches(windows: list[Window], batch_tokens: int) -> Iterator[list[Window]]:
    """Yield batches of windows, from the longest to the shortest, each as large as fits."""
    batch: list[Window] = []
    for window in sorted(windows, key=lambda one: -len(one.ids)):
        if batch and (len(batch) + 1) * len(batch[0].ids) > batch_tokens:
            yield batch
            batch = []
        batch.append(window)
    if batch:
        yield batch


@torch.inference_mode()
def _score(judge: Judge, batch: Sequence[Window]) -> list[Float[np.ndarray, " _"]]:
    """Return the nats of the scored tokens of each window."""
    longest = max(len(window.ids) for window in batch)
    ids = torch.zeros((len(batch), longest), dtype=torch.long)  # padding at the end does not affect the tokens before
    for row, window in enumerate(batch):
        ids[row, : len(window.ids)] = torch.tensor(window.ids)
    logits = judge.logits(ids)
    scores = []
    for row, window in enumerate(batch):  # one row at a time in float32: a vocabulary is large
        ahead = logits[row, window.scored - 1 : len(window.ids) - 1].float()
        targets = ids[row, window.scored : len(window.ids)].to(ahead.device)
        scores.append(functional.cross_entropy(ahead, targets, reduction="none").cpu().numpy().astype(np.float64))
    return scores
