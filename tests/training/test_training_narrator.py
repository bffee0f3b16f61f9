"""Training the narrator: what is seen, which tokens are masked, the base's own texts, resuming, what ships."""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import typer
from torch.nn import functional
from transformers import LlamaForCausalLM

from dgmark.errors import CheckpointFormat, InputError, NoTexts, ResumeMismatch, SettingsError
from dgmark.models.assembly import BASE_VARIABLE, CACHE_VARIABLE, Base
from dgmark.models.load import load_model
from support import tiny_gguf
from training.narrator import __main__ as command
from training.narrator import base as base_module
from training.narrator.adapter import AdaptedLlama, Layout
from training.narrator.base import write_base
from training.narrator.config import BlockMasking, NarratorConfig, OwnTexts, Sampling, read_narrator_config
from training.narrator.data import read_data
from training.narrator.export import export, trained_model
from training.narrator.loop import LOG, STATE, NarratorTrainer, read_state
from training.narrator.own_texts import read_own_texts, requests, write_own_texts
from training.narrator.rows import Passage, PassageRows, mask_rows, target_positions
from training.narrator.sampler import BatchSampler, odds

SETTINGS: dict[str, Any] = {
    "own_texts": {"texts": 8, "batch": 4, "length": 24, "most_repeated": 1.0},
    "adapter": {"rank": 4},
    "rows": {"context": 8, "response": 16, "block_lengths": [4, 8], "batch": 4, "own_share": 0.5},
    "masking": {"ordered_share": 0.5, "spreads": [1.0, 4.0], "largest_weight": 8.0},
    "optimizer": {"lr": 0.01, "mask_lr": 0.05},
    "schedule": {"steps": 8, "warmup_steps": 2, "decay_steps": 3},
    "record": {"log_steps": 1, "evaluate_steps": 4, "evaluate_rows": 8},
}


def settings(**changes: Any) -> NarratorConfig:
    return NarratorConfig.model_validate(SETTINGS | changes)


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


def test_adapters_begin_as_nothing_and_merge_into_the_layer() -> None:
    network = tiny_gguf.llama()
    ids = torch.randint(0, 200, (2, 9))
    with torch.no_grad():
        before = network.model(ids).last_hidden_state
        model = AdaptedLlama(network, 4)
        causal = torch.ones(2, 9, 9, dtype=torch.bool).tril()
        nothing = torch.zeros_like(ids, dtype=torch.bool)
        assert (model.hidden(ids, nothing, torch.arange(9), causal) - before).abs().max() < 1e-5
        name, layer = next(model.adapters())
        assert name == "model.layers.0.self_attn.q_proj"
        layer.up.normal_()
        x = torch.randn(5, 64)
        torch.testing.assert_close(layer(x), functional.linear(x, layer.merged()), rtol=1e-4, atol=1e-4)
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


def test_nothing_is_soft_behind_the_end_of_a_text() -> None:
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
    first, continued = (read_narrator_config(path) for path in command.STAGES)
    assert first.own_texts == OwnTexts()
    assert continued.own_texts.sampling == Sampling()  # what the shipped adapters' texts and odds were made with
    assert first.adapter == continued.adapter
    wrong = tmp_path / "wrong.toml"
    wrong.write_text("[adapter]\nrank = 0\n")
    with pytest.raises(SettingsError, match=r"adapter\.rank: .*; rows: Field required"):
        read_narrator_config(wrong)


# ---- the base's own texts ----


def test_requests_name_what_is_in_the_lists() -> None:
    made = [next(requests(np.random.default_rng(seed))) for seed in range(200)]
    assert len(set(made)) > 150
    assert all("{" not in one and one[0].isupper() for one in made)


def test_many_texts_at_once_are_those_of_one_at_a_time() -> None:
    """Greedily (top_k = 1): the prompts have different lengths, and texts end at different places."""
    network = tiny_gguf.llama()
    prompts = [[5, 9, 30], [7], [40, 41, 42, 43, 44, 45], [3, 8]]
    ends = frozenset({0, 2, *range(100, 160)})
    sampler = BatchSampler(network, ends, Sampling(temperature=1.0, top_k=1, penalty=1.3))
    made = sampler.sample(prompts, 20, torch.Generator().manual_seed(0))
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
    network = tiny_gguf.llama()
    sampler = BatchSampler(network, frozenset({0}), Sampling(temperature=2.0, top_k=4, top_p=0.9, penalty=1.0))
    draws = 4000
    made = sampler.sample([[5, 9]] * draws, 1, torch.Generator().manual_seed(0))
    with torch.no_grad():
        best = (network(torch.tensor([[5, 9]])).logits[0, -1] / 2.0).topk(4)
    odds = best.values.softmax(-1)
    odds = odds * (odds.cumsum(-1) - odds < 0.9)
    odds = odds / odds.sum()
    assert int((odds > 0).sum()) > 1
    for token, chance in zip(best.indices.tolist(), odds.tolist(), strict=True):
        count = sum(text == [token] for text in made)
        # within 5.5 standard deviations (false alarms below 1e-6 a run)
        assert abs(count - draws * chance) <= 5.5 * (draws * chance * (1 - chance)) ** 0.5


# ---- a run ----


@pytest.fixture(scope="module")
def material(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A tiny base as a folder, its own texts, documents."""
    folder = tmp_path_factory.mktemp("material")
    tiny_gguf.write(folder / "base.gguf", tiny_gguf.llama())
    write_tiny_base(folder / "base.gguf", folder / "base")
    write_own_texts(folder / "base", folder / "own.jsonl", settings().own_texts)
    rows = [
        {"id": f"tale-{n}", "paragraphs": [f"the cat and the hen {n} sat there all the day long"]} for n in range(6)
    ]
    (folder / "documents.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return {name: folder / name for name in ("base", "own.jsonl", "documents.jsonl", "base.gguf")}


def write_tiny_base(gguf: Path, out: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        digest = hashlib.sha256(gguf.read_bytes()).hexdigest()
        patch.setattr(base_module, "SMOLLM2", Base("some-package", "1.0", "base.gguf", digest, "Apache-2.0"))
        patch.setenv(BASE_VARIABLE, str(gguf))
        write_base(out)


def trainer(material: dict[str, Path], out: Path, config: NarratorConfig, init: Path | None = None) -> NarratorTrainer:
    network = LlamaForCausalLM.from_pretrained(material["base"], dtype=torch.float32)
    documents = material["documents.jsonl"]
    data = read_data(config, material["base"], material["own.jsonl"], documents, documents)
    return NarratorTrainer(config, network, data, out, init=init)


def test_the_base_is_a_folder_that_transformers_loads(material: dict[str, Path]) -> None:
    network, original = LlamaForCausalLM.from_pretrained(material["base"]), tiny_gguf.llama()
    ids = torch.tensor([[5, 9, 30, 7]])
    with torch.no_grad():
        torch.testing.assert_close(network(ids).logits, original(ids).logits)


def test_own_texts_go_on_where_they_stopped(material: dict[str, Path], tmp_path: Path) -> None:
    whole = material["own.jsonl"].read_bytes()
    path = tmp_path / "own.jsonl"
    path.write_bytes(whole[:-30])  # the last batch was being written
    write_own_texts(material["base"], path, settings().own_texts)
    assert path.read_bytes() == whole
    passages = read_own_texts(path, frozenset({0, 2}))
    assert len(passages) == len(whole.splitlines()) == 8
    assert all(one.prompt_tokens < len(one.ids) for one in passages)
    with pytest.raises(NoTexts, match="cannot be read"):
        read_own_texts(tmp_path / "none.jsonl", frozenset())
    path.write_text('{"prompt": [1]}\n')
    with pytest.raises(InputError, match="no text of the base"):
        read_own_texts(path, frozenset())
    with pytest.raises(InputError, match="delete it"):
        write_own_texts(material["base"], path, settings().own_texts)


def test_a_run_in_pieces_is_the_run_in_one_go(material: dict[str, Path], tmp_path: Path) -> None:
    config = settings()
    trainer(material, tmp_path / "whole", config).train()
    for _ in range(8):
        piece = trainer(material, tmp_path / "pieces", config)
        piece.train(max_seconds=0)
    assert piece.done
    whole, pieces = (read_state(tmp_path / name / STATE)["trained"] for name in ("whole", "pieces"))
    assert all(torch.equal(whole[name], pieces[name]) for name in whole)
    steps = [json.loads(line) for line in (tmp_path / "pieces" / LOG).read_text().splitlines()]
    assert [row["step"] for row in steps if "loss" in row] == list(range(1, 9))
    bounds = [row["heldout_own"] for row in steps if "heldout_own" in row]
    assert len(bounds) == 3
    assert bounds[-1] < bounds[0]


def test_soft_targets_are_the_odds_that_the_base_draws_from(material: dict[str, Path], tmp_path: Path) -> None:
    """Against the base's own forward over each beginning of a row; other targets are learned as they were."""
    config = settings(soft_targets=True, own_texts=SETTINGS["own_texts"] | {"sampling": {"top_k": 6, "penalty": 1.5}})
    run = trainer(material, tmp_path, config)
    network = LlamaForCausalLM.from_pretrained(material["base"], dtype=torch.float32)
    sampling, context = config.own_texts.sampling, config.rows.context
    checked = 0
    for step in range(4):
        batch = run.data.train.step(step, config.masking)
        wanted = batch.weights > 0
        with torch.no_grad():
            hard, soft = run._cross_entropy(batch)[0], run._cross_entropy(batch, soft=True)[0]
            assert torch.equal(*(entropy[torch.from_numpy(~batch.front[wanted])] for entropy in (hard, soft)))
            front = torch.from_numpy(batch.front & wanted)
            assert not torch.equal(hard, soft)
            likely, chances = run._base_odds(torch.from_numpy(batch.ids), batch, front)
            for number, (row, _, offset) in enumerate(front.nonzero().tolist()):
                place = context + offset
                before = batch.ids[row, batch.absent[row] : place]
                logits = network(torch.from_numpy(before)[None]).logits[:, -1]
                used = torch.zeros_like(logits, dtype=torch.bool)
                used[0, batch.ids[row, batch.unwritten[row] : place]] = True
                tokens, expected = odds(logits, used, sampling)
                assert likely[number].tolist() == tokens[0].tolist()
                torch.testing.assert_close(chances[number], (expected / expected.sum())[0], rtol=1e-3, atol=1e-5)
                checked += 1
    assert checked > 10
    run.train()
    assert run.done


def test_the_soft_loss_is_the_mean_of_the_hard_one_over_the_odds(
    material: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With all odds on the token that was drawn it is the hard loss; with two tokens, the mean of theirs."""
    run = trainer(material, tmp_path, settings(soft_targets=True))
    batch = run.data.train.step(1, run.config.masking)
    where = torch.from_numpy(batch.front)[torch.from_numpy(batch.weights > 0)]
    assert where.any()
    drawn = torch.from_numpy(batch.ids)[:, None, run.config.rows.context :].expand(batch.front.shape)

    def odds_of(_: Any, __: Any, front: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        tokens = drawn[front][:, None]
        return torch.cat([tokens, torch.full_like(tokens, 7)], 1), torch.tensor([[share, 1 - share]]).expand(
            len(tokens), 2
        )

    monkeypatch.setattr(run, "_base_odds", odds_of)
    with torch.no_grad():
        hard = run._cross_entropy(batch)[0]
        share = 1.0
        torch.testing.assert_close(run._cross_entropy(batch, soft=True)[0], hard)
        share = 0.0
        seven = run._cross_entropy(batch, soft=True)[0]
        share = 0.25
        mixed = run._cross_entropy(batch, soft=True)[0]
    torch.testing.assert_close(mixed[where], (0.25 * hard + 0.75 * seven)[where])
    assert (mixed[where] - hard[where]).abs().max() > 0.1


def test_a_run_can_begin_from_the_adapters_of_another(material: dict[str, Path], tmp_path: Path) -> None:
    trainer(material, tmp_path / "first", settings()).train()
    state = tmp_path / "first" / STATE
    second = trainer(material, tmp_path / "second", settings(), init=state)
    trained = read_state(state)["trained"]
    assert second.step == 0
    assert all(torch.equal(param, trained[name]) for name, param in second.model.trainable_parameters().items())
    second.train(max_seconds=0)
    assert trainer(material, tmp_path / "second", settings(), init=state).step == 1  # its own state goes before
    with pytest.raises(SettingsError, match="is no file"):
        trainer(material, tmp_path / "none", settings(), init=tmp_path / "none.pt")
    with pytest.raises(CheckpointFormat, match="not adapters of this base and rank"):
        trainer(material, tmp_path / "third", settings(adapter={"rank": 2}), init=state)


def test_a_stage_begins_where_the_one_before_it_ended(
    material: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = Path("first.toml"), Path("second.toml")
    configs = {
        first: settings(),
        second: settings(
            seed=1, soft_targets=True, schedule=SETTINGS["schedule"] | {"steps": 2, "warmup_steps": 1, "decay_steps": 1}
        ),
    }
    monkeypatch.setattr(command, "read_narrator_config", configs.__getitem__)
    out = tmp_path / "run"
    out.mkdir()
    (out / "base").symlink_to(material["base"])
    documents = material["documents.jsonl"]
    command.main(documents, documents, out, [first, second], max_seconds=0)
    assert not (out / "second").exists()
    command.main(documents, documents, out, [first, second])
    before, after = (read_state(folder / STATE) for folder in (out, out / "second"))
    assert (before["step"], after["step"]) == (8, 2)
    moved = [(after["trained"][name] - one).abs().max() for name, one in before["trained"].items()]
    assert 0 < max(moved) < 0.11  # two steps of Adam at rates up to .05; other beginnings are much further away
    export(out / "second", out / "base", tmp_path / "shipped")
    with pytest.raises(typer.Exit):
        command.main(documents, documents, out, [first, second, second])
    assert "its own name" in capsys.readouterr().err


def test_other_settings_or_data_are_refused(material: dict[str, Path], tmp_path: Path) -> None:
    trainer(material, tmp_path, settings()).train(max_seconds=0)
    changed = settings(optimizer=SETTINGS["optimizer"] | {"lr": 0.02}, record={"log_steps": 3})
    with pytest.raises(ResumeMismatch, match=r"made with another optimizer\.lr; take back"):
        trainer(material, tmp_path, changed)
    longer = settings(schedule=SETTINGS["schedule"] | {"steps": 20})
    assert trainer(material, tmp_path, longer).step == 1  # the end may move before the decay
    other = tmp_path / "other.jsonl"
    other.write_text(material["documents.jsonl"].read_text() * 2)
    with pytest.raises(ResumeMismatch, match="other data or another base"):
        trainer(material | {"documents.jsonl": other}, tmp_path, settings())
    (tmp_path / STATE).write_bytes(b"torn")
    with pytest.raises(ResumeMismatch, match="cannot be resumed from"):
        trainer(material, tmp_path, settings())


def test_what_ships_is_the_network_that_was_trained(
    material: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    trainer(material, run, settings()).train()
    export(run, material["base"], tmp_path / "shipped")
    with pytest.raises(SettingsError, match="exists"):
        export(run, material["base"], tmp_path / "shipped")
    with pytest.raises(SettingsError, match=r"holds no state\.pt"):
        export(tmp_path, material["base"], tmp_path / "other")
    stated = json.loads((tmp_path / "shipped" / "base.json").read_text())
    stated["sha256"] = hashlib.sha256(material["base.gguf"].read_bytes()).hexdigest()
    (tmp_path / "shipped" / "base.json").write_text(json.dumps(stated))
    monkeypatch.setenv(BASE_VARIABLE, str(material["base.gguf"]))
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    loaded = load_model(str(tmp_path / "shipped"), dtype="fp32", device="cpu")
    model = trained_model(read_state(run / STATE), material["base"])
    ids = torch.randint(3, 200, (2, 20))
    ids[:, 14:17] = loaded.mask_id
    place = torch.arange(18)
    seen = (place <= place[:, None]) | (place >= 12)[:, None]
    with torch.no_grad():
        masked = ids[:, :18] == loaded.mask_id
        hidden = model.hidden(ids[:, :18].where(~masked, 0), masked, place, seen.repeat(2, 1, 1))
        expected = functional.linear(hidden, model.embedding)[:, 11:17]
    got = loaded.window(ids, 12, 18)[:, :, :-1]  # but for the mask's own row
    assert (got - expected).abs().max() < 0.05 * expected.abs().max()
    assert torch.corrcoef(torch.stack([got.flatten(), expected.flatten()]))[0, 1] > 0.999
