"""Nats of texts under a judge, token by token: windows over texts that exceed the context, batches by length.

Only the tokens after the prompt are scored. Knows nothing about perplexities and intervals.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch.nn import functional

from dgmark.errors import InputError, SettingsError
from dgmark_lab.evaluate.judge import Judge

Text = str | Sequence[int]

# Tokens of a forward: bounds the memory of its logits (2 GB for 262,144 ids in bf16).
BATCH_TOKENS = 4096


@dataclass(frozen=True)
class Window:
    """The ids of one text in one forward. Those from `scored` on are scored, as results `target` and on."""

    text: int
    ids: list[int]
    scored: int
    target: int


def ids_of(judge: Judge, text: Text) -> list[int]:
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
    bodies = [ids_of(judge, text) for text in texts]
    heads = [ids_of(judge, prompt) for prompt in prompts or [""] * len(texts)]
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
