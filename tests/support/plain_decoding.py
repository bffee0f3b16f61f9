"""Decoding in plain Python: slow, obvious, one row at a time. Shares no line with the package's loop."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest
import torch

from dgmark.decode import DecodeConfig, Response
from dgmark.models.denoiser import Denoiser, open_session
from dgmark.watermark.bigram import BigramSpec
from dgmark.watermark.key import WatermarkKey
from dgmark.watermark.spec import spec_as
from dgmark.watermark.word_classes import class_table
from support.known_keys import matches, net_matches, sign_of

# ---- random numbers ----


def mixed(state: int) -> int:
    """One output of SplitMix64."""
    state = (state + 0x9E3779B97F4A7C15) % 2**64
    state = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    state = (state ^ state >> 27) * 0x94D049BB133111EB % 2**64
    return state ^ state >> 31


def uniform(seed: int, step: int, number: int) -> float:
    """The number in [0, 1) of a row's seed, of one of its forwards, and of a number of a place."""
    stream = mixed((mixed(seed % 2**64) + step) % 2**64)
    return (mixed((stream + mixed(number % 2**64)) % 2**64) >> 11) * 2.0**-53


# ---- one place ----


def shares_of(
    logits: list[float], permitted: list[int], temperature: float, top_k: int | None = None, top_p: float | None = None
) -> dict[int, float]:
    """What a token is drawn from: of the permitted ones, those that top-k and then top-p leave, in the order of ids."""
    best = max(logits[v] for v in permitted)
    weights = {v: math.exp((logits[v] - best) / temperature) for v in permitted}
    likely = sorted(permitted, key=lambda v: (-weights[v], v))[:top_k]
    goal, mass, kept = (top_p or 1.0) * sum(weights[v] for v in likely), 0.0, set[int]()
    for v in likely:
        if mass < goal:
            kept.add(v)
            mass += weights[v]
    return {v: weights[v] / mass for v in permitted if v in kept}


def drawn_from(shares: dict[int, float], uniform: float) -> int:
    """The first token at which the sum of the shares is above this part of them all."""
    target, reached = uniform * sum(shares.values()), 0.0
    for v, share in shares.items():
        reached += share
        if reached > target:
            return v
    return max(v for v, share in shares.items() if share)


def reward_of(logits: list[float], permitted: list[int], strategy: str, candidate: int, uniform: float) -> float:
    """The reward r_j of a candidate."""
    peak = max(logits)
    weights = [math.exp(x - peak) for x in logits]
    p = [w / sum(weights) for w in weights]
    if strategy == "random":
        return uniform
    if strategy == "confidence":
        return p[candidate]
    if strategy == "entropy":
        return sum(q * math.log(q) for q in p if q)
    first, second = sorted((p[v] for v in permitted), reverse=True)[:2]
    return first - second


def new_pairs(
    text: list[int], place: int, candidates: list[int], nearest: int, farthest: int
) -> dict[int, list[tuple[int, int] | None]]:
    """The pairs that each candidate would complete, the nearest first and left before right; None for one that is not
    new: the text holds it, or it was counted at this place. Those with a token on the left are counted first, and the
    pair of a token with itself comes last."""
    distances = range(nearest, farthest + 1)
    offsets = [*(-d for d in distances if d), *(d for d in distances if d), *([0] if nearest == 0 else [])]
    known = {at for at, token in enumerate(text) if token >= 0}
    counted = {(text[at], text[at + d]) for at in known for d in distances if at + d in known}
    found: dict[int, dict[int, tuple[int, int]]] = {token: {} for token in candidates}
    for offset in offsets:
        for token in candidates if place + offset in known or not offset else ():
            other = text[place + offset] if offset else token
            pair = (other, token) if offset < 0 else (token, other)
            if pair not in counted:
                counted.add(pair)
                found[token][offset] = pair
    order = sorted(offsets, key=lambda offset: (offset == 0, abs(offset), offset))
    return {token: [found[token].get(offset) for offset in order] for token in candidates}


def bits_at(key: WatermarkKey | None, text: list[int], place: int, candidates: list[int]) -> dict[int, list[int]]:
    """The bits of candidates, in the order in which a draw takes them up: 1, -1, or 0 for none.

    Args:
        key: a key of either rule; None for no bits.
        text: the response, with -1 where nothing is committed.
        place: the place of the candidates.
        candidates: tokens, each once.
    """
    if key is None:
        return {token: [] for token in candidates}
    if key.spec.rule == "position":
        return {token: [1 if matches(key, token, place) else -1] for token in candidates}
    spec, table = spec_as(BigramSpec, key), class_table(key.spec)
    read = {token: token if table is None else int(table[token]) for token in {*text, *candidates} - {-1}} | {-1: -1}
    words = list(dict.fromkeys(read[token] for token in candidates))
    pairs = new_pairs([read[token] for token in text], place, words, spec.nearest, spec.farthest)
    return {token: [sign_of(key, *pair) if pair else 0 for pair in pairs[read[token]]] for token in candidates}


def alpha_of(config: DecodeConfig, key: WatermarkKey | None) -> float:
    """How far draws go: by default as far as they can under rule "bigram", and not at all under rule "position"."""
    if config.temperature == 0:
        return 0.0
    default = 0.0 if key is None or key.spec.rule == "position" else 1.0
    return default if config.alpha is None else config.alpha


def moved(shares: dict[int, Any], bits: dict[int, list[int]], alpha: Any, bias: float = 0.0) -> dict[int, Any]:
    """A keyed draw from its definition; exact if the shares and alpha are fractions and there is no bias."""
    total = sum(shares.values())
    for layer in zip(*(bits[token] for token in shares), strict=True):
        sign = dict(zip(shares, layer, strict=True))
        ones, zeros = (sum(p for v, p in shares.items() if sign[v] == one) for one in (1, -1))
        if ones and zeros:
            m = ones / (ones + zeros)
            more = m + alpha * min(m, 1 - m)
            factor = {1: more / m, -1: (1 - more) / (1 - m), 0: 1}
            shares = {v: p * factor[sign[v]] for v, p in shares.items()}
        if bias:
            raised = {v: p * math.exp(bias) if sign[v] == 1 else p for v, p in shares.items()}
            shares = {v: p * total / sum(raised.values()) for v, p in raised.items()}
    return shares


@dataclass
class Drawn:
    """A candidate, its reward by the model alone, the reward by which places are ordered, and whether it matches."""

    token: int
    reward: float
    score: float
    matched: bool


def drawn_at(
    place: int,
    text: list[int],
    logits: list[float],
    permitted: list[int],
    config: DecodeConfig,
    key: WatermarkKey | None,
    uniforms: Sequence[float] = (0.0, 0.0),
    noise: list[float] | None = None,
) -> Drawn:
    """A candidate for one place of a text with -1 where nothing is committed.

    Of the 64 most likely tokens, those with at least 1e-4 of the mass have bits; at a committed place, which may be
    edited, none has. With Gumbel noise the candidate is the token of the largest log-probability plus noise.
    """
    alpha, signs = alpha_of(config, key), dict[int, list[int]]()
    before = shares_of(logits, permitted, config.temperature or 1.0, config.top_k, config.top_p)
    after = before
    if (alpha or config.bias) and text[place] < 0:
        best = sorted(before, key=lambda v: (-before[v], v))[:64]
        signs = bits_at(key, text, place, [v for v in best if before[v] >= 1e-4])
        none = [0] * len(next(iter(signs.values())))
        after = before | moved({v: before[v] for v in best}, {v: signs.get(v, none) for v in best}, alpha, config.bias)
    if config.temperature == 0:
        token = max(after, key=lambda v: after[v])
    elif noise is None:
        token = drawn_from(after, uniforms[0])
    else:
        token = max((v for v in after if after[v]), key=lambda v: math.log(after[v]) + noise[v])
    reward = reward_of(logits, permitted, config.strategy, token, uniforms[1])
    gain = after[token] / before[token]
    scores = {"random": reward, "entropy": reward + math.log(gain)}
    matched = sum(signs.get(token, ())) > 0  # of a pair only what the draw saw
    if key is None or key.spec.rule == "position":
        matched = key is None or matches(key, token, place)
    return Drawn(token, reward, scores.get(config.strategy, reward * gain), matched)


# ---- one step ----


def get_num_transfer_tokens(masked: int, steps: int) -> list[int]:
    """LLaDA's quotas: an even share, and one more in the first steps for the remainder."""
    counts = [masked // steps] * steps
    for step in range(masked % steps):
        counts[step] += 1
    return counts


def dream_counts(masked: int, steps: int) -> list[int]:
    """Dream's quotas: a share 1 - s/t of the rest, t falling linearly from 1 to 0.001; the last step takes all."""
    counts = []
    for i in range(steps):
        t = 1 - i * 0.999 / steps
        s = 1 - (i + 1) * 0.999 / steps
        count = int(masked * (1 - s / t)) if i < steps - 1 else masked
        counts.append(count)
        masked -= count
    return counts


# ---- a whole decode ----


@dataclass
class Plain:
    """A decode written out: the text, the places of each step, and token, reward and match of each of these.

    For each step also the size of T; and how often candidates were drawn again, as none survived re-tokenization.
    """

    y: list[int]
    steps: list[list[int]] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    matched: list[bool] = field(default_factory=list)
    tried: list[int] = field(default_factory=list)
    redraws: int = 0

    @property
    def positions(self) -> list[int]:
        """The places in the order of their commits."""
        return [j for places in self.steps for j in places]


def decode_slowly(
    model: Denoiser,
    x: list[int],
    config: DecodeConfig,
    key: WatermarkKey | None = None,
    seed: int = 0,
    edges: Sequence[int] = (),
    fits: Callable[[list[int], int, int], bool] | None = None,
) -> Plain:
    """The paper's top-k one-step lookahead line by line, which with k = 1 is Algorithm 2, and that Algorithm 1 without
    a key; and what the paper does not have: several commits a step, matches without preference, keyed draws, edits.

    Args:
        model: the model; each candidate of a lookahead costs a forward, and so does the step after it.
        x: the prompt.
        config: the settings.
        key: a key of either rule; None for no mark.
        seed: of the draws.
        edges: of the blocks; by default they begin with the response, and the last one ends with it.
        fits: whether a text survives re-tokenization with this token at this place; takes one commit a step.
    """
    loop = _Loop(model, x, config, key, seed)
    y, plain = loop.plain.y, loop.plain
    blocks = [
        range(*edge) for edge in pairwise(edges or [*range(0, config.length, config.block_length), config.length])
    ]
    for block in blocks:  # 6: blocks are filled one after the other
        steps = len(block) if config.steps is None else max(config.steps // len(blocks), 1)
        rule = get_num_transfer_tokens if config.schedule == "llada" else dream_counts
        counts, passes, left = [count for count in rule(len(block), steps) if count], 0, True
        candidates = loop.begin(block)  # 7
        while left:
            edits = loop.edit(candidates)
            empty = {j: one for j, one in candidates.items() if y[j] == model.mask_id}
            fitting = empty if fits is None else loop.fitting(empty, block, fits)
            candidates |= empty
            t = loop.alternatives(fitting, counts)  # 8, 9, 11
            texts = [[candidates[j].token if j in places else v for j, v in enumerate(y)] for places in t]
            passes += not empty
            settled = config.edit_threshold is None or (not empty and (not edits or passes == 16))
            left = len(empty) > len(t[0]) or not settled
            after = loop.candidates(texts, block) if left else [{}]
            g = [loop.matches_ahead(*pair) for pair in zip(texts, after, strict=True)]  # 2, 3, 4
            winner = g.index(max(g))  # 12: the first of equals
            y[:] = texts[winner]  # 13
            plain.tried.append(len(t))
            loop.write(sorted([*edits, *t[winner]]), candidates)
            if any(token in model.end_ids and model.mask_id not in y[:place] for place, token in enumerate(y)):
                return plain
            kept = len(t) == 1 or config.noise == "fixed"
            candidates = after[winner] if kept or not left else loop.candidates([y], block)[0]
    return plain


class _Loop:
    """A decode under way."""

    def __init__(
        self, model: Denoiser, x: list[int], config: DecodeConfig, key: WatermarkKey | None, seed: int
    ) -> None:
        self.mask, self.x, self.config, self.key = model.mask_id, x, config, key
        self.permitted = [v for v in range(model.tokenizer.vocab_size) if v != model.mask_id]
        self.vocab, self.session = model.vocab_size, open_session(model, config.cache)
        self.seed, self.forwards = seed, 0
        self.noise: list[list[float]] | None = None
        self.plain = Plain([model.mask_id] * config.length)

    def uniforms(self, block: range) -> list[list[float]]:
        """The two uniforms of each place of the block at the next forward."""
        self.forwards += 1
        return [[uniform(self.seed, self.forwards - 1, 2 * j + number) for number in range(2)] for j in block]

    def begin(self, block: range) -> dict[int, Drawn]:
        """The candidates of a block's first step; kept noise is drawn before them."""
        canvas, first = torch.tensor([self.x + self.plain.y]), len(self.x)
        self.session.begin(canvas, first + block.start, first + block.stop)
        if self.config.noise == "fixed" and self.config.temperature > 0:
            drawn = [[uniform(self.seed, -1, j * self.vocab + token) for token in range(self.vocab)] for j in block]
            self.noise = [[-math.log(-math.log(u)) for u in row] for row in drawn]
        return self.candidates([self.plain.y], block)[0]

    def candidates(self, texts: list[list[int]], block: range) -> list[dict[int, Drawn]]:
        """F(j; p, x, y) at the empty places of each text, or with an edit threshold at all places of the block.

        Two uniforms are drawn for each place of the block, empty or not.
        """
        found, first = [], len(self.x)
        for y in texts:
            uniforms = self.uniforms(block)
            ids, owner = torch.tensor([self.x + y]), torch.tensor([0])
            self.logits = self.session.step(ids, owner, first + block.start, first + block.stop)[0].tolist()
            places = [j for j in block if y[j] == self.mask or self.config.edit_threshold is not None]
            found.append({j: self._drawn(j, y, j - block.start, uniforms, self.permitted) for j in places})
        return found

    def _drawn(self, j: int, y: list[int], at: int, uniforms: Any, permitted: list[int]) -> Drawn:
        text = [-1 if token == self.mask else token for token in y]
        noise = None if self.noise is None else self.noise[at]
        return drawn_at(j, text, self.logits[at], permitted, self.config, self.key, uniforms[at], noise)

    def fitting(
        self, found: dict[int, Drawn], block: range, fits: Callable[[list[int], int, int], bool]
    ) -> dict[int, Drawn]:
        """The candidates that fit. While there is none, all are drawn again without the tokens that do not, 64 times.

        In the end the candidate with the highest score is the only one, whether it fits or not.
        """
        y = self.plain.y
        left = {j: [*self.permitted] for j in found}
        for redraw in range(65):
            good = {j: one for j, one in found.items() if fits(y, j, one.token)}
            if good or redraw == 64:
                break
            for j, one in found.items():
                left[j] = [v for v in left[j] if v != one.token]
            if not any(left.values()):
                break
            self.plain.redraws += 1
            uniforms = self.uniforms(block)
            found |= {j: self._drawn(j, y, j - block.start, uniforms, tokens) for j, tokens in left.items() if tokens}
        best = min(found, key=lambda j: (-found[j].score, j))
        return good or {best: found[best]}

    def edit(self, candidates: dict[int, Drawn]) -> list[int]:
        """Replace what the model would replace, from left to right, unless the text loses a match by it."""
        y, threshold, edits = self.plain.y, self.config.edit_threshold, list[int]()
        for j, one in candidates.items():
            if threshold is not None and y[j] not in (self.mask, one.token) and one.reward > threshold:
                other = [*y[:j], one.token, *y[j + 1 :]]
                before, after = ([-1 if v == self.mask else v for v in text] for text in (y, other))
                if net_matches(self.key, after) >= net_matches(self.key, before):
                    y[:] = other
                    edits.append(j)
        return edits

    def alternatives(self, found: dict[int, Drawn], counts: list[int]) -> list[list[int]]:
        """The sets of places among which a step chooses: T, where one place is committed.

        The last place of a step is open to the next ones of its kind, unless the model is confident of it.
        """
        preferred, number = self.preferred(found), 1
        order = sorted(found, key=lambda j: (j not in preferred, -found[j].score, j))
        if not found:
            return [[]]
        if self.config.commit == "quota":
            number = counts.pop(0)
        elif confident := [j for j in preferred or order if found[j].reward > self.config.threshold]:
            return [confident]
        *first, last = order[:number]
        kind = [j for j in order[len(first) :] if (j in preferred) == (last in preferred)]
        return [[*first, j] for j in kind[: self.config.lookahead if self.key else 1]]

    def preferred(self, found: dict[int, Drawn]) -> set[int]:
        """The places that go first: C, less the matches without preference. Without an order all do."""
        config, key = self.config, self.key
        if key is None or key.spec.rule == "bigram":
            return {*found}
        best, preferred = max((one.reward for one in found.values()), default=0.0), set[int]()
        for j, one in found.items():
            good = one.reward >= best * config.min_relative_reward
            if config.strategy == "entropy":
                good = config.min_relative_reward == 0 or one.reward >= best - math.log(1 / config.min_relative_reward)
            if one.matched and good:
                preferred.add(j)
        return preferred

    def matches_ahead(self, y: list[int], after: dict[int, Drawn]) -> int:
        """G: how many candidates of the next step match."""
        return sum(one.matched for j, one in after.items() if y[j] == self.mask)

    def write(self, places: list[int], candidates: dict[int, Drawn]) -> None:
        """Note a step, if it changed anything."""
        if places:
            self.plain.steps.append(places)
        for one in (candidates[j] for j in places):
            self.plain.tokens.append(one.token)
            self.plain.rewards.append(one.reward)
            self.plain.matched.append(one.matched)


def check_same(response: Response, plain: Plain, end_ids: tuple[int, ...] = (), rel: float | None = 1e-9) -> None:
    """Compare a response with the slow loop's, token by token; `rel` is the tolerance of rewards, None for any."""
    trace, steps = response.trace, dict[int, list[int]]()
    for step, position in zip(trace.step, trace.position, strict=True):
        steps.setdefault(step, []).append(position)
    assert [steps[step] for step in sorted(steps)] == plain.steps
    assert trace.token_id == plain.tokens
    assert trace.matched == plain.matched
    ends = [place for place, token in enumerate(plain.y) if token in end_ids]
    assert response.ended == bool(ends)
    assert response.token_ids == plain.y[: min(ends, default=len(plain.y))]
    if rel is not None:
        assert trace.reward == pytest.approx(plain.rewards, rel=rel)
