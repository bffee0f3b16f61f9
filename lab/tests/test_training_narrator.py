"""The narrator: which keys a position sees, which tokens are masked, its base's own texts, its stages, what ships."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from lab_support import rows_of, write_rows
from torch.nn import functional
from transformers import LlamaForCausalLM

from dgmark.files.user_folders import CACHE_VARIABLE
from dgmark.models.assembly import BASE_VARIABLE, write_base
from dgmark.models.load import load_model
from dgmark_lab.toml_files import read_toml
from dgmark_lab.training.config import BlockMasking, NarratorConfig, Sampling
from dgmark_lab.training.narrator import trainer as training
from dgmark_lab.training.narrator.adapter import AdaptedLlama, Layout
from dgmark_lab.training.narrator.folders import trained_model
from dgmark_lab.training.narrator.own_texts import odds, sample, write_own_texts
from dgmark_lab.training.narrator.rows import Passage, PassageRows, mask_rows, read_own_texts, target_positions
from dgmark_lab.training.narrator.trainer import STAGES, NarratorTrainer
from dgmark_lab.training.run import LOG, STATE, load_state
from support import tiny_gguf
from support.command_line import run
from support.training_setup import NARRATOR_SETTINGS as SETTINGS
from support.training_setup import narrator_settings as settings

# ---- what is seen ----


def test_one_forward_of_a_row_is_a_forward_of_each_block() -> None:
    """The clean text and both masked copies at once, against a sequence of its own for every block."""
    layout, rows = Layout(6, 12, 2), 3
    ids = torch.randint(0, 200, (rows, 18), generator=torch.Generator().manual_seed(1))
    network = tiny_gguf.llama()
    with torch.no_grad():
        base = network.model(ids).last_hidden_state
        model = AdaptedLlama(network, 4)
        causal = torch.ones(rows, 18, 18, dtype=torch.bool).tril()
        begun = model.hidden(ids, torch.zeros_like(ids, dtype=torch.bool), torch.arange(18), causal)
    assert (begun - base).abs().max() < 1e-5  # adapters start at zero
    torch.manual_seed(1)
    for name, param in model.trainable_parameters().items():
        assert not name.endswith("weight")  # the base is frozen
        if name.endswith("up"):
            torch.nn.init.normal_(param, std=0.3)
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
    block, targets = np.full(rows, size), np.full(rows, 8)
    masked, weights, front = mask_rows(block, targets, 16, masking, np.random.default_rng(0))
    assert not masked[:, :, 8:].any()
    counts = masked[:, :, :8].sum(2)
    np.testing.assert_allclose(weights.sum(2), np.where(counts > 0, 8, 0), rtol=1e-5)
    assert not weights[~masked].any()
    # 4,000 draws of 1 ... 8: each count within 5.5 standard deviations of 500 (false alarms below 1e-6 a run)
    found = np.bincount(counts[:, 0], minlength=9)[1:]
    assert (np.abs(found - 500) < 5.5 * np.sqrt(500 * 7 / 8)).all()
    behind = np.cumsum(~masked[:, :, :8][:, :, ::-1], 2)[:, :, ::-1]
    assert (front[:, :, :8] == (behind == 0)).all()
    share = masked[:, 0, :8].mean(0)
    if ordered:
        assert (np.diff(share) > 0.01).all()  # what stands left is kept first
    else:
        assert (masked[:, 0, :8] ^ masked[:, 1, :8]).all()
        assert np.ptp(share) < 0.1
    limited = masking.model_copy(update={"largest_weight": 3.0})
    again = mask_rows(block, targets, 16, limited, np.random.default_rng(0))
    assert (again[1] == weights.clip(max=3.0)).all()


def test_a_step_is_a_function_of_seed_and_step_and_blocks_narrow_late() -> None:
    config = settings(rows=SETTINGS["rows"] | {"late_block_lengths": [4], "late_from": 30})
    kinds = [passage(60, 5, False)], [passage(60, 8, False, first=500)]
    rows = PassageRows(*kinds, config.rows, 2, 0)
    one, again = rows.step(3, config.masking), PassageRows(*kinds, config.rows, 2, 0).step(3, config.masking)
    assert (one.ids == again.ids).all()
    assert (one.masked == again.masked).all()
    assert not (one.masked == rows.step(4, config.masking).masked).all()
    bound = one.first_copy().weights
    assert (bound[:, 0] == one.weights[:, 0]).all()
    assert not bound[:, 1].any()
    of_people = one.ids.amax(1) >= 500
    assert of_people.sum() == 2  # half of the rows
    assert one.front[~of_people].any()
    assert not one.front[of_people].any()
    early = np.concatenate([rows.step(step, config.masking).block for step in range(30)])
    assert set(early.tolist()) == {4, 8}
    assert set(rows.step(30, config.masking).block.tolist()) == {4}


def test_no_target_after_the_end_of_a_text_is_soft() -> None:
    config = settings(rows=SETTINGS["rows"] | {"start_share": 1.0, "own_share": 1.0, "block_lengths": [8]})
    rows = PassageRows([passage(9, 5, True)], [], config.rows, 2, 0)
    soft = torch.cat([rows.step(step, config.masking).front for step in range(20)]).any(0).any(0)
    assert soft.tolist() == [True] * 5 + [False] * 11  # four tokens and the end


def test_the_stages_in_the_repository_are_valid_and_of_one_rank() -> None:
    first, continued = (read_toml(path, NarratorConfig) for path in STAGES)
    assert first.rank == continued.rank
    assert first.own_texts.sampling == continued.own_texts.sampling  # the same texts


# ---- the base's own texts ----


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


# ---- runs ----


@pytest.fixture(scope="module")
def material(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A tiny base as a folder, its own texts, documents."""
    folder = tmp_path_factory.mktemp("material")
    with pytest.MonkeyPatch.context() as patch:
        tiny_gguf.as_base(folder, patch)
        write_base(folder / "base")
    write_own_texts(folder / "base", folder / "own.jsonl", settings().own_texts)
    said = "the cat and the hen {} sat there all the day long"
    write_rows(folder / "documents.jsonl", ({"id": f"tale-{n}", "paragraphs": [said.format(n)]} for n in range(6)))
    return {name: folder / name for name in ("base", "own.jsonl", "documents.jsonl", "base.gguf")}


def trainer(material: dict[str, Path], out: Path, config: NarratorConfig, init: Path | None = None) -> NarratorTrainer:
    documents = material["documents.jsonl"]
    return NarratorTrainer(config, material["base"], material["own.jsonl"], documents, documents, out, init=init)


def test_own_texts_go_on_where_they_stopped(material: dict[str, Path], tmp_path: Path) -> None:
    whole = material["own.jsonl"].read_bytes()
    path = tmp_path / "own.jsonl"
    path.write_bytes(whole[:-30])  # the last batch was being written
    write_own_texts(material["base"], path, settings().own_texts)
    assert path.read_bytes() == whole
    assert len(read_own_texts(path, (0, 2))) == 8


def test_soft_targets_are_the_odds_that_the_base_draws_from(material: dict[str, Path], tmp_path: Path) -> None:
    """Against the base's own forward over each beginning of a row; other targets are learned as they were."""
    config = settings(soft_targets=True, own_texts=SETTINGS["own_texts"] | {"sampling": {"top_k": 6, "penalty": 1.5}})
    piece = trainer(material, tmp_path, config)
    network = LlamaForCausalLM.from_pretrained(material["base"], dtype=torch.float32)
    for _, layer in piece.model.adapters():
        torch.nn.init.normal_(layer.up, std=0.3)
    checked = 0
    for step in range(4):
        batch = piece.batch(step)
        wanted = batch.weights > 0
        front = batch.front[wanted]
        with torch.no_grad():
            log_odds = piece._log_odds(batch, wanted)
            hard, soft = piece._cross_entropy(batch)[0], piece._cross_entropy(batch, soft=True)[0]
            assert torch.equal(hard[~front], soft[~front])
            assert torch.equal(log_odds, piece._log_odds(batch, wanted))  # the adapters work again
            for number, (row, _, offset) in enumerate(wanted.nonzero().tolist()):
                place = config.rows.context + offset
                assert hard[number] == -log_odds[number, batch.ids[row, place]]
                if not front[number]:
                    continue
                before = batch.ids[row, batch.absent[row] : place][None]
                logits = network(before).logits[:, -1]
                used = torch.zeros_like(logits, dtype=torch.bool)
                used[0, batch.ids[row, batch.unwritten[row] : place]] = True
                tokens, chances = odds(logits, used, config.own_texts.sampling)
                expected = -(chances / chances.sum() * log_odds[number, tokens]).sum()
                torch.testing.assert_close(soft[number], expected, rtol=1e-3, atol=1e-4)
                checked += 1
    assert checked > 10


def test_two_stages_in_pieces_are_those_in_one_go_and_ship_what_was_trained(
    material: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = SETTINGS["schedule"] | {"steps": 2, "warmup_steps": 1, "decay_steps": 1}
    configs = {"first": settings(), "second": settings(seed=1, soft_targets=True, schedule=short)}
    monkeypatch.setattr(training, "read_toml", lambda path, _kind: configs[path.stem])
    documents = material["documents.jsonl"]
    command = ["train", "narrator", "--data", documents, "--heldout", documents, "--config", "first.toml", "--config"]
    whole, pieces = tmp_path / "whole", tmp_path / "pieces"
    for out in (whole, pieces):
        out.mkdir()
        (out / "base").symlink_to(material["base"])
    for piece in range(9):  # a step each; the eighth ends the first stage, and begins the second
        assert (pieces / "second").exists() == (piece == 8)
        found = run(*command, "second.toml", "--out", pieces, "--max-seconds", 0)
        assert ("; finished" in found.stdout) == (piece == 8), found.output
    assert "; finished" in run(*command, "second.toml", "--out", whole).stdout
    first, second = (load_state(whole / stage / STATE)["tensors"] for stage in ("", "second"))
    for stage, state in (("", first), ("second", second)):
        torch.testing.assert_close(load_state(pieces / stage / STATE)["tensors"], state, rtol=0, atol=0)
    moved = [(second["trained"][name] - one).abs().max() for name, one in first["trained"].items()]
    assert 0 < max(moved) < 0.11  # two steps of Adam at rates up to .05; other beginnings are much further away
    log = rows_of(pieces / LOG)
    assert [row["step"] for row in log if "loss" in row] == list(range(1, 9))
    bounds = [row["heldout_own"] for row in log if "heldout_own" in row]
    assert len(bounds) == 3
    assert bounds[-1] < bounds[0]
    shipped = tmp_path / "shipped"
    assert run("train", "export", "--run", whole / "second", "--out", tmp_path / "last").exit_code == 0
    assert run("train", "export", "--run", whole, "--out", shipped).exit_code == 0
    stated = json.loads((shipped / "base.json").read_text())
    stated["sha256"] = hashlib.sha256(material["base.gguf"].read_bytes()).hexdigest()
    (shipped / "base.json").write_text(json.dumps(stated))
    monkeypatch.setenv(BASE_VARIABLE, str(material["base.gguf"]))
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    loaded = load_model(str(shipped), dtype="fp32", device="cpu")
    model = trained_model(load_state(whole / STATE), material["base"])
    ids = torch.randint(3, 200, (2, 20), generator=torch.Generator().manual_seed(1))
    ids[:, 14:17] = loaded.mask_id
    place = torch.arange(18)
    seen = (place <= place[:, None]) | (place >= 12)[:, None]
    with torch.no_grad():
        masked = ids[:, :18] == loaded.mask_id
        hidden = model.hidden(ids[:, :18].where(~masked, 0), masked, place, seen.repeat(2, 1, 1))
        expected = functional.linear(hidden, model.embedding)[:, 11:17]
    got = loaded.session("none").begin(ids, 12, 18)[:, :, :-1]  # but for the mask's own row
    assert (got - expected).abs().max() < 0.05 * expected.abs().max()
    assert torch.corrcoef(torch.stack([got.flatten(), expected.flatten()]))[0, 1] > 0.999
