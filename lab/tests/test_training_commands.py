"""Settings, log, curve and commands of training."""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from dgmark.errors import CheckpointFormat, SettingsError
from dgmark_lab.training import judge, storyteller
from dgmark_lab.training.commands import run, with_overrides
from dgmark_lab.training.config import read_config
from dgmark_lab.training.history import draw_curve, read_history
from dgmark_lab.training.loop import Trainer
from dgmark_lab.training.shards import Shards
from dgmark_lab.training.state import load_state
from support.training_setup import CPU, settings, tiny, trainer, write_tales


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
    with pytest.raises(SettingsError, match=f"use python -m dgmark_lab.training.{kind}"):
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
    monkeypatch.setattr("dgmark_lab.training.tokens.MASK", "<no such token>")
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


def test_sigterm_finishes_and_saves_the_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
