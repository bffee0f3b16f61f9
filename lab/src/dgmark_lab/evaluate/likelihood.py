"""Perplexity of texts under a judge, given their prompts, with intervals over texts.

Perplexities are comparable only under the same judge; nats per byte do not depend on how a tokenizer splits the text.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import exp

import numpy as np
import torch
from jaxtyping import Float
from torch.nn import functional

from dgmark.checkpoint.tokenizer import well_formed
from dgmark.contents.accepted import TextOrIds, content_of, contents_of
from dgmark.errors import InputError
from dgmark_lab.evaluate import estimates
from dgmark_lab.evaluate.estimates import Estimate, mean, quantile, ratio
from dgmark_lab.evaluate.judge import Judge

Text = TextOrIds

# Most tokens of a forward, padding included, which bounds the memory of its logits (2 GB for 262,144 ids in bf16). A
# longer window is a batch by itself.
BATCH_TOKENS = 4096


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


def perplexity(judge: Judge, texts: Sequence[Text], prompts: Sequence[Text] | None = None) -> Perplexity:
    """Compute the perplexity of texts after their prompts.

    Args:
        judge: a judge from `load_judge`.
        texts: responses, as texts or as ids of the judge's tokenizer.
        prompts: the prompt of each text, which conditions it and is not scored; None for no prompts.

    Raises:
        InputError: no text has a token to score, or the numbers of prompts and texts differ.
    """
    return summarise(judge, score_texts(judge, texts, prompts))


def _scored_part(judge: Judge, text: Text, tokens: int) -> str:
    """Return the text without a first token that nothing was there to predict from."""
    ids = _ids_of(judge, text)
    if tokens == len(ids) and isinstance(text, str):
        return well_formed(text)
    return judge.tokenizer.decode(ids[len(ids) - tokens :])


def score_texts(judge: Judge, texts: Sequence[Text], prompts: Sequence[Text] | None = None) -> list[ScoredText]:
    """Score the texts one by one; for arguments and errors see `perplexity`."""
    scored, texts = [], contents_of(texts)
    for text, own in zip(texts, token_nats(judge, texts, prompts), strict=True):
        plain = _scored_part(judge, text, len(own))
        scored.append(ScoredText(float(own.sum()), len(own), len(plain.encode())))
    return scored


def summarise(judge: Judge, texts: Sequence[ScoredText]) -> Perplexity:
    """Compute the figures of scored texts.

    Raises:
        InputError: no text has a scored token.
    """
    counted = [text for text in texts if text.tokens]
    if not counted:
        raise InputError("no text has a token to score: every response is empty, or is one token without a prompt")
    nats, tokens = _column(counted, "nats"), _column(counted, "tokens")
    own = np.exp(nats / tokens)
    return Perplexity(
        corpus=estimates.perplexity(nats, tokens),
        mean=mean(own),
        median=quantile(own, 0.5),
        nats_per_byte=ratio(nats, _column(counted, "bytes")),
        texts=tuple(texts),
        judge=judge.name,
        dtype=judge.dtype,
        context=judge.context_length,
    )


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
        SettingsError: it is neither a text nor ids.
    """
    content = content_of(text)
    ids = judge.tokenizer.encode(content) if isinstance(content, str) else content.tolist()
    wrong = next((i for i in ids if not 0 <= i < judge.vocab_size), None)
    if wrong is not None:
        raise InputError(
            f"id {wrong} is not among the {judge.vocab_size} ids of the judge {judge.name}: give texts, or a judge "
            "with the tokenizer of these ids"
        )
    return ids


def token_nats(
    judge: Judge, texts: Sequence[Text], prompts: Sequence[Text] | None = None
) -> list[Float[np.ndarray, " _"]]:
    """Compute -ln p of every scored token of every text, given the prompt and the tokens before it.

    Texts and prompts are tokenised separately, with the judge's tokenizer; lists are taken as ids of that tokenizer.
    Without a prompt and an opening token, a text's first token cannot be predicted from anything, and is not scored.
    A text that exceeds the context with its prompt is read in windows of a whole context, each of which scores half a
    context more. So a token sees at least half a context before it, unless the text has less.

    Args:
        judge: the judge.
        texts: the texts to score.
        prompts: the prompt of each text; None for no prompts.

    Raises:
        InputError: the numbers of prompts and texts differ, or an id is not in the judge's vocabulary.
    """
    texts = contents_of(texts)
    prompts = [""] * len(texts) if prompts is None else contents_of(prompts)
    if len(prompts) != len(texts):
        raise InputError(f"{len(texts)} texts and {len(prompts)} prompts: each text has one prompt")
    bodies = [_ids_of(judge, text) for text in texts]
    heads = [_ids_of(judge, prompt) for prompt in prompts]
    first = [0 if head or judge.opening else 1 for head in heads]
    results = [np.empty(max(0, len(body) - skip)) for body, skip in zip(bodies, first, strict=True)]
    windows = [
        window
        for text, (head, body, skip) in enumerate(zip(heads, bodies, first, strict=True))
        for window in _windows(text, head + body, len(head) + skip, judge)
    ]
    for batch in _batches(windows):
        for window, nats in zip(batch, _score(judge, batch), strict=True):
            results[window.text][window.target : window.target + len(nats)] = nats
    return results


def _windows(text: int, ids: list[int], first: int, judge: Judge) -> Iterator[Window]:
    """Yield windows that score ids[first:], each token once."""
    room = judge.context_length - len(judge.opening)
    begin = first
    while begin < len(ids):
        stop = min(len(ids), max(room, begin + max(1, room // 2)))
        start = max(0, stop - room)
        window = [*judge.opening, *ids[start:stop]]
        yield Window(text, window, len(judge.opening) + begin - start, begin - first)
        begin = stop


def _batches(windows: list[Window]) -> Iterator[list[Window]]:
    """Yield batches of windows, from the longest to the shortest, each as large as fits."""
    batch: list[Window] = []
    for window in sorted(windows, key=lambda one: -len(one.ids)):
        if batch and (len(batch) + 1) * len(batch[0].ids) > BATCH_TOKENS:
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
