"""Which positions a step commits, and how many, against an obvious sort and the published procedures."""

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dgmark.decode import Canvas, DecodeConfig, select_positions
from dgmark.decode.steps.selection import Choice, alternatives, blocks_to_fill, confident_places, quotas
from support.plain_decoding import dream_counts, get_num_transfer_tokens

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


@given(steps(), st.data(), st.booleans(), st.booleans())
def test_sets_are_those_of_an_obvious_sort(step: Step, data: st.DataObject, checked: bool, several: bool) -> None:
    """Masked places: those that survive re-tokenization, then confident ones, then matches, then by reward and place.

    The sets of a lookahead differ in the last place only, which is replaced by the next ones of its kind.
    """
    batch, block = len(step.masked), len(step.masked[0])

    def flags_of_rows(*, drawn: bool, default: bool) -> list[list[bool]]:
        flags = st.lists(st.booleans() if drawn else st.just(default), min_size=block, max_size=block)
        return data.draw(st.lists(flags, min_size=batch, max_size=batch))

    readable = flags_of_rows(drawn=checked, default=True)
    confident = flags_of_rows(drawn=several, default=False)
    width = data.draw(st.lists(st.integers(1, 6), min_size=batch, max_size=batch))
    for row in range(batch):  # only matches are confident if there are any, and then nothing is looked ahead at
        matches = [one and free for one, free in zip(step.matching[row], step.masked[row], strict=True)]
        confident[row] = [
            one and (match or not any(matches)) for one, match in zip(confident[row], matches, strict=True)
        ]
        width[row] = 1 if any(confident[row]) else width[row]
    rewards, masked, matching = (torch.tensor(rows) for rows in (step.rewards, step.masked, step.matching))
    options = torch.tensor(confident) if several else None, torch.tensor(readable) if checked else None
    quota = torch.tensor(step.quota)
    chosen = select_positions(rewards, masked, matching, quota, *options).tolist()
    sets, exists = alternatives(rewards, masked, Choice(matching, quota, torch.tensor(width), *options), max(width))
    for row, reads in enumerate(readable):

        def kind(j: int, row: int = row, reads: list[bool] = reads) -> tuple[bool, bool]:
            return not reads[j], reads[j] and not step.matching[row][j]

        def rank(j: int, row: int = row, reads: list[bool] = reads) -> tuple[Any, ...]:
            return not reads[j], reads[j] and not confident[row][j], *kind(j), -step.rewards[row][j], j

        order = sorted((j for j, free in enumerate(step.masked[row]) if free), key=rank)
        taken = order[: step.quota[row]]
        assert {j for j, one in enumerate(chosen[row]) if one} == {*taken}
        if order:
            first, last = taken[:-1], taken[-1]
            others = [j for j in order[len(first) :] if kind(j) == kind(last)][: width[row]]
            found = [{*one.nonzero()[:, 0].tolist()} for one in sets[row][exists[row]]]
            assert found == [{*first, j} for j in others]


@given(steps(), st.sampled_from([INF, -INF, float("nan"), 3.0]))
def test_rewards_of_committed_positions_are_not_read(step: Step, anything: float) -> None:
    rewards = [
        [reward if masked else anything for reward, masked in zip(*row, strict=True)]
        for row in zip(step.rewards, step.masked, strict=True)
    ]
    assert Step(rewards, step.masked, step.matching, step.quota).select() == step.select()


@pytest.mark.parametrize("reward", [-INF, 0.0, 0.5])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_ties_go_to_the_lowest_position_in_long_blocks(reward: float, dtype: torch.dtype) -> None:
    # long enough to reject a sort that is stable only on short rows
    block = 4096
    masked = [j % 3 == 2 for j in range(block)]
    matching = [j > 100 for j in range(block)]
    chosen = Step([[reward] * block], [masked], [matching], [5]).select(dtype)[0]
    assert [j for j, taken in enumerate(chosen) if taken] == [101, 104, 107, 110, 113]


# ---- thresholds ----


def places_of(
    rewards: list[list[float]], masked: list[list[bool]], preferred: list[list[bool]], config: DecodeConfig
) -> list[list[int]]:
    """The confident places of each row."""
    confident = confident_places(torch.tensor(rewards), torch.tensor(masked), torch.tensor(preferred), config)
    assert confident is not None
    return [row.nonzero()[:, 0].tolist() for row in confident]


def test_a_confidence_equal_to_the_threshold_is_not_above_it() -> None:
    every, config = [[True] * 3], DecodeConfig(3, 3, commit="threshold", threshold=0.75)
    assert places_of([[0.75, 0.76, 0.74]], every, every, config) == [[1]]
    assert places_of([[0.75, 0.76, 0.8]], [[True, True, False]], [[True, False, True]], config) == [[]]
    assert places_of([[0.75, 0.76, 0.8]], [[True, True, False]], [[False] * 3], config) == [[1]]


# ---- schedules ----


@pytest.mark.parametrize("schedule", ["llada", "dream"])
@pytest.mark.parametrize("block_count", [1, 3])
def test_quotas_are_those_of_the_published_procedures(schedule: Any, block_count: int) -> None:
    plain = get_num_transfer_tokens if schedule == "llada" else dream_counts
    for masked in range(1, 41):
        for steps in range(1, masked + 1):
            config = DecodeConfig(masked * block_count, masked, steps=steps * block_count, schedule=schedule)
            counts = quotas(masked, block_count, config)
            assert counts == [count for count in plain(masked, steps) if count]
            assert sum(counts) == masked


# ---- blocks that count from the start of the canvas ----


@pytest.mark.parametrize("offset", range(9))
@pytest.mark.parametrize("block_length", [1, 3, 8])
def test_blocks_are_cut_where_a_canvas_with_the_prompt_is(block_length: int, offset: int) -> None:
    length = 13
    numbers = [(offset + place) // block_length for place in range(length)]
    cut = [[place for place in range(length) if numbers[place] == number] for number in sorted({*numbers})]
    canvas = Canvas.after(torch.ones(1, offset, dtype=torch.long), length, 0)
    assert blocks_to_fill(canvas, block_length, "canvas") == [(block[0], block[-1] + 1) for block in cut]
