"""The search for settings by successive halving (Jamieson and Talwalkar 2016).

Many candidates are measured on few prompts, few candidates on many: each round has half the candidates of the one
before and twice the prompts. `Standing` says how trial texts compare with unmarked text over the same prompts: their
diversity with the user's own, their perplexity with that of a sampler that may be better. Knows nothing of models;
everything is computed from figures of single texts.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Float

Candidate = TypeVar("Candidate")

# the goal, as multiples of unmarked text's
MIN_DIVERSITY = 1.0
MAX_PERPLEXITY = 1.05
MIN_PROMPTS = 4
# standard errors that are forgiven where a candidate may yet turn out to meet the goal
_FORGIVEN = 2.0
# names of the figures of a text, as its row has them
FIGURES = ("distinct_2", "nats", "judge_tokens", "p_value", "tokens", "match")


@dataclass(frozen=True)
class Standing:
    """Trial texts of a candidate, compared with unmarked texts over the same prompts.

    Attributes:
        texts: number of pairs.
        diversity: mean distinct-2 over that of the user's own text.
        perplexity: perplexity over that of the reference.
        bits: mean evidence of a text, in bits a token.
        found: share of texts with a p-value at or below the rate.
        match: mean share of the pairs (or tokens) of a text that match.
        diversity_error: standard error of `diversity`.
        log_perplexity_error: standard error of the logarithm of `perplexity`.
    """

    texts: int
    diversity: float
    perplexity: float
    bits: float
    found: float
    match: float
    diversity_error: float
    log_perplexity_error: float

    @property
    def meets_goal(self) -> bool:
        """Whether the texts are as diverse as the user's own, and at most 1.05 times as perplexing as the reference."""
        return self.miss() == 0

    def miss(self, errors: float = 0.0) -> float:
        """How far the texts miss the goal: the relative lack of diversity plus the excess of log perplexity.

        Args:
            errors: standard errors that are forgiven in each of the two.
        """
        lack = MIN_DIVERSITY - self.diversity - errors * self.diversity_error
        excess = float(np.log(self.perplexity / MAX_PERPLEXITY)) - errors * self.log_perplexity_error
        return max(lack, 0.0) + max(excess, 0.0)


def standing(
    texts: Sequence[Mapping[str, Any]],
    own: Sequence[Mapping[str, Any]],
    reference: Sequence[Mapping[str, Any]],
    rate: float,
) -> Standing:
    """Compare rows of texts with rows of unmarked texts, prompt by prompt.

    Args:
        texts: rows with the `FIGURES`, in the order of the prompts.
        own: rows of the user's own texts over the same prompts, for the diversity.
        reference: rows of unmarked texts over the same prompts, for the perplexity.
        rate: the false-positive rate at which a text counts as found.
    """
    one, base = _columns(texts), _columns(reference)
    usual = _columns(own)["distinct_2"]
    diversity = one["distinct_2"].mean() / usual.mean()
    nats, nats_base = (side["nats"].sum() / max(side["judge_tokens"].sum(), 1.0) for side in (one, base))
    # a ratio of sums varies as the mean of its residuals over the mean of its denominators
    residuals, residuals_base = (
        (side["nats"] - ratio * side["judge_tokens"]) / max(side["judge_tokens"].mean(), 1.0)
        for side, ratio in ((one, nats), (base, nats_base))
    )
    return Standing(
        texts=len(texts),
        diversity=float(diversity),
        perplexity=float(np.exp(nats - nats_base)),
        bits=float((-np.log2(one["p_value"]) / np.maximum(one["tokens"], 1)).mean()),
        found=float((one["p_value"] <= rate).mean()),
        match=float(one["match"].mean()),
        diversity_error=_error(one["distinct_2"] - diversity * usual) / float(usual.mean()),
        log_perplexity_error=_error(residuals - residuals_base),
    )


def _columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, Float[np.ndarray, " texts"]]:
    return {name: np.array([float(row[name]) for row in rows]) for name in FIGURES}


def _error(values: Float[np.ndarray, " texts"]) -> float:
    """The standard error of a mean; infinite for a single value."""
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("inf")


def rungs(candidates: int, prompts: int) -> list[tuple[int, int]]:
    """Return the candidates and prompts of each rung; the last one has all prompts.

    The first rung has four prompts, or as many as let the number of candidates fall to three at the last.
    """
    count = max(0, math.floor(math.log2(max(prompts / MIN_PROMPTS, 1))))
    count = min(count, max(0, math.ceil(math.log2(max(candidates / 3, 1)))))
    return [(math.ceil(candidates / 2**rung), math.ceil(prompts / 2 ** (count - rung))) for rung in range(count + 1)]


def ranking(standings: Sequence[Standing], errors: float = 0.0) -> list[int]:
    """Order candidates by index: those that meet the goal by their evidence, then the others by how far they miss it.

    Of equal ones, such as texts without a mark, those of the lowest perplexity come first.

    Args:
        standings: the standing of each candidate.
        errors: standard errors that are forgiven, see `Standing.miss`.
    """
    return sorted(
        range(len(standings)),
        key=lambda one: (standings[one].miss(errors), -standings[one].bits, standings[one].perplexity),
    )


def survivors(standings: Sequence[Standing], count: int) -> list[int]:
    """Choose the candidates of the next rung, by index.

    On few prompts a good candidate may miss the goal by chance, and a bad one may meet it. So places go in turn to the
    best as measured, and to the best if two standard errors are forgiven.
    """
    orders = [ranking(standings), ranking(standings, _FORGIVEN)]
    alternating = dict.fromkeys(one for pair in zip(*orders, strict=True) for one in pair)
    return sorted(list(alternating)[:count])


def halve(
    candidates: Sequence[Candidate],
    prompts: int,
    measure: Callable[[Sequence[Candidate], int], Sequence[Standing]],
) -> list[tuple[Candidate, Standing]]:
    """Search among candidates; return those of the last rung with their standing, the best first.

    Args:
        candidates: the candidates, at least one.
        prompts: number of prompts of the last rung.
        measure: the standing of candidates on the first so many prompts.
    """
    left = list(candidates)
    plan = rungs(len(left), prompts)
    for place, (_, count) in enumerate(plan):
        standings = list(measure(left, count))
        if place + 1 < len(plan):
            left = [left[one] for one in survivors(standings, plan[place + 1][0])]
    return [(left[one], standings[one]) for one in ranking(standings)]
