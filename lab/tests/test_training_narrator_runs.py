"""A run of the narrator: its base, its own texts, resuming, soft targets, stages, and what ships."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional
from transformers import LlamaForCausalLM

from dgmark.errors import CheckpointFormat, ResumeMismatch, SettingsError
from dgmark.models.assembly import BASE_VARIABLE, CACHE_VARIABLE, Base
from dgmark.models.load import load_model
from dgmark_lab.training.narrator import base as base_module
from dgmark_lab.training.narrator import trainer as training
from dgmark_lab.training.narrator.base import write_base
from dgmark_lab.training.narrator.config import NarratorConfig
from dgmark_lab.training.narrator.data import read_data, read_own_texts
from dgmark_lab.training.narrator.export import export, trained_model
from dgmark_lab.training.narrator.own_texts import odds, write_own_texts
from dgmark_lab.training.narrator.trainer import NarratorTrainer, train_narrator
from dgmark_lab.training.run import LOG, STATE, load_state
from support import tiny_gguf
from support.training_setup import NARRATOR_SETTINGS as SETTINGS
from support.training_setup import narrator_settings as settings


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
    passages = read_own_texts(path, (0, 2))
    assert len(passages) == sum(len(json.loads(line)["texts"]) for line in whole.splitlines()) == 8
    assert all(one.prompt_tokens < len(one.ids) for one in passages)
    with pytest.raises(ResumeMismatch, match="differs in settings"):
        write_own_texts(material["base"], path, settings(own_texts=SETTINGS["own_texts"] | {"length": 5}).own_texts)


def test_a_run_in_pieces_is_the_run_in_one_go(material: dict[str, Path], tmp_path: Path) -> None:
    config = settings()
    trainer(material, tmp_path / "whole", config).train()
    for _ in range(8):
        piece = trainer(material, tmp_path / "pieces", config)
        piece.train(max_seconds=0)
    assert piece.done
    whole, pieces = (load_state(tmp_path / name / STATE).tensors["trained"] for name in ("whole", "pieces"))
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
        batch = run.batch(step)
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
    batch = run.batch(1)
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
    trained = load_state(state).tensors["trained"]
    assert second.step == 0
    assert all(torch.equal(param, trained[name]) for name, param in second.model.trainable_parameters().items())
    second.train(max_seconds=0)
    assert trainer(material, tmp_path / "second", settings(), init=state).step == 1  # its own state goes before
    with pytest.raises(CheckpointFormat, match="the adapters are for another base or rank"):
        trainer(material, tmp_path / "third", settings(adapter={"rank": 2}), init=state)


def test_a_stage_begins_where_the_one_before_it_ended(
    material: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = Path("first.toml"), Path("second.toml")
    configs = {
        first: settings(),
        second: settings(
            seed=1, soft_targets=True, schedule=SETTINGS["schedule"] | {"steps": 2, "warmup_steps": 1, "decay_steps": 1}
        ),
    }
    monkeypatch.setattr(training, "read_toml", lambda path, _kind: configs[path])
    out = tmp_path / "run"
    out.mkdir()
    (out / "base").symlink_to(material["base"])
    documents = material["documents.jsonl"]
    train_narrator(documents, documents, out, stages=[first, second], max_seconds=0)
    assert not (out / "second").exists()
    assert train_narrator(documents, documents, out, stages=[first, second]).done
    before, after = (load_state(folder / STATE) for folder in (out, out / "second"))
    assert (before.step, after.step) == (8, 2)
    moved = [(after.tensors["trained"][name] - one).abs().max() for name, one in before.tensors["trained"].items()]
    assert 0 < max(moved) < 0.11  # two steps of Adam at rates up to .05; other beginnings are much further away
    export(out / "second", out / "base", tmp_path / "shipped")
    with pytest.raises(SettingsError, match="its own name"):
        train_narrator(documents, documents, out, stages=[first, second, second])


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
    model = trained_model(load_state(run / STATE), material["base"])
    ids = torch.randint(3, 200, (2, 20))
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
