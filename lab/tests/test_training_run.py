"""Training of the storyteller and the judge: settings, schedule, resuming, learning, and the model that it leaves."""

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch.testing import assert_close

import dgmark
from dgmark.checkpoint.folder import find_checkpoint
from dgmark.errors import ResumeMismatch, SettingsError
from dgmark_lab.training import config as config_module
from dgmark_lab.training.config import Kind, Schedule, read_config
from dgmark_lab.training.corpus import Corpus, read_documents
from dgmark_lab.training.networks import llada_state, load_network, mask_id_of
from dgmark_lab.training.objective import held_out_rows
from dgmark_lab.training.run import load_state, read_log, trapezoid
from dgmark_lab.training.trainer import averaged
from support.command_line import run
from support.training_setup import settings, tiny, trainer, write_tales

KINDS: tuple[Kind, ...] = ("storyteller", "judge")
SHIPPED = sorted(Path(config_module.__file__).parent.glob("*.toml"))


def write_toml(path: Path, content: dict[str, Any]) -> Path:
    lines = [f"{key} = {json.dumps(value)}" for key, value in content.items() if not isinstance(value, dict)]
    for name, section in content.items():
        if isinstance(section, dict):
            lines += [f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in section.items())]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_the_settings_in_the_repository_are_valid(path: Path) -> None:
    kind, other = sorted(KINDS, key=lambda kind: kind not in path.name)
    assert read_config(path, kind).kind == kind
    with pytest.raises(SettingsError, match=f"run `dgmark-lab train {kind}`"):
        read_config(path, other)


@pytest.mark.parametrize(
    ("kind", "steps", "nats"), [("storyteller", 60, 3.1), pytest.param("judge", 30, 1.5, marks=pytest.mark.soak)]
)
def test_a_run_in_pieces_is_the_run_in_one_go_and_learns_and_leaves_a_model(
    tmp_path: Path, kind: Kind, steps: int, nats: float
) -> None:
    content = settings(
        kind,
        rows={"batch": 16, "short_share": 0.1, "short_lengths": [24]},
        schedule={"steps": steps, "warmup_steps": 5, "decay_steps": steps // 2},
        record={"evaluate_steps": steps // 2},
        optimizer={"muon_lr": 0.05, "adamw_lr": 0.05},
    )
    config, data = write_toml(tmp_path / "tiny.toml", content), write_tales(tmp_path / "tales.jsonl.xz")
    heldout, whole, pieces = write_tales(tmp_path / "heldout.jsonl", 6, seed=7), tmp_path / "whole", tmp_path / "pieces"
    command = ["train", kind, "--data", data, "--heldout", heldout, "--config", config, "--device", "cpu", "--out"]
    for step in (1, 2):
        piece = run(*command, pieces, "--max-seconds", 0)
        assert f"step {step} of {steps}" in piece.stdout, piece.output
        assert "unfinished: run the same command again" in piece.stdout
    with open(pieces / "log.jsonl", "a") as file:  # rows of work that a crash lost, the last one torn
        file.write('{"step": 3, "loss": 1.0, "tokens": 1}\n{"step": 4, "lo')
    assert all("; finished" in run(*command, out).stdout for out in (whole, pieces))
    tensors = load_state(whole / "state.pt")["tensors"]
    assert_close(load_state(pieces / "state.pt")["tensors"], tensors, rtol=0, atol=0)
    log, other = ([row | {"seconds": 0} for row in read_log(out / "log.jsonl")] for out in (whole, pieces))
    assert log == other
    # it begins knowing nothing of 8,192 tokens, and learns more than their frequencies, of 3.3 nats
    losses = [row["cross_entropy"] for row in log if "loss" in row]
    assert losses[0] == pytest.approx(np.log(8192), rel=0.05)
    assert np.mean(losses[-10:]) < nats
    assert [row["step"] for row in log if "heldout" in row] == [0, steps // 2, steps]
    # the model's folder holds the average of the weights, which is not the weights
    average = {name.removeprefix("module."): one for name, one in tensors["average"].items()}
    loaded = load_network(whole / "model")
    assert mask_id_of(loaded) == (2 if kind == "storyteller" else None)
    for name, tensor in loaded.state_dict().items():
        assert torch.equal(tensor, average[name].to(torch.bfloat16).float())
        assert not torch.equal(average[name], tensors["module"][name])
    if kind == "storyteller":
        model = dgmark.load_model(str(whole / "model"), device="cpu", dtype="fp32")
        assert (model.mask_id, model.end_ids, model.context_length) == (2, (0,), 48)
        assert dgmark.generate(model, "The fox", key=None, length=8, block_length=4)[0].token_ids
    out, rows = tmp_path / "bounds.json", ["--data", heldout, "--rows", 4, "--length", 32, "--device", "cpu"]
    models = ("--model", whole / "model", "--against", "storyteller")
    done = run("train", "evaluate", *models, *rows, "--out", out, code=0)
    bounds = json.loads(out.read_text())["bounds"]
    assert bounds["this model"]["per_token"] < bounds["storyteller"]["per_token"]  # which knows no such tales
    assert (bounds["this model"]["monte_carlo_error"] > 0) == (kind == "storyteller")  # a judge has no masks
    assert f"this model: {bounds['this model']['per_token']:.3f} nats a token" in done.stdout
    assert str(tmp_path) not in out.read_text()


def test_the_average_is_evaluated(corpus: Corpus, tmp_path: Path) -> None:
    documents = list(read_documents(write_tales(tmp_path / "tales.jsonl")))
    piece = trainer(tiny("judge"), corpus, tmp_path, held_out=held_out_rows(documents, corpus.tokenizer, 48, 4))
    with torch.no_grad():
        for weight in piece.average.parameters():
            weight.zero_()
    # weights of zero know nothing of 8,192 tokens
    assert piece.evaluate()["heldout"] == pytest.approx(np.log(8192))


def test_what_does_not_belong_to_a_run_is_refused(corpus: Corpus, tmp_path: Path) -> None:
    trainer(tiny(), corpus, tmp_path).train(max_seconds=0)
    with pytest.raises(ResumeMismatch, match=r"another seed, optimizer; undo the change"):
        trainer(tiny(seed=1, optimizer={"muon_lr": 0.1}), corpus, tmp_path)
    with pytest.raises(ResumeMismatch, match="other data, tokenizer or base"):
        trainer(tiny(), replace(corpus, made_from={"data": "other"}), tmp_path)
    piece = trainer(tiny(record={"log_steps": 5}), corpus, tmp_path)  # how often to log is no other run
    assert piece.step == 1
    whole = (tmp_path / "state.pt").read_bytes()
    with torch.no_grad():
        next(piece.network.parameters()).fill_(float("nan"))
    with pytest.raises(SettingsError, match="lower the learning rates"):
        piece.train()
    assert (tmp_path / "state.pt").read_bytes() == whole


def test_a_run_starts_from_another_model_s_weights(corpus: Corpus, tmp_path: Path) -> None:
    trainer(tiny(), corpus, tmp_path / "first").train(max_seconds=0)
    model = tmp_path / "first/model"
    second = trainer(tiny(seed=5), corpus, tmp_path / "second", init=model)
    assert_close(second.network.state_dict(), load_network(model).state_dict(), rtol=0, atol=0)
    with pytest.raises(SettingsError, match=r"does not have the sizes in \[network\]"):
        trainer(tiny(network={"width": 48}), corpus, tmp_path / "third", init=model)


# ---- rates, optimizers, averages ----


def test_the_trapezoid_rises_stays_and_falls() -> None:
    shape = [trapezoid(step, Schedule(steps=10, warmup_steps=4, decay_steps=4)) for step in range(10)]
    assert shape == [0.25, 0.5, 0.75, 1, 1, 1, 1, 0.75, 0.5, 0.25]


def test_a_batch_is_a_function_of_seed_and_step(corpus: Corpus, tmp_path: Path) -> None:
    pieces = [trainer(tiny(seed=seed), corpus, tmp_path / str(seed)) for seed in (0, 1)]
    masked = [piece.batch(step).inputs == 2 for piece in pieces for step in (0, 1)]
    for one, other in itertools.combinations(masked, 2):
        assert not np.array_equal(one, other)
    np.testing.assert_array_equal(pieces[0].batch(0).inputs == 2, masked[0])


def test_muon_takes_only_the_matrices_of_the_blocks(corpus: Corpus, tmp_path: Path) -> None:
    piece = trainer(tiny(), corpus, tmp_path)
    names = {id(param): name for name, param in piece.network.named_parameters()}
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


def test_llada_layout_survives_a_round_trip() -> None:
    """The shipped weights, loaded and written again, are the shipped file's tensors."""
    folder = find_checkpoint("storyteller").folder
    written = llada_state(load_network(folder))
    assert_close(written, load_file(folder / "model.safetensors"), rtol=0, atol=0)
