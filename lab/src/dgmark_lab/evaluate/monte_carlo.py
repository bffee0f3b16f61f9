"""The likelihood of an answer under a masked diffusion model, as LLaDA estimates it (Nie et al. 2025, appendix B.5).

Of an answer's L tokens, k (uniform in 1..L) random ones are masked and predicted at once from the prompt and the
others. The mean of L/k times their nats is minus a lower bound of the log-likelihood: the mean, over all decoding
orders, of the answer's log-likelihood in that order. A watermark by decoding order does not change it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch.nn import functional

from dgmark.errors import InputError, SettingsError
from dgmark.models.denoiser import Denoiser, check_logits, check_values, open_session, traits_of

SAMPLES = 128


@dataclass(frozen=True)
class Likelihood:
    """An estimate of the bound.

    Attributes:
        bound: lower bound of ln p(answer | prompt), in nats, up to the error of the estimate.
        standard_error: standard error of the estimate, from the spread of the samples; 0 if it is exact.
        exact: whether all subsets of the answer were computed, as is done if they are no more than the samples.
        forwards: how many canvases were computed.
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
        model: the model. The canvas ends with the answer.
        prompt: token ids, never masked; may be empty.
        answer: token ids.
        samples: how many masked canvases to draw ("mc_num"). The numbers of masked tokens are stratified over them, and
            each is uniform by itself, so the estimate is unbiased.
        batch_size: canvases of a forward.
        seed: seed of the masks; the same answer is masked in the same places.

    Raises:
        InputError: prompt and answer exceed the context, or an id is not in the vocabulary.
        SettingsError: `samples` or `batch_size` is less than 1.
        ModelFault: the model's logits are unusable.
    """
    if samples < 1 or batch_size < 1:
        raise SettingsError(f"{samples} samples in batches of {batch_size}: both must be at least 1")
    _check(model, prompt, answer)
    if not answer:
        return Likelihood(0.0, 0.0, exact=True, forwards=0)
    exact = 2 ** len(answer) - 1 <= samples
    masks = _all_masks(len(answer)) if exact else _draw_masks(len(answer), samples, np.random.default_rng(seed))
    nats = _masked_nats(model, prompt, answer, masks, batch_size)
    counts = masks.sum(1)
    weighted = nats * len(answer) / counts
    if exact:  # all numbers of masked tokens are equally likely, and so are all subsets of one size
        chances = np.array([1 / (len(answer) * comb(len(answer), int(count))) for count in counts])
        return Likelihood(-float((weighted * chances).sum()), 0.0, exact=True, forwards=len(masks))
    spread = float(weighted.std(ddof=1)) / len(weighted) ** 0.5 if len(weighted) > 1 else float("inf")
    return Likelihood(-float(weighted.mean()), spread, exact=False, forwards=len(masks))


def _check(model: Denoiser, prompt: Sequence[int], answer: Sequence[int]) -> None:
    name = traits_of(model).name
    if len(prompt) + len(answer) > model.context_length:
        raise InputError(
            f"prompt and answer have {len(prompt) + len(answer)} tokens, but {name} reads "
            f"{model.context_length}: shorten the prompt"
        )
    wrong = next((i for i in (*prompt, *answer) if not 0 <= i < model.vocab_size), None)
    if wrong is not None:
        raise InputError(f"id {wrong} is not among the {model.vocab_size} ids of {name}")


def _all_masks(length: int) -> Bool[np.ndarray, "masks answer"]:
    numbers = np.arange(1, 2**length)
    return (numbers[:, None] >> np.arange(length) & 1).astype(np.bool_)


def _draw_masks(length: int, samples: int, rng: np.random.Generator) -> Bool[np.ndarray, "masks answer"]:
    """Draw masks whose numbers of masked tokens are spread evenly over 1..length, starting from a random one."""
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
    """Return the sum of nats over each mask's masked tokens."""
    ids = torch.tensor([*prompt, *answer], device=traits_of(model).device)
    targets = ids[len(prompt) :]
    session, sums = open_session(model), []
    for start in range(0, len(masks), batch_size):
        masked = torch.from_numpy(masks[start : start + batch_size]).to(ids.device)
        canvas = ids.repeat(len(masked), 1)
        canvas[:, len(prompt) :][masked] = model.mask_id
        logits = session.begin(canvas, len(prompt), len(ids))
        check_logits(model, logits, canvas, len(targets))
        rows, places = masked.nonzero(as_tuple=True)
        chosen = logits[rows, places]
        check_values(traits_of(model).name, chosen)
        nats = functional.cross_entropy(chosen.double(), targets[places], reduction="none")
        sums.append(torch.zeros(len(masked), dtype=nats.dtype, device=nats.device).index_add(0, rows, nats).cpu())
    return torch.cat(sums).numpy()
