"""Decoding in plain Python: slow, obvious, one row at a time. Shares no line with the package's loop."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from dgmark.decode import DecodeConfig, Response
from dgmark.models.denoiser import Denoiser, Session, open_session
from dgmark.models.toy import ToyDenoiser
from dgmark.watermark.key import WatermarkKey
from support.known_keys import matches, sign_of

InMatchingSet = Callable[[int, int], bool]


@dataclass
class Forwards:
    """A session asked for one canvas at a time: logits of the positions [start, stop)."""

    session: Session

    def begin(self, canvas: list[int], start: int, stop: int) -> list[list[float]]:
        """Logits of a canvas whose block is about to be filled."""
        logits: list[list[float]] = self.session.begin(torch.tensor([canvas]), start, stop)[0].tolist()
        return logits

    def step(self, canvas: list[int], start: int, stop: int) -> list[list[float]]:
        """Logits of a canvas that differs from the last begun canvas only inside the window."""
        ids, owner = torch.tensor([canvas]), torch.tensor([0])
        logits: list[list[float]] = self.session.step(ids, owner, start, stop)[0].tolist()
        return logits


@dataclass
class Plain:
    """The result of a decode: the response, and the places that each step committed."""

    y: list[int]
    steps: list[list[int]] = field(default_factory=list)


def places_by_step(response: Response) -> list[list[int]]:
    """The places that each step of a decode committed, as `Plain.steps` has them."""
    steps: dict[int, list[int]] = {}
    for step, position in zip(response.trace.step, response.trace.position, strict=True):
        steps.setdefault(step, []).append(position)
    return [sorted(steps[step]) for step in sorted(steps)]


def shares_of(
    logits: list[float],
    permitted: list[int],
    temperature: float,
    top_k: int | None = None,
    top_p: float | None = None,
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


def strategy_of_the_paper(
    logits: list[float],
    permitted: list[int],
    strategy: str,
    temperature: float = 0.0,
    uniforms: Sequence[float] = (0.0, 0.0),
) -> tuple[float, int]:
    """F(j; p, x, y): reward r_j and candidate v_j of one position."""
    if temperature == 0:
        candidate = max(permitted, key=lambda v: logits[v])
    else:
        candidate = drawn_from(shares_of(logits, permitted, temperature), uniforms[0])
    return reward_of(logits, permitted, strategy, candidate, uniforms[1]), candidate


@dataclass
class PaperDecode:
    """A decode written out: the text, and each step's position, reward and match, size of T and winning score (None
    where |T| = 1)."""

    y: list[int]
    positions: list[int] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    matched: list[bool] = field(default_factory=list)
    tried: list[int] = field(default_factory=list)
    scores: list[int | None] = field(default_factory=list)


def decode_as_the_paper(
    model: ToyDenoiser, x: list[int], config: DecodeConfig, contains: InMatchingSet, seed: int = 0
) -> PaperDecode:
    """Top-k one-step lookahead line by line, which with k = 1 is Algorithm 2, and that Algorithm 1 if all is contained.

    Under sampling, two uniforms a position of the block for each canvas.
    """
    permitted = [v for v in range(model.tokenizer.vocab_size) if v != model.mask_id]
    randomness = torch.Generator().manual_seed(seed)
    plain = PaperDecode([model.mask_id] * config.length)  # 1
    y, size = plain.y, config.block_length

    def uniforms(canvases: int) -> list[list[list[float]]]:
        shape = (canvases, size, 2)
        numbers: list[list[list[float]]] = torch.rand(shape, generator=randomness, dtype=torch.float64).tolist()
        return numbers

    def f(y: list[int], start: int, drawn: list[list[float]]) -> dict[int, tuple[float, int]]:
        logits = model(torch.tensor([x + y]))[0].tolist()
        return {
            j: strategy_of_the_paper(
                logits[len(x) + j], permitted, config.strategy, config.temperature, drawn[j - start]
            )
            for j in range(start, start + size)
            if y[j] == model.mask_id
        }

    for start in range(0, config.length, size):  # 6: blocks are filled one after the other
        candidates = f(y, start, uniforms(1)[0])  # 7
        while candidates:
            c = [j for j in candidates if contains(candidates[j][1], j)] or [*candidates]  # 8, 9
            t = sorted(c, key=lambda j: (-candidates[j][0], j))[: config.lookahead]  # 11
            texts = {j: [*y[:j], candidates[j][1], *y[j + 1 :]] for j in t}
            if len(candidates) == 1:
                after: dict[int, dict[int, tuple[float, int]]] = {t[0]: {}}  # nothing left to draw
            else:
                after = {j: f(texts[j], start, drawn) for j, drawn in zip(t, uniforms(len(t)), strict=True)}
            g = {j: sum(contains(v, place) for place, (_, v) in after[j].items()) for j in t}  # 2, 3, 4
            winner = max(t, key=lambda j: (g[j], candidates[j][0], -j))  # 12: ties by reward
            y[:] = texts[winner]  # 13
            plain.positions.append(winner)
            plain.rewards.append(candidates[winner][0])
            plain.matched.append(contains(y[winner], winner))
            plain.tried.append(len(t))
            plain.scores.append(g[winner] if len(t) > 1 else None)
            if any(v in model.end_ids and model.mask_id not in y[:place] for place, v in enumerate(y)):
                return plain
            kept = config.lookahead_proposals == "kept" or len(t) == 1
            candidates = after[winner] if kept else f(y, start, uniforms(1)[0])
    return plain


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


def in_loop(token: int, place: int, canvas: list[int], period: int) -> bool:
    """Whether two or more of the tokens one and two periods to the left and to the right are the same."""
    same = 0
    for other in (place - 2 * period, place - period, place + period, place + 2 * period):
        if 0 <= other < len(canvas) and canvas[other] == token:
            same += 1
    return same >= 2


def decode_plainly(
    forwards: Forwards,
    x: list[int],
    blocks: list[range],
    config: DecodeConfig,
    contains: InMatchingSet,
    *,
    mask_id: int,
    permitted: list[int],
    end_ids: tuple[int, ...] = (),
    period: int | None = None,
) -> Plain:
    """Decode greedily; every candidate of a lookahead costs a forward, and so does the step after it.

    Args:
        forwards: the model.
        x: the prompt.
        blocks: places of the response, block by block.
        config: the settings that a step obeys.
        contains: whether (token, position) matches.
        mask_id: the mask.
        permitted: tokens that may be committed.
        end_ids: tokens that end the response.
        period: of the position code, for the repetition guard.
    """
    length = blocks[-1].stop
    plain = Plain([mask_id] * length)
    y, n = plain.y, len(x)
    for block in blocks:
        steps = len(block) if config.steps is None else max(config.steps // len(blocks), 1)
        rule = get_num_transfer_tokens if config.schedule == "llada" else dream_counts
        counts = [count for count in rule(len(block), steps) if count]
        fresh = True
        while any(y[j] == mask_id for j in block):
            whole = forwards.begin if fresh else forwards.step
            fresh = False
            logits = whole(x + y, n + block.start, n + block.stop)
            found = {
                j: strategy_of_the_paper(logits[j - block.start], permitted, config.strategy)
                for j in block
                if y[j] == mask_id
            }
            best = max(reward for reward, _ in found.values())
            preferred = []
            for j, (reward, token) in found.items():
                good = reward >= best * config.guard
                if config.strategy == "entropy":
                    good = config.guard == 0 or reward >= best - math.log(1 / config.guard)
                looping = config.repetition_guard and period is not None and in_loop(token, n + j, x + y, period)
                if contains(token, j) and good and not looping:
                    preferred.append(j)
            order = sorted(found, key=lambda j: (j not in preferred, -found[j][0], j))
            pool = sorted(preferred or [*found], key=lambda j: (-found[j][0], j))
            if config.commit == "threshold":
                sure = [j for j in pool if found[j][0] > config.threshold]
            elif config.commit == "factor":
                sure = []
                for rank, j in enumerate(pool, start=1):
                    if found[j][0] < 1 - config.factor / (rank + 1):
                        break
                    sure.append(j)
            else:
                sure = order[: counts.pop(0)]
            sure_alone = config.commit != "quota" and bool(sure)
            chosen = sure or pool[:1]

            # the last place of the step is open to the next ones of its kind
            kind = [j for j in order if (j in preferred) == (chosen[-1] in preferred)]
            others = kind[kind.index(chosen[-1]) :][: config.lookahead]
            if not sure_alone and len(others) > 1:
                scores = {}
                for j in others:
                    text = [*y]
                    for place in [*chosen[:-1], j]:
                        text[place] = found[place][1]
                    logits = forwards.step(x + text, n + block.start, n + block.stop)
                    scores[j] = sum(
                        contains(
                            strategy_of_the_paper(logits[place - block.start], permitted, config.strategy)[1], place
                        )
                        for place in block
                        if text[place] == mask_id
                    )
                chosen[-1] = max(others, key=lambda j: scores[j])  # the first of equals

            for j in chosen:
                y[j] = found[j][1]
            plain.steps.append(sorted(chosen))
            if any(token in end_ids and mask_id not in y[:place] for place, token in enumerate(y)):
                return plain
    return plain


# ---- keyed draws ----


def new_pairs(
    text: list[int], place: int, candidates: list[int], nearest: int, farthest: int
) -> dict[int, list[tuple[int, int] | None]]:
    """The pairs that each candidate would complete, the nearest first and left before right; None for one that is not
    new: the text holds it, or it was counted at this place. Those with a token on the left are counted first."""
    offsets = [-d for d in range(nearest, farthest + 1)] + [*range(nearest, farthest + 1)]
    known = {at for at, token in enumerate(text) if token >= 0}
    counted = {(text[at], text[at + d]) for at in known for d in offsets if d > 0 and at + d in known}
    found: dict[int, dict[int, tuple[int, int]]] = {token: {} for token in candidates}
    for offset in offsets:
        for token in candidates if place + offset in known else ():
            other = text[place + offset]
            pair = (other, token) if offset < 0 else (token, other)
            if pair not in counted:
                counted.add(pair)
                found[token][offset] = pair
    order = sorted(offsets, key=lambda offset: (abs(offset), offset))
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
    pairs = new_pairs(text, place, candidates, key.spec.nearest, key.spec.farthest)
    return {token: [sign_of(key, *pair) if pair else 0 for pair in row] for token, row in pairs.items()}


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


def drawn_with_bits(
    logits: list[float],
    permitted: list[int],
    config: DecodeConfig,
    alpha: float,
    uniforms: Sequence[float],
    bits: Callable[[list[int]], dict[int, list[int]]],
    noise: list[float] | None = None,
) -> Drawn:
    """A candidate for one place: of the 64 most likely tokens, those with at least 1e-4 of the mass have bits.

    With Gumbel noise it is the token of the largest log-probability plus noise.
    """
    before = shares_of(logits, permitted, config.temperature or 1.0, config.top_k, config.top_p)
    best = sorted(before, key=lambda v: (-before[v], v))[:64]
    signs = bits([v for v in best if before[v] >= 1e-4])
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
    return Drawn(token, reward, scores.get(config.strategy, reward * gain), sum(signs.get(token, ())) > 0)


def decode_with_bits(
    model: Denoiser, x: list[int], config: DecodeConfig, key: WatermarkKey | None, seed: int
) -> PaperDecode:
    """A whole decode with keyed draws, in which each place sees what the steps before have committed.

    Two uniforms are drawn for each position of the block and forward.
    """
    permitted = [v for v in range(model.tokenizer.vocab_size) if v != model.mask_id]
    randomness, forwards = torch.Generator().manual_seed(seed), Forwards(open_session(model, config.cache))
    ordered, alpha = key is None or key.spec.rule == "position", alpha_of(config, key)
    plain = PaperDecode([model.mask_id] * config.length)
    y, size = plain.y, config.block_length
    for start in range(0, config.length, size):
        block, window = range(start, start + size), (len(x) + start, len(x) + start + size)
        steps = size if config.steps is None else config.steps * size // config.length
        counts, logits = get_num_transfer_tokens(size, steps), forwards.begin(x + y, *window)
        while True:
            uniforms = torch.rand(size, 2, generator=randomness, dtype=torch.float64).tolist()
            text = [-1 if token == model.mask_id else token for token in y]
            found = {
                j: drawn_with_bits(one, permitted, config, alpha, drawn, partial(bits_at, key, text, j))
                for j, one, drawn in zip(block, logits, uniforms, strict=True)
                if y[j] == model.mask_id
            }
            for j, one in found.items():
                one.matched = sum(bits_at(key, text, j, [one.token])[one.token]) >= 0 if ordered else one.matched
            chosen = chosen_places(found, config, counts, ordered=ordered)
            for j in chosen:
                y[j] = found[j].token
                plain.positions.append(j)
                plain.rewards.append(found[j].reward)
                plain.matched.append(found[j].matched)
            if any(token in model.end_ids and model.mask_id not in y[:place] for place, token in enumerate(y)):
                return plain
            if all(y[j] != model.mask_id for j in block):
                break
            logits = forwards.step(x + y, *window)
    return plain


def chosen_places(found: dict[int, Drawn], config: DecodeConfig, counts: list[int], *, ordered: bool) -> list[int]:
    """The places that a step commits: the best by score, matches first if there is an order, or by their rewards all
    that are sure enough."""
    order = sorted(found, key=lambda j: (ordered and not found[j].matched, -found[j].score, j))
    pool = [j for j in found if found[j].matched or not ordered] or [*found]
    if config.commit == "quota":
        return sorted(order[: counts.pop(0)])
    if config.commit == "threshold":
        sure = [j for j in pool if found[j].reward > config.threshold]
    else:
        sure = []
        for rank, j in enumerate(sorted(pool, key=lambda j: (-found[j].reward, j)), start=1):
            if found[j].reward < 1 - config.factor / (rank + 1):
                break
            sure.append(j)
    return sorted(sure) or order[:1]
