"""The decoding strategy F: a candidate token v_j and a reward r_j for each masked position (paper section 3.1).

`propose` sees logits, random numbers and the bits of candidates, and neither keys nor the canvas. A keyed draw moves
mass between candidates by the key's bits, so that over random keys each draw is unbiased. `Proposer` gives `propose`
what the rows of a decode draw with. The draws of a row depend on its seed and on the number of earlier draws for it,
never on its neighbours.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int, Int8, Shaped
from torch import Tensor

from dgmark.decode.config import DecodeConfig
from dgmark.decode.marks.rules import DecodeSide, Places, Step, Window
from dgmark.decode.steps.canvas import Canvas
from dgmark.decode.steps.draws import Draws
from dgmark.models.denoiser import Denoiser, traits_of
from dgmark.models.host import true_on_host, waits

# of the tokens of a place, at most so many have keyed bits: the most likely ones, of at least this probability
CANDIDATES, MIN_SHARE = 64, 1e-4
_TINY = torch.finfo(torch.float64).tiny


# --- keyed draws ---


def keyed_shares(
    shares: Float[Tensor, "k candidates"], signs: Int8[Tensor, "k candidates bits"], alpha: float, bias: float = 0.0
) -> Float[Tensor, "k candidates"]:
    """The probabilities of candidates after each bit, in the order of the bits.

    A bit moves mass between the candidates that complete it, of bit 1 or 0, and leaves the others their own. With m the
    share of the ones, they get M(m) = m + alpha min(m, 1 - m). If the bits are turned over, the ones have M(1 - m), and
    as M(m) + 1 - M(1 - m) = 2m, each token keeps its probability on average. alpha = 1 is the gamma reweighting of Hu
    et al. (2023).

    An example, one bit that three of four candidates complete, with alpha 1:

        shares    .4  .3  .1  .2
        signs      1  -1  -1   0
        mass      .4  of the ones, and  .4  of the zeros
        moved      1  of either: all of the zeros moves, by which the ones double
        after     .8   0   0  .2

    Args:
        shares: the candidates' probabilities at k places, in float64; each place has some mass.
        signs: 1 or -1 for each bit of 1 or 0 that a candidate completes, 0 for none.
        alpha: how far to go, from 0, which leaves all as it is, to 1.
        bias: the probabilities of ones are then multiplied by exp(bias), and all divided by what this adds: no longer
            unbiased.
    """
    kinds = torch.arange(1, -2, -2, dtype=signs.dtype, device=signs.device)[:, None]  # 1 and -1
    # 1 for each candidate that is a one, and for each that is a zero, (bits, k, 2, candidates); and -1 for the zeros
    sides = (signs.permute(2, 0, 1).contiguous()[:, :, None] == kinds).to(shares.dtype)
    least, total = shares.new_full((1, 1, 1), _TINY), shares.sum(-1, keepdim=True) if bias else None
    for side, signed in zip(sides, sides * kinds, strict=True):
        mass = torch.baddbmm(least, side, shares[:, :, None])  # of the ones and of the zeros; never 0
        moved = mass.amin(1, keepdim=True) / mass  # as parts of them
        shares = torch.addcmul(shares, shares, torch.bmm(moved.mT, signed)[:, 0], value=alpha)
        if total is not None:
            shares = torch.addcmul(shares, shares, side[:, 0], value=math.expm1(bias))
            shares = shares * (total / shares.sum(-1, keepdim=True))
    return shares


@dataclass(frozen=True)
class KeyedDraw:
    """What keyed draws need to know of a rule at k places.

    Attributes:
        signs: tells the bits of candidates (n, candidates) at n of the places; -1 stands for no candidate.
        at: these n places among the k; None for all of them.
        alpha: how far to go towards the bits.
        bias: what they add to the logarithm of a probability.
    """

    signs: Callable[[Int[Tensor, "n candidates"]], Int8[Tensor, "n candidates bits"]]
    at: Int[Tensor, " n"] | None
    alpha: float
    bias: float

    def apply(self, weights: Float[Tensor, "k vocab"], mass: Float[Tensor, " k"]) -> "KeyedWeights":
        """Move mass in these weights, in place; `mass` is what each place has in all."""
        rows, least = (each if self.at is None else each[self.at] for each in (weights, MIN_SHARE * mass))
        top, tokens = rows.topk(min(CANDIDATES, weights.shape[-1]), -1)
        before, signs = top.double(), self.signs(tokens.masked_fill(top < least[:, None], -1))
        after = keyed_shares(before, signs, self.alpha, self.bias)
        if self.at is None:
            weights.scatter_(1, tokens, after.to(weights.dtype))
        else:
            weights[self.at[:, None], tokens] = after.to(weights.dtype)
        return KeyedWeights(self.at, tokens, after / before.clamp(min=_TINY), signs)


@dataclass(frozen=True)
class KeyedWeights:
    """What a keyed draw has done to the candidates of n places among k.

    Attributes:
        at: these places; None for all of them.
        tokens: their candidates.
        gains: the probability of each over what it was.
        signs: the bits that each completes.
    """

    at: Int[Tensor, " n"] | None
    tokens: Int[Tensor, "n candidates"]
    gains: Float[Tensor, "n candidates"]
    signs: Int8[Tensor, "n candidates bits"]

    def of(self, drawn: Int[Tensor, " k"]) -> tuple[Float[Tensor, " k"], Int[Tensor, " k"]]:
        """The gain of what was drawn at each place, and its bits of 1 less those of 0; 1 and 0 without bits."""
        others = self.tokens != (drawn if self.at is None else drawn[self.at])[:, None]
        gains = self.gains.masked_fill(others, 1.0).prod(-1)
        net_bits = self.signs.masked_fill(others[:, :, None], 0).sum((-2, -1))
        return self._among(drawn, gains, 1), self._among(drawn, net_bits, 0)

    def have_bits(self, drawn: Int[Tensor, " k"]) -> Bool[Tensor, " k"]:
        """At which of the places that were drawn some candidate completes a bit."""
        return self._among(drawn, self.signs.any(-1).any(-1), 0)

    def _among(self, drawn: Tensor, values: Shaped[Tensor, " n"], others: int) -> Shaped[Tensor, " k"]:
        """Values of these places among all that were drawn."""
        if self.at is None:
            return values
        return torch.full(drawn.shape, others, dtype=values.dtype, device=values.device).index_put((self.at,), values)


def keyed_draw(
    side: DecodeSide,
    config: DecodeConfig,
    places: Places,
    masked: Bool[Tensor, " places"] | None,
    *,
    bitless: Int[Tensor, " ids"] | None = None,
    fixed_shapes: bool = False,
) -> KeyedDraw | None:
    """The keyed draw of a watermark under these settings; None if draws are plain.

    Args:
        side: says the bits.
        config: `temperature`, `alpha` and `bias` are read.
        places: the places of the draw.
        masked: at which of them nothing is committed; at the others draws are plain. None for all of them.
        bitless: ids without bits, because no pair with them is ever in a text; None for no such ids.
        fixed_shapes: ask for the bits of all places, even where the host knows which have any.
    """
    if not side.steers(config):
        return None
    strength = side.alpha(config), config.bias

    def signs(tokens: Tensor, places: Places) -> Int8[Tensor, "n candidates bits"]:
        return side.signs(tokens if bitless is None else tokens.masked_fill(torch.isin(tokens, bitless), -1), places)

    if fixed_shapes or waits(places.canvas):
        if masked is None:
            return KeyedDraw(lambda tokens: signs(tokens, places), None, *strength)
        return KeyedDraw(lambda tokens: signs(tokens, places) * masked[:, None, None], None, *strength)
    reached = side.reached(places).numpy()
    at = true_on_host(reached if masked is None else reached & masked.numpy())
    return KeyedDraw(lambda tokens: signs(tokens, places.at(at)), at, *strength) if len(at) else None


# --- plain draws ---

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
    above, equal = weights > least, weights == least
    among_equals = equal & (equal.cumsum(-1) <= kept - above.sum(-1, keepdim=True))
    return weights.where(above | among_equals, 0.0)


def draw(weights: Float[Tensor, "k vocab"], uniforms: Float[Tensor, " k"]) -> Int[Tensor, " k"]:
    """Draw one token for each row by inverting the cumulative weights at `uniforms`; never a token of weight 0.

    This needs one random number for each position instead of one for each token of the vocabulary.
    """
    mass = weights.to(torch.float64, copy=True).cumsum_(-1)  # which takes half the memory of a cumsum with a dtype
    # u * total may round up to total, above which there is no token; then it is 0
    target = (uniforms.to(torch.float64) * mass[:, -1]) % mass[:, -1]
    # weights of NaN have no token either; what comes of them must still be an id until the fault is reported
    return torch.searchsorted(mass, target[:, None], right=True)[:, 0].clamp(max=weights.shape[-1] - 1)


# --- proposals ---


class Noise(NamedTuple):
    """Gumbel noise that draws candidates: the argmax of log-probability + noise.

    Attributes:
        values: the noise.
        at: the places at which it draws; None for all.
    """

    values: Float[Tensor, "k vocab"]
    at: Bool[Tensor, " k"] | None = None


@dataclass(frozen=True)
class Proposals:
    """Candidate tokens and their rewards, one for each masked position, or for each place of each block.

    Attributes:
        tokens: the candidates v_j.
        rewards: r_j, by the model alone.
        scores: the rewards by which positions are ordered: r_j times the factor by which keyed bits changed the
            probability of v_j, so that the order does not undo what the draw did.
        net_bits: how many keyed bits of v_j are 1, less those that are 0; None if the draw saw none.
        had_choice: whether the draw had a choice: other tokens than v_j had a probability of `MIN_SHARE` or more
            together, before any keyed bit; at temperature 0 only bits give one. None if nothing was drawn.
    """

    tokens: Int[Tensor, "*places"]
    rewards: Float[Tensor, "*places"]
    scores: Float[Tensor, "*places"]
    net_bits: Int[Tensor, "*places"] | None = None
    had_choice: Bool[Tensor, "*places"] | None = None


def propose(
    logits: Float[Tensor, "k vocab"],
    uniforms: Float[Tensor, "k 2"],
    forbidden: Int[Tensor, " f"] | Bool[Tensor, "k vocab"],
    config: DecodeConfig,
    *,
    tempered: bool = False,
    noise: Noise | None = None,
    keyed: KeyedDraw | None = None,
) -> Proposals:
    """Propose a candidate and its reward for each of k masked positions.

    Candidates come from the tempered, filtered distribution and are never `forbidden`. The reward comes from the
    model's own distribution, neither tempered nor filtered, in float32 or better (LLaDA's procedure), or from the very
    distribution that was sampled (Dream's and LLaDA 2's), as it was before any keyed bit.

    Args:
        logits: the model's logits at these positions; not written to.
        uniforms: numbers in [0, 1): the first draws the candidate, the second is the reward of strategy "random".
        forbidden: ids that no position may take (the mask id, rows of padding), or whether each position may not take
            each id; the reward is still that of the model's own distribution.
        config: strategy, temperature and filters.
        tempered: take the reward from the sampled distribution; at temperature 0 that is the model's own.
        noise: draws the candidates instead of the first uniform.
        keyed: moves mass by keyed bits before a candidate is drawn, or taken.
    """
    # logits, permitted, weights and rewarded are (places, vocab), all else is (places,)
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    if forbidden.dtype == torch.bool:
        permitted = logits.masked_fill(forbidden, -torch.inf)
    else:
        permitted = logits.index_fill(-1, forbidden, -torch.inf)
    if config.greedy and keyed is None:
        tokens = permitted.argmax(-1)
        rewards = _rewards(logits, permitted, tokens, uniforms[:, 1], config)
        return Proposals(tokens, rewards, rewards)
    # 1. the distribution that candidates come from, and that Dream's and LLaDA 2's rewards are of
    weights = sampled_weights(permitted, config)
    rewarded = weights.log() if tempered and not config.greedy else logits
    # 2. the candidates, once keyed bits have moved mass between tokens
    mass = weights.sum(-1)
    moved = None if keyed is None else keyed.apply(weights, mass)
    tokens = weights.argmax(-1) if config.greedy else _drawn(weights, uniforms[:, 0], noise)
    weight = weights.gather(-1, tokens[:, None])[:, 0]
    # 3. what they are worth, and whether each had a choice: by its probability before any keyed bit
    rewards = _rewards(rewarded, permitted, tokens, uniforms[:, 1], config)
    if moved is None:
        return Proposals(tokens, rewards, rewards, had_choice=weight < (1 - MIN_SHARE) * mass)
    gains, net_bits = moved.of(tokens)
    had_choice = weight / gains < (1 - MIN_SHARE) * mass
    if config.greedy:
        had_choice &= moved.have_bits(tokens)
    return Proposals(tokens, rewards, _scores(rewards, gains, config), net_bits, had_choice)


def sampled_weights(permitted: Float[Tensor, "k vocab"], config: DecodeConfig) -> Float[Tensor, "k vocab"]:
    """The tempered, filtered distribution of these logits, not renormalised; at temperature 0 the model's own."""
    tempered = permitted if config.temperature in (0, 1) else permitted / config.temperature
    weights = torch.softmax(tempered, -1)
    return weights if config.greedy else filter_weights(weights, config.top_k, config.top_p)


def _drawn(weights: Tensor, uniforms: Tensor, noise: Noise | None) -> Tensor:
    """Draw by noise where there is some, and by uniforms elsewhere."""
    if noise is None:
        return draw(weights, uniforms)
    by_noise = (weights.log() + noise.values).argmax(-1)
    if noise.at is None or (not waits(noise.at) and noise.at.all()):
        return by_noise
    return torch.where(noise.at, by_noise, draw(weights, uniforms))


def _scores(rewards: Tensor, gains: Tensor, config: DecodeConfig) -> Tensor:
    """The rewards times the gains; a reward that says nothing of the token stays."""
    if config.strategy in ("random", "left_to_right"):
        return rewards
    if config.strategy == "entropy":  # a logarithm
        return (rewards + gains.log()).to(rewards.dtype)
    return (rewards * gains).to(rewards.dtype)


def _rewards(logits: Tensor, permitted: Tensor, tokens: Tensor, uniforms: Tensor, config: DecodeConfig) -> Tensor:
    """The rewards r_j of tokens, by these logits; `permitted` are the model's own, of which margins are."""
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


# --- the candidates of a decode ---


class Candidates(NamedTuple):
    """Proposals at a window of several canvases.

    Attributes:
        tokens: the candidates v_j.
        rewards: r_j, by the model alone.
        scores: the rewards by which places are ordered (`Proposals`).
        matched: whether each candidate matches: its group, or more of its new pairs than not; always without a mark.
        had_choice: whether the draw of each had a choice (`Proposals`).
        edited: which of them replace a committed token; none before a step has made its edits.
    """

    tokens: Int[Tensor, "canvases window"]
    rewards: Float[Tensor, "canvases window"]
    scores: Float[Tensor, "canvases window"]
    matched: Bool[Tensor, "canvases window"]
    had_choice: Bool[Tensor, "canvases window"]
    edited: Bool[Tensor, "canvases window"]

    def at(self, rows: Tensor) -> "Candidates":
        """The candidates of some canvases."""
        return Candidates(*(mine[rows] for mine in self))

    def replaced(self, rows: Tensor, places: Bool[Tensor, "some window"], new: "Candidates") -> "Candidates":
        """These candidates, with new ones at some places of some canvases."""
        pairs = zip(self, new, strict=True)
        return Candidates(*(old.index_copy(0, rows, torch.where(places, other, old[rows])) for old, other in pairs))


class Proposer:
    """Makes the candidates of one decode.

    Args:
        model: the denoiser; only its ids, its vocabulary and its traits are read.
        canvas: the canvas to decode.
        config: decoding settings.
        side: what the watermark does to a step.
        seeds: one for each row.
    """

    def __init__(
        self,
        model: Denoiser,
        canvas: Canvas,
        config: DecodeConfig,
        side: DecodeSide,
        seeds: Sequence[int],
    ) -> None:
        device = canvas.ids.device
        self._config, self._side = config, side
        self._tempered = traits_of(model).confidence_source == "sampling"
        self._draws = Draws(seeds, canvas.positions, config.lookahead)
        # of fixed noise: the first place of the block, the rows that began it, and (window, vocab) for each
        self._fixed: tuple[int, Tensor, Tensor] | None = None
        self._canvas, self._mask_id = canvas, model.mask_id
        self._none = torch.zeros((), dtype=torch.bool, device=device)
        self.marked = side.marked(torch.arange(len(canvas.ids), device=device))
        # the mask, rows of padding, which stand for no token, and ends where the text goes on
        forbidden = {model.mask_id, *range(model.tokenizer.vocab_size, model.vocab_size), *canvas.forbidden}
        edit_ids = traits_of(model).edit_ids or ()
        forbidden = forbidden.difference(edit_ids) if config.inserts else forbidden.union(edit_ids)
        self._bitless = torch.tensor(edit_ids, dtype=torch.long).to(device) if config.inserts else None
        if not canvas.stops:
            forbidden.update(model.end_ids)
        self.forbidden = torch.tensor(sorted(forbidden), dtype=torch.long).to(device)

    def __call__(
        self,
        logits: Tensor,
        ids: Tensor,
        masked: Tensor,
        rows: Tensor,
        low: int,
        refused: Bool[Tensor, "canvases window vocab"] | None = None,
        count: int | None = None,
    ) -> Candidates:
        """Make candidates at the masked places of a window, and at those that may be edited; 0 at the others.

        Args:
            logits: logits of the window (canvases, window, vocab).
            ids: the canvases.
            masked: which places of the window get a candidate (canvases, window).
            rows: the row of the decode that each canvas comes from, ascending.
            low: the window's first place in the region.
            refused: ids that single places may not take.
            count: how many places get a candidate; None if only the device knows.

        In a window of four places of one canvas, masked as 0 1 0 1, the step's logits and proposals have two rows, for
        the second and the fourth place: tokens 8 and 3 become 0 8 0 3.
        """
        window = self.window(ids, rows, low, masked.shape[1])
        step = Step(window, logits, masked, self.forbidden, self._config.temperature, count)
        places = step.places
        changed, forbidden = self._side.logits(step), self.forbidden
        if refused is not None:
            forbidden = refused[places.index].index_fill(-1, forbidden, True)
        keyed = None
        if self._side.steers(self._config):  # committed tokens, which may be edited, are drawn plainly
            uncommitted = None
            if self._config.edit_threshold is not None:
                uncommitted = ids[places.canvas, window.start + places.column] == self._mask_id
            keyed = keyed_draw(self._side, self._config, places, uncommitted, bitless=self._bitless)
        proposals = propose(
            logits[places.index] if changed is None else changed,
            self._draws.uniforms(rows, low, masked.shape[1])[places.index],
            forbidden,
            self._config,
            tempered=self._tempered,
            noise=self._noise(step, low),
            keyed=keyed,
        )
        if proposals.net_bits is None:
            tokens, rewards, net_bits = places.scatter(proposals.tokens), places.scatter(proposals.rewards), None
            scores = rewards
        else:
            tokens, net_bits = places.scatter(torch.stack([proposals.tokens, proposals.net_bits])).unbind()
            rewards, scores = places.scatter(torch.stack([proposals.rewards, proposals.scores])).unbind()
        if self._config.strategy == "left_to_right":
            order = torch.arange(masked.shape[1], device=masked.device, dtype=rewards.dtype)
            rewards = scores = -order.expand_as(masked) * masked
        choice = places.scatter(self._choice(step, changed, proposals))
        matched = self._side.matched(tokens, window, net_bits)
        return Candidates(tokens, rewards, scores, matched, choice, self._none.expand_as(masked))

    def _noise(self, step: Step, low: int) -> Noise | None:
        """The noise that draws candidates: the watermark's in rows with a key, or that of the settings."""
        noise, places = self._side.noise(step), step.places
        if noise is not None:
            return Noise(noise, self._side.marked(places.rows))
        if self._config.noise != "fixed" or self._config.greedy:
            return None
        if self._fixed is None or self._fixed[0] != low:  # the first forward of the block, of all rows that begin it
            rows, window = step.window.rows, (low, step.masked.shape[1], step.logits.shape[-1])
            self._fixed = low, rows, torch.stack([self._draws.gumbel(row, *window) for row in rows.unbind()])
        _, rows, kept = self._fixed
        return Noise(kept[torch.searchsorted(rows, places.rows), places.column])

    def _choice(self, step: Step, changed: Tensor | None, proposals: Proposals) -> Bool[Tensor, " k"]:
        """Whether each candidate had a choice: by its draw, or, where the watermark changed the logits, before that."""
        drawn = proposals.had_choice
        if drawn is None:
            drawn = torch.zeros_like(proposals.tokens, dtype=torch.bool)
        if changed is None:
            return drawn
        plain = step.copied_logits()
        is_changed = (plain != changed).any(-1)
        shares = torch.softmax(plain.index_fill_(-1, self.forbidden, -torch.inf) / (step.temperature or 1.0), -1)
        others = shares.gather(-1, proposals.tokens[:, None])[:, 0] < 1 - MIN_SHARE
        return torch.where(is_changed, others, drawn)

    def window(self, ids: Tensor, rows: Tensor, low: int, width: int) -> Window:
        """The places from `low` on, of canvases that come from these rows of the decode."""
        positions = self._canvas.positions[low : low + width].expand(len(ids), -1)
        return Window(
            ids, self._canvas.start + low, positions, self._canvas.text, self._mask_id, rows, self.marked[rows]
        )
