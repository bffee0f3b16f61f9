"""The gradient of the expected number of green tokens (Gloaguen et al. 2025), in closed form.

Energy J = sum over positions s, contexts c and tokens v of P_s(c) G(h(c), v) p_s(v), with P_s(c) the product of the
neighbours' probabilities. It is linear in each position's distribution, so the gradient is a sum over what stands
beside: alpha_t(u) = sum_c P_t(c) G(h(c), u), the expectation boost, plus the predictive bias,
sum_{s, j: s + o_j = t} sum_{c: c_j = u} P_s(c) / p_t(u) sum_v G(h(c), v) p_s(v).
Sums run over the top-k tokens of a masked position and the top-k contexts of it; a committed token is certain.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from dgmark.decode.steering import View
from dgmark.lab.baselines.prf import SubKey, states, threshold, uniform_bits

_DOUBLINGS, _BISECTIONS = 10, 24


@dataclass(frozen=True)
class Atoms:
    """What each column may hold.

    Attributes:
        tokens: the likeliest tokens of a masked place; of a committed one that token.
        weights: their probabilities; all 0 where nothing is known.
        masked: where `weights` are a distribution that the energy is a function of.
    """

    tokens: Int[Tensor, "canvases columns k"]
    weights: Float[Tensor, "canvases columns k"]
    masked: Bool[Tensor, "canvases columns"]

    def shifted(self, offset: int) -> "Atoms":
        """At each column, what stands `offset` columns further; what would wrap around is unknown."""
        weights, masked = self.weights.roll(-offset, 1), self.masked.roll(-offset, 1)
        beyond = slice(-offset, None) if offset > 0 else slice(-offset)
        weights[:, beyond], masked[:, beyond] = 0.0, False
        return Atoms(self.tokens.roll(-offset, 1), weights, masked)


@dataclass(frozen=True)
class Energy:
    """The expected number of green tokens as a function of the masked positions' distributions.

    A neighbour that is masked outside of the window has no distribution: a context with it is left out of the energy.

    Attributes:
        subkey: of the green lists.
        gamma: share of green tokens.
        offsets: the neighbours whose tokens make the context.
        ranks: each token's rank in MinHash's order; None hashes a context by the sum of its tokens.
        top_k: tokens of a position, and contexts of it, that the expectation runs over.
        boost: whether the gradient has the expectation boost.
        predict: whether it has the predictive bias.
    """

    subkey: SubKey
    gamma: float
    offsets: tuple[int, ...]
    ranks: Int[Tensor, " vocab"] | None
    top_k: int
    boost: bool
    predict: bool

    def gradient(self, atoms: Atoms, counted: Bool[Tensor, "canvases columns"]) -> Float[Tensor, "canvases columns k"]:
        """The gradient at the atoms of each column; `counted` columns have a term of their own in the energy."""
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
                # the product without the neighbour itself, which also leaves out what is not there
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
        """G(h, v) of every context of a term with every token of it."""
        bits = uniform_bits(states(self.subkey, contexts)[:, :, None], tokens[:, None])
        return bits < threshold(self.gamma)


@dataclass(frozen=True)
class EnergyBias:
    """Tilts the logits of the masked places by their gradient of the energy.

    Attributes:
        energy: what the gradient is of.
        delta: strength of the tilt, shared among a position and its neighbours; with `enforce_kl`, nats.
        enforce_kl: tilt every position until KL(q || p) is `delta`.
    """

    energy: Energy
    delta: float
    enforce_kl: bool

    def __call__(self, view: View) -> Tensor:
        """The tilted logits of the masked places."""
        logits = view.logits_to_propose()
        # the tilt is of the sampled distribution: q ~ softmax(logits / T) exp(d alpha)
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
    """The atoms of the window and `reach` columns on either side, and which of these columns belong to the response."""
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
    # the columns before position 0 are the prompt's, which no detector scores
    first = int(view.positions[0]) - reach
    response = torch.arange(known.shape[1], device=tokens.device) + first >= 0
    return Atoms(every, chance, masked), response & (chance[:, :, 0] > 0)


def _likeliest_contexts(
    weights: list[Float[Tensor, "canvases columns k"]], most: int
) -> tuple[list[Int[Tensor, "canvases columns c"]], Float[Tensor, "canvases columns c"]]:
    """The `most` likeliest tuples of neighbours: of each neighbour the atom taken, and the product of their weights."""
    k = weights[0].shape[-1]
    product = weights[0]
    slots = [torch.arange(k, device=product.device).expand_as(product)]
    for other in weights[1:]:
        pairs = (product[..., :, None] * other[..., None, :]).flatten(-2)
        product, at = pairs.topk(min(most, pairs.shape[-1]), -1)
        slots = [slot.gather(-1, at // k) for slot in slots] + [at % k]
    return slots, product


def strength_for(alpha: Float[Tensor, "n k"], weights: Float[Tensor, "n k"], divergence: float) -> Float[Tensor, "n 1"]:
    """The d >= 0 at which q ~ p exp(d alpha) has KL(q || p) = `divergence`; 1024 where none below reaches it.

    Args:
        alpha: of the top-k tokens; the others have 0.
        weights: p of the top-k tokens.
        divergence: nats.
    """
    rest = (1 - weights.sum(-1, keepdim=True)).clamp(min=0)

    def reached(d: Tensor) -> Tensor:
        # tilted by the largest alpha, so that no power overflows
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
