"""The narrator: which keys a position sees, which tokens are masked, and how the base's own texts are drawn."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dgmark.errors import SettingsError
from dgmark_lab.toml_files import read_toml
from dgmark_lab.training.narrator.adapter import AdaptedLlama, Layout
from dgmark_lab.training.narrator.config import BlockMasking, NarratorConfig, OwnTexts, Sampling
from dgmark_lab.training.narrator.own_texts import odds, requests, sample
from dgmark_lab.training.narrator.rows import Passage, PassageRows, mask_rows, target_positions
from dgmark_lab.training.narrator.trainer import STAGES
from support import tiny_gguf
from support.training_setup import NARRATOR_SETTINGS as SETTINGS
from support.training_setup import narrator_settings as settings

# ---- what is seen ----


def test_one_forward_of_a_row_is_a_forward_of_each_block() -> None:
    """The clean text and both masked copies at once, against a sequence of its own for every block."""
    model = AdaptedLlama(tiny_gguf.llama(), 4)
    torch.manual_seed(1)
    for name, param in model.trainable_parameters().items():
        if name.endswith("up"):
            torch.nn.init.normal_(param, std=0.3)
    layout, rows = Layout(6, 12, 2), 3
    ids = torch.randint(0, 200, (rows, 18))
    absent, block = torch.tensor([0, 2, 5]), torch.tensor([4, 6, 12])
    masked = torch.rand(rows, 2, 12) < 0.5
    everything = torch.cat([ids, ids[:, 6:].repeat(1, 2)], 1)
    where = torch.cat([torch.zeros(rows, 18, dtype=torch.bool), masked.flatten(1)], 1)
    with torch.no_grad():
        hidden = model.hidden(everything, where, layout.positions(), layout.visible(absent, block))
        for row in range(rows):
            size, first = int(block[row]), int(absent[row])
            for copy in range(2):
                for begin in range(0, 12, size):
                    start = 6 + begin
                    alone, before = ids[row, first : start + size][None], start - first
                    masks = torch.zeros_like(alone, dtype=torch.bool)
                    masks[0, before:] = masked[row, copy, begin : begin + size]
                    place = torch.arange(alone.shape[1])
                    seen = (place <= place[:, None]) | (place >= before)[:, None]
                    expected = model.hidden(alone, masks, place, seen[None])[0, before - 1 : -1]
                    got = hidden[row, layout.predictors(block)[row, copy, begin : begin + size]]
                    assert (got - expected).abs().max() < 1e-4


def test_adapters_start_at_zero_and_leave_the_base_frozen() -> None:
    network = tiny_gguf.llama()
    ids = torch.randint(0, 200, (2, 9))
    with torch.no_grad():
        before = network.model(ids).last_hidden_state
        model = AdaptedLlama(network, 4)
        causal = torch.ones(2, 9, 9, dtype=torch.bool).tril()
        nothing = torch.zeros_like(ids, dtype=torch.bool)
        assert (model.hidden(ids, nothing, torch.arange(9), causal) - before).abs().max() < 1e-5
        name, _ = next(model.adapters())
        assert name == "model.layers.0.self_attn.q_proj"
    assert not any(param.requires_grad for name, param in model.named_parameters() if name.endswith("weight"))


# ---- rows and masks ----


def passage(length: int, given: int, ended: bool, first: int = 100) -> Passage:
    return Passage(np.arange(first, first + length, dtype=np.uint16), given, ended)


def test_a_row_is_context_response_and_ends() -> None:
    rows = PassageRows(
        [passage(12, 5, True)],
        [passage(40, 8, True)],
        settings(rows=SETTINGS["rows"] | {"start_share": 1.0}).rows,
        2,
        0,
    )
    ids, absent, length, ended, given = rows.row(0, np.random.default_rng(0))
    assert ids.tolist() == [2, 2, 2, *range(100, 112), *[2] * 9]
    assert (absent, length, ended, given) == (3, 7, True, 8)
    ids, absent, length, ended, given = rows.row(1, np.random.default_rng(0))
    assert ids.tolist() == list(range(100, 124))
    assert (absent, length, ended, given) == (0, 16, False, 8)


def test_whole_blocks_are_learned_and_the_one_in_which_a_text_ends() -> None:
    lengths, block = np.array([7, 8, 7, 8, 16]), np.full(5, 4)
    assert target_positions(lengths, np.array([True, True, False, False, False]), block).tolist() == [8, 12, 4, 8, 16]


@pytest.mark.parametrize("ordered", [0.0, 1.0])
def test_masks_are_uniform_in_number_and_weigh_a_block_as_one(ordered: float) -> None:
    """Under the weights block / masked, each block's weights sum to its length wherever something is masked."""
    masking = BlockMasking(ordered_share=ordered, spreads=(2.0,), largest_weight=1e9)
    rows, size = 4000, 8
    ids, block = np.zeros((rows, 24), np.int64), np.full(rows, size)
    batch = mask_rows(ids, np.zeros(rows, int), block, np.full(rows, 8), 16, masking, np.random.default_rng(0))
    assert not batch.masked[:, :, 8:].any()
    assert not batch.weights[:, :, 8:].any()
    counts = batch.masked[:, :, :8].sum(2)
    sums = batch.weights.sum(2)
    np.testing.assert_allclose(sums, np.where(counts > 0, 8, 0), rtol=1e-5)
    # 4,000 draws of 1 ... 8: each count within 5.5 standard deviations of 500 (false alarms below 1e-6 a run)
    found = np.bincount(counts[:, 0], minlength=9)[1:]
    assert (np.abs(found - 500) < 5.5 * np.sqrt(500 * 7 / 8)).all()
    behind = np.cumsum(~batch.masked[:, :, :8][:, :, ::-1], 2)[:, :, ::-1]
    assert (batch.front[:, :, :8] == (behind == 0)).all()
    share = batch.masked[:, 0, :8].mean(0)
    if ordered:
        assert (np.diff(share) > 0.01).all()  # what stands left is kept first
    else:
        assert (batch.masked[:, 0, :8] ^ batch.masked[:, 1, :8]).all()
        assert np.ptp(share) < 0.1


def test_the_cap_holds_and_the_first_copy_can_stand_alone() -> None:
    masking = BlockMasking(ordered_share=0.5, spreads=(2.0,), largest_weight=3.0)
    args = np.zeros((50, 24), np.int64), np.zeros(50, int), np.full(50, 16), np.full(50, 16), 16
    batch = mask_rows(*args, masking, np.random.default_rng(0))
    assert batch.weights.max() == 3.0
    alone = batch.first_copy()
    assert not alone.weights[:, 1].any()
    assert (alone.weights[:, 0] == batch.weights[:, 0]).all()


def test_a_step_is_a_function_of_seed_and_step_and_blocks_narrow_late() -> None:
    config = settings(rows=SETTINGS["rows"] | {"late_block_lengths": [4], "late_from": 30})
    kinds = [passage(60, 5, False)], [passage(60, 8, False, first=500)]
    rows = PassageRows(*kinds, config.rows, 2, 0)
    one, again = rows.step(3, config.masking), PassageRows(*kinds, config.rows, 2, 0).step(3, config.masking)
    assert (one.ids == again.ids).all()
    assert (one.masked == again.masked).all()
    assert not (one.masked == rows.step(4, config.masking).masked).all()
    of_people = one.ids.max(1) >= 500
    assert of_people.sum() == 2  # half of the rows
    assert one.front[~of_people].any()
    assert not one.front[of_people].any()
    early = np.concatenate([rows.step(step, config.masking).block for step in range(30)])
    assert set(early.tolist()) == {4, 8}
    assert set(rows.step(30, config.masking).block.tolist()) == {4}


def test_no_target_after_the_end_of_a_text_is_soft() -> None:
    config = settings(rows=SETTINGS["rows"] | {"start_share": 1.0, "own_share": 1.0, "block_lengths": [8]})
    rows = PassageRows([passage(9, 5, True)], [], config.rows, 2, 0)
    soft = np.any([rows.step(step, config.masking).front for step in range(20)], axis=(0, 1, 2))
    assert soft.tolist() == [True] * 5 + [False] * 11  # four tokens and the end


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"block_lengths": [5]}, "must divide"),
        ({"late_block_lengths": [3]}, "must divide"),
        ({"block_lengths": []}, "empty"),
    ],
)
def test_blocks_that_do_not_fit_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        settings(rows=SETTINGS["rows"] | change)


def test_the_settings_that_come_with_the_repository_are_valid(tmp_path: Path) -> None:
    first, continued = (read_toml(path, NarratorConfig) for path in STAGES)
    assert first.own_texts == OwnTexts()
    assert continued.own_texts.sampling == Sampling()  # what the shipped adapters' texts and odds were made with
    assert first.adapter == continued.adapter
    wrong = tmp_path / "wrong.toml"
    wrong.write_text("[adapter]\nrank = 0\n")
    with pytest.raises(SettingsError, match=r"adapter\.rank: .*; rows: Field required"):
        read_toml(wrong, NarratorConfig)


# ---- the base's own texts ----


def test_requests_name_what_is_in_the_lists() -> None:
    made = [next(requests(np.random.default_rng(seed))) for seed in range(200)]
    assert len(set(made)) > 150
    assert all("{" not in one and one[0].isupper() for one in made)


def test_many_texts_at_once_are_those_of_one_at_a_time() -> None:
    """Greedily (top_k = 1): the prompts have different lengths, and texts end at different places."""
    network = tiny_gguf.llama()
    prompts = [[5, 9, 30], [7], [40, 41, 42, 43, 44, 45], [3, 8]]
    ends = (0, 2, *range(100, 160))
    made = sample(network, prompts, 20, ends, Sampling(temperature=1.0, top_k=1, penalty=1.3), 0)
    expected = []
    for prompt in prompts:
        text: list[int] = []
        while len(text) < 20 and not (text and text[-1] in ends):
            with torch.no_grad():
                logits = network(torch.tensor([prompt + text])).logits[0, -1]
            used = torch.tensor(text, dtype=torch.long)
            logits[used] = torch.where(logits[used] > 0, logits[used] / 1.3, logits[used] * 1.3)
            text.append(int(logits.argmax()))
        expected.append(text)
    assert made == expected
    assert len({len(text) for text in made}) > 1


def test_tokens_are_drawn_with_their_odds() -> None:
    network, how, draws = tiny_gguf.llama(), Sampling(temperature=2.0, top_k=4, top_p=0.9, penalty=1.5), 4000
    made = sample(network, [[5, 9]] * draws, 1, (0,), how, 0)
    with torch.no_grad():
        logits = network(torch.tensor([[5, 9]])).logits[:, -1]
    likely, chances = odds(logits, torch.zeros_like(logits, dtype=torch.bool), how)
    shares = (chances / chances.sum())[0].tolist()
    assert sum(share > 0 for share in shares) > 1
    for token, share in zip(likely[0].tolist(), shares, strict=True):
        count = sum(text == [token] for text in made)
        # within 5.5 standard deviations (false alarms below 1e-6 a run)
        assert abs(count - draws * share) <= 5.5 * (draws * share * (1 - share)) ** 0.5
