"""The step on the device against the pure functions of the loop, and under compilers."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from dgmark.decode import DecodeConfig, KeyStore, side_of_rows
from dgmark.decode.marks.rules import Places, Window
from dgmark.decode.steps.draws import uniform_draws
from dgmark.decode.steps.proposals import KeyedDraw, propose
from dgmark.engines.core import Block, keyed_logits, mark_edits, propose_block
from dgmark.errors import SettingsError, VocabularyMismatch
from dgmark.watermark.key import WatermarkKey
from dgmark.watermark.rules import spec_of
from support.engine_step import step
from support.fresh_process import run_fresh
from support.known_keys import matches, net_matches
from support.plain_decoding import mixed, uniform
from support.rules import places_from

CPU = torch.device("cpu")
SIZE = 37


def key_of(secret: int, table_size: int = SIZE, **spec: Any) -> WatermarkKey:
    """A key that is the same in every run."""
    return WatermarkKey(spec_of({"rule": "position", "table_size": table_size, **spec}), "test", bytes([secret]) * 32)


PAIRS = key_of(4, rule="bigram", nearest=1, farthest=3, subkeys=256)
KEYS: dict[str, list[WatermarkKey | None]] = {
    "position": [None, key_of(1), key_of(2, modulus=3), key_of(3, modulus=4, code_length=12)],
    "bigram": [None, PAIRS.subkey(7), PAIRS.subkey(200)],
}
STORES = {rule: KeyStore(keys, SIZE, CPU, slots=4) for rule, keys in KEYS.items()}
LEFT = 5  # columns left of a block that `mark` is shown


@st.composite
def batches(draw: st.DrawFn) -> dict[str, Any]:
    """A batch of blocks, some without masks, and any keys of one rule."""
    batch, block = draw(st.integers(1, 5)), draw(st.integers(1, 8))

    def table(values: st.SearchStrategy[Any], columns: int = block) -> list[list[Any]]:
        rows = st.lists(values, min_size=columns, max_size=columns)
        return draw(st.lists(rows, min_size=batch, max_size=batch))

    first = draw(st.lists(st.integers(-block, 300), min_size=batch, max_size=batch))
    rule = draw(st.sampled_from(sorted(KEYS)))
    return {
        "masked": table(st.booleans()),
        "tokens": table(st.integers(0, SIZE - 1)),
        "canvas": table(st.integers(0, SIZE - 1), block + LEFT),
        "positions": [[start + place for place in range(block)] for start in first],
        "keys": draw(st.lists(st.sampled_from(KEYS[rule]), min_size=batch, max_size=batch)),
        "rule": rule,
    }


def block_of(batch: dict[str, Any]) -> Block:
    keys = STORES[batch["rule"]].of(batch["keys"])
    masked, positions, canvas = (torch.tensor(batch[name]) for name in ("masked", "positions", "canvas"))
    return Block(masked, positions, keys, canvas)


@settings(max_examples=60, derandomize=True)
@given(batches())
def test_an_edit_is_made_unless_it_loses_a_match(batch: dict[str, Any]) -> None:
    """From left to right, each after those before it."""
    canvas, candidates = torch.tensor(batch["canvas"]), torch.tensor(batch["tokens"])
    block = block_of(batch)
    edits = ~block.masked & (block.positions >= 0)
    kept = mark_edits(edits, candidates, block)
    for row, key in enumerate(batch["keys"]):
        first = batch["positions"][row][0]
        hidden = [False] * LEFT + batch["masked"][row]
        text = [-1 if first - LEFT + at < 0 or hidden[at] else token for at, token in enumerate(canvas[row].tolist())]
        for place, position in enumerate(batch["positions"][row]):
            before, after = text[LEFT + place], int(candidates[row, place])
            lost = False
            if key is not None and batch["rule"] == "bigram":
                edited = [*text[: LEFT + place], after, *text[LEFT + place + 1 :]]
                lost = net_matches(key, edited) < net_matches(key, text)
                text = edited if edits[row, place] and not lost else text
            elif key is not None and before >= 0:
                lost = matches(key, before, position) and not matches(key, after, position)
            assert kept[row, place] == (edits[row, place] and not lost)


@settings(max_examples=60, derandomize=True)
@given(batches(), st.sampled_from([{}, {"alpha": 0.6}, {"temperature": 0.0, "bias": 1.5}, {"alpha": 0.3, "top_k": 9}]))
def test_a_block_is_proposed_as_the_loop_proposes_its_masked_places(
    batch: dict[str, Any], options: dict[str, Any]
) -> None:
    """The loop hashes the pairs that exist, an engine all of them at fixed shapes; other places draw plainly."""
    config, block = DecodeConfig(**options), block_of(batch)
    rng = np.random.default_rng(len(batch["keys"]))
    logits = torch.from_numpy(rng.normal(size=(*block.masked.shape, SIZE)) * 3)
    uniforms = torch.from_numpy(rng.random((*block.masked.shape, 2)))
    forbidden = torch.tensor([0])
    found = propose_block(logits, forbidden, config, uniforms, block=block)
    before, after = keyed_logits(logits, block, config)
    loop_rule = side_of_rows(batch["keys"], CPU)
    window = Window(block.window.ids, LEFT, block.positions, block.window.text, -1, torch.arange(len(logits)))
    places = Places.all_of(window)
    for at, (row, place) in enumerate(zip(places.canvas.tolist(), places.column.tolist(), strict=True)):
        keyed = None
        if block.masked[row, place]:
            signs = partial(loop_rule.signs, places=places.at(torch.tensor([at])))
            keyed = KeyedDraw(signs, None, loop_rule.alpha(config), config.bias)
        given_here = logits[row, place][None], uniforms[row, place][None], forbidden, config
        one = propose(*given_here, keyed=keyed)
        assert found.tokens[row, place] == one.tokens[0]
        assert torch.allclose(found.rewards[row, place], one.rewards[0])
        assert torch.allclose(found.scores[row, place], one.scores[0])
    moved = (after.softmax(-1) - before.softmax(-1)).abs().sum(-1)
    assert (moved[~block.masked] < 1e-6).all()


def test_draws_are_those_of_splitmix64_in_whole_numbers() -> None:
    assert mixed(0) == 0xE220A8397B1DCDAF  # the generator's published first output for seed 0
    found = uniform_draws(torch.tensor([77]), torch.tensor([4]), torch.tensor([[6, -3]]))
    for place, position in enumerate((6, -3)):
        for number in range(2):
            assert found[0, place, number].item() == uniform(77, 4, 2 * position + number)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_batch_read_in_parts_gives_the_same(temperature: float, monkeypatch: pytest.MonkeyPatch) -> None:
    logits = torch.from_numpy(np.random.default_rng(1).normal(size=(7, 4, SIZE)))
    uniforms = uniform_draws(torch.arange(7), torch.arange(7), torch.arange(4).expand(7, 4))
    given = (logits, torch.tensor([0]), DecodeConfig(temperature=temperature), uniforms)
    whole = propose_block(*given)
    monkeypatch.setattr("dgmark.engines.core._LOGITS_AT_ONCE", 3 * 4 * SIZE)
    parts = propose_block(*given)
    assert torch.equal(whole.tokens, parts.tokens)
    assert torch.equal(whole.scores, parts.scores)
    rows = [propose_block(logits[row : row + 1], *given[1:3], uniforms[row : row + 1]) for row in range(7)]
    assert whole.tokens.tolist() == [row.tokens[0].tolist() for row in rows]


# --- the store ---


HELD = {
    "position": [key_of(1), key_of(2, modulus=3, code_length=9), key_of(3, modulus=4)],
    "bigram": [PAIRS.subkey(1), PAIRS.subkey(2), PAIRS.subkey(3)],
}


@pytest.mark.parametrize("rule", sorted(HELD))
def test_what_was_captured_once_serves_keys_that_come_and_go(rule: str) -> None:
    """As a graph is captured: with one set of tensors, whose values alone change before each replay.

    The store gives up the key that was not used for longest.
    """
    one, two, three = HELD[rule]
    store = KeyStore([one], SIZE, CPU, slots=2)
    captured = store.of([])._replace(rows=torch.full((3,), -1))
    tokens = torch.arange(SIZE).expand(3, SIZE)
    candidates = tokens[:, LEFT:].flip(1).reshape(-1, 1)
    traced = make_fx(lambda: captured.side.signs(candidates, places_from(tokens, LEFT, rows=captured.rows)))()
    for batch in (
        *([one, two, None], [None, two, two], [two, one, two], [None, None, one]),
        *([three, one, one], [two, three, None], [None, None, None], [two, two, two]),
    ):
        captured.rows.copy_(store.of(batch).rows)
        expected = side_of_rows([*batch, one], CPU).signs(candidates, places_from(tokens, LEFT))
        assert traced().tolist() == expected.tolist()


def test_a_batch_that_is_still_under_way_keeps_its_rows() -> None:
    store = KeyStore([key_of(1)], SIZE, CPU, slots=2)
    rows, others = store.of([key_of(1), None]).rows, store.of([key_of(2), key_of(1)]).rows
    assert (rows.tolist(), others.tolist()) == ([0, -1], [1, 0])


def test_the_store_refuses_keys_that_it_cannot_hold() -> None:
    for keys, error, problem in (
        ([key_of(1), key_of(2)], SettingsError, "more than 1 keys"),
        ([key_of(1, rotation=5)], SettingsError, "rotates every 5 positions"),
        ([key_of(1, table_size=40)], VocabularyMismatch, "the model predicts 37"),
        ([PAIRS.subkey(1)], SettingsError, "of rule bigram, and this store is for keys of another rule"),
    ):
        with pytest.raises(error, match=problem):
            KeyStore([key_of(1)], SIZE, CPU, slots=1).of(keys)
    of_pairs = KeyStore([PAIRS], SIZE, CPU, slots=1)
    for key, problem in (
        (PAIRS, r"each with pairs of its own: take one with key\.subkey"),
        (key_of(1, rule="bigram", nearest=1, farthest=4), "has pairs at distances 1 to 4, and these rows at 1 to 3"),
        (key_of(1), "of rule position, and this store is for keys of another rule"),
    ):
        with pytest.raises(SettingsError, match=problem):
            of_pairs.of([key])
    some = torch.zeros(1, 2)
    block = Block(some == 0, some.long(), of_pairs.of([None]))
    with pytest.raises(SettingsError, match="give the committed `tokens`"):
        propose_block(some[..., None], torch.tensor([0]), DecodeConfig(), block=block)


# --- compilers ---


def inputs(seed: int, rule: str) -> tuple[Any, ...]:
    rng = np.random.default_rng(seed)
    logits = torch.from_numpy(rng.normal(size=(6, 8, SIZE)) * 4)
    ids = torch.from_numpy(rng.integers(1, SIZE, (6, 8 + LEFT)) * (rng.random((6, 8 + LEFT)) < 0.3))
    ids[5] = 1  # a row with nothing left to commit
    keys = STORES[rule].of([*KEYS[rule], *KEYS[rule]][:6])
    held = tuple(one for one in vars(keys.side).values() if isinstance(one, Tensor))
    return logits, ids, torch.arange(6) * 8 - 3, torch.arange(6) + seed, keys.rows, held


@pytest.mark.parametrize("rule", sorted(KEYS))
def test_a_step_is_traced_without_looking_at_a_value(rule: str) -> None:
    """Traced on tensors that have shapes and no values: a wait for the device, or a shape that depends on values,
    would stop the trace; what was traced gives the same on other values."""
    traced = make_fx(step, tracing_mode="fake", _allow_non_fake_inputs=True)(*inputs(0, rule))
    for seed in range(4):
        expected = step(*inputs(seed, rule))
        assert traced(*inputs(seed, rule)).tolist() == expected.tolist()
        assert (expected != inputs(seed, rule)[1][:, LEFT:]).any(1).sum() >= 5


@pytest.mark.soak
def test_a_step_compiles_as_one_graph(tmp_path: Path) -> None:
    torch.save([inputs(seed, rule) for rule in KEYS for seed in range(2)], tmp_path / "inputs.pt")
    code = f"""
import sys, torch
sys.path.append({str(Path(__file__).parents[1])!r})
from support.engine_step import step
compiled = torch.compile(step, fullgraph=True, backend="eager")
for given in torch.load({str(tmp_path / "inputs.pt")!r}):
    assert compiled(*given).tolist() == step(*given).tolist()
print(torch._dynamo.utils.counters["stats"]["unique_graphs"])
"""
    assert run_fresh(code).split()[-1] == "2"  # one for each rule
