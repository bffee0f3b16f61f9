"""KGW, Unigram, DMark and LR-DWM: a keyed hash makes some (context, token) pairs green, and green tokens are favoured.

Over random keys the distinct pairs of a text are independent, and each is green with probability gamma. So given the
text, the number of green ones among them is binomial. Repeats say nothing new of the key, so the exact test counts each
pair once, whatever the published one does.
"""

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from pydantic import Field
from pydantic.dataclasses import dataclass
from scipy.stats import binom, norm
from torch import Tensor

from dgmark.decode.rules import Rule, View
from dgmark.detection.p_values import MIN_P
from dgmark.models.denoiser import Denoiser, traits_of
from dgmark.watermark.key import WatermarkKey
from dgmark_lab.baselines.base import Baseline, Ids, Score
from dgmark_lab.baselines.prf import HashKey, states, threshold, uniform_bits

# of cached rows
_CACHED_BYTES = 2**26

Side = Literal["left", "right"]
Form = Literal["normal", "predictive", "bidirectional", "predictive-bidirectional"]


# share of green pairs
Gamma = Annotated[float, Field(gt=0, lt=1)]
# bias on the logits
Delta = Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)]


# --- detecting ---


def is_green(hash_key: HashKey, contexts: Ids, tokens: Ids, gamma: float) -> Bool[np.ndarray, " n"]:
    """Return whether each token is on the green list of its context."""
    green: Bool[np.ndarray, " n"] = uniform_bits(states(hash_key, contexts), tokens) < threshold(gamma)
    return green


class Pairs(NamedTuple):
    """The distinct (context, token) pairs of a text: how often each occurs, and whether it is green."""

    counts: Int[np.ndarray, " pairs"]
    green: Bool[np.ndarray, " pairs"]

    @classmethod
    def of(cls, hash_key: HashKey, contexts: Ids, tokens: Ids, gamma: float) -> "Pairs":
        """Look up the pairs of each token with its context."""
        (contexts, tokens), counts = np.unique(np.stack([contexts, tokens]), axis=1, return_counts=True)
        return cls(counts, is_green(hash_key, contexts, tokens, gamma))


def score_pairs(
    pairs: Pairs,
    gamma: float,
    fpr: float,
    *,
    published: Literal["z-test", "z-test with repeats", "exact"],
    steered: float = 1.0,
) -> Score:
    """Compare the number of distinct green pairs with its exact null, a binomial.

    Args:
        pairs: the distinct pairs of the text.
        gamma: share of green pairs.
        fpr: the false-positive rate.
        published: the test whose p-value is the published one.
        steered: the share of the pairs that the mark can turn green.
    """
    scored, matched = len(pairs.green), int(pairs.green.sum())
    once, repeats = _z_score(np.ones_like(pairs.counts), pairs.green, gamma), _z_score(*pairs, gamma)
    p_value = _tail(matched, scored, gamma)
    # a typical mark turns half of the pairs green that it can steer and that would not be green by chance
    typical = math.ceil(scored * (gamma + (1 - gamma) * steered / 2))
    p_normal = max(MIN_P, float(norm.sf(repeats if published == "z-test with repeats" else once))) if scored else 1.0
    return Score(
        scored=scored,
        matched=matched,
        z_score=once,
        p_value=p_value,
        p_published=p_value if published == "exact" else p_normal,
        detectable=p_value <= fpr or _tail(typical, scored, gamma) <= fpr,
    )


def _z_score(counts: Int[np.ndarray, " pairs"], green: Bool[np.ndarray, " pairs"], gamma: float) -> float:
    total = int(counts.sum())
    return (int(counts[green].sum()) - gamma * total) / math.sqrt(total * gamma * (1 - gamma)) if total else 0.0


def _tail(matched: int, scored: int, gamma: float) -> float:
    return max(MIN_P, float(binom.sf(matched - 1, scored, gamma)))


def bigrams(ids: Ids, positions: Ids) -> tuple[Int[np.ndarray, " pairs"], Int[np.ndarray, " pairs"]]:
    """Return the left and the right tokens of adjacent pairs (with no special token between)."""
    adjacent = np.diff(positions) == 1
    return ids[:-1][adjacent], ids[1:][adjacent]


# --- marking ---


class GreenRows:
    """Rows of the green relation B[left, right] over the vocabulary, computed when first needed and then cached.

    One step needs nearly the same rows as the step before. The whole relation would be too large to keep.
    """

    def __init__(self, hash_key: HashKey, gamma: float, model: Denoiser, side: Side = "left") -> None:
        vocabulary = torch.arange(model.vocab_size, device=traits_of(model).device)

        @lru_cache(maxsize=max(1, _CACHED_BYTES // model.vocab_size))
        def row(token: int) -> Bool[Tensor, " vocab"]:
            one = torch.tensor([token], device=vocabulary.device)
            left, right = (one, vocabulary) if side == "left" else (vocabulary, one)
            green: Bool[Tensor, " vocab"] = uniform_bits(states(hash_key, left), right) < threshold(gamma)
            return green

        self.row = row

    def __call__(self, tokens: Int[Tensor, " n"]) -> Bool[Tensor, "n vocab"]:
        """Return the row of each token, which is on this side of the pair."""
        return torch.stack([self.row(token) for token in tokens.tolist()])


def without_held(
    favoured: Bool[Tensor, "places vocab"],
    tokens: Int[Tensor, " places"],
    offset: int,
    view: View,
    canvas: Int[Tensor, " places"],
) -> Bool[Tensor, "places vocab"]:
    """Leave out what the tests would not count: tokens that complete a pair which the text already holds.

    Args:
        favoured: the tokens that a bias favours at each place.
        tokens: the neighbour of each place.
        offset: where the neighbour stands.
        view: the step.
        canvas: the canvas of each place.
    """
    distance, (first, stop) = abs(offset), view.window.text
    ids = view.window.ids[:, first:stop]
    near, far = ids[:, :-distance], ids[:, distance:]
    if offset > 0:
        near, far = far, near
    held = (near[canvas] == tokens[:, None]) & (far[canvas] != view.window.mask_id)
    place, pair = held.nonzero(as_tuple=True)
    fresh = favoured.clone()
    fresh[place, far[canvas[place], pair]] = False
    return fresh


def neighbour_bias(
    sides: Sequence[tuple[int, GreenRows]], delta: float, *, predicts: bool = False, new_only: bool = False
) -> Rule:
    """Return a rule that adds `delta` to the tokens that are green with a neighbour, once for each neighbour.

    Args:
        sides: the offset of each neighbour and the rows for it; one that is not committed adds nothing.
        delta: what is added.
        predicts: where no neighbour is committed, take the likeliest token to the left for the first one.
        new_only: favour only pairs that the text does not hold yet.
    """

    def bias(view: View) -> Tensor:
        logits, beside = view.logits_to_propose(), [view.neighbours(offset) for offset, _ in sides]
        if predicts:
            alone = (torch.stack(beside) < 0).all(0)
            beside[0] = torch.where(alone, _predicted_left(view), beside[0])
        canvas = view.masked.nonzero()[:, 0]
        for tokens, (offset, rows) in zip(beside, sides, strict=True):
            known = (tokens[view.masked] >= 0).nonzero()[:, 0]
            if len(known):
                neighbours = tokens[view.masked][known]
                green = rows(neighbours)
                if new_only:
                    green = without_held(green, neighbours, offset, view, canvas[known])
                logits.index_add_(0, known, green.to(logits.dtype), alpha=delta)
        return logits

    return Rule(bias=bias)


def position_bias(table: Float[np.ndarray, "period vocab"], model: Denoiser) -> Rule:
    """Return a rule that adds row `position % period` of a table to the logits of each position."""
    rows = torch.from_numpy(table.astype(np.float32)).to(traits_of(model).device)

    def bias(view: View) -> Tensor:
        row = (view.positions % len(rows))[view.masked.nonzero()[:, 1]]
        return view.logits_to_propose().add_(rows[row])

    return Rule(bias=bias)


# --- the baselines ---


@dataclass(frozen=True)
class GreenLists(Baseline):
    """What baselines with green lists share.

    Attributes:
        gamma: share of green tokens, or of green pairs.
        delta: bias on the logits of green tokens; with two neighbours it is added once for each.
    """

    gamma: Gamma = 0.5
    delta: Delta = 2.0


@dataclass(frozen=True)
class Kgw(GreenLists):
    """KGW: tokens on the green list of the token to their left are biased.

    Kirchenbauer et al., ICML 2023, Algorithm 2, with a context of one token. By default it decodes left to right, as in
    dgMARK's paper. Under any other strategy a position is biased only once its left neighbour is committed: the naive
    order-agnostic form.
    """

    name: ClassVar[str] = "kgw"
    defaults: ClassVar[Mapping[str, Any]] = MappingProxyType({"strategy": "left_to_right"})

    def rule(self, key: WatermarkKey, model: Denoiser) -> Rule:
        """A bias where the left neighbour is committed; the first position's neighbour is the prompt's last token."""
        return neighbour_bias([(-1, GreenRows(self.hash_key(key), self.gamma, model))], self.delta)

    def score(self, key: WatermarkKey, ids: Ids, positions: Ids, fpr: float) -> Score:
        """Score the distinct (left neighbour, token) pairs. Published: their z-test (lm-watermarking's default)."""
        pairs = Pairs.of(self.hash_key(key), *bigrams(ids, positions), self.gamma)
        return score_pairs(pairs, self.gamma, fpr, published="z-test")


@dataclass(frozen=True)
class Unigram(GreenLists):
    """Unigram: tokens on the key's one green list are biased everywhere (Zhao et al., ICLR 2024)."""

    name: ClassVar[str] = "unigram"

    def rule(self, key: WatermarkKey, model: Denoiser) -> Rule:
        """The same bias at every position."""
        every = np.arange(model.vocab_size)
        green = is_green(self.hash_key(key), np.zeros_like(every), every, self.gamma)
        return position_bias(green[None] * self.delta, model)

    def score(self, key: WatermarkKey, ids: Ids, positions: Ids, fpr: float) -> Score:  # noqa: ARG002
        """Score the distinct tokens. Published: the z-test over all tokens, which assumes that they are independent."""
        pairs = Pairs.of(self.hash_key(key), np.zeros_like(ids), ids, self.gamma)
        return score_pairs(pairs, self.gamma, fpr, published="z-test with repeats")


@dataclass(frozen=True)
class DMark(GreenLists):
    """DMark: some (left, right) pairs of tokens are green, and a position is biased by its known neighbours.

    Wu et al. 2025.

    Attributes:
        form: "normal" uses the left neighbour if it is committed; "predictive" predicts its likeliest token where it
            is masked; "bidirectional" uses the committed neighbours on both sides; "predictive-bidirectional" also
            predicts the left one where neither is committed.
        new_only: favour only pairs that the text does not hold yet (as dgMARK does; not in the paper).
    """

    form: Form = "predictive-bidirectional"
    new_only: bool = False

    name: ClassVar[str] = "dmark"

    def rule(self, key: WatermarkKey, model: Denoiser) -> Rule:
        """A bias by the relation's row for a left neighbour, and by its column for a right one."""
        both = self.form.endswith("bidirectional")
        places: list[tuple[int, Side]] = [(-1, "left"), (1, "right")] if both else [(-1, "left")]
        sides = [(offset, GreenRows(self.hash_key(key), self.gamma, model, side)) for offset, side in places]
        return neighbour_bias(sides, self.delta, predicts=self.form.startswith("predictive"), new_only=self.new_only)

    def score(self, key: WatermarkKey, ids: Ids, positions: Ids, fpr: float) -> Score:
        """Score the distinct (left, right) pairs. Published: the z-test over all pairs, repeats included."""
        pairs = Pairs.of(self.hash_key(key), *bigrams(ids, positions), self.gamma)
        return score_pairs(pairs, self.gamma, fpr, published="z-test with repeats")


@dataclass(frozen=True)
class LrDwm(GreenLists):
    """LR-DWM: each neighbour has a green list of its own, and a position is biased to those of its known neighbours.

    Raban, Fetaya, Chechik 2026 (arXiv 2601.12376). The lists of left and of right neighbours come from two hash keys.

    Attributes:
        new_only: favour only pairs that the text does not hold yet (as dgMARK does; not in the paper).
    """

    new_only: bool = False

    name: ClassVar[str] = "lr-dwm"

    def rule(self, key: WatermarkKey, model: Denoiser) -> Rule:
        """A bias by the list of the left neighbour and by that of the right one, where these are committed."""
        sides = [(side, GreenRows(hash_key, self.gamma, model)) for side, hash_key in self._sides(key)]
        return neighbour_bias(sides, self.delta, new_only=self.new_only)

    def _sides(self, key: WatermarkKey) -> list[tuple[int, HashKey]]:
        return [(-1, self.hash_key(key, "left")), (1, self.hash_key(key, "right"))]

    def score(self, key: WatermarkKey, ids: Ids, positions: Ids, fpr: float) -> Score:
        """Score tokens that have both neighbours by how many of their two lists they are on, each entry once.

        Of the two lists that two adjacent tokens have for each other, only that of the later one was known when it was
        drawn; so a mark steers half of the pairs. Published: a z-test over all tokens, repeats included, here with the
        deviation of independent entries.
        """
        adjacent = np.diff(positions) == 1
        inner = (adjacent[:-1] & adjacent[1:]).nonzero()[0] + 1
        both = [Pairs.of(hash_key, ids[inner + side], ids[inner], self.gamma) for side, hash_key in self._sides(key)]
        pairs = Pairs(*(np.concatenate(part) for part in zip(*both, strict=True)))
        return score_pairs(pairs, self.gamma, fpr, published="z-test with repeats", steered=0.5)


def _predicted_left(view: View) -> Int[Tensor, "canvases window"]:
    """Return the most likely token of the position to the left, or -1 if that is outside the window."""
    likeliest = view.logits.index_fill(-1, view.forbidden, -torch.inf).argmax(-1)
    return torch.nn.functional.pad(likeliest[:, :-1], (1, 0), value=-1)
