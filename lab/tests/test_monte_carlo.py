"""Likelihoods of answers: against exact enumeration, and unbiased when sampled."""

from itertools import permutations

import numpy as np
import pytest
import torch

from dgmark.errors import InputError
from dgmark.models.toy import ToyDenoiser
from dgmark_lab.evaluate.monte_carlo import _draw_masks, answer_likelihood

TOY = ToyDenoiser(spread=6.0)
PROMPT, ANSWER = [3, 7, 2], [5, 9, 4, 11]


def mean_over_orders(model: ToyDenoiser, prompt: list[int], answer: list[int]) -> float:
    """The log-likelihood of decoding the answer one token after another, in the mean over all orders."""
    totals = []
    for order in permutations(range(len(answer))):
        canvas, total = torch.tensor([prompt + [model.mask_id] * len(answer)]), 0.0
        for place in order:
            logits = model(canvas)[0, len(prompt) + place].double()
            total += float(logits.log_softmax(0)[answer[place]])
            canvas[0, len(prompt) + place] = answer[place]
        totals.append(total)
    return float(np.mean(totals))


@pytest.mark.parametrize("length", [1, 2, 4])
def test_a_short_answers_bound_is_exact(length: int) -> None:
    found = answer_likelihood(TOY, PROMPT, ANSWER[:length], samples=2**length - 1)
    assert found == pytest.approx(mean_over_orders(TOY, PROMPT, ANSWER[:length]))
    assert answer_likelihood(TOY, PROMPT, []) == 0.0
    assert answer_likelihood(TOY, [], ANSWER[:1]) < 0


@pytest.mark.parametrize("samples", [3, 14])
def test_the_estimate_is_unbiased(samples: int) -> None:
    """Mean of 300 independent estimates within 5 standard errors of the exact value: a false alarm in 1.7 million."""
    exact = mean_over_orders(TOY, PROMPT, ANSWER)
    bounds = np.array([answer_likelihood(TOY, PROMPT, ANSWER, samples=samples, seed=seed) for seed in range(300)])
    assert abs(bounds.mean() - exact) < 5 * bounds.std(ddof=1) / 300**0.5
    assert bounds.std() > 0


def test_the_number_of_masked_tokens_is_uniform_and_so_are_the_places() -> None:
    """20,000 masks of 5 tokens: each share within 5 standard deviations (.0142; places .018) of what it should be."""
    rng = np.random.default_rng(0)
    masks = np.concatenate([_draw_masks(5, 4, rng) for _ in range(5000)])
    counts = np.bincount(masks.sum(1), minlength=6) / len(masks)
    assert counts[0] == 0
    assert np.abs(counts[1:] - 0.2).max() < 0.0142
    assert np.abs(masks.mean(0) - 0.6).max() < 0.018


def test_batches_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for size in (1, 7, 64):
        monkeypatch.setattr("dgmark_lab.evaluate.monte_carlo._BATCH", size)
        found.append(answer_likelihood(TOY, PROMPT, list(range(4, 20)), samples=40))
    assert found[0] == pytest.approx(found[1]) == pytest.approx(found[2])


def test_an_answer_beyond_the_context_is_refused() -> None:
    with pytest.raises(InputError, match="5 tokens, but toy reads 4"):
        answer_likelihood(ToyDenoiser(context_length=4), [3, 4], [5, 6, 7])
