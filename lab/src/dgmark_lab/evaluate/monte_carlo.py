"""The likelihood of an answer under a masked diffusion model, as LLaDA estimates it (Nie et al. 2025, appendix B.5).

Of an answer's L tokens, k (uniform in 1..L) random ones are masked and predicted at once from the prompt and the
others. The mean of L/k times their nats is minus a lower bound of the log-likelihood: the mean, over all decoding
orders, of the answer's log-likelihood in that order. A watermark by decoding order does not change it.
"""

from collections.abc import Sequence
from math import comb

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch.nn import functional

from dgmark.errors import InputError
from dgmark.models.denoiser import Denoiser, check_logits, check_values, open_session, traits_of

SAMPLES = 128
_BATCH = 32  # canvases of a forward


def answer_likelihood(
    model: Denoiser, prompt: Sequence[int], answer: Sequence[int], *, samples: int = SAMPLES, seed: int = 0
) -> float:
    """Bound the likelihood of an answer after a prompt: ln p(answer | prompt) in nats, from below.

    The bound is exact, from all subsets of the answer, if these are no more than the samples; else it is an estimate.

    Args:
        model: the model. The canvas ends with the answer.
        prompt: token ids, never masked; may be empty.
        answer: token ids.
        samples: how many masked canvases to draw ("mc_num"). The numbers of masked tokens are stratified over them, and
            each is uniform by itself, so the estimate is unbiased.
        seed: seed of the masks; the same answer is masked in the same places.

    Raises:
        InputError: prompt and answer exceed the context.
        ModelFault: the model's logits are unusable.
    """
    if len(prompt) + len(answer) > model.context_length:
        raise InputError(
            f"prompt and answer have {len(prompt) + len(answer)} tokens, but {traits_of(model).name} reads "
            f"{model.context_length}: shorten the prompt"
        )
    if not answer:
        return 0.0
    exact = 2 ** len(answer) - 1 <= samples
    masks = _all_masks(len(answer)) if exact else _draw_masks(len(answer), samples, np.random.default_rng(seed))
    counts = masks.sum(1)
    weighted = _masked_nats(model, prompt, answer, masks) * len(answer) / counts
    if exact:  # all numbers of masked tokens are equally likely, and so are all subsets of one size
        chances = np.array([1 / (len(answer) * comb(len(answer), int(count))) for count in counts])
        return -float((weighted * chances).sum())
    return -float(weighted.mean())


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
) -> Float[np.ndarray, " masks"]:
    """Return the sum of nats over each mask's masked tokens."""
    ids = torch.tensor([*prompt, *answer], device=traits_of(model).device)
    targets = ids[len(prompt) :]
    session, sums = open_session(model), []
    for start in range(0, len(masks), _BATCH):
        masked = torch.from_numpy(masks[start : start + _BATCH]).to(ids.device)
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
