"""The block decoder of LLaDA 2.2 once more, a place at a time, made from the published description to be read.

`decode` is the published decoder without its random choices: the mask is never written, the least sure change escapes
from a loop, the last step that is allowed is a final round, and a final draw uses its uniform again. The cases in
`tests/golden/llada22.json` hold its inputs and what comes out.
"""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import accumulate
from pathlib import Path
from typing import Any

GOLDEN: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "golden" / "llada22.json").read_text(encoding="utf-8")
)

# logits of a block at a step, and the uniforms that draw from them
Forward = Callable[[list[int], int], tuple[list[list[float]], list[float] | None]]


@dataclass(frozen=True)
class Settings:
    """Of one decode. The published ones: threshold .5, edit_threshold 0, steps 32, post_steps 16, cap 1000, T = 0."""

    mask: int
    delete: int
    split: int
    threshold: float = 0.5
    edit_threshold: float = 0.0
    steps: int = 32
    post_steps: int = 16
    cap: int = 1000  # the last step of a block at the latest; the reference gives up there, here it is a final round
    temperature: float = 0.0  # only masks are drawn, edits always take the likeliest token
    mask_drawable: bool = False  # the reference can write the mask itself; FluxServe and this cannot
    tries: int = 5


@dataclass
class State:
    """A block between two steps. `original` goes with the places, filled or not: it counts only while masked."""

    block: list[int]
    prompt: int  # so many leading places are of the prompt, whatever they hold
    original: list[bool] = field(default_factory=list)
    masks: int = 0
    step: int = 0
    post: int = 0
    seen: set[tuple[int, ...]] = field(default_factory=set)


def begin(block: Sequence[int], prompt: int, s: Settings) -> State:
    original = [place >= prompt and token == s.mask for place, token in enumerate(block)]
    return State(list(block), prompt, original, sum(original))


def best(row: Sequence[float], banned: set[int]) -> int:
    """The likeliest id that is not banned; of equals, the lowest."""
    return max((one for one in range(len(row)) if one not in banned), key=lambda one: (row[one], -one))


def weights_of(row: Sequence[float], banned: set[int], temperature: float = 1.0) -> list[float]:
    top = row[best(row, banned)]
    return [0.0 if at in banned else math.exp((one - top) / temperature) for at, one in enumerate(row)]


def drawn(row: Sequence[float], banned: set[int], s: Settings, uniform: float) -> int:
    """The first id at which the weights so far exceed the uniform's share of all; at temperature 0 the likeliest."""
    if not s.temperature:
        return best(row, banned)
    weights = weights_of(row, banned, s.temperature)
    target, so_far = uniform * sum(weights), list(accumulate(weights))
    return next(token for token, mass in enumerate(so_far) if mass > target)


def scan(
    written: list[int], before: list[int], original: list[bool], prompt: int, s: Settings
) -> tuple[list[int], list[bool]]:
    """Carry out DELETE and SPLIT from left to right: DELETE leaves nothing, SPLIT a new mask and what stood there."""
    tokens, track = list(before[:prompt]), [False] * prompt
    for token, old, flag in list(zip(written, before, original, strict=True))[prompt:]:
        if token == s.split:
            tokens, track = [*tokens, s.mask, old], [*track, False, flag]
        elif token != s.delete:
            tokens, track = [*tokens, token], [*track, flag]
    size = len(before)
    return (tokens + [s.mask] * size)[:size], (track + [False] * size)[:size]


def step(
    now: State, logits: Sequence[Sequence[float]], s: Settings, uniforms: Sequence[float] | None = None
) -> dict[str, Any]:
    """One step on the logits of the block; changes the state, and returns what was done."""
    size, before, edits = len(now.block), list(now.block), {s.delete, s.split}
    barred = set() if s.mask_drawable else {s.mask}
    masked = [place for place in range(now.prompt, size) if before[place] == s.mask]
    now.post = 0 if (originals := [place for place in masked if now.original[place]]) else now.post + 1
    # 1. Candidates: what a mask would become, what a token would become, and how sure the model is, at temperature 1.
    uniforms = uniforms or [0.0] * size
    fills = [drawn(row, barred, s, one) for row, one in zip(logits, uniforms, strict=True)]
    likeliest = [best(row, barred) for row in logits]
    shares = [[one / sum(weights) for one in weights] for weights in (weights_of(row, barred) for row in logits)]
    sure = [share[token] for share, token in zip(shares, fills, strict=True)]
    surest = [max(share) for share in shares]
    # 2. Masks to fill: the sure ones, or at least what the schedule asks for and as many as are new; at its end, all.
    fill = [place for place in masked if sure[place] > s.threshold or now.step >= s.steps]
    need = now.masks // max(s.steps, 1) + (now.step < now.masks % max(s.steps, 1)) + len(masked) - len(originals)
    if len(fill) < need:
        fill = sorted(masked, key=lambda place: (-sure[place], place))[:need]
    # 3. Tokens to replace.
    replaced = [p for p in range(now.prompt, size) if p not in masked and likeliest[p] != before[p]]
    replaced = [place for place in replaced if surest[place] > s.edit_threshold]
    # 4. The final round fills all and writes neither DELETE nor SPLIT.
    final = now.post >= s.post_steps if s.post_steps else bool(originals) and set(originals) <= set(fill)
    final = final or now.step >= s.cap - 1
    fill = masked if final else fill
    never = edits | {s.mask} if final else barred
    written = list(before)
    for place in fill:
        again = fills[place] in never  # the same uniform draws again; the reference takes a new random number
        written[place] = drawn(logits[place], never, s, uniforms[place]) if again else fills[place]
    for place in replaced:
        written[place] = best(logits[place], never) if likeliest[place] in never else likeliest[place]
    # 5. A block that was written before: the least sure change takes the next best token (the reference draws which).
    escaped = 0
    while not final and tuple(written) in now.seen and escaped < s.tries:
        changed = [place for place in range(size) if written[place] != before[place]]
        if not changed:
            break
        place = min(changed, key=lambda one: (surest[one], one))
        written[place] = best(logits[place], barred | {written[place]})
        escaped += 1
    now.seen.add(tuple(written))
    # 6. DELETE and SPLIT.
    now.block, now.original = scan(written, before, now.original, now.prompt, s)
    now.step += 1
    done = {"fill": sorted(fill), "replace": replaced, "final": final, "escaped": escaped, "written": written}
    return done | {"block": list(now.block), "original": [int(one) for one in now.original], "post": now.post}


def decode(block: list[int], prompt: int, forward: Forward, s: Settings) -> dict[str, Any]:
    """Decode a block: `forward(block, number)` gives its logits, and uniforms for its places or None."""
    now, ended = begin(block, prompt, s), "prompt"
    steps: list[dict[str, Any]] = []
    while now.masks:
        before = list(now.block)
        if steps and steps[-1]["final"]:  # an engine with a cache runs one more forward here, on the final tokens
            ended = "budget" if steps[-1]["post"] >= s.post_steps else "cap"
            break
        logits, uniforms = forward(before, now.step)
        steps.append(step(now, logits, s, uniforms))
        if now.block == before and s.mask not in before[prompt:]:
            ended = "stable"
            break
    return {"steps": steps, "forwards": len(steps), "ended": ended, "tokens": now.block}


# --- the cases ---


def number(*parts: object) -> float:
    """A number in [0, 1) that anybody can compute: four bytes of a hash of the parts, joined by "/"."""
    return int.from_bytes(sha256("/".join(map(str, parts)).encode()).digest()[:4], "big") / 2**32


def forward_of(case: dict[str, Any]) -> Forward:
    """Logits by script, a token and its probability for each place and step (the last step goes on); or by seed."""

    ids, places = range(case["vocab"]), range(len(case["block"]))

    def scripted(block: list[int], at: int) -> tuple[list[list[float]], list[float] | None]:
        rows, others = case["script"][min(at, len(case["script"]) - 1)], case["vocab"] - 1
        return [[math.log(p if one == token else (1 - p) / others) for one in ids] for token, p in rows], None

    def seeded(block: list[int], at: int) -> tuple[list[list[float]], list[float] | None]:
        seed, name, spread = case["seed"], ",".join(map(str, block)), case["spread"]
        logits = [[spread * (number(seed, name, place, one) - 0.5) for one in ids] for place in places]
        return logits, [number(seed, "uniform", at, place) for place in places]

    return scripted if "script" in case else seeded
