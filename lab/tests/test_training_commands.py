"""The settings of training, and its commands: train in pieces, evaluate, export."""

import json
import math
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from dgmark.errors import CheckpointFormat, SettingsError
from dgmark_lab.toml_files import read_toml
from dgmark_lab.training import config as config_module
from dgmark_lab.training.config import TrainingConfig, read_config
from dgmark_lab.training.corpus import Corpus
from dgmark_lab.training.run import load_state
from dgmark_lab.training.trainer import Trainer, train
from support.command_line import run
from support.training_setup import CPU, settings, tiny, trainer, write_tales


def write_toml(path: Path, content: dict[str, Any]) -> Path:
    lines = [f"{key} = {json.dumps(value)}" for key, value in content.items() if isinstance(value, str | int)]
    for name, section in content.items():
        if isinstance(section, dict):
            lines += [f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in section.items())]
    path.write_text("\n".join(lines) + "\n")
    return path


SHIPPED = sorted(Path(config_module.__file__).parent.glob("*.toml"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rows": {"lenght": 3}}, r"rows\.lenght: Extra inputs are not permitted"),
        ({"rows": {"length": 64}}, "rows of 64 tokens exceed the context 48"),
        ({"rows": {"short_share": 0.1}}, "short_share and short_lengths go together"),
        ({"rows": {"short_share": 0.1, "short_lengths": [60]}}, "must not exceed length 48"),
        ({"network": {"heads": 3}}, "for each of 3 heads"),
        ({"network": {"type": "llama"}}, "a storyteller needs network.type llada"),
        ({"network": {"type": "gpt"}}, r"network\.type: Input should be .llada. or .llama."),
        ({"schedule": {"steps": 5}}, "exceed 5 steps"),
        ({"masking": {"prefix_max": 48}}, "leaves nothing to mask"),
        ({"masking": {"prefix_min": 13}}, "prefix_min 13 is more than prefix_max 12"),
        ({"masking": None}, r"needs the section \[masking\]"),
        ({"optimizer": {"ema_decay": 1}}, r"optimizer\.ema_decay"),
        ({"speed": {"micro_rows": 3}}, "does not divide rows.batch 8"),
        ({"seed": "x"}, "seed: Input should be a valid integer"),
    ],
)
def test_invalid_settings_are_named(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=message):
        read_config(write_toml(tmp_path / "wrong.toml", settings(**change)), "storyteller")


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_the_settings_in_the_repository_are_valid(path: Path) -> None:
    kind, other = ("judge", "storyteller") if path.name.startswith("judge") else ("storyteller", "judge")
    assert read_config(path, kind) == read_toml(path, TrainingConfig)  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match=f"run `dgmark-lab train {kind}`"):
        read_config(path, other)  # type: ignore[arg-type]


def test_steps_on_the_command_line_must_leave_room(tmp_path: Path) -> None:
    path = write_toml(tmp_path / "tiny.toml", settings())
    assert read_config(path, "storyteller", steps=20) == tiny(schedule={"steps": 20})
    with pytest.raises(SettingsError, match="warm-up and decay"):
        read_config(path, "storyteller", steps=5)


def test_a_tokenizer_without_a_mask_trains_no_storyteller(corpus: Corpus, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("dgmark_lab.training.corpus.MASK", "<no such token>")
    with pytest.raises(CheckpointFormat, match="no mask token"):
        trainer(tiny(), corpus, tmp_path)
    trainer(tiny("judge"), corpus, tmp_path)


@pytest.mark.parametrize("kind", ["storyteller", "judge"])
def test_the_command_prepares_trains_and_continues(tmp_path: Path, kind: str) -> None:
    config = write_toml(tmp_path / "tiny.toml", settings(kind))
    data = write_tales(tmp_path / "tales.jsonl.xz")
    arguments = ["--heldout", data, "--out", tmp_path / "run", "--config", config, "--device", "cpu"]
    first = run("train", kind, "--data", data, *arguments, "--max-seconds", 0)
    assert first.exit_code == 0, first.output
    assert "step 1 of 12" in first.stdout
    assert "unfinished: run the same command again" in first.stdout
    second = run("train", kind, "--data", data, *arguments)
    assert second.exit_code == 0, second.output
    assert "step 12 of 12, 4,608 tokens" in second.stdout
    assert "finished" in second.stdout
    assert (tmp_path / "run/model/config.json").is_file()
    missing = run("train", kind, *arguments, "--data", tmp_path / "none.jsonl")
    assert missing.exit_code == 4
    assert "cannot be read" in missing.stderr


def test_sigterm_finishes_and_saves_the_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    update = Trainer.update

    def killed_at_three(self: Trainer, batch: Any) -> torch.Tensor:
        if self.step == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        return update(self, batch)

    monkeypatch.setattr(Trainer, "update", killed_at_three)
    before = signal.getsignal(signal.SIGTERM)
    stopped = train(tiny(), write_tales(tmp_path / "tales.jsonl"), tmp_path / "run", device=CPU)
    assert stopped.step == load_state(tmp_path / "run/state.pt").step == 3
    assert signal.getsignal(signal.SIGTERM) == before


def test_models_are_measured_on_the_same_held_out_documents(corpus: Corpus, tmp_path: Path) -> None:
    for kind in ("storyteller", "judge"):
        few = {"steps": 3, "warmup_steps": 1, "decay_steps": 1}
        trainer(tiny(kind, rows={"batch": 2}, schedule=few), corpus, tmp_path / kind).train()
    (tmp_path / "other").symlink_to(tmp_path / "judge/model")
    out, heldout = tmp_path / "evaluation.json", write_tales(tmp_path / "heldout.jsonl", 6, seed=7)
    arguments = ["--model", tmp_path / "storyteller/model", "--against", tmp_path / "other", "--data", heldout]
    done = run("train", "evaluate", *arguments, "--out", out, "--rows", 4, "--length", 32, "--device", "cpu")
    assert done.exit_code == 0, done.output
    figures = json.loads(out.read_text())
    assert list(figures["bounds"]) == ["this model", "other"]
    assert f"| other | {figures['bounds']['other']['per_token']:.3f} | 0.0000 |" in done.stdout
    assert figures["bounds"]["this model"]["monte_carlo_error"] > 0
    assert figures["bounds"]["other"]["monte_carlo_error"] == 0  # an autoregressive model has no masks
    # a model of three steps is near the uniform distribution over its 320 tokens
    assert all(abs(bound["per_token"] - math.log(320)) < 1 for bound in figures["bounds"].values())
    assert str(tmp_path) not in out.read_text()
