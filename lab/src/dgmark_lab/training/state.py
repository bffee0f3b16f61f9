"""The one file that a run resumes from: weights, their average, both optimizers, step, settings, data.

There is no random state to save: the rows and masks of a step are a function of seed and step.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from dgmark.errors import ResumeMismatch
from dgmark.rows.outputs import atomic_file
from dgmark_lab.training.config import FREE_SECTIONS, Schedule, TrainingConfig, differing_keys

SCHEMA = 1

# The end of the schedule may move before the decay begins: the steps so far would have been the same.
_END_KEYS = {"schedule.steps", "schedule.decay_steps"}


@dataclass(frozen=True)
class State:
    """A run at the end of a step.

    Attributes:
        step: number of steps done.
        tokens: number of tokens seen.
        seconds: time spent in training, over all pieces of the run.
        config: the settings, as plain values.
        data: the shards' manifest.
        family: the network's family.
        network: its transformers configuration.
        device: the device of the last piece.
        tensors: state dicts of "module", "average", "muon", "adamw".
        start: name of --init and fingerprint of its weights; None if the run began with random weights.
    """

    step: int
    tokens: int
    seconds: float
    config: dict[str, Any]
    data: dict[str, Any]
    family: str
    network: dict[str, Any]
    device: str
    tensors: dict[str, Any]
    start: dict[str, str] | None = None


def save_state(state: State, path: Path) -> None:
    """Write the file; a crash leaves the previous one intact."""
    with atomic_file(path) as beside:
        torch.save({"schema": SCHEMA, **vars(state)}, beside)


def load_state(path: Path) -> State:
    """Read the file, with tensors on the CPU.

    Raises:
        ResumeMismatch: the file is damaged, or of another version.
    """
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
        if content.pop("schema") != SCHEMA:
            raise ValueError("another version")
        return State(**content)
    except Exception as error:  # torch, pickle and zipfile each have their own errors
        raise ResumeMismatch(f"{path} cannot be resumed from ({error}); delete it to start again") from error


def check_same_run(state: State, config: TrainingConfig, data: dict[str, Any], path: Path) -> None:
    """Refuse to resume a run with other settings or data.

    Raises:
        ResumeMismatch: settings or data differ; the message names the settings.
    """
    check_same_settings(state.config, config.model_dump(mode="json"), state.step, path)
    if state.data["made_from"] != data["made_from"]:
        raise ResumeMismatch(f"{path} was trained on other data or another tokenizer; choose another --out")


def check_same_settings(old: dict[str, Any], new: dict[str, Any], step: int, path: Path) -> None:
    """Refuse to resume a run with other settings.

    Args:
        old: settings in the state file, as plain values; they have a [schedule].
        new: the settings to resume with.
        step: number of steps done.
        path: the state file.

    Raises:
        ResumeMismatch: settings differ; the message names them.
    """
    different = [key for key in differing_keys(old, new) if key.split(".")[0] not in FREE_SECTIONS]
    if step <= min(Schedule(**one["schedule"]).decay_start for one in (old, new)):
        different = [key for key in different if key not in _END_KEYS]
    if different:
        moved = _END_KEYS.intersection(different)
        hint = " (the end may move only before the decay begins)" if moved else ""
        raise ResumeMismatch(
            f"{path} was made with another {', '.join(different)}{hint}; undo the change, or choose another --out"
        )
