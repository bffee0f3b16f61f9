"""The block decoder of LLaDA 2.2, many blocks at once, against a decoder that takes one place at a time."""

import os
import random
from typing import Any

import pytest
import torch

from dgmark.decode.steps.block_edits import BlockState, EditRules, advanced, escaped, planned, scan
from support import plain_edits
from support.plain_edits import GOLDEN, Settings, drawn, forward_of

DECODES = [case for case in GOLDEN if case["kind"] == "decode"]


def rules_of(s: Settings) -> EditRules:
    return EditRules(s.mask, s.delete, s.split, s.threshold, s.edit_threshold, s.steps, s.post_steps, s.cap)


def decode_together(cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What blocks of one size and prompt come to, which are decoded together under the rules of the first."""
    settings, prompt = Settings(**cases[0]["settings"]), cases[0]["prompt"]
    rules, forwards = rules_of(settings), [forward_of(case) for case in cases]
    outs: list[dict[str, Any]] = [{"steps": [], "ended": "prompt", "tokens": case["block"]} for case in cases]
    state = BlockState.begin(torch.tensor([case["block"][prompt:] for case in cases], dtype=torch.long), rules.mask)
    numbers = state.initial.nonzero()[:, 0].tolist()
    state = state.at(torch.tensor(numbers, dtype=torch.long))
    while numbers:
        heads = [cases[number]["block"][:prompt] for number in numbers]
        blocks = [head + ids for head, ids in zip(heads, state.ids.tolist(), strict=True)]
        given = [forwards[n](block, int(step)) for n, block, step in zip(numbers, blocks, state.step, strict=True)]
        logits = torch.tensor([rows[prompt:] for rows, _ in given], dtype=torch.float64)
        shares = logits.index_fill(-1, torch.tensor([rules.mask]), -torch.inf).softmax(-1)
        surest, likeliest = shares.max(-1)

        def draws(banned: set[int], given: Any = given) -> torch.Tensor:
            uniforms = [one or [0.0] * len(rows) for rows, one in given]
            return torch.tensor([
                [drawn(row, banned, settings, u) for row, u in zip(rows[prompt:], one[prompt:], strict=True)]
                for (rows, _), one in zip(given, uniforms, strict=True)
            ])  # fmt: skip

        fills = draws({rules.mask})
        sure = shares.gather(2, fills[:, :, None])[:, :, 0]
        plan = planned(state, sure, sure, likeliest, surest, rules)
        never = {rules.mask, rules.delete, rules.split}
        again = rules.edits(fills) & plan.final[:, None]
        fills = torch.where(again, draws(never), fills)
        tokens = shares.index_fill(-1, torch.tensor(sorted(never)), -1.0).argmax(-1)
        likeliest = torch.where(rules.edits(likeliest) & plan.final[:, None], tokens, likeliest)
        written = torch.where(plan.fill, fills, torch.where(plan.change, likeliest, state.ids))

        def other(block: int, place: int, token: int, shares: torch.Tensor = shares) -> int:
            return int(shares[block, place].index_fill(0, torch.tensor([token, rules.mask]), -1.0).argmax())

        written = escaped(written, state, surest, plan.final, other)
        scanned = scan(written, state, rules)
        before, (state, done) = state, advanced(state, plan, scanned, rules.mask)
        for at, (number, head) in enumerate(zip(numbers, heads, strict=True)):
            out, length = outs[number], len(head)
            out["steps"].append({
                "fill": [length + p for p in plan.fill[at].nonzero()[:, 0].tolist()],
                "replace": [length + p for p in plan.change[at].nonzero()[:, 0].tolist()],
                "final": bool(plan.final[at]), "written": head + written[at].tolist(),
                "block": head + state.ids[at].tolist(), "post": int(state.post[at]),
                "original": [0] * length + state.original[at].int().tolist(),
            })  # fmt: skip
            out["tokens"] = head + state.ids[at].tolist()
            stable = torch.equal(state.ids[at], before.ids[at]) and rules.mask not in state.ids[at].tolist()
            budget = "budget" if int(state.post[at]) >= rules.post_steps else "cap"
            out["ended"] = "stable" if stable else budget
        open_ones = (~done).nonzero()[:, 0]
        numbers = [numbers[at] for at in open_ones.tolist()]
        state = state.at(open_ones)
    return [out | {"forwards": len(out["steps"])} for out in outs]


def without_counts(out: dict[str, Any]) -> dict[str, Any]:
    """The outcome of the plain decoder without how often a step escaped, which what it wrote tells."""
    steps = [{name: value for name, value in step.items() if name != "escaped"} for step in out["steps"]]
    return out | {"steps": steps}


@pytest.mark.parametrize("case", DECODES, ids=lambda case: case["name"])
def test_each_step_is_that_of_the_plain_decoder(case: dict[str, Any]) -> None:
    assert decode_together([case]) == [without_counts(case["out"])]


@pytest.mark.parametrize(
    "settings",
    [{}, {"threshold": 0.3, "edit_threshold": 0.4}, {"steps": 4, "post_steps": 3}, {"post_steps": 0}, {"cap": 5},
     {"temperature": 1.0, "edit_threshold": 0.5}],
    ids=str,
)  # fmt: skip
def test_random_blocks_together_and_in_any_order_are_decoded_as_alone(settings: dict[str, Any]) -> None:
    compare_random(settings, count=30)


@pytest.mark.slow
def test_two_hundred_random_blocks() -> None:
    """`make soak` compares two thousand."""
    count = 50 if os.environ.get("DGMARK_ALL_CASES") else 5
    for number in range(40):
        choose = random.Random(number)
        settings = {"threshold": choose.choice([0.2, 0.5]), "edit_threshold": choose.choice([0, 0.3, 0.6])}
        settings |= {"steps": choose.choice([0, 3, 32]), "post_steps": choose.choice([0, 2, 16])}
        compare_random(settings | {"temperature": choose.choice([0, 1.0])}, count=count, seed=number)


def compare_random(settings: dict[str, Any], count: int, seed: int = 0) -> None:
    choose = random.Random(seed)
    size, prompt = choose.choice([4, 8]), choose.choice([0, 0, 3])
    ids = {"mask": 6, "delete": 7, "split": 8}
    cases = []
    for number in range(count):
        block = [choose.choice([6, 6, 6, *range(6)]) for _ in range(size)]
        case: dict[str, Any] = {
            "seed": f"{seed}/{number}",
            "spread": choose.choice([6.0, 12.0]),
            "vocab": 9,
            "block": block,
        }
        cases.append(case | {"prompt": prompt, "settings": ids | {"cap": 40} | settings})
    alone = [
        plain_edits.decode(case["block"], prompt, forward_of(case), Settings(**case["settings"])) for case in cases
    ]
    order = choose.sample(range(count), count)
    together = decode_together([cases[at] for at in order])
    for at, out in zip(order, together, strict=True):
        expected = without_counts(alone[at])
        assert out == expected


FACTS = [  # written, before, originals; the block after it, and its originals
    ([1, 14, 3, 4], [1, 2, 3, 4], [0, 0, 1, 0], [1, 3, 4, 12], [0, 1, 0, 0]),
    ([1, 15, 3, 4], [1, 2, 3, 4], [0, 1, 0, 0], [1, 12, 2, 3], [0, 0, 1, 0]),
    ([14, 2, 15, 4], [1, 2, 3, 4], [0, 0, 0, 0], [2, 12, 3, 4], [0, 0, 0, 0]),
    ([15, 15, 7, 8], [1, 2, 7, 8], [0, 0, 0, 0], [12, 1, 12, 2], [0, 0, 0, 0]),
    ([14, 14, 14, 14], [1, 2, 7, 8], [1, 1, 1, 1], [12, 12, 12, 12], [0, 0, 0, 0]),
]


def test_deletions_and_insertions_are_carried_out_from_left_to_right() -> None:
    written, before, originals, after, flags = (torch.tensor(column) for column in zip(*FACTS, strict=True))
    state = BlockState.begin(before, 12)
    state = BlockState(before, originals.bool(), state.initial, state.step, state.post, state.seen)
    scanned = scan(written, state, EditRules(12, 14, 15))
    assert torch.equal(scanned.ids, after)
    assert torch.equal(scanned.original, flags.bool())


def test_the_example_of_a_scan() -> None:
    state = BlockState.begin(torch.tensor([[5, 6, 7, 8, 9]]), 0)
    scanned = scan(torch.tensor([[5, 1, 7, 2, 4]]), state, EditRules(0, delete=1, split=2))
    assert scanned.ids.tolist() == [[5, 7, 0, 8, 4]]
    assert scanned.at.tolist() == [[0, 1, 1, 2, 4]]
