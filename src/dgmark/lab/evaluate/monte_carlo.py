"""Likelihood of an answer under a masked diffusion model, as LLaDA estimates it (Nie et al. 2025, appendix B.5).

Of an answer of L tokens, k (uniform in 1..L) are masked at random and predicted at once from the prompt and the others;
L/k times their nats, in the mean, are minus the logarithm's lower bound: the mean over all orders of decoding of the
answer's log-likelihood in that order. A watermark by decoding order does not touch it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import comb

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch.nn import functional

from dgmark.errors import InputError, SettingsError
from dgmark.models.denoiser import Denoiser, window_of
from dgmark.models.traits import traits_of

SAMPLES = 128


@dataclass(frozen=True)
class Likelihood:
    """An estimate of the bound.

    Attributes:
        bound: of ln p(answer | prompt), in nats: the model's own likelihood is at least this, but for the estimate's
            error.
        standard_error: of the estimate, from the spread of the samples; 0 where it is exact.
        exact: whether all subsets of the answer were computed, which is done where they are no more than the samples.
        forwards: canvases that were computed.
    """

    bound: float
    standard_error: float
    exact: bool
    forwards: int


def answer_likelihood(
    model: Denoiser,
    prompt: Sequence[int],
    answer: Sequence[int],
    *,
    samples: int = SAMPLES,
    batch_size: int = 32,
    seed: int = 0,
) -> Likelihood:
    """Bound the likelihood of an answer after a prompt.

    Args:
        model: the model. Nothing stands behind the answer on the canvas.
        prompt: token ids, never masked; may be empty.
        answer: token ids.
        samples: masked canvases ("mc_num"). The numbers of masked tokens are stratified over them, each alone
            uniform, so that the estimate is unbiased.
        batch_size: canvases of a forward.
        seed: of the masks; the same answer is masked in the same places.

    Raises:
        InputError: prompt and answer do not fit the context, or an id is not the model's.
        SettingsError: no samples.
    """
    if samples < 1 or batch_size < 1:
        raise SettingsError(f"{samples} samples in batches of {batch_size}: both must be at least 1")
    _check(model, prompt, answer)
    if not answer:
        return Likelihood(0.0, 0.0, exact=True, forwards=0)
    exact = 2 ** len(answer) - 1 <= samples
    masks = _all_masks(len(answer)) if exact else _drawn_masks(len(answer), samples, np.random.default_rng(seed))
    nats = _masked_nats(model, prompt, answer, masks, batch_size)
    counts = masks.sum(1)
    weighted = nats * len(answer) / counts
    if exact:  # each number of masked tokens is as likely, and each subset of that many
        chances = np.array([1 / (len(answer) * comb(len(answer), int(count))) for count in counts])
        return Likelihood(-float((weighted * chances).sum()), 0.0, exact=True, forwards=len(masks))
    spread = float(weighted.std(ddof=1)) / len(weighted) ** 0.5 if len(weighted) > 1 else float("inf")
    return Likelihood(-float(weighted.mean()), spread, exact=False, forwards=len(masks))


def _check(model: Denoiser, prompt: Sequence[int], answer: Sequence[int]) -> None:
    name = traits_of(model).name
    if len(prompt) + len(answer) > model.context_length:
        raise InputError(
            f"prompt and answer have {len(prompt) + len(answer)} tokens, {name} holds {model.context_length}"
        )
    wrong = next((i for i in (*prompt, *answer) if not 0 <= i < model.vocab_size), None)
    if wrong is not None:
        raise InputError(f"id {wrong} is not among the {model.vocab_size} ids of {name}")


def _all_masks(length: int) -> Bool[np.ndarray, "masks answer"]:
    numbers = np.arange(1, 2**length)
    return (numbers[:, None] >> np.arange(length) & 1).astype(np.bool_)


def _drawn_masks(length: int, samples: int, rng: np.random.Generator) -> Bool[np.ndarray, "masks answer"]:
    """Masks with numbers of masked tokens that are spread evenly over 1..length, from a random first one on."""
    counts = (rng.integers(length) + np.arange(samples) * length // samples) % length + 1
    ranks = rng.random((samples, length)).argsort(1).argsort(1)
    drawn: Bool[np.ndarray, "masks answer"] = ranks < counts[:, None]
    return drawn


@torch.inference_mode()
def _masked_nats(
    model: Denoiser,
    prompt: Sequence[int],
    answer: Sequence[int],
    masks: Bool[np.ndarray, "masks answer"],
    batch_size: int,
) -> Float[np.ndarray, " masks"]:
    """Nats of each mask's masked tokens together."""
    ids = torch.tensor([*prompt, *answer], device=traits_of(model).device)
    targets = ids[len(prompt) :]
    window, found = window_of(model), []
    for start in range(0, len(masks), batch_size):
        masked = torch.from_numpy(masks[start : start + batch_size]).to(ids.device)
        canvas = ids.repeat(len(masked), 1)
        canvas[:, len(prompt) :][masked] = model.mask_id
        logits = window(canvas, len(prompt), len(ids))
        rows, places = masked.nonzero(as_tuple=True)
        nats = functional.cross_entropy(logits[rows, places].double(), targets[places], reduction="none")
        found.append(torch.zeros(len(masked), dtype=nats.dtype, device=nats.device).index_add(0, rows, nats).cpu())
    return torch.cat(found).numpy()


def parts(ids: Sequence[int], context: int) -> Iterator[tuple[Sequence[int], Sequence[int]]]:
    """A long text as (what is given, what is scored): half a context each, so that each token is scored once.

    The sum of the bounds of the parts is a bound of the whole.
    """
    half = max(1, context // 2)
    for start in range(0, len(ids), half):
        yield ids[max(0, start - (context - half)) : start], ids[start : start + half]
