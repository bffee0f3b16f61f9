"""A task of the lm-evaluation-harness, read from this machine alone."""

import functools
import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from lm_eval.__main__ import cli_evaluate
from lm_eval.tasks import TaskManager

TASK = Path(__file__).with_name("harness_task.yaml").read_text(encoding="utf-8")


def write_task(folder: Path, name: str, items: Sequence[dict[str, str]], **settings: object) -> Path:
    """A folder with a task of this name: items of "question" and "answer", generated with these settings."""
    tasks = folder / "tasks"
    tasks.mkdir()
    data = tasks / "items.json"
    data.write_text("".join(json.dumps(one) + "\n" for one in items))
    written = TASK.format(name=name, data=data, cache=folder / "cache", settings=json.dumps(settings))
    (tasks / f"{name}.yaml").write_text(written)
    return tasks


def run_harness(patch: pytest.MonkeyPatch, tasks: Path, *arguments: str) -> None:
    """Run `lm_eval` on the task of a folder; it does not list its own tasks, of which there are thousands."""
    patch.setenv("HF_HUB_OFFLINE", "1")
    alone = functools.partialmethod(TaskManager.__init__, include_defaults=False)
    patch.setattr(TaskManager, "__init__", alone)
    (task,) = tasks.glob("*.yaml")
    command = ["lm_eval", "run", "--tasks", task.stem, "--include_path", str(tasks), "--log_samples", *arguments]
    patch.setattr("sys.argv", command)
    cli_evaluate()
