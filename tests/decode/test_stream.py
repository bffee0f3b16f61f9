"""Streaming: the events add up to what `generate` returns, in an order that a reader can rely on."""

from typing import Any

import pytest

import dgmark
from dgmark.decode import BlockFinished, Committed, RowFinished
from dgmark.errors import PromptTooLong, SettingsError
from dgmark.models.toy import ToyDenoiser
from support.command_line import run
from support.known_keys import bound_key

TOY = ToyDenoiser(end_bias=0.4)
PROMPTS = ["w1 w2", "w3 w4", "w5", "w6 w7", "w8"]
SHORT: dict[str, Any] = {"length": 12, "block_length": 4}
EDITED = {"edit_threshold": 0.14}
KEY = dgmark.WatermarkKey(dgmark.WatermarkKey.generate(TOY, rule="position").spec, "stream", bytes(range(32)))
PAIRS = bound_key("stream", TOY)
EVERY: list[dict[str, Any]] = [{}, {"commit": "threshold", "threshold": 0.2}, {"steps": 6}, EDITED]


@pytest.mark.parametrize(
    ("key", "settings"),
    [
        *((key, settings) for key in (None, KEY) for settings in [*EVERY, {"temperature": 0}, {"lookahead": 3}]),
        *((PAIRS, settings) for settings in [*EVERY, {"temperature": 0, "bias": 1.0}]),
    ],
    ids=lambda one: one.spec.rule if isinstance(one, dgmark.WatermarkKey) else str(one),
)
def test_the_events_add_up_to_the_generations(key: Any, settings: dict[str, Any]) -> None:
    made = dgmark.generate(TOY, PROMPTS, key=key, seed=11, batch_size=3, **SHORT, **settings)
    assert {row.ended for row in made} == {True, False}
    events = list(dgmark.stream_generate(TOY, PROMPTS, key=key, seed=11, batch_size=3, **SHORT, **settings))
    finished = {event.row: event.generation for event in events if isinstance(event, RowFinished)}
    assert [finished[row] for row in range(len(PROMPTS))] == made
    for row, generation in enumerate(made):
        mine = [event for event in events if isinstance(event, Committed) and event.row == row]
        assert [p for event in mine for p in event.positions] == generation.trace.position
        assert [t for event in mine for t in event.token_ids] == generation.trace.token_id
        assert [m for event in mine for m in event.matched] == generation.trace.matched
        positions = generation.trace.position
        edited = [position in positions[:at] for at, position in enumerate(positions)]
        assert [one for event in mine for one in event.edited] == edited


@pytest.mark.parametrize("settings", [{}, EDITED], ids=str)
def test_finished_blocks_do_not_change_and_finished_rows_have_no_events(settings: dict[str, Any]) -> None:
    over: set[int] = set()
    blocks: dict[int, int] = {}
    for event in dgmark.stream_generate(TOY, PROMPTS, key=KEY, batch_size=5, **SHORT, **settings):
        if isinstance(event, Committed):
            assert event.row not in over
            assert all(position // 4 > blocks.get(event.row, -1) for position in event.positions)
        elif isinstance(event, BlockFinished):
            for row in event.rows:
                assert row not in over
                assert blocks.get(row, -1) == event.block - 1
                blocks[row] = event.block
        else:
            over.add(event.row)
    assert over == set(range(5))
    assert max(blocks.values()) == 1  # the last block ends with its rows


@pytest.mark.parametrize("settings", EVERY, ids=str)
def test_the_pieces_of_a_text_add_up_to_it_and_come_while_it_is_written(settings: dict[str, Any]) -> None:
    for seed in range(4):
        (made,) = dgmark.generate(TOY, ["w1 w2"], key=None, seed=seed, **SHORT, **settings)
        pieces = list(dgmark.stream_text(TOY, "w1 w2", key=None, seed=seed, **SHORT, **settings))
        assert "".join(pieces) == made.text
        assert all(pieces)
        assert len(pieces) > 1 or len(made.token_ids) <= SHORT["block_length"]


def test_invalid_arguments_raise_at_once() -> None:
    with pytest.raises(SettingsError):
        dgmark.stream_generate(TOY, "w1", key=None, length=0, block_length=4)
    with pytest.raises(SettingsError, match="leave progress out"):
        dgmark.stream_text(TOY, "w1", key=None, progress=print, **SHORT)
    with pytest.raises(PromptTooLong):
        dgmark.stream_generate(TOY, "w1 " * 600, key=None, **SHORT)
    with pytest.raises(SettingsError, match="no setting colour"):
        dgmark.stream_generate(TOY, "w1", key=None, **{"colour": "red", **SHORT})


def test_padding_changes_no_row() -> None:
    """Prompts of different lengths in one padded batch of a real network, against one by one."""
    model = dgmark.load_model(dtype="fp32")
    prompts = ["Once", "There was once a king who had", "The sea was calm and"]
    padded = dgmark.generate(model, prompts, key=None, pad=True, temperature=0, length=8, block_length=8)
    apart = [dgmark.generate(model, prompt, key=None, temperature=0, length=8, block_length=8)[0] for prompt in prompts]
    assert [row.token_ids for row in padded] == [row.token_ids for row in apart]


def test_the_command_streams_one_text_and_prints_it() -> None:
    options = ["--no-watermark", "--length", "8", "--block-length", "4", "--prompt", "Once upon a time"]
    assert run("generate", "--stream", *options, code=0).stdout == run("generate", *options).stdout
    assert run("generate", "--stream", *options, "--out", "rows.jsonl").exit_code == 2
