"""Benchmarks of the lm-evaluation-harness on the cells of an experiment; each task of a cell is run once."""

from typing import Any

from dgmark.errors import InputError
from dgmark.models.denoiser import traits_of
from dgmark_lab.evaluate.benchmarks import PRESETS, DiffusionLM, HarnessSettings, TaskSettings, headline, run_tasks
from dgmark_lab.experiments.cells import baseline_of
from dgmark_lab.experiments.plan import PlannedCell, RunOptions, Subject
from dgmark_lab.experiments.store import Store

# a task is reported by the first of these metrics that it has
_METRICS = ("pass@1", "exact_match", "acc")


def make_benchmark(store: Store, planned: PlannedCell, subject: Subject, task: str, options: RunOptions) -> None:
    """Run one task of a cell, unless its result is stored.

    Args:
        store: the store of rows.
        planned: the cell.
        subject: its model.
        task: a preset of the paper, or a task of the harness.
        options: how to run it; the limit is that of the questions.

    Raises:
        SettingsError: the task does not exist, or it executes code and this is not allowed.
        InputError: the task's data is unavailable, or it reports no known metric.
    """

    def make(_: list[str]) -> list[dict[str, Any]]:
        preset = PRESETS.get(task)
        decoding = _decoding(planned, subject, task, options.length)
        marked = planned.cell.scheme is not None
        answering = HarnessSettings(
            decoding=decoding,
            key=planned.key if marked else None,
            baseline=baseline_of(planned.cell),
            batch_size=options.batch_size,
        )
        tasks = TaskSettings(
            tasks=preset.tasks if preset else (task,),
            include=tuple(options.include),
            limit=options.limit,
            run_unsafe_code=options.run_unsafe_code,
        )
        output = run_tasks(DiffusionLM(subject.model, answering), tasks)
        return [{**_result(task, output), "decoding": decoding}]

    row_id = f"{task}-{'all' if options.limit is None else options.limit}"
    store.complete("benchmarks", planned.hash, {"recipe": planned.hash}, {row_id: task}, make)


def _decoding(planned: PlannedCell, subject: Subject, task: str, length: int | None) -> Any:
    """Return the cell's decoding settings, with the preset's lengths."""
    family = getattr(getattr(subject.model, "family", None), "name", None)
    preset = PRESETS.get(task)
    own: dict[str, Any] = dict(preset.decoding(traits_of(subject.model).name, family)) if preset else {}
    decoding = {**planned.config.to_dict(), **own}
    if length is not None and length < decoding["length"]:
        decoding |= {"length": length, "block_length": min(decoding["block_length"], length)}
    return decoding


def _result(task: str, output: dict[str, Any]) -> dict[str, Any]:
    rows = [row for row in headline(output) if row[1] in _METRICS]
    if not rows:
        raise InputError(f"task {task} reports none of {', '.join(_METRICS)}")
    name, metric, kind, value, _ = min(rows, key=lambda row: (row[0] not in output["groups"], _METRICS.index(row[1])))
    counts = [one["effective"] for one in output["n_samples"].values()]
    return {
        "task": task,
        "harness_task": name,
        "metric": f"{metric},{kind}",
        "value": value,
        "count": sum(counts),
        "all": output["results"],
        "n_shot": output["n_shot"],
        "packages": output["packages"],
    }
