"""The settings of training, and its commands: train in pieces, evaluate, export."""

import json
import math
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

import dgmark
from dgmark.errors import CheckpointFormat, InputError, SettingsError
from dgmark_lab.toml_files import read_toml
from dgmark_lab.training import config as config_module
from dgmark_lab.training.config import TrainingConfig, read_config
from dgmark_lab.training.corpus import Corpus
from dgmark_lab.training.evaluate import markdown
from dgmark_lab.training.export import export
from dgmark_lab.training.networks import load_network, weights_fingerprint
from dgmark_lab.training.run import load_state
from dgmark_lab.training.trainer import Trainer, train
from support.command_line import run
from support.training_setup import CPU, settings, tiny, tiny_corpus, trainer, write_tales

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
def test_invalid_settings_are_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        tiny(**change)


def test_unreadable_settings_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="give a TOML file"):
        read_config(tmp_path / "none.toml", "judge")
    (tmp_path / "bad.toml").write_text("kind = ")
    with pytest.raises(SettingsError, match="is not valid TOML"):
        read_config(tmp_path / "bad.toml", "judge")


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_the_settings_in_the_repository_are_valid(path: Path) -> None:
    kind, other = ("judge", "storyteller") if path.name.startswith("judge") else ("storyteller", "judge")
    assert read_config(path, kind) == read_toml(path, TrainingConfig)  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match=f"run `dgmark-lab train {kind}`"):
        read_config(path, other)  # type: ignore[arg-type]


def write_toml(path: Path, content: dict[str, Any]) -> Path:
    lines = [f"{key} = {json.dumps(value)}" for key, value in content.items() if not isinstance(value, dict)]
    for name, section in content.items():
        if isinstance(section, dict):
            lines += [f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in section.items())]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_steps_on_the_command_line_must_leave_room(tmp_path: Path) -> None:
    path = write_toml(tmp_path / "tiny.toml", settings())
    changed = read_config(path, "storyteller", steps=20, compiled=True)
    assert (changed.schedule.steps, changed.speed.compile) == (20, True)
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


# ---- evaluation and export ----


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A storyteller and a judge of a few steps, and held-out documents."""
    folder = tmp_path_factory.mktemp("runs")
    corpus = tiny_corpus(folder)
    for kind in ("storyteller", "judge"):
        few = {"steps": 3, "warmup_steps": 1, "decay_steps": 1}
        trainer(tiny(kind, rows={"batch": 2}, schedule=few), corpus, folder / kind).train()
    write_tales(folder / "heldout.jsonl", 6, seed=7)
    return folder


def evaluate(runs: Path, out: Path, *more: object) -> Any:
    base = ["--model", runs / "storyteller/model", "--data", runs / "heldout.jsonl", "--out", out]
    return run("train", "evaluate", *base, "--rows", 4, "--length", 32, "--device", "cpu", *more)


@pytest.fixture(scope="module")
def evaluated(runs: Path) -> Path:
    (runs / "other").symlink_to(runs / "judge/model")
    done = evaluate(runs, runs / "evaluation.json", "--against", runs / "other")
    assert done.exit_code == 0, done.output
    assert done.stdout == markdown(json.loads((runs / "evaluation.json").read_text()))
    return runs / "evaluation.json"


def test_the_evaluation_holds_the_bound_of_every_model(runs: Path, evaluated: Path) -> None:
    figures = json.loads(evaluated.read_text())
    assert list(figures["bounds"]) == ["this model", "other"]
    assert figures["bounds"]["this model"]["monte_carlo_error"] > 0
    assert figures["bounds"]["other"]["monte_carlo_error"] == 0  # an autoregressive model has no masks
    # a model of three steps is near the uniform distribution over its 320 tokens
    assert all(abs(bound["per_token"] - math.log(320)) < 1 for bound in figures["bounds"].values())
    weights = weights_fingerprint(load_network(runs / "storyteller/model").module)
    assert figures["bounds"]["this model"]["weights"] == weights
    assert str(runs) not in evaluated.read_text()


def test_only_documents_of_a_name_are_measured(runs: Path, tmp_path: Path) -> None:
    alone = tmp_path / "alone.jsonl"
    alone.write_text((runs / "heldout.jsonl").read_text().splitlines()[1] + "\n")
    found = {}
    for name, option, value in (("part", "--only", "tale-1"), ("alone", "--data", alone)):
        assert evaluate(runs, tmp_path / name, option, value).exit_code == 0
        found[name] = json.loads((tmp_path / name).read_text())
    assert found["part"]["bounds"] == found["alone"]["bounds"]
    assert [found[name]["heldout_only"] for name in ("part", "alone")] == ["tale-1", ""]
    none = evaluate(runs, tmp_path / "none", "--only", "lost-")
    assert none.exit_code == InputError.exit_code
    assert "begins with 'lost-'" in none.stderr


def test_the_exported_folder_is_the_run_s_model_with_a_card(runs: Path, evaluated: Path, tmp_path: Path) -> None:
    out = tmp_path / "shipped"
    done = run("train", "export", "--run", runs / "storyteller", "--out", out, "--evaluation", evaluated)
    assert done.exit_code == 0, done.output
    names = {path.name for path in out.iterdir()}
    assert names == {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "MODEL_CARD.md"}
    shipped, trained = (
        dgmark.load_model(str(one), device="cpu", dtype="fp32") for one in (out, runs / "storyteller/model")
    )
    ids = torch.tensor([[5, 9, 2, 2, 7]])
    assert torch.equal(shipped(ids), trained(ids))
    text = (out / "MODEL_CARD.md").read_text()
    assert markdown(json.loads(evaluated.read_text())).strip() in text
    assert "3 of 3 steps, 288 tokens" in text
    assert "from random weights" in text
    assert "Made-up tales. 40 documents" in text
    assert "Licence**: Apache-2.0" in text


def test_runs_that_cannot_be_exported_are_refused(runs: Path, evaluated: Path, tmp_path: Path) -> None:
    storyteller, out = runs / "storyteller", tmp_path / "out"
    with pytest.raises(SettingsError, match="exists"):
        export(storyteller, runs / "judge")
    with pytest.raises(SettingsError, match="folder of a training run"):
        export(tmp_path, out)
    with pytest.raises(InputError, match="measured on other weights"):
        export(runs / "judge", out, evaluated)
    with pytest.raises(InputError, match="is not an evaluation"):
        export(storyteller, out, tmp_path / "none.json")
    assert list(tmp_path.iterdir()) == []
    size = export(runs / "judge", out)
    assert size == sum(path.stat().st_size for path in out.iterdir())
    assert "Not evaluated." in (out / "MODEL_CARD.md").read_text()
    assert load_network(out).family == "llama"
