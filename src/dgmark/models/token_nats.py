"""-ln p of each token of texts under an autoregressive model: in batches, and in windows for long texts."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from dgmark.arguments.contents import TextOrIds, content_of, contents_of
from dgmark.checkpoint.tokenizer import Tokenizer
from dgmark.errors import InputError

# Most tokens of a forward, padding included. A longer window is a batch by itself.
BATCH_TOKENS = 4096


@runtime_checkable
class CausalModel(Protocol):
    """What is asked of a model; see `LanguageModel`."""

    name: str
    tokenizer: Tokenizer
    context_length: int
    opening: tuple[int, ...]
    vocab_size: int

    def logits_in_pieces(
        self, ids: Int[Tensor, "batch length"], first: int = 0
    ) -> Iterator[Float[Tensor, "batch piece vocab"]]:
        """Logits of the positions from `first` on, a few at a time; position i predicts position i + 1."""
        ...


@dataclass(frozen=True)
class ReadWindow:
    """The ids of one text in one forward. Those from `scored` on are scored, as results `target` and on."""

    text: int
    ids: list[int]
    scored: int
    target: int


def ids_of(model: CausalModel, text: TextOrIds) -> list[int]:
    """Encode a text with the model's tokenizer; ids pass through."""
    content = content_of(text)
    ids = model.tokenizer.encode(content) if isinstance(content, str) else content.tolist()
    wrong = next((i for i in ids if not 0 <= i < model.vocab_size), None)
    if wrong is not None:
        raise InputError(
            f"id {wrong} is not among the {model.vocab_size} ids of {model.name}: give texts, or a model "
            "with the tokenizer of these ids"
        )
    return ids


def token_nats(
    model: CausalModel, texts: Sequence[TextOrIds], prompts: Sequence[TextOrIds] | None = None
) -> list[Float[np.ndarray, " _"]]:
    """Compute -ln p of every scored token of every text, given its prompt, if there is one, and the tokens before it.

    Texts and prompts are tokenised separately, with the model's tokenizer; lists are taken as ids of that tokenizer.
    Without a prompt and an opening token, a text's first token cannot be predicted from anything, and is not scored. A
    text that exceeds the context with its prompt is read in windows of a whole context, each of which scores half a
    context more. So a token sees at least half a context before it, unless the text has less.
    """
    texts = contents_of(texts)
    prompts = [""] * len(texts) if prompts is None else contents_of(prompts)
    if len(prompts) != len(texts):
        raise InputError(f"{len(texts)} texts and {len(prompts)} prompts: each text has one prompt")
    bodies = [ids_of(model, text) for text in texts]
    heads = [ids_of(model, prompt) for prompt in prompts]
    first = [0 if head or model.opening else 1 for head in heads]
    results = [np.empty(max(0, len(body) - skip)) for body, skip in zip(bodies, first, strict=True)]
    windows = [
        window
        for text, (head, body, skip) in enumerate(zip(heads, bodies, first, strict=True))
        for window in _windows(text, head + body, len(head) + skip, model)
    ]
    for batch in _batches(windows):
        for window, nats in zip(batch, _score(model, batch), strict=True):
            results[window.text][window.target : window.target + len(nats)] = nats
    return results


def _windows(text: int, ids: list[int], first: int, model: CausalModel) -> Iterator[ReadWindow]:
    """Yield windows that score ids[first:], each token once."""
    room = model.context_length - len(model.opening)
    begin = first
    while begin < len(ids):
        stop = min(len(ids), max(room, begin + max(1, room // 2)))
        start = max(0, stop - room)
        window = [*model.opening, *ids[start:stop]]
        yield ReadWindow(text, window, len(model.opening) + begin - start, begin - first)
        begin = stop


def _batches(windows: list[ReadWindow]) -> Iterator[list[ReadWindow]]:
    """Yield batches of windows, from the longest to the shortest, each as large as fits."""
    batch: list[ReadWindow] = []
    for window in sorted(windows, key=lambda window: -len(window.ids)):
        if batch and (len(batch) + 1) * len(batch[0].ids) > BATCH_TOKENS:
            yield batch
            batch = []
        batch.append(window)
    if batch:
        yield batch


@torch.inference_mode()
def _score(model: CausalModel, batch: Sequence[ReadWindow]) -> list[Float[np.ndarray, " _"]]:
    longest = max(len(window.ids) for window in batch)
    ids = torch.zeros((len(batch), longest), dtype=torch.long)  # padding at the end does not affect the tokens before
    for row, window in enumerate(batch):
        ids[row, : len(window.ids)] = torch.tensor(window.ids)
    ahead = min(window.scored for window in batch)
    nats = torch.zeros(ids.shape)
    for logits in model.logits_in_pieces(ids, ahead - 1):
        targets = ids[:, ahead : ahead + logits.shape[1]].to(logits.device)
        flat = logits[:, : targets.shape[1]].flatten(0, 1).float()  # the last position predicts nothing
        found = functional.cross_entropy(flat, targets.flatten(), reduction="none")
        nats[:, ahead : ahead + targets.shape[1]] = found.view(targets.shape)
        ahead += logits.shape[1]
    return [nats[row, window.scored : len(window.ids)].numpy().astype(np.float64) for row, window in enumerate(batch)]
