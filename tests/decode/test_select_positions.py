"""`select`: which positions a step commits, against an obvious sort."""

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dgmark.decode import select_positions
from dgmark.decode.selection import alternatives

INF = float("inf")
# few values, so that ties are the rule
REWARDS = st.sampled_from([-INF, -2.5, 0.0, 0.25, 1.0]) | st.floats(-(2.0**99), 2.0**99, width=32)


@dataclass(frozen=True)
class Step:
    """The arguments of `select` in one step, one list for each row."""

    rewards: list[list[float]]
    masked: list[list[bool]]
    matching: list[list[bool]]
    quota: list[int]

    def select(self, dtype: torch.dtype = torch.float32) -> list[list[bool]]:
        chosen: list[list[bool]] = select_positions(
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


@given(steps(), st.data())
def test_what_does_not_read_back_goes_last(step: Step, data: st.DataObject) -> None:
    flags = st.lists(st.booleans(), min_size=len(step.masked[0]), max_size=len(step.masked[0]))
    readable = data.draw(st.lists(flags, min_size=len(step.masked), max_size=len(step.masked)))
    width = data.draw(st.integers(1, 4))
    rewards, masked, matching = (torch.tensor(rows) for rows in (step.rewards, step.masked, step.matching))
    given = (rewards, masked, matching, torch.tensor(step.quota))
    chosen = select_positions(*given, torch.tensor(readable)).tolist()
    sets, exists = alternatives(*given, width, torch.tensor(readable))
    for row, reads in enumerate(readable):

        def kind(j: int, row: int = row, reads: list[bool] = reads) -> tuple[bool, bool]:
            return not reads[j], reads[j] and not step.matching[row][j]

        places = [j for j, free in enumerate(step.masked[row]) if free]
        order = sorted(places, key=lambda j: (*kind(j), -step.rewards[row][j], j))
        quota = step.quota[row]
        assert {j for j, taken in enumerate(chosen[row]) if taken} == {*order[:quota]}
        if order:
            first, last = order[:quota][:-1], order[:quota][-1]
            others = [j for j in order[len(first) :] if kind(j) == kind(last)][:width]
            found = [{*one.nonzero()[:, 0].tolist()} for one in sets[row][exists[row]]]
            assert found == [{*first, j} for j in others]


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
    # long enough to reject a sort that is stable only on short rows
    block = 4096
    masked = [j % 3 == 2 for j in range(block)]
    matching = [j > 100 for j in range(block)]
    chosen = Step([[reward] * block], [masked], [matching], [5]).select(dtype)[0]
    assert [j for j, taken in enumerate(chosen) if taken] == [101, 104, 107, 110, 113]


def test_a_matching_candidate_of_reward_minus_infinity_goes_before_one_that_does_not_match() -> None:
    step = Step([[9.0, -INF, 1.0]], [[True, True, True]], [[False, True, False]], [1])
    assert step.select() == [[False, True, False]]


# ---- alternatives: the sets among which a lookahead chooses ----


def sets_of(step: Step, width: list[int]) -> list[list[list[bool]]]:
    """The sets of each row that exist."""
    sets, exists = alternatives(
        torch.tensor(step.rewards),
        torch.tensor(step.masked),
        torch.tensor(step.matching),
        torch.tensor(step.quota),
        torch.tensor(width),
    )
    assert sets.shape[:2] == exists.shape
    return [
        [chosen for chosen, there in zip(row, flags, strict=True) if there]
        for row, flags in zip(sets.tolist(), exists.tolist(), strict=True)
    ]


WIDTHS = st.lists(st.integers(1, 6), min_size=4, max_size=4)


@given(steps(), WIDTHS)
def test_the_first_alternative_is_what_select_takes(step: Step, width: list[int]) -> None:
    for sets, chosen, masked in zip(sets_of(step, width[: len(step.quota)]), step.select(), step.masked, strict=True):
        if any(masked):
            assert sets[0] == chosen


@given(steps(), WIDTHS)
def test_alternatives_are_different_sets_of_one_size_all_masked(step: Step, width: list[int]) -> None:
    width = width[: len(step.quota)]
    for sets, masked, quota, most in zip(sets_of(step, width), step.masked, step.quota, width, strict=True):
        assert len({tuple(chosen) for chosen in sets}) == len(sets) <= most
        assert {sum(chosen) for chosen in sets} <= {min(quota, sum(masked))}
        assert not any(c and not m for chosen in sets for c, m in zip(chosen, masked, strict=True))
        if any(masked):
            assert sets


@given(steps(), WIDTHS)
def test_at_quota_1_the_alternatives_are_the_top_k_of_the_candidate_set(step: Step, width: list[int]) -> None:
    """C: the masked positions that match, or else all masked ones; T: the k best of C, ties to the lower position."""
    width = width[: len(step.quota)]
    one = Step(step.rewards, step.masked, step.matching, [1] * len(step.quota))
    for row, sets in enumerate(sets_of(one, width)):
        masked = [j for j, flag in enumerate(step.masked[row]) if flag]
        c = [j for j in masked if step.matching[row][j]] or masked
        t = sorted(c, key=lambda j: (-step.rewards[row][j], j))[: width[row]]
        if masked:
            assert [chosen.index(True) for chosen in sets] == t


@given(steps(), WIDTHS)
def test_alternatives_differ_only_in_the_last_place_and_never_give_up_a_match(step: Step, width: list[int]) -> None:
    for row, sets in enumerate(sets_of(step, width[: len(step.quota)])):
        matches = {sum(c and m for c, m in zip(chosen, step.matching[row], strict=True)) for chosen in sets}
        assert len(matches) <= 1
        fewer = Step(step.rewards, step.masked, step.matching, [quota - 1 for quota in step.quota]).select()[row]
        for chosen in sets:
            if any(step.masked[row]) and step.quota[row] <= sum(step.masked[row]):
                assert sum(c and not f for c, f in zip(chosen, fewer, strict=True)) == 1


@given(steps(), WIDTHS)
def test_a_row_has_the_alternatives_that_it_has_alone(step: Step, width: list[int]) -> None:
    width = width[: len(step.quota)]
    together = sets_of(step, width)
    for i, sets in enumerate(together):
        if any(step.masked[i]):
            alone = Step([step.rewards[i]], [step.masked[i]], [step.matching[i]], [step.quota[i]])
            assert sets_of(alone, [width[i]]) == [sets]


def test_equal_rewards_give_the_alternatives_from_left_to_right() -> None:
    step = Step([[0.5] * 6], [[False, True, True, True, True, True]], [[True, True, False, True, False, True]], [2])
    assert [[j for j, c in enumerate(chosen) if c] for chosen in sets_of(step, [4])[0]] == [[1, 3], [1, 5]]
    assert len(sets_of(step, [1])[0]) == 1


def test_a_number_stands_for_the_same_number_in_every_row() -> None:
    rewards, flags = torch.rand(3, 7, generator=torch.Generator().manual_seed(0)), torch.ones(3, 7, dtype=torch.bool)
    matching = rewards > 0.4
    for quota in (1, 3, 9):
        each = torch.full((3,), quota)
        assert torch.equal(
            select_positions(rewards, flags, matching, quota), select_positions(rewards, flags, matching, each)
        )
        sets = alternatives(rewards, flags, matching, quota, 2)
        expected = alternatives(rewards, flags, matching, each, torch.full((3,), 2))
        assert all(torch.equal(one, other) for one, other in zip(sets, expected, strict=True))
