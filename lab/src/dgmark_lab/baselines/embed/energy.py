"""The gradient of the expected number of green tokens (Gloaguen et al. 2025), in closed form.

Energy J = sum over positions s, contexts c and tokens v of P_s(c) G(h(c), v) p_s(v), with P_s(c) the product of the
neighbours' probabilities. It is linear in each position's distribution, so the gradient is a sum over the
neighbours: alpha_t(u) = sum_c P_t(c) G(h(c), u), the expectation boost, plus the predictive bias,
sum_{s, j: s + o_j = t} sum_{c: c_j = u} P_s(c) / p_t(u) sum_v G(h(c), v) p_s(v).
Sums run over the top-k tokens and the top-k contexts of a masked position; a committed token has probability 1.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from dgmark.decode.steering import View
from dgmark_lab.baselines.prf import SubKey, states, threshold, uniform_bits

_DOUBLINGS, _BISECTIONS = 10, 24


@dataclass(frozen=True)
class Atoms:
    """The tokens that each column may hold, with their probabilities.

    Attributes:
        tokens: the likeliest tokens of a masked column, or the token of a committed one.
        weights: their probabilities; all 0 where nothing is known.
        masked: the columns whose `weights` are a distribution, an argument of the energy.
    """

    tokens: Int[Tensor, "canvases columns k"]
    weights: Float[Tensor, "canvases columns k"]
    masked: Bool[Tensor, "canvases columns"]

    def shifted(self, offset: int) -> "Atoms":
        """The atoms `offset` columns further on; columns that would wrap around are unknown."""
        weights, masked = self.weights.roll(-offset, 1), self.masked.roll(-offset, 1)
        beyond = slice(-offset, None) if offset > 0 else slice(-offset)
        weights[:, beyond], masked[:, beyond] = 0.0, False
        return Atoms(self.tokens.roll(-offset, 1), weights, masked)


@dataclass(frozen=True)
class Energy:
    """The expected number of green tokens as a function of the masked positions' distributions.

    A masked neighbour outside the window has no distribution: contexts that hold it are left out of the energy.

    Attributes:
        subkey: the subkey of the green lists.
        gamma: share of green tokens.
        offsets: the neighbours whose tokens make the context.
        ranks: each token's rank in MinHash's order; None hashes a context by the sum of its tokens.
        top_k: how many tokens and how many contexts of a position the expectation runs over.
        boost: whether the gradient includes the expectation boost.
        predict: whether the gradient includes the predictive bias.
    """

    subkey: SubKey
    gamma: float
    offsets: tuple[int, ...]
    ranks: Int[Tensor, " vocab"] | None
    top_k: int
    boost: bool
    predict: bool

    def gradient(self, atoms: Atoms, counted: Bool[Tensor, "canvases columns"]) -> Float[Tensor, "canvases columns k"]:
        """Return the gradient at the atoms of each column; only `counted` columns are positions s of the sum."""
        around = [atoms.shifted(offset) for offset in self.offsets]
        slots, weights = _likeliest_contexts([atom.weights for atom in around], self.top_k)
        tokens = [atom.tokens.gather(-1, slot) for atom, slot in zip(around, slots, strict=True)]
        # a committed token in a committed context is a constant
        varies = torch.stack([atoms.masked, *(atom.masked for atom in around)]).any(0)
        term = (counted & varies & (weights > 0).any(-1)).nonzero(as_tuple=True)
        green = self._green(self._hash([token[term] for token in tokens]), atoms.tokens[term]).to(weights.dtype)
        alpha = torch.zeros_like(atoms.weights)
        if self.boost:
            alpha[term] += torch.einsum("nc,nck->nk", weights[term], green)
        if self.predict:
            probability = torch.einsum("nck,nk->nc", green, atoms.weights[term])
            chances = [atom.weights.gather(-1, slot)[term] for atom, slot in zip(around, slots, strict=True)]
            for j, offset in enumerate(self.offsets):
                # the product without the neighbour itself; contexts of weight 0 do not exist
                others = (weights[term] > 0).to(probability.dtype)
                for i, chance in enumerate(chances):
                    others = others * (chance if i != j else 1.0)
                at = (term[0][:, None].expand_as(others), (term[1] + offset)[:, None].expand_as(others), slots[j][term])
                inside = (at[1] >= 0) & (at[1] < alpha.shape[1])
                alpha.index_put_(tuple(index[inside] for index in at), (others * probability)[inside], accumulate=True)
        return alpha

    def _hash(self, tokens: list[Tensor]) -> Int[Tensor, "terms contexts"]:
        if self.ranks is None:
            return torch.stack(tokens).sum(0)
        return self.ranks[torch.stack(tokens)].amin(0)

    def _green(self, contexts: Tensor, tokens: Tensor) -> Bool[Tensor, "terms contexts k"]:
        """G(h, v) for every context and every token of each term."""
        bits = uniform_bits(states(self.subkey, contexts)[:, :, None], tokens[:, None])
        return bits < threshold(self.gamma)


@dataclass(frozen=True)
class EnergyBias:
    """Tilts the logits of the masked positions by the gradient of the energy.

    Attributes:
        energy: the energy.
        delta: strength of the tilt, divided among a position and its neighbours; in nats with `enforce_kl`.
        enforce_kl: tilt every position until KL(q || p) is `delta`.
    """

    energy: Energy
    delta: float
    enforce_kl: bool

    def __call__(self, view: View) -> Tensor:
        """Return the tilted logits of the masked positions."""
        logits = view.logits_to_propose()
        # the tilt applies to the distribution that is sampled: q ~ softmax(logits / T) exp(d alpha)
        temperature = view.temperature or 1.0
        permitted = logits.index_fill(-1, view.forbidden, -torch.inf)
        top = torch.softmax(permitted / temperature, -1).topk(min(self.energy.top_k, logits.shape[-1]), -1)
        reach = 2 * max(map(abs, self.energy.offsets))
        atoms, counted = _atoms(view, top.indices, top.values, reach)
        inside = slice(reach, reach + view.masked.shape[1])
        alpha = self.energy.gradient(atoms, counted)[:, inside][view.masked]
        if self.enforce_kl:
            strength = strength_for(alpha, top.values, self.delta)
        else:
            strength = torch.full_like(alpha[:, :1], self.delta / (len(self.energy.offsets) + 1))
        return logits.scatter_add_(1, top.indices, temperature * strength * alpha)


def _atoms(
    view: View, tokens: Int[Tensor, "masked k"], weights: Float[Tensor, "masked k"], reach: int
) -> tuple[Atoms, Bool[Tensor, "canvases columns"]]:
    """Return the atoms of the window and `reach` columns on either side, and which columns the energy counts."""
    rows = len(view.masked)
    known = torch.stack([view.neighbours(offset - reach)[:, 0] for offset in range(reach)], 1)
    after = torch.stack([view.neighbours(offset + 1)[:, -1] for offset in range(reach)], 1)
    known = torch.cat([known, view.neighbours(0), after], 1)
    every = torch.zeros(rows, known.shape[1], tokens.shape[1], dtype=torch.long, device=tokens.device)
    chance = torch.zeros(every.shape, dtype=weights.dtype, device=tokens.device)
    every[:, :, 0] = known.clamp(min=0)
    chance[:, :, 0] = (known >= 0).to(weights.dtype)
    row, place = view.masked.nonzero(as_tuple=True)
    every[row, place + reach], chance[row, place + reach] = tokens, weights
    masked = torch.nn.functional.pad(view.masked, (reach, reach))
    # columns before position 0 belong to the prompt, which no detector scores
    first = int(view.positions[0]) - reach
    response = torch.arange(known.shape[1], device=tokens.device) + first >= 0
    return Atoms(every, chance, masked), response & (chance[:, :, 0] > 0)


def _likeliest_contexts(
    weights: list[Float[Tensor, "canvases columns k"]], most: int
) -> tuple[list[Int[Tensor, "canvases columns c"]], Float[Tensor, "canvases columns c"]]:
    """Return the `most` likeliest contexts: the atom chosen for each neighbour, and the product of their weights."""
    k = weights[0].shape[-1]
    product = weights[0]
    slots = [torch.arange(k, device=product.device).expand_as(product)]
    for other in weights[1:]:
        pairs = (product[..., :, None] * other[..., None, :]).flatten(-2)
        product, at = pairs.topk(min(most, pairs.shape[-1]), -1)
        slots = [slot.gather(-1, at // k) for slot in slots] + [at % k]
    return slots, product


def strength_for(alpha: Float[Tensor, "n k"], weights: Float[Tensor, "n k"], divergence: float) -> Float[Tensor, "n 1"]:
    """Solve KL(q || p) = `divergence` for d >= 0, with q ~ p exp(d alpha); 1024 where no smaller d reaches it.

    Args:
        alpha: the gradient at the top-k tokens; it is 0 for all others.
        weights: p of the top-k tokens.
        divergence: in nats.
    """
    rest = (1 - weights.sum(-1, keepdim=True)).clamp(min=0)

    def reached(d: Tensor) -> Tensor:
        # relative to the largest alpha, so that no exponential overflows
        peak = alpha.amax(-1, keepdim=True).clamp(min=0)
        tilted = weights * (d * (alpha - peak)).exp()
        total = tilted.sum(-1, keepdim=True) + rest * (-d * peak).exp()
        mean = (tilted * alpha).sum(-1, keepdim=True) / total
        return (d * mean - (total.log() + d * peak)) >= divergence

    high = torch.ones_like(rest)
    for _ in range(_DOUBLINGS):
        high = torch.where(reached(high), high, 2 * high)
    low = torch.zeros_like(high)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        enough = reached(middle)
        low, high = torch.where(enough, low, middle), torch.where(enough, middle, high)
    return high
