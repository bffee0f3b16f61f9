"""Training: it resumes bit by bit, refuses what does not belong together, learns, and leaves a model that loads."""

import functools
import json
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from typer.testing import CliRunner

import dgmark
from dgmark.checkpoint.tokenizer import load_tokenizer
from dgmark.errors import CheckpointFormat, ResumeMismatch, SettingsError
from support.training_setup import CPU, same_tensors, settings, tiny, tiny_shards, trainer, write_tales
from training import judge, storyteller
from training.commands import run, with_overrides
from training.config import Schedule, check_config, read_config
from training.corpus import read_documents
from training.evaluate import bound_of
from training.export import export
from training.history import draw_curve, read_history
from training.layout import llada_state, save_model
from training.loop import Trainer
from training.muon import Muon, orthogonalised
from training.nelbo import held_out_rows, nelbo
from training.networks import Network, load_network, weights_fingerprint
from training.optimization import Average, split_parameters, trapezoid
from training.shards import Shards, open_shards, prepare_shards
from training.state import load_state
from training.tokens import special_ids, training_tokenizer
from training.transplant import wordpiece_of


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Shards:
    return tiny_shards(tmp_path_factory.mktemp("data"))


def final(out: Path) -> dict[str, Any]:
    return load_state(out / "state.pt").tensors


# ---- resuming ----


@pytest.mark.parametrize("kind", ["storyteller", "judge"])
def test_a_run_in_pieces_ends_bit_equal_to_one_in_one_go(shards: Shards, tmp_path: Path, kind: str) -> None:
    schedule = {"steps": 5, "warmup_steps": 2, "decay_steps": 2}
    config = tiny(kind, rows={"short_share": 0.3, "short_lengths": [24]}, schedule=schedule)
    assert trainer(config, shards, tmp_path / "whole").train().done
    for step in range(1, 6):  # one step a piece: inside warm-up, the flat part and the decay
        report = trainer(config, shards, tmp_path / "pieces").train(max_seconds=0)
        assert (report.step, report.done) == (step, step == 5)
    assert same_tensors(final(tmp_path / "whole"), final(tmp_path / "pieces"))
    module, average = (final(tmp_path / "whole")[name] for name in ("module", "average"))
    assert set(average) == {"n_averaged"} | {f"module.{name}" for name in module}
    assert not any(torch.equal(tensor, average[f"module.{name}"]) for name, tensor in module.items())
    logs = [read_history(tmp_path / name / "log.jsonl") for name in ("whole", "pieces")]
    for row in [row for log in logs for row in log]:
        row.pop("seconds")
    assert logs[0] == logs[1]


def test_work_lost_in_a_crash_is_done_again_the_same(shards: Shards, tmp_path: Path) -> None:
    config = tiny()
    trainer(config, shards, tmp_path / "whole").train()
    piece = trainer(config, shards, tmp_path / "crashed")
    batches = piece._batches()
    for _ in range(3):
        piece._step(next(batches))
    piece.save()
    with open(tmp_path / "crashed/log.jsonl", "a") as log:  # rows of steps that no state holds, the last one torn
        log.write('{"step": 3, "loss": 1.0, "tokens": 1}\n{"step": 4, "loss": 1.0, "tokens": 1}\n{"step": 5, "lo')
    resumed = trainer(config, shards, tmp_path / "crashed")
    assert [row["step"] for row in read_history(tmp_path / "crashed/log.jsonl")] == [3]
    resumed.train()
    assert same_tensors(final(tmp_path / "whole"), final(tmp_path / "crashed"))


def test_the_end_may_move_while_the_run_is_on_its_flat_part(shards: Shards, tmp_path: Path) -> None:
    short, long = tiny(), tiny(schedule={"steps": 16, "decay_steps": 6})
    trainer(long, shards, tmp_path / "long").train()
    piece = trainer(short, shards, tmp_path / "moved")
    batches = piece._batches()
    for _ in range(5):
        piece._step(next(batches))
    piece.save()
    trainer(long, shards, tmp_path / "moved").train()
    assert same_tensors(final(tmp_path / "long"), final(tmp_path / "moved"))
    with pytest.raises(ResumeMismatch, match=r"schedule\.steps \(the end may move before the decay begins"):
        trainer(tiny(schedule={"steps": 20, "decay_steps": 6}), shards, tmp_path / "moved")


def test_other_settings_or_data_are_refused_by_name(shards: Shards, tmp_path: Path) -> None:
    trainer(tiny(), shards, tmp_path / "run").train(max_seconds=0)
    other = tiny(seed=1, optimizer={"muon_lr": 0.1}, masking={"prefix_max": 20})
    with pytest.raises(ResumeMismatch, match=r"another seed, masking\.prefix_max, optimizer\.muon_lr; take back"):
        trainer(other, shards, tmp_path / "run")
    (tmp_path / "other").mkdir()
    write_tales(tmp_path / "other/tales.jsonl", 7)
    others = prepare_shards(tmp_path / "other/tales.jsonl", tmp_path / "other/tokens", tokenizer=shards.tokenizer)
    with pytest.raises(ResumeMismatch, match="other data or another tokenizer"):
        trainer(tiny(), others, tmp_path / "run")
    # what changes the speed alone is no other run
    assert trainer(tiny(speed={"micro_rows": 4}, record={"log_steps": 5}), shards, tmp_path / "run").step == 1


def test_a_damaged_state_or_log_is_no_run(shards: Shards, tmp_path: Path) -> None:
    trainer(tiny(), shards, tmp_path).train(max_seconds=0)
    whole = (tmp_path / "state.pt").read_bytes()
    (tmp_path / "state.pt").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ResumeMismatch, match="delete it to start again"):
        trainer(tiny(), shards, tmp_path)
    (tmp_path / "state.pt").write_bytes(whole)
    (tmp_path / "log.jsonl").write_text("no log\n")
    with pytest.raises(ResumeMismatch, match="is no training log"):
        trainer(tiny(), shards, tmp_path)


def test_parts_of_a_batch_train_as_the_whole(shards: Shards, tmp_path: Path) -> None:
    for name, rows in (("whole", None), ("parts", 2)):
        trainer(tiny(speed={"micro_rows": rows}), shards, tmp_path / name).train(max_seconds=0)
    whole, parts = (read_history(tmp_path / name / "log.jsonl")[0] for name in ("whole", "parts"))
    assert parts["loss"] == pytest.approx(whole["loss"], rel=1e-5)
    assert parts["cross_entropy"] == pytest.approx(whole["cross_entropy"], rel=1e-5)


def test_a_compiled_trunk_trains_as_the_plain_one(shards: Shards, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="eager"))  # needs no C++ compiler
    rows = {"short_share": 0.5, "short_lengths": [24]}
    for name, compiled in (("plain", False), ("compiled", True)):
        trainer(tiny(speed={"compile": compiled}, rows=rows), shards, tmp_path / name).train()
    assert same_tensors(final(tmp_path / "plain"), final(tmp_path / "compiled"))


# ---- learning ----


@pytest.mark.parametrize("kind", ["storyteller", "judge"])
def test_the_loss_falls_on_a_small_corpus(shards: Shards, tmp_path: Path, kind: str) -> None:
    longer = {"steps": 60, "warmup_steps": 5, "decay_steps": 30}
    rates = {"muon_lr": 0.05, "adamw_lr": 0.02}
    piece = trainer(tiny(kind, rows={"batch": 16}, schedule=longer, optimizer=rates), shards, tmp_path)
    targets = np.concatenate([piece.batch(step).targets for step in range(60)])
    piece.train()
    losses = [row["cross_entropy"] for row in read_history(tmp_path / "log.jsonl") if "loss" in row]
    assert losses[0] == pytest.approx(np.log(320), rel=0.05)  # it begins knowing nothing
    shares = np.unique(targets, return_counts=True)[1] / len(targets)
    frequencies_alone = -(shares * np.log(shares)).sum()
    assert np.mean(losses[-10:]) < frequencies_alone - (0.15 if kind == "storyteller" else 2.0)


def test_a_loss_that_is_no_number_stops_the_run_and_spares_the_state(shards: Shards, tmp_path: Path) -> None:
    trainer(tiny(), shards, tmp_path).train(max_seconds=0)
    before = (tmp_path / "state.pt").read_bytes()
    piece = trainer(tiny(), shards, tmp_path)
    with torch.no_grad():
        next(piece.network.module.parameters()).fill_(float("nan"))
    with pytest.raises(SettingsError, match="lower optimizer"):
        piece.train()
    assert (tmp_path / "state.pt").read_bytes() == before


def test_held_out_rows_are_measured_with_the_averaged_weights(shards: Shards, tmp_path: Path) -> None:
    documents = list(read_documents(shards.folder.parent / "tales.jsonl"))
    held_out = held_out_rows(documents, shards.tokenizer, 48, 4)
    piece = trainer(tiny(), shards, tmp_path, held_out=held_out)
    piece.train()
    rows = [row for row in read_history(tmp_path / "log.jsonl") if "heldout" in row]
    assert [row["step"] for row in rows] == [4, 8, 12]
    again = nelbo(Network("llada", piece.average.module), held_out, 2, repeats=2)
    assert rows[-1]["heldout"] == again.per_token
    assert rows[-1]["heldout_per_character"] == again.per_character


# ---- the model that it leaves ----


def test_the_model_folder_loads_and_computes_the_averaged_network(shards: Shards, tmp_path: Path) -> None:
    piece = trainer(tiny(), shards, tmp_path)
    piece.train()
    model = dgmark.load_model(str(tmp_path / "model"), device="cpu", dtype="fp32")
    averaged = piece.network.of(piece.average.module.to(torch.bfloat16).float())
    ids = torch.from_numpy(piece.batch(0).inputs)
    with torch.no_grad():
        torch.testing.assert_close(model(ids), averaged.logits(averaged.hidden(ids)), rtol=0, atol=1e-5)
    assert (model.mask_id, model.end_ids, model.context_length) == (2, (0,), 48)
    assert dgmark.generate(model, "The fox", key=None, length=8, block_length=4)[0].token_ids


def test_llada_layout_goes_round_without_loss() -> None:
    """The shipped weights, loaded and written again, are the shipped file's tensors."""
    from safetensors.torch import load_file

    from dgmark.checkpoint.folder import find_checkpoint

    folder = find_checkpoint("storyteller").folder
    written = llada_state(load_network(folder).module, torch.bfloat16)
    assert same_tensors(written, load_file(folder / "model.safetensors"))


def test_large_weights_go_into_several_files_that_load(shards: Shards, tmp_path: Path) -> None:
    piece = trainer(tiny(), shards, tmp_path / "run")
    save_model(piece.network, piece.tokenizer, piece.special, tmp_path / "split", context=48, file_size="20KB")
    save_model(piece.network, piece.tokenizer, piece.special, tmp_path / "whole", context=48)
    assert len(list((tmp_path / "split").glob("*.safetensors"))) > 1
    split, whole = (load_network(tmp_path / name).module.state_dict() for name in ("split", "whole"))
    assert same_tensors(dict(split), dict(whole))


def test_a_judge_is_saved_as_transformers_saves_it(shards: Shards, tmp_path: Path) -> None:
    piece = trainer(tiny("judge"), shards, tmp_path)
    piece.train()
    loaded = load_network(tmp_path / "model")
    assert loaded.family == "llama"
    assert same_tensors(
        dict(loaded.module.state_dict()), dict(piece.average.module.to(torch.bfloat16).float().state_dict())
    )
    assert load_tokenizer(str(tmp_path / "model")).fingerprint == shards.tokenizer.fingerprint


def test_a_run_starts_from_another_model_s_weights(shards: Shards, tmp_path: Path) -> None:
    trainer(tiny(), shards, tmp_path / "first").train()
    second = trainer(tiny(seed=5), shards, tmp_path / "second", init=tmp_path / "first/model")
    first = load_network(tmp_path / "first/model").module
    assert same_tensors(dict(second.network.module.state_dict()), dict(first.state_dict()))
    began = {"name": "model", "weights": weights_fingerprint(load_network(tmp_path / "first/model").module)}
    assert load_state(tmp_path / "first/state.pt").start is None
    second.train(max_seconds=0)
    trainer(tiny(seed=5), shards, tmp_path / "second").train(max_seconds=0)
    assert load_state(tmp_path / "second/state.pt").start == began
    shutil.copytree(shards.folder, tmp_path / "second/tokens")
    export(tmp_path / "second", tmp_path / "shipped")
    card = (tmp_path / "shipped/MODEL_CARD.md").read_text()
    assert f"from the weights of `model` (fingerprint `{began['weights'][:16]}`)" in card
    with pytest.raises(SettingsError, match=r"no checkpoint of the sizes in \[network\]"):
        trainer(tiny(network={"width": 48}), shards, tmp_path / "third", init=tmp_path / "first/model")


# ---- a pretrained encoder ----


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random BERT encoder without a prediction head, with the truncating WordPiece file such folders carry."""
    from tokenizers import BertWordPieceTokenizer
    from transformers import BertConfig, BertModel

    folder = tmp_path_factory.mktemp("encoder")
    words = BertWordPieceTokenizer(lowercase=True)
    words.train_from_iterator(["the fox went to the wood. the king ate the bread."] * 5, 120, show_progress=False)
    words.enable_truncation(8)
    words.enable_padding(length=8)
    words.save(str(folder / "tokenizer.json"))
    sizes: dict[str, Any] = {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 48,
    }
    with torch.random.fork_rng():
        torch.manual_seed(0)
        BertModel(BertConfig(vocab_size=120, max_position_embeddings=64, **sizes)).save_pretrained(folder)
    return folder


def bert_settings(**more: Any) -> Any:
    content = settings(tokenizer={"source": "init"}, **more)
    content["network"] = {"type": "bert", "context": 48}
    content["tokenizer"].pop("vocab_size")
    return check_config(content, "settings")


def test_an_encoder_starts_a_masked_diffusion_model(encoder: Path, tmp_path: Path) -> None:
    from transformers import BertModel

    data = write_tales(tmp_path / "tales.jsonl")
    report = run(bert_settings(), data, tmp_path / "run", init=encoder, max_seconds=0, device="cpu")
    assert report.step == 1
    report = run(bert_settings(), data, tmp_path / "run", device="cpu")  # the folder is not needed again
    assert report.done
    shards = tmp_path / "run/tokens"
    documents = list(read_documents(data))
    held_out = held_out_rows(documents, training_tokenizer(str(encoder)), 24, 4)
    assert max(np.load(shards / "documents.npy")[:, 2]) > 8  # not truncated as the encoder's file says
    source = BertModel.from_pretrained(encoder)
    fresh = trainer(bert_settings(), open_shards(shards), tmp_path / "fresh", init=encoder)
    kept = fresh.network.module.bert.state_dict()
    assert same_tensors(dict(kept), {name: tensor for name, tensor in source.state_dict().items() if name in kept})
    assert {name.split(".")[0] for name in kept} == {"embeddings", "encoder"}
    trained = load_network(tmp_path / "run/model")
    assert trained.family == "bert"
    assert not same_tensors(dict(trained.module.bert.state_dict()), dict(kept))
    bound = bound_of(str(tmp_path / "run/model"), documents, length=24, rows=4, repeats=2, device=CPU)
    assert 0 < bound.per_token < np.log(120) + 1
    assert bound.per_character == pytest.approx(bound.per_token * 4 * 24 / sum(held_out.characters))
    model = dgmark.load_model(str(tmp_path / "run/model"), device="cpu")
    assert len(dgmark.generate(model, "The fox", key=None, length=8, block_length=8)[0].token_ids) <= 8


def test_an_encoder_must_be_given_and_fit(encoder: Path, shards: Shards, tmp_path: Path) -> None:
    data = write_tales(tmp_path / "tales.jsonl")
    with pytest.raises(SettingsError, match="give the folder with --init"):
        run(bert_settings(), data, tmp_path / "none", device="cpu")
    with pytest.raises(SettingsError, match="embeds 120"):
        trainer(bert_settings(), shards, tmp_path / "vocabulary", init=encoder)
    trainer(tiny("judge"), shards, tmp_path / "judge").train(max_seconds=0)
    with pytest.raises(SettingsError, match="only bert"):
        trainer(bert_settings(), shards, tmp_path / "llama", init=tmp_path / "judge/model")


def test_an_encoder_s_embeddings_are_transplanted_to_other_tokens(encoder: Path, tmp_path: Path) -> None:
    data = write_tales(tmp_path / "tales.jsonl")
    config = bert_settings().model_copy(update={"tokenizer": tiny().tokenizer})
    shards = prepare_shards(data, tmp_path / "tokens", tokenizer=None, vocab_size=320)
    start = trainer(config, shards, tmp_path / "run", init=encoder)
    source, tokenizer = wordpiece_of(encoder), shards.tokenizer
    theirs = load_file(encoder / "model.safetensors")["embeddings.word_embeddings.weight"]
    ours: torch.Tensor = start.network.module.bert.embeddings.word_embeddings.weight.detach()
    assert ours.shape == (tokenizer.vocab_size, 32)
    assert start.network.module.cls.predictions.decoder.weight is start.network.module.get_input_embeddings().weight

    def of(text: str) -> torch.Tensor:
        (token,) = tokenizer.encode(text)
        return ours[token]

    def piece(name: str) -> torch.Tensor:
        row: torch.Tensor = theirs[source.token_to_id(name)]
        return row

    assert torch.equal(of(" the"), piece("the"))
    assert torch.equal(of("e"), piece("##e"))  # without a space before it, it goes on with a word
    assert torch.equal(ours[special_ids(tokenizer).mask], piece("[MASK]"))
    step = of(" The") - of(" the")
    assert 0 < step.norm() < theirs.norm(dim=1).mean() / 2
    assert torch.allclose(of("A") - piece("a"), step, atol=1e-6)  # one direction for every capital
    counts = np.bincount(np.concatenate(shards.tokens), minlength=tokenizer.vocab_size) + 1
    bias = start.network.module.cls.predictions.bias.detach().numpy()
    assert bias == pytest.approx(np.log(counts / counts.sum()), abs=1e-5)
    before = ours[special_ids(tokenizer).end].clone()
    start.train()
    assert not torch.equal(ours[special_ids(tokenizer).end], before)  # id 0 pads theirs, and ends our texts
    model = dgmark.load_model(str(tmp_path / "run/model"), device="cpu")
    assert model.mask_id == special_ids(tokenizer).mask
    assert dgmark.generate(model, "The fox", key=None, length=8, block_length=8)[0].text


def test_only_a_wordpiece_tokenizer_is_transplanted_from(encoder: Path, shards: Shards, tmp_path: Path) -> None:
    folder = tmp_path / "encoder"
    folder.mkdir()
    for name in ("config.json", "model.safetensors"):
        (folder / name).write_bytes((encoder / name).read_bytes())
    config = bert_settings().model_copy(update={"tokenizer": tiny().tokenizer})
    with pytest.raises(CheckpointFormat, match=r"no tokenizer\.json that can be read"):
        trainer(config, shards, tmp_path / "none", init=folder)
    shards.tokenizer.backend.save(str(folder / "tokenizer.json"))
    with pytest.raises(CheckpointFormat, match=r"lacks \[SEP\]"):
        trainer(config, shards, tmp_path / "other", init=folder)


# ---- optimizers ----


def test_muon_moves_as_torch_s_own() -> None:
    torch.manual_seed(0)
    shapes = [(12, 8), (8, 12), (12, 8), (8, 8)]
    ours = [nn.Parameter(torch.randn(shape)) for shape in shapes]
    theirs = [nn.Parameter(one.detach().clone()) for one in ours]
    options: dict[str, Any] = {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.1}
    mine, reference = Muon(ours, dtype=torch.bfloat16, **options), torch.optim.Muon(theirs, nesterov=True, **options)
    for _ in range(4):
        for left, right in zip(ours, theirs, strict=True):
            left.grad = torch.randn_like(left)
            right.grad = left.grad.clone()
        mine.step()
        reference.step()  # type: ignore[no-untyped-call]
    for left, right in zip(ours, theirs, strict=True):
        torch.testing.assert_close(left, right, rtol=0, atol=0.01)  # both iterate in bf16: an update is about 0.2 long


def test_orthogonalised_matrices_have_singular_values_near_one() -> None:
    torch.manual_seed(0)
    for shape in ((3, 20, 10), (2, 10, 20)):
        values = torch.linalg.svdvals(orthogonalised(torch.randn(shape)))
        assert values.min() > 0.6
        assert values.max() < 1.3


def test_muon_takes_the_matrices_of_the_blocks_alone(shards: Shards, tmp_path: Path) -> None:
    module = trainer(tiny(), shards, tmp_path).network.module
    names = {id(param): name for name, param in module.named_parameters()}
    matrices, others = ([names[id(one)] for one in part] for part in split_parameters(module))
    assert len(matrices) == 2 * 7
    assert all(".layers." in name and "norm" not in name for name in matrices)
    assert {name for name in others if "norm" not in name} == {"model.embed_tokens.weight"}


def test_the_trapezoid_rises_stays_and_falls() -> None:
    shape = [trapezoid(step, Schedule(steps=10, warmup_steps=4, decay_steps=4)) for step in range(10)]
    assert shape == [0.25, 0.5, 0.75, 1, 1, 1, 1, 0.75, 0.5, 0.25]
    assert trapezoid(9, Schedule(steps=10, warmup_steps=1, decay_steps=1)) == 1


def test_the_average_follows_its_definition() -> None:
    module = nn.Linear(1, 1, bias=False)
    with torch.no_grad():
        module.weight.fill_(3.0)
        average = Average(module, 0.5)
        expected = 0.0
        for step, value in enumerate([1.0, 2.0, 5.0, 4.0, 8.0, 2.0, 1.0, 0.0, 7.0, 3.0]):
            module.weight.fill_(value)
            average.update(module, step)
            decay = min(0.5, (1 + step) / (10 + step))
            expected = value if step == 0 else decay * expected + (1 - decay) * value
    assert float(next(average.module.parameters()).detach()) == pytest.approx(expected)


# ---- settings, log, curve, commands ----


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rows": {"lenght": 3}}, r"rows\.lenght: Extra inputs are not permitted"),
        ({"rows": {"length": 64}}, "rows of 64 tokens exceed the context 48"),
        ({"rows": {"short_share": 0.1}}, "short_share and short_lengths go together"),
        ({"rows": {"short_share": 0.1, "short_lengths": [60]}}, "must not exceed length 48"),
        ({"network": {"heads": 3}}, "for each of 3 heads"),
        ({"network": {"type": "llama"}}, "is no storyteller"),
        ({"network": {"type": "gpt"}}, "does not match any of the expected tags"),
        ({"schedule": {"steps": 5}}, "exceed 5 steps"),
        ({"masking": {"prefix_max": 48}}, "leaves nothing to mask"),
        ({"masking": {"prefix_min": 13}}, "prefix_min 13 is more than prefix_max 12"),
        ({"masking": None}, r"needs the section \[masking\]"),
        ({"optimizer": {"ema_decay": 1}}, r"optimizer\.ema_decay"),
        ({"speed": {"micro_rows": 3}}, "does not divide rows.batch 8"),
        ({"seed": "x"}, "seed: Input should be a valid integer"),
    ],
)
def test_settings_that_cannot_be_meant_are_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        tiny(**change)


def test_settings_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="give --config a TOML file"):
        read_config(tmp_path / "none.toml", "judge")
    (tmp_path / "bad.toml").write_text("kind = ")
    with pytest.raises(SettingsError, match="is not valid TOML"):
        read_config(tmp_path / "bad.toml", "judge")


@pytest.mark.parametrize("name", sorted(path.stem for path in Path(storyteller.__file__).parent.glob("*.toml")))
def test_the_settings_in_the_repository_are_valid(name: str) -> None:
    path = Path(storyteller.__file__).parent / f"{name}.toml"
    kind, other = ("judge", "storyteller") if name.startswith("judge") else ("storyteller", "judge")
    assert read_config(path, kind).kind == kind  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match=f"run python -m training.{kind}"):
        read_config(path, other)  # type: ignore[arg-type]


def test_steps_on_the_command_line_must_leave_room() -> None:
    assert with_overrides(tiny(), steps=20, compiled=True).schedule.steps == 20
    with pytest.raises(SettingsError, match="warm-up and decay"):
        with_overrides(tiny(), steps=5, compiled=None)


def test_the_log_s_rows_and_the_curve(shards: Shards, tmp_path: Path) -> None:
    trainer(tiny(), shards, tmp_path).train()
    rows = read_history(tmp_path / "log.jsonl")
    assert [row["step"] for row in rows] == list(range(1, 13))
    assert set(rows[0]) == {"step", "loss", "cross_entropy", "lr", "tokens", "seconds"}
    assert [row["tokens"] for row in rows] == [8 * 48 * step for step in range(1, 13)]
    assert rows[0]["lr"] == pytest.approx(0.01)
    assert rows[5]["lr"] == pytest.approx(0.02)
    assert rows[-1]["lr"] == pytest.approx(0.005)
    assert sorted(row["seconds"] for row in rows) == [row["seconds"] for row in rows]
    picture = (tmp_path / "curve.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    draw_curve([*rows, {"step": 12, "tokens": rows[-1]["tokens"], "heldout": 5.0}], tmp_path / "held.png", "tiny")
    assert (tmp_path / "held.png").read_bytes() != picture
    draw_curve([], tmp_path / "none.png", "tiny")
    assert not (tmp_path / "none.png").exists()


def test_a_machine_without_matplotlib_trains_and_says_so(
    shards: Shards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    trainer(tiny(), shards, tmp_path).train(max_seconds=0)
    assert "matplotlib is not installed" in capsys.readouterr().err
    assert not (tmp_path / "curve.png").exists()
    assert (tmp_path / "model/config.json").is_file()


def test_a_tokenizer_without_a_mask_trains_no_storyteller(shards: Shards, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("training.tokens._MASKS", ("<no such token>",))
    with pytest.raises(CheckpointFormat, match="no mask token"):
        trainer(tiny(), shards, tmp_path)
    trainer(tiny("judge"), shards, tmp_path)


def write_toml(path: Path, content: dict[str, Any]) -> Path:
    lines = [f"{key} = {json.dumps(value)}" for key, value in content.items() if not isinstance(value, dict)]
    for name, section in content.items():
        if isinstance(section, dict):
            lines += [f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in section.items())]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("module", [storyteller, judge])
def test_the_command_prepares_trains_and_continues(tmp_path: Path, module: Any) -> None:
    import typer

    kind = module.__name__.rpartition(".")[2]
    app = typer.Typer()
    app.command()(module.main)
    config = write_toml(tmp_path / "tiny.toml", settings(kind))
    data = write_tales(tmp_path / "tales.jsonl.xz")
    arguments = ["--data", str(data), "--heldout", str(data), "--out", str(tmp_path / "run"), "--config", str(config)]
    first = CliRunner().invoke(app, [*arguments, "--max-seconds", "0", "--device", "cpu"])
    assert first.exit_code == 0, first.output
    assert "step 1 of 12" in first.stdout
    assert "unfinished: run the same command again" in first.stdout
    second = CliRunner().invoke(app, [*arguments, "--device", "cpu"])
    assert second.exit_code == 0, second.output
    assert "step 12 of 12, 4,608 tokens" in second.stdout
    assert "finished" in second.stdout
    assert (tmp_path / "run/model/config.json").is_file()
    missing = CliRunner().invoke(app, [*arguments[2:], "--data", str(tmp_path / "none.jsonl")])
    assert missing.exit_code == 4
    assert "cannot be read" in missing.stderr


def test_a_polite_kill_saves_the_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    step = Trainer._step

    def killed_at_three(self: Trainer, batch: Any) -> torch.Tensor:
        if self.step == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        return step(self, batch)

    monkeypatch.setattr(Trainer, "_step", killed_at_three)
    before = signal.getsignal(signal.SIGTERM)
    report = run(tiny(), write_tales(tmp_path / "tales.jsonl"), tmp_path / "run", device=CPU.type)
    assert report.step == load_state(tmp_path / "run/state.pt").step == 3
    assert signal.getsignal(signal.SIGTERM) == before
