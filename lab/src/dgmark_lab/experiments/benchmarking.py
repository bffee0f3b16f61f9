"""Benchmarks of the lm-evaluation-harness on the cells of an experiment; each task of a cell is run once."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dgmark.errors import InputError
from dgmark.models.denoiser import traits_of
from dgmark.rows.jsonl import Row
from dgmark_lab.evaluate.benchmarks import PRESETS, DiffusionLM, HarnessSettings, TaskSettings, headline, run_tasks
from dgmark_lab.experiments.plan import PlannedCell, Subject
from dgmark_lab.experiments.recipe import versions
from dgmark_lab.experiments.schemes import load_scheme
from dgmark_lab.experiments.store import Store

# a task is reported by the first of these metrics that it has
_METRICS = ("pass@1", "exact_match", "acc")


@dataclass(frozen=True)
class BenchmarkOptions:
    """How to run tasks.

    Attributes:
        include: folders of task files.
        limit: how many questions of each task to use, from the first on; None for all.
        batch_size: most questions decoded at once.
        run_unsafe_code: whether to execute what the model writes (HumanEval).
        length: most response tokens.
    """

    include: Sequence[Path] = ()
    limit: int | None = None
    batch_size: int = 8
    run_unsafe_code: bool = False
    length: int | None = None


def make_benchmark(store: Store, planned: PlannedCell, subject: Subject, task: str, options: BenchmarkOptions) -> None:
    """Run one task of a cell, unless its result is stored.

    Args:
        store: the store of rows.
        planned: the cell.
        subject: its model.
        task: a preset of the paper, or a task of the harness.
        options: how to run it.

    Raises:
        SettingsError: the task does not exist, or it executes code and this is not allowed.
        InputError: the task's data is unavailable, or it reports no known metric.
    """
    row_id = f"{task}-{'all' if options.limit is None else options.limit}"
    with store.open("benchmarks", planned.recipe.hash, {"recipe": planned.recipe.hash}) as file:
        if row_id in file.done:
            return
        preset = PRESETS.get(task)
        decoding = _decoding(planned, subject, task, options.length)
        marked = planned.cell.scheme is not None
        answering = HarnessSettings(
            decoding=decoding,
            key=planned.key if marked else None,
            scheme=load_scheme(planned.cell.scheme, planned.cell.options) if marked else None,
            batch_size=options.batch_size,
        )
        tasks = TaskSettings(
            tasks=preset.tasks if preset else (task,),
            include=tuple(options.include),
            limit=options.limit,
            run_unsafe_code=options.run_unsafe_code,
        )
        output = run_tasks(DiffusionLM(subject.model, answering), tasks)
        file.append([_row(row_id, planned, task, decoding, output)])


def _decoding(planned: PlannedCell, subject: Subject, task: str, length: int | None) -> dict[str, Any]:
    """Return the cell's decoding settings, with the preset's lengths."""
    family = getattr(getattr(subject.model, "family", None), "name", None)
    preset = PRESETS.get(task)
    own: dict[str, Any] = dict(preset.decoding(traits_of(subject.model).name, family)) if preset else {}
    decoding = {**planned.config.to_dict(), **own}
    if length is not None and length < decoding["length"]:
        decoding |= {"length": length, "block_length": min(decoding["block_length"], length)}
    return decoding


def _row(row_id: str, planned: PlannedCell, task: str, decoding: dict[str, Any], output: dict[str, Any]) -> Row:
    rows = [row for row in headline(output) if row[1] in _METRICS]
    if not rows:
        raise InputError(f"task {task} reports none of {', '.join(_METRICS)}")
    name, metric, kind, value, _ = min(rows, key=lambda row: (row[0] not in output["groups"], _METRICS.index(row[1])))
    counts = [one["effective"] for one in output["n_samples"].values()]
    return {
        "id": row_id,
        **planned.recipe.to_row(),
        "task": task,
        "harness_task": name,
        "metric": f"{metric},{kind}",
        "value": value,
        "count": sum(counts),
        "decoding": decoding,
        "all": output["results"],
        "n_shot": output["n_shot"],
        "packages": output["packages"],
        "versions": versions(),
    }
