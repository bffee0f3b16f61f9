"""The decode side of the expected-green-list watermark (Gloaguen, Staab, Jovanović, Vechev 2025).

Energy J = sum over positions s, contexts c and tokens v of P_s(c) G(h(c), v) p_s(v), with P_s(c) the product of the
neighbours' probabilities. It is linear in each position's distribution, so the gradient has a closed form, a sum over
the neighbours: alpha_t(u) = sum_c P_t(c) G(h(c), u), the expectation boost, plus the predictive bias,
sum_{s, j: s + o_j = t} sum_{c: c_j = u} P_s(c) / p_t(u) sum_v G(h(c), v) p_s(v).
Sums run over the top-k tokens and the top-k contexts of a masked position; a committed token has probability 1.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from dgmark.decode.marks.keyed_side import OneKeySide
from dgmark.decode.marks.rules import Step
from dgmark.watermark.spec import spec_as
from dgmark_lab.baselines.green_lists import is_green
from dgmark_lab.baselines.prf import HashKey
from dgmark_lab.baselines.specs import GloaguenSpec


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


class GloaguenSide(OneKeySide):
    """Tilts the logits of the masked positions by the gradient of the expected number of green tokens.

    A masked neighbour outside the window has no distribution: contexts that hold it are left out of the energy.
    """

    def change(self, step: Step) -> Float[Tensor, "k vocab"]:
        """The tilted logits."""
        options, logits = spec_as(GloaguenSpec, self.key), step.copied_logits()
        # the tilt applies to the distribution that is sampled: q ~ softmax(logits / T) exp(d alpha)
        temperature = step.temperature or 1.0
        permitted = logits.index_fill(-1, step.forbidden, -torch.inf)
        top = torch.softmax(permitted / temperature, -1).topk(min(options.top_k, logits.shape[-1]), -1)
        reach = 2 * max(map(abs, options.offsets))
        atoms, counted = _atoms(step, top.indices, top.values, reach)
        inside = slice(reach, reach + step.masked.shape[1])
        alpha = self.gradient(atoms, counted)[:, inside][step.places.index]
        strength = options.delta / (len(options.offsets) + 1)
        return logits.scatter_add_(1, top.indices, temperature * strength * alpha)

    def gradient(self, atoms: Atoms, counted: Bool[Tensor, "canvases columns"]) -> Float[Tensor, "canvases columns k"]:
        """Return the gradient at the atoms of each column; only `counted` columns are positions s of the sum."""
        options = spec_as(GloaguenSpec, self.key)
        around = [atoms.shifted(offset) for offset in options.offsets]
        slots, weights = _likeliest_contexts([atom.weights for atom in around], options.top_k)
        tokens = [atom.tokens.gather(-1, slot) for atom, slot in zip(around, slots, strict=True)]
        # a committed token in a committed context is a constant
        varies = torch.stack([atoms.masked, *(atom.masked for atom in around)]).any(0)
        term = (counted & varies & (weights > 0).any(-1)).nonzero(as_tuple=True)
        hashes = torch.stack([token[term] for token in tokens]).sum(0)
        hash_key, gamma = HashKey.of(self.key, "gloaguen"), options.gamma
        green = is_green(hash_key, hashes[:, :, None], atoms.tokens[term][:, None], gamma).to(weights.dtype)
        alpha = torch.zeros_like(atoms.weights)
        # the expectation boost
        alpha[term] += torch.einsum("nc,nck->nk", weights[term], green)
        # the predictive bias
        probability = torch.einsum("nck,nk->nc", green, atoms.weights[term])
        chances = [atom.weights.gather(-1, slot)[term] for atom, slot in zip(around, slots, strict=True)]
        for j, offset in enumerate(options.offsets):
            # the product without the neighbour itself; contexts of weight 0 do not exist
            others = (weights[term] > 0).to(probability.dtype)
            for i, chance in enumerate(chances):
                others = others * (chance if i != j else 1.0)
            at = (term[0][:, None].expand_as(others), (term[1] + offset)[:, None].expand_as(others), slots[j][term])
            inside = (at[1] >= 0) & (at[1] < alpha.shape[1])
            alpha.index_put_(tuple(index[inside] for index in at), (others * probability)[inside], accumulate=True)
        return alpha


def _atoms(
    step: Step, tokens: Int[Tensor, "masked k"], weights: Float[Tensor, "masked k"], reach: int
) -> tuple[Atoms, Bool[Tensor, "canvases columns"]]:
    """Return the atoms of the window and `reach` columns on either side, and which columns the energy counts."""
    rows = len(step.masked)
    known = torch.stack([step.neighbours(offset - reach)[:, 0] for offset in range(reach)], 1)
    after = torch.stack([step.neighbours(offset + 1)[:, -1] for offset in range(reach)], 1)
    known = torch.cat([known, step.neighbours(0), after], 1)
    every = torch.zeros(rows, known.shape[1], tokens.shape[1], dtype=torch.long, device=tokens.device)
    chance = torch.zeros(every.shape, dtype=weights.dtype, device=tokens.device)
    every[:, :, 0] = known.clamp(min=0)
    chance[:, :, 0] = (known >= 0).to(weights.dtype)
    row, place = step.places.index
    every[row, place + reach], chance[row, place + reach] = tokens, weights
    masked = torch.nn.functional.pad(step.masked, (reach, reach))
    # columns before position 0 belong to the prompt, which no detector scores
    first = int(step.window.positions[0, 0]) - reach
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
