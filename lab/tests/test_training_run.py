"""Training of the storyteller and the judge: settings, schedule, resuming, learning, and the model that it leaves."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import dgmark
from dgmark.checkpoint.folder import find_checkpoint
from dgmark.errors import ResumeMismatch, SettingsError
from dgmark_lab.toml_files import read_toml
from dgmark_lab.training import config as config_module
from dgmark_lab.training.config import Kind, Schedule, TrainingConfig, read_config
from dgmark_lab.training.corpus import Corpus, read_documents
from dgmark_lab.training.networks import Network, llada_state, load_network
from dgmark_lab.training.objective import held_out_bound, held_out_rows
from dgmark_lab.training.run import load_state, read_log, trapezoid
from dgmark_lab.training.trainer import averaged
from support.command_line import run
from support.training_setup import same_tensors, settings, tiny, trainer, write_tales

KINDS: tuple[Kind, ...] = ("storyteller", "judge")
SHIPPED = sorted(Path(config_module.__file__).parent.glob("*.toml"))


def write_toml(path: Path, content: dict[str, Any]) -> Path:
    lines = [f"{key} = {json.dumps(value)}" for key, value in content.items() if isinstance(value, str | int)]
    for name, section in content.items():
        if isinstance(section, dict):
            lines += [f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in section.items())]
    path.write_text("\n".join(lines) + "\n")
    return path


def final(out: Path) -> dict[str, Any]:
    return load_state(out / "state.pt").tensors


def log_of(out: Path) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name != "seconds"} for row in read_log(out / "log.jsonl")]


# ---- settings ----


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_the_settings_in_the_repository_are_valid(path: Path) -> None:
    kind, other = sorted(KINDS, key=lambda kind: kind not in path.name)
    assert read_config(path, kind) == read_toml(path, TrainingConfig)
    assert read_config(path, kind, steps=20_000).schedule.steps == 20_000
    with pytest.raises(SettingsError, match=f"run `dgmark-lab train {kind}`"):
        read_config(path, other)


# ---- end to end ----


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_in_pieces_is_the_run_in_one_go_and_leaves_a_model(tmp_path: Path, kind: Kind) -> None:
    schedule = {"steps": 5, "warmup_steps": 2, "decay_steps": 2}
    rows = {"short_share": 0.3, "short_lengths": [24]}
    config = write_toml(tmp_path / "tiny.toml", settings(kind, rows=rows, schedule=schedule))
    data, heldout = write_tales(tmp_path / "tales.jsonl.xz"), write_tales(tmp_path / "heldout.jsonl", 6, seed=7)
    command = ["train", kind, "--data", data, "--heldout", heldout, "--config", config, "--device", "cpu", "--out"]
    pieces = [run(*command, tmp_path / "pieces", "--max-seconds", 0) for _ in range(5)]  # one step each
    assert all(piece.exit_code == 0 for piece in pieces), pieces[-1].output
    assert "step 1 of 5" in pieces[0].stdout
    assert "unfinished: run the same command again" in pieces[0].stdout
    whole = run(*command, tmp_path / "whole")
    assert "step 5 of 5" in whole.stdout
    assert "finished" in whole.stdout
    assert same_tensors(final(tmp_path / "whole"), final(tmp_path / "pieces"))
    assert log_of(tmp_path / "whole") == log_of(tmp_path / "pieces")
    # the model's folder holds the average of the weights, which is not the weights
    average = {name.removeprefix("module."): one for name, one in final(tmp_path / "whole")["average"].items()}
    loaded = load_network(tmp_path / "whole/model")
    assert loaded.family == ("llada" if kind == "storyteller" else "llama")
    for name, tensor in loaded.module.state_dict().items():
        assert torch.equal(tensor, average[name].to(torch.bfloat16).float())
        assert not torch.equal(average[name], final(tmp_path / "whole")["module"][name])
    missing = run(*command, tmp_path / "whole", "--data", tmp_path / "none.jsonl")
    assert missing.exit_code == 4
    assert "cannot be read" in missing.stderr
    if kind == "storyteller":
        model = dgmark.load_model(str(tmp_path / "whole/model"), device="cpu", dtype="fp32")
        assert (model.mask_id, model.end_ids, model.context_length) == (2, (0,), 48)
        assert dgmark.generate(model, "The fox", key=None, length=8, block_length=4)[0].token_ids
    out, arguments = tmp_path / "bounds.json", ["--data", heldout, "--rows", 4, "--length", 32, "--device", "cpu"]
    models = ["--model", tmp_path / "whole/model", "--against", "storyteller"]
    done = run("train", "evaluate", *models, *arguments, "--out", out)
    assert done.exit_code == 0, done.output
    bounds = json.loads(out.read_text())["bounds"]
    assert list(bounds) == ["this model", "storyteller"]
    assert (bounds["this model"]["monte_carlo_error"] > 0) == (kind == "storyteller")  # a judge has no masks
    # a model of five steps is near the uniform distribution over its 320 tokens
    assert abs(bounds["this model"]["per_token"] - math.log(320)) < 1
    assert f"| this model | {bounds['this model']['per_token']:.3f} |" in done.stdout
    assert str(tmp_path) not in out.read_text()


@pytest.mark.parametrize("kind", KINDS)
def test_the_loss_falls_on_a_small_corpus(corpus: Corpus, tmp_path: Path, kind: Kind) -> None:
    settings = {
        "rows": {"batch": 16},
        "schedule": {"steps": 60, "warmup_steps": 5, "decay_steps": 30},
        "record": {"evaluate_steps": 30},
        "optimizer": {"muon_lr": 0.05, "adamw_lr": 0.02},
        "speed": {"autocast": "off"},
    }
    held_out = held_out_rows(list(read_documents(corpus.folder.parent / "tales.jsonl")), corpus.tokenizer, 48, 4)
    piece = trainer(tiny(kind, **settings), corpus, tmp_path, held_out=held_out)
    targets = np.concatenate([piece.batch(step).targets for step in range(60)])
    piece.train()
    rows = read_log(tmp_path / "log.jsonl")
    steps, measured = [row for row in rows if "loss" in row], [row for row in rows if "heldout" in row]
    assert [(row["step"], row["tokens"]) for row in steps] == [(step, 16 * 48 * step) for step in range(1, 61)]
    assert [row["step"] for row in measured] == [0, 30, 60]
    again = held_out_bound(Network(piece.network.family, piece.average.module), held_out, piece.mask_id, repeats=2)
    assert (measured[-1]["heldout"], measured[-1]["heldout_per_character"]) == (again.per_token, again.per_character)
    assert set(steps[0]) == {"step", "loss", "cross_entropy", "rate", "tokens", "seconds"}
    assert (steps[0]["rate"], steps[-1]["rate"]) == (1 / 5, 1 / 30)
    losses = [row["cross_entropy"] for row in steps]
    assert losses[0] == pytest.approx(np.log(320), rel=0.05)  # it begins knowing nothing
    shares = np.unique(targets, return_counts=True)[1] / len(targets)
    frequencies_alone = -(shares * np.log(shares)).sum()
    assert np.mean(losses[-10:]) < frequencies_alone - (0.15 if kind == "storyteller" else 2.0)


# ---- resuming ----


def test_work_lost_in_a_crash_is_done_again_and_the_end_may_move_before_the_decay(
    corpus: Corpus, tmp_path: Path
) -> None:
    short, long = tiny(), tiny(schedule={"steps": 16, "decay_steps": 6})
    trainer(long, corpus, tmp_path / "long").train()
    piece = trainer(short, corpus, tmp_path / "moved")
    while piece.step < 3:
        piece.update(piece.batch(piece.step))
        piece.step += 1
    piece.save()
    with open(tmp_path / "moved/log.jsonl", "a") as log:  # rows of steps that no state holds, the last one torn
        log.write('{"step": 3, "loss": 1.0, "tokens": 1}\n{"step": 4, "loss": 1.0, "tokens": 1}\n{"step": 5, "lo')
    resumed = trainer(long, corpus, tmp_path / "moved")
    assert [row["step"] for row in log_of(tmp_path / "moved")] == [3]
    resumed.train()
    assert same_tensors(final(tmp_path / "long"), final(tmp_path / "moved"))
    with pytest.raises(ResumeMismatch, match=r"schedule\.steps \(the end may move only before the decay begins"):
        trainer(tiny(schedule={"steps": 20, "decay_steps": 6}), corpus, tmp_path / "moved")


def test_what_does_not_belong_to_a_run_is_refused(corpus: Corpus, tmp_path: Path) -> None:
    trainer(tiny(), corpus, tmp_path).train(max_seconds=0)
    other = tiny(seed=1, optimizer={"muon_lr": 0.1})
    with pytest.raises(ResumeMismatch, match=r"another seed, optimizer\.muon_lr; undo the change"):
        trainer(other, corpus, tmp_path)
    with pytest.raises(ResumeMismatch, match="other data, tokenizer or base"):
        trainer(tiny(), replace(corpus, made_from={"data": "other"}), tmp_path)
    # what changes the speed alone is no other run
    piece = trainer(tiny(speed={"micro_rows": 4}, record={"log_steps": 5}), corpus, tmp_path)
    assert piece.step == 1
    whole = (tmp_path / "state.pt").read_bytes()
    with torch.no_grad():
        next(piece.network.module.parameters()).fill_(float("nan"))
    with pytest.raises(SettingsError, match="lower the learning rates"):
        piece.train()
    assert (tmp_path / "state.pt").read_bytes() == whole


def test_a_run_starts_from_another_model_s_weights(corpus: Corpus, tmp_path: Path) -> None:
    trainer(tiny(), corpus, tmp_path / "first").train(max_seconds=0)
    model = tmp_path / "first/model"
    second = trainer(tiny(seed=5), corpus, tmp_path / "second", init=model)
    assert same_tensors(dict(second.network.module.state_dict()), dict(load_network(model).module.state_dict()))
    with pytest.raises(SettingsError, match=r"does not have the sizes in \[network\]"):
        trainer(tiny(network={"width": 48}), corpus, tmp_path / "third", init=model)


# ---- rates, optimizers, averages, parts of a batch ----


def test_the_trapezoid_rises_stays_and_falls() -> None:
    shape = [trapezoid(step, Schedule(steps=10, warmup_steps=4, decay_steps=4)) for step in range(10)]
    assert shape == [0.25, 0.5, 0.75, 1, 1, 1, 1, 0.75, 0.5, 0.25]
    assert trapezoid(9, Schedule(steps=10, warmup_steps=1, decay_steps=1)) == 1


def test_muon_takes_only_the_matrices_of_the_blocks(corpus: Corpus, tmp_path: Path) -> None:
    piece = trainer(tiny(), corpus, tmp_path)
    names = {id(param): name for name, param in piece.network.module.named_parameters()}
    groups = [optimizer.param_groups[0]["params"] for optimizer in piece.optimizers]
    matrices, others = ([names[id(param)] for param in params] for params in groups)
    assert len(matrices) == 2 * 7
    assert all(".layers." in name and "norm" not in name for name in matrices)
    assert {name for name in others if "norm" not in name} == {"model.embed_tokens.weight"}
    piece.update(piece.batch(0))
    assert [one.param_groups[0]["lr"] for one in piece.optimizers] == [0.02 / 2, 2e-3 / 2]  # of two steps of warm-up


def test_the_average_follows_its_definition() -> None:
    module = torch.nn.Linear(1, 1, bias=False)
    with torch.no_grad():
        average = averaged(module, 0.5)
        expected = 0.0
        for step, value in enumerate([1.0, 2.0, 5.0, 4.0, 8.0, 2.0, 1.0, 0.0, 7.0, 3.0]):
            module.weight.fill_(value)
            average.update_parameters(module)
            decay = min(0.5, (1 + step) / (10 + step))
            expected = value if step == 0 else decay * expected + (1 - decay) * value
    assert float(next(average.module.parameters()).detach()) == pytest.approx(expected)


def test_parts_of_a_batch_train_as_the_whole(corpus: Corpus, tmp_path: Path) -> None:
    rows = []
    for name, speed in (("whole", {}), ("parts", {"micro_rows": 2})):
        trainer(tiny(speed=speed), corpus, tmp_path / name).train(max_seconds=0)
        rows += log_of(tmp_path / name)
    assert rows[1] == pytest.approx(rows[0], rel=1e-5)


def test_llada_layout_survives_a_round_trip() -> None:
    """The shipped weights, loaded and written again, are the shipped file's tensors."""
    folder = find_checkpoint("storyteller").folder
    written = llada_state(load_network(folder).module)
    assert same_tensors(written, load_file(folder / "model.safetensors"))
