"""`select`: which positions a step commits, against an obvious sort."""

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dgmark.decode import select

INF = float("inf")
# few values, so that ties are the rule
REWARDS = st.sampled_from([-INF, -2.5, 0.0, 0.25, 1.0]) | st.floats(-(2.0**99), 2.0**99, width=32)


@dataclass(frozen=True)
class Step:
    """What `select` is told of one step; one list a row."""

    rewards: list[list[float]]
    masked: list[list[bool]]
    matching: list[list[bool]]
    quota: list[int]

    def select(self, dtype: torch.dtype = torch.float32) -> list[list[bool]]:
        chosen: list[list[bool]] = select(
            torch.tensor(self.rewards, dtype=dtype),
            torch.tensor(self.masked),
            torch.tensor(self.matching),
            torch.tensor(self.quota),
        ).tolist()
        return chosen


@st.composite
def steps(draw: st.DrawFn) -> Step:
    batch, block = draw(st.integers(1, 4)), draw(st.integers(1, 9))

    def rows_of(row: st.SearchStrategy[Any]) -> list[Any]:
        return draw(st.lists(row, min_size=batch, max_size=batch))

    flags = st.lists(st.booleans(), min_size=block, max_size=block)
    rewards = st.lists(REWARDS, min_size=block, max_size=block)
    return Step(rows_of(rewards), rows_of(flags), rows_of(flags), rows_of(st.integers(1, block + 2)))


def sorted_choice(rewards: list[float], masked: list[bool], matching: list[bool], quota: int) -> set[int]:
    """The rule in one sort: masked positions, matching ones first, then the higher reward, then the lower position."""
    candidates = [j for j in range(len(masked)) if masked[j]]
    return set(sorted(candidates, key=lambda j: (not matching[j], -rewards[j], j))[:quota])


@given(steps())
def test_select_agrees_with_a_sort_by_match_then_reward_then_position(step: Step) -> None:
    expected = [sorted_choice(*row) for row in zip(step.rewards, step.masked, step.matching, step.quota, strict=True)]
    assert [{j for j, taken in enumerate(row) if taken} for row in step.select()] == expected


@given(steps())
def test_a_row_with_masked_positions_commits_its_quota_or_all_of_them(step: Step) -> None:
    committed = [sum(row) for row in step.select()]
    assert committed == [min(quota, sum(row)) for quota, row in zip(step.quota, step.masked, strict=True)]


@given(steps())
def test_a_committed_position_is_never_selected_again(step: Step) -> None:
    for chosen, masked in zip(step.select(), step.masked, strict=True):
        assert not any(c and not m for c, m in zip(chosen, masked, strict=True))


@given(steps())
def test_no_matching_candidate_is_the_same_as_all_matching(step: Step) -> None:
    def with_matching(value: bool) -> Step:
        return Step(step.rewards, step.masked, [[value] * len(row) for row in step.masked], step.quota)

    assert with_matching(False).select() == with_matching(True).select()


@given(steps(), st.sampled_from([INF, -INF, float("nan"), 3.0]))
def test_rewards_of_committed_positions_are_not_read(step: Step, anything: float) -> None:
    rewards = [
        [reward if masked else anything for reward, masked in zip(*row, strict=True)]
        for row in zip(step.rewards, step.masked, strict=True)
    ]
    assert Step(rewards, step.masked, step.matching, step.quota).select() == step.select()


@given(steps())
def test_a_row_is_selected_as_if_it_were_alone(step: Step) -> None:
    together = step.select()
    for i, row in enumerate(together):
        alone = Step([step.rewards[i]], [step.masked[i]], [step.matching[i]], [step.quota[i]])
        assert alone.select() == [row]


@pytest.mark.parametrize("reward", [-INF, 0.0, 0.5])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_ties_go_to_the_lowest_position_in_long_blocks(reward: float, dtype: torch.dtype) -> None:
    # long enough for a sort that is stable by luck on short rows to be found out
    block = 4096
    masked = [j % 3 == 2 for j in range(block)]
    matching = [j > 100 for j in range(block)]
    chosen = Step([[reward] * block], [masked], [matching], [5]).select(dtype)[0]
    assert [j for j, taken in enumerate(chosen) if taken] == [101, 104, 107, 110, 113]


def test_a_matching_candidate_of_reward_minus_infinity_goes_before_one_that_does_not_match() -> None:
    step = Step([[9.0, -INF, 1.0]], [[True, True, True]], [[False, True, False]], [1])
    assert step.select() == [[False, True, False]]


def test_the_arguments_are_left_as_they_were() -> None:
    rewards = torch.tensor([[0.5, 2.0, 1.0]])
    masked, matching = torch.tensor([[True, False, True]]), torch.tensor([[False, True, True]])
    before = [tensor.clone() for tensor in (rewards, masked, matching)]
    select(rewards, masked, matching, torch.tensor([1]))
    assert all(torch.equal(a, b) for a, b in zip(before, (rewards, masked, matching), strict=True))
