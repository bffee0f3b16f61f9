"""The decoding strategy F: a candidate token v_j and a reward r_j for each masked position (paper section 3.1).

It sees logits, random numbers and the bits of candidates, and neither keys nor the canvas.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from dgmark.decode.config import DecodeConfig
from dgmark.decode.draws import KeyedDraw


@dataclass(frozen=True)
class Proposals:
    """Candidate tokens and their rewards, one for each masked position, or for each place of each block.

    Attributes:
        tokens: the candidates v_j.
        rewards: r_j, by the model alone.
        scores: the rewards by which positions are ordered: r_j times the factor by which keyed bits changed the
            probability of v_j, so that the order does not undo what the draw did.
        levels: how many keyed bits of v_j are 1, less those that are 0; None if the draw saw none.
    """

    tokens: Int[Tensor, "*places"]
    rewards: Float[Tensor, "*places"]
    scores: Float[Tensor, "*places"]
    levels: Int[Tensor, "*places"] | None = None


def propose(
    logits: Float[Tensor, "k vocab"],
    uniforms: Float[Tensor, "k 2"],
    forbidden: Int[Tensor, " f"],
    config: DecodeConfig,
    *,
    tempered: bool = False,
    noise: Float[Tensor, "k vocab"] | None = None,
    refused: Bool[Tensor, "k vocab"] | None = None,
    keyed: KeyedDraw | None = None,
) -> Proposals:
    """Propose a candidate and its reward for each of k masked positions.

    Candidates come from the tempered, filtered distribution and are never `forbidden`. The reward comes from the
    model's own distribution, neither tempered nor filtered, in float32 or better (LLaDA's procedure), or from the very
    distribution that was sampled (Dream's and LLaDA 2's), as it was before any keyed bit.

    Args:
        logits: the model's logits at these positions; not written to.
        uniforms: numbers in [0, 1): the first draws the candidate, the second is the reward of strategy "random".
        forbidden: ids that no position may take (the mask id, rows of padding).
        config: strategy, temperature and filters.
        tempered: take the reward from the sampled distribution; at temperature 0 that is the model's own.
        noise: Gumbel noise that draws the candidate (argmax of log-probability + noise) instead of the first uniform.
        refused: ids that one position may not take; the reward is still that of the model's own distribution.
        keyed: moves mass by keyed bits before a candidate is drawn, or taken.
    """
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    permitted = logits.index_fill(-1, forbidden, -torch.inf)
    if refused is not None:
        permitted = permitted.masked_fill(refused, -torch.inf)
    moved = None
    if config.greedy and keyed is None:
        tokens = permitted.argmax(-1)
    else:
        weights = torch.softmax(permitted / (config.temperature or 1.0), -1)
        if not config.greedy:
            weights = filter_weights(weights, config.top_k, config.top_p)
            if tempered:
                logits = permitted = weights.log()
        moved = None if keyed is None else keyed.apply(weights)
        if config.greedy:
            tokens = weights.argmax(-1)
        else:
            tokens = draw(weights, uniforms[:, 0]) if noise is None else (weights.log() + noise).argmax(-1)
    rewards = _rewards(logits, permitted, tokens, uniforms[:, 1], config)
    if moved is None:
        return Proposals(tokens, rewards, rewards)
    gains, levels = moved.of(tokens)
    return Proposals(tokens, rewards, _scores(rewards, gains, config), levels)


def _scores(rewards: Tensor, gains: Tensor, config: DecodeConfig) -> Tensor:
    """The rewards times the gains; a reward that says nothing of the token stays."""
    if config.strategy in ("random", "left_to_right"):
        return rewards
    if config.strategy == "entropy":  # a logarithm
        return (rewards + gains.log()).to(rewards.dtype)
    return (rewards * gains).to(rewards.dtype)


def _rewards(logits: Tensor, permitted: Tensor, tokens: Tensor, uniforms: Tensor, config: DecodeConfig) -> Tensor:
    match config.strategy:
        case "random":
            return uniforms.to(logits.dtype)
        case "left_to_right":  # all equal: the loop knows the places
            return torch.zeros_like(logits[:, 0])
        case "confidence":
            # softmax at one token, without computing the others
            chosen = logits.gather(-1, tokens[:, None])[:, 0]
            return (chosen - logits.logsumexp(-1)).exp()
        case "entropy":
            surprise: Tensor = torch.special.entr(torch.softmax(logits, -1))
            return -surprise.sum(-1)
        case _:
            best = (permitted.topk(2, -1).values - logits.logsumexp(-1, keepdim=True)).exp()
            return best[:, 0] - best[:, 1]


_SORTED_FIRST = 256  # weights


def filter_weights(
    weights: Float[Tensor, "k vocab"], top_k: int | None, top_p: float | None
) -> Float[Tensor, "k vocab"]:
    """Set the probabilities outside top-k, then those outside top-p, to 0; the rest is not renormalised.

    Tokens tied with the k-th stay, as in transformers. Top-p is a share of the mass that top-k left.
    """
    if top_k is not None and top_k < weights.shape[-1]:
        kth = weights.topk(top_k, -1).values[:, -1:]
        weights = weights.where(weights >= kth, 0.0)
    if top_p is not None and top_p < 1:
        weights = _nucleus(weights, top_p)
    return weights


def _nucleus(weights: Float[Tensor, "k vocab"], top_p: float) -> Float[Tensor, "k vocab"]:
    """Keep the fewest most likely tokens with a share `top_p` of the mass; of equal ones, the lower ids.

    Sorting a whole vocabulary costs as much as a small model's forward, so only the largest weights are sorted: as many
    as hold the share.
    """
    share = top_p * weights.sum(-1, keepdim=True, dtype=torch.float64)
    count = min(_SORTED_FIRST, weights.shape[-1])
    while True:
        largest = weights.topk(count, -1).values
        mass = largest.cumsum(-1, dtype=torch.float64)
        if count == weights.shape[-1] or bool((mass[:, -1:] >= share).all()):
            break
        count = min(8 * count, weights.shape[-1])
    kept = (mass - largest < share).sum(-1, keepdim=True).clamp(min=1)  # of NaN none is less; a fault, reported later
    least = largest.gather(-1, kept - 1)
    above, level = weights > least, weights == least
    among_equals = level & (level.cumsum(-1) <= kept - above.sum(-1, keepdim=True))
    return weights.where(above | among_equals, 0.0)


def draw(weights: Float[Tensor, "k vocab"], uniforms: Float[Tensor, " k"]) -> Int[Tensor, " k"]:
    """Draw one token for each row by inverting the cumulative weights at `uniforms`; never a token of weight 0.

    This needs one random number for each position instead of one for each token of the vocabulary.
    """
    mass = weights.cumsum(-1, dtype=torch.float64)
    total = mass[:, -1]
    # u * total may round up to total, above which there is no token
    target = torch.minimum(uniforms.to(torch.float64) * total, torch.nextafter(total, torch.zeros_like(total)))
    # weights of NaN have no token either; what comes of them must still be an id until the fault is reported
    return torch.searchsorted(mass, target[:, None], right=True)[:, 0].clamp(max=weights.shape[-1] - 1)
