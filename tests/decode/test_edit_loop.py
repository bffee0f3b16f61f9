"""Decodes with deletions and insertions (LLaDA 2.2): against a plain decoder, their texts, their mark, refusals."""

import json
import os
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import dgmark
from dgmark.decode import BlockFinished, Committed, DecodeConfig, RowFinished, Window, side_of_rows
from dgmark.decode.marks.bigram import BigramSide
from dgmark.decode.marks.rules import Places
from dgmark.decode.steps.proposals import keyed_draw
from dgmark.decode.steps.settled import SettledBlocks
from dgmark.errors import InputError, SettingsError
from dgmark.models.load import NetworkDenoiser
from dgmark.models.toy import ToyDenoiser
from dgmark.watermark.bigram import pair_words
from dgmark.watermark.key import WatermarkKey
from support import tiny_checkpoints as tiny
from support.cases import cases
from support.known_keys import bound_key
from support.plain_edits import Settings, decode

# --- a tiny checkpoint ---

MASK, DELETE, SPLIT, ENDS = 0, 62, 63, (1, 2)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("llada22")


@pytest.fixture(scope="module")
def state(folder: Path) -> tiny.State:
    return tiny.write(folder, "llada2.2")


@pytest.fixture(scope="module")
def model(folder: Path, state: tiny.State) -> NetworkDenoiser:
    assert state
    return tiny.load(folder)


def plain_text(state: tiny.State, prompt: list[int], length: int) -> list[int]:
    """The text at temperature 0 by the plain decoder and the plain forward."""
    ids, config = list(prompt), tiny.CONFIGS["llada2.2"]
    for low in range(len(prompt) // 32 * 32, len(prompt) + length, 32):
        before, block = ids[:low], ids[low : low + 32]

        def forward(block: list[int], _: int, before: list[int] = before) -> tuple[list[list[float]], None]:
            canvas = torch.tensor([before + block])
            logits = tiny.window_logits("llada2.2", state, config, canvas, len(before), len(before) + 32)
            return logits[0].index_fill(-1, torch.arange(65, 80), -1e9).tolist(), None

        given = len(block)
        out = decode(block + [MASK] * (32 - given), given, forward, Settings(MASK, DELETE, SPLIT))
        ids = before + out["tokens"]
        if set(ENDS) & set(out["tokens"][given:]):
            break
    text = ids[len(prompt) :][:length]
    return text[: next((place for place, token in enumerate(text) if token in ENDS), None)]


def a_prompt(length: int, seed: int) -> list[int]:
    return [5 + token % 57 for token in tiny.random_ids(length, 1, seed)[0].tolist()]


@pytest.mark.parametrize(("length", "cache"), [(1, "none"), (31, "prefix"), (32, "none"), (33, "prefix")])
def test_unmarked_text_at_temperature_0_is_that_of_the_plain_decoder(
    model: NetworkDenoiser, state: tiny.State, length: int, cache: Any
) -> None:
    prompts = [a_prompt(length, seed) for seed in (1, 2)]
    made = dgmark.generate(model, prompts, key=None, temperature=0, length=40, cache=cache)
    assert [one.token_ids for one in made] == [plain_text(state, prompt, 40) for prompt in prompts]
    assert any("split" in one.trace.operation for one in made)
    assert any("delete" in one.trace.operation for one in made)


def test_without_edits_it_is_the_loop_of_llada_21(model: NetworkDenoiser) -> None:
    """Neither deletes nor inserts, and replaces where it is asked to."""
    settings: dict[str, Any] = {"edits": "replace", "edit_threshold": 0.0, "length": 40}
    (made,) = dgmark.generate(model, [a_prompt(9, 1)], key=None, temperature=1.0, **settings)
    assert set(made.trace.operation) == {"write"}
    assert not {MASK, DELETE, SPLIT} & set(made.token_ids)
    assert len(made.trace.position) > len(set(made.trace.position))


# --- many texts of a toy ---


@dataclass(frozen=True)
class EditingToy(ToyDenoiser):
    """A toy that asks for a deletion or an insertion now and then, and else often keeps what stands."""

    words: int = 160
    padding: int = 3
    spread: float = 10.0
    edit_ids: tuple[int, int] = (150, 151)
    edit_bias: float = 2.0
    keep: float = 6.0

    def __call__(self, ids: Tensor) -> Tensor:
        logits = super().__call__(ids)
        logits[..., list(self.edit_ids)] += self.edit_bias
        logits.scatter_add_(2, ids[..., None], self.keep * (ids != self.mask_id)[..., None].to(logits.dtype))
        return logits


TOY = EditingToy()
EDITS: dict[str, Any] = {"edits": "levenshtein", "commit": "threshold", "threshold": 0.5}
SHORT = {**EDITS, "length": 12, "block_length": 8, "temperature": 1.0}


@cache
def toy_key(subkeys: int = 256) -> WatermarkKey:
    return bound_key("edits", TOY, subkeys=subkeys)


def replayed_by_hand(row: dict[str, Any]) -> list[int]:
    """The ids of a row from its trace alone, which leaves the operations out if all write."""
    trace, ids = row["trace"], [0] * 200
    operations = trace.get("operation", ["write"] * len(trace["position"]))
    for kind, position, token in zip(operations, trace["position"], trace["token_id"], strict=True):
        if kind == "write":
            ids[position] = token
        elif kind == "delete":
            ids.pop(position)
        else:
            ids.insert(position, 0)
    return ids


@pytest.mark.cover(1)
@pytest.mark.parametrize("marked", [False, True])
def test_no_text_has_a_mask_or_an_id_of_edits_and_a_replay_gives_each(marked: bool) -> None:
    """Of 80 texts, and in `make soak` of 10,000."""
    count, key = 5000 if os.environ.get("DGMARK_ALL_CASES") else 40, toy_key() if marked else None
    prompts = [[2 + number % 90, 7, 5] for number in range(count)]
    ids = [f"row {number}" for number in range(count)]
    made = dgmark.generate(TOY, prompts, key=key, ids=ids, batch_size=40, **SHORT)
    seen = set[str]()
    for one in made:
        row = json.loads(json.dumps(one.to_row("a")))
        assert not {0, *TOY.edit_ids} & set(one.token_ids)
        assert len(one.token_ids) == 12 or one.ended
        assert replayed_by_hand(row)[: len(one.token_ids)] == one.token_ids
        assert one.choices <= len(one.token_ids)
        seen |= set(one.trace.operation)
    assert seen == {"write", "delete", "split"}


def test_a_row_is_written_alike_in_any_order_and_batch() -> None:
    prompts = [[2 + number, 7, 5] for number in range(6)]
    ids = [f"row {number}" for number in range(6)]
    together = dgmark.generate(TOY, prompts, key=toy_key(), ids=ids, batch_size=6, **SHORT)
    alone = dgmark.generate(TOY, prompts[::-1], key=toy_key(), ids=ids[::-1], batch_size=4, **SHORT)[::-1]
    assert [one.token_ids for one in together] == [one.token_ids for one in alone]
    for one, other in zip(together, alone, strict=True):
        for name in ("position", "token_id", "operation", "matched", "had_choice"):
            assert getattr(one.trace, name) == getattr(other.trace, name)


def test_a_stream_ends_with_what_generate_returns() -> None:
    prompts = [[2, 7, 5], [3, 8, 6]]
    made = dgmark.generate(TOY, prompts, key=toy_key(), ids=["a", "b"], **SHORT)
    events = list(dgmark.stream_generate(TOY, prompts, key=toy_key(), ids=["a", "b"], **SHORT))
    finished = [event.generation for event in events if isinstance(event, RowFinished)]
    assert sorted(finished, key=lambda one: one.prompt) == made


def test_the_pieces_of_a_text_add_up_to_it() -> None:
    for seed in range(4):
        (made,) = dgmark.generate(TOY, [[2, 7, 5]], key=None, seed=seed, **SHORT)
        assert "".join(dgmark.stream_text(TOY, [2, 7, 5], key=None, seed=seed, **SHORT)) == made.text


def test_settled_blocks_are_the_text_so_far() -> None:
    """Each block is given once, in order, before it is said to be finished."""
    events = dgmark.stream_generate(TOY, [[2, 7, 5], [3, 8, 6]], key=None, **{**SHORT, "length": 30})
    given: dict[int, list[int]] = {0: [], 1: []}
    for event in SettledBlocks(inserts=True).of(events):
        if isinstance(event, Committed):
            assert event.positions == list(range(len(given[event.row]), len(given[event.row]) + 8))
            assert {*event.operations} == {"write"}
            given[event.row] += event.token_ids
        elif isinstance(event, BlockFinished):
            assert {len(given[row]) for row in event.rows} == {event.stop}
        else:
            ids = event.generation.token_ids
            assert given[event.row] == ids[: len(given[event.row])]
    assert max(map(len, given.values())) >= 8


# --- the mark ---


def test_a_marked_text_with_insertions_and_deletions_is_found_and_reads_back() -> None:
    settings = {**EDITS, "length": 96, "temperature": 1.0}
    toy = replace(TOY, end_bias=-1e3, spread=6.0, keep=10.0, edit_bias=5.0)
    made = dgmark.generate(toy, [[2 + n, 7, 5] for n in range(2)], key=toy_key(), **settings)
    for one in made:
        assert {"delete", "split"} <= set(one.trace.operation)
        assert toy.tokenizer.encode(one.text) == one.token_ids
        found = dgmark.detect(one.text, toy_key(), tokenizer=toy.tokenizer)
        assert found.verdict == "watermarked"


def test_a_keyed_draw_leaves_deletions_and_insertions_their_probability() -> None:
    """Each place keeps it under every key, while those of words change."""
    logits = torch.randn(40, TOY.vocab_size, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    ids = torch.randint(2, 100, (1, 40), generator=torch.Generator().manual_seed(4))
    window = Window(ids, 0, torch.arange(40)[None], (0, 40), 0, torch.zeros(1, dtype=torch.long))
    bitless, every = torch.tensor(TOY.edit_ids), torch.ones(40, dtype=torch.bool)
    before = logits.softmax(-1)
    for number in range(20):
        side = side_of_rows([toy_key().subkey(number)], "cpu")
        draw = keyed_draw(side, DecodeConfig(), Places.all_of(window), every, bitless=bitless)
        assert draw is not None
        after = before.clone()
        draw.apply(after, after.sum(-1))
        after /= after.sum(-1, keepdim=True)
        assert (after[:, list(TOY.edit_ids)] - before[:, list(TOY.edit_ids)]).abs().max() < 1e-12
        assert (after - before).abs().max() > 1e-3


def test_the_net_is_that_of_the_different_pairs_of_each_text() -> None:
    """Of random texts with masks, in which pairs come twice."""
    generator = torch.Generator().manual_seed(5)
    keys = [toy_key().subkey(number) for number in (3, 4)]
    side = side_of_rows([*keys, None], "cpu")
    assert isinstance(side, BigramSide)
    for _ in range(30):
        ids = torch.randint(0, 12, (3, 14), generator=generator)
        window = Window(ids, 0, torch.arange(14).expand(3, -1), (1, 14), 0, torch.arange(3))
        net = side.net(window).tolist()
        for row in range(2):
            words = words_of(pairs_of(ids[row, 1:].tolist()))
            signs = side.signs_of_pairs(words, torch.full_like(words, row))
            assert net[row] == int(signs.sum())
        assert net[2] == 0


def pairs_of(ids: list[int]) -> set[tuple[int, int]]:
    """The different pairs of committed tokens at distances 1 to 4."""
    found = ((ids[at], ids[at + d]) for d in range(1, 5) for at in range(len(ids) - d))
    return {pair for pair in found if 0 not in pair}


def words_of(pairs: set[tuple[int, int]]) -> Tensor:
    left, right = torch.tensor(sorted(pairs), dtype=torch.long).view(-1, 2).unbind(1)
    return pair_words(left, right)


# --- refusals ---


@pytest.mark.parametrize(("settings", "problem"), cases(__file__, "refused"))
def test_what_does_not_go_with_insertions_is_refused(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(SettingsError, match=problem):
        dgmark.generate(TOY, [[2, 3]], key=None, **{**SHORT, **settings})


def test_rules_and_models_without_insertions_refuse_them(model: NetworkDenoiser) -> None:
    with pytest.raises(SettingsError, match=r"edits levenshtein moves tokens, .* use replace"):
        dgmark.generate(TOY, [[2, 3]], key=bound_key("p", TOY, rule="position"), **SHORT)
    with pytest.raises(SettingsError, match="toy neither deletes nor inserts: use edits replace"):
        dgmark.generate(ToyDenoiser(), [[2, 3]], key=None, **SHORT)
    with pytest.raises(SettingsError, match="whole blocks of 32"):
        dgmark.generate(model, [[7, 8]], key=None, block_length=16)
    with pytest.raises(SettingsError, match="would move text around holes: use edits replace"):
        dgmark.infill(TOY, [["w1 w2", 2, "w3 w4"]], key=None, **EDITS)


@pytest.mark.parametrize("token", [0, 150, 151])
def test_ids_of_edits_in_a_prompt_are_refused(token: int) -> None:
    with pytest.raises(InputError, match=f"prompt id {token} is no text"):
        dgmark.generate(TOY, [[2, token]], key=None, **SHORT)
