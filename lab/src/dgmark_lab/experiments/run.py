"""Make the rows that an experiment still needs: texts, attacked texts, times, perplexities, ratings; each only once."""

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dgmark.decode.generation import generations
from dgmark.decode.prompts import Prepared
from dgmark.errors import MissingExtra, SettingsError, install_hint
from dgmark.models.denoiser import Denoiser
from dgmark.rows.jsonl import Row
from dgmark.rows.runner import RowRun, Task
from dgmark.watermark.key import WatermarkKey
from dgmark_lab.endpoint import Endpoint
from dgmark_lab.evaluate.judge import load_judge
from dgmark_lab.experiments.attacked_texts import make_attacked
from dgmark_lab.experiments.plan import PlannedCell, Subject, plan_cell, prepare, write_plan
from dgmark_lab.experiments.prompt_sets import Prompt
from dgmark_lab.experiments.recipe import ROW_VERSION, versions
from dgmark_lab.experiments.spec import Cell, Experiment, SetupName
from dgmark_lab.experiments.store import Store
from dgmark_lab.experiments.text_scores import judge_identity, make_perplexities, make_ratings, rater_hash
from dgmark_lab.experiments.timing import time_cells

NO_JUDGE = "none"

# (name of the current part, rows finished, rows in all)
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class RunOptions:
    """How much of an experiment is run, and with what.

    Attributes:
        setup: "builtin" or "paper".
        model: model to use instead of the setup's and of the cells'.
        key: key file; by default one in the runs folder, made when it is missing.
        files: files of prompts, by name of the set; "" for any set.
        cells: names of the cells to run; all of them if empty.
        limit: largest number of texts in a cell.
        length: largest number of response tokens, for a quick look; such texts have rows of their own.
        batch_size: largest number of rows decoded at once.
        pad: decode prompts of different lengths together; None: where it is faster.
        judge: model that computes perplexities; None: the setup's; "none": no perplexities.
        rater: the language model that rates texts; None: no ratings.
        tasks: for view "benchmark": the only tasks to run; all of them if empty.
        include: folders with further task files.
        run_unsafe_code: let tasks execute the code that the model writes.
        loading: arguments of `load_model`.
    """

    setup: SetupName = "builtin"
    model: str | None = None
    key: Path | None = None
    files: Mapping[str, Path] = field(default_factory=dict)
    cells: Sequence[str] = ()
    limit: int | None = None
    length: int | None = None
    batch_size: int = 8
    pad: bool | None = None
    judge: str | None = None
    rater: Endpoint | None = None
    tasks: Sequence[str] = ()
    include: Sequence[Path] = ()
    run_unsafe_code: bool = False
    loading: Mapping[str, str | None] = field(default_factory=dict)


def run_experiment(
    experiment: Experiment,
    store: Store,
    options: RunOptions,
    progress: Progress,
    load: Callable[..., Subject] = Subject.load,
    warn: Callable[[str], None] = warnings.warn,
) -> None:
    """Make the rows of an experiment that the store does not have yet, and write the plan.

    Args:
        experiment: the experiment.
        store: the store of rows, read and written.
        options: how much to run, and with what.
        progress: called as rows are finished.
        load: loads a model by name.
        warn: called with what a later report will lack.

    Raises:
        SettingsError: there is no such cell, a setting is invalid, or no cell reads a given file of prompts.
        NoTexts: prompts need a file that was not given.
    """
    by_model: dict[str, list[Cell]] = {}
    selected = _selected(experiment, options)
    _check_files_are_used(experiment, selected, options)
    for cell in selected:
        name = options.model or (cell.model if options.setup == "paper" else None)
        by_model.setdefault(name or experiment.setup(options.setup).model, []).append(cell)
    for name, cells in by_model.items():
        subject = load(name, **options.loading)
        key = run_key(store, subject.model, options.key)
        planned = [
            plan_cell(experiment, cell, options.setup, subject, key, options.files, options.length) for cell in cells
        ]
        plan = {"length": options.length, "model": options.model}
        if dropped := write_plan(store, experiment, options.setup, planned, key, plan):
            warn(
                f"cells of an earlier run with another model or length leave the report: {', '.join(dropped)}; "
                "their texts are kept, so run these cells again to report them"
            )
        if experiment.view == "timing":
            machine = time_cells(store, planned, subject, options.limit)
            write_plan(store, experiment, options.setup, planned, key, plan, {"machine": machine})
            continue
        if experiment.view == "benchmark":
            _benchmarks(store, experiment, planned, subject, options, progress)
            continue
        for one in planned:
            make_texts(store, one, subject, options, progress)
        for one in planned:
            _attack(store, experiment, one, subject, options, progress)
        judges = {
            **_perplexities(store, experiment, planned, options, progress),
            **_ratings(store, experiment, planned, options, progress),
        }
        write_plan(store, experiment, options.setup, planned, key, plan, judges)


def _check_files_are_used(experiment: Experiment, cells: list[Cell], options: RunOptions) -> None:
    """Refuse a file of prompts that no cell reads."""
    sets = dict(experiment.prompt_set(cell, options.setup) for cell in cells)
    needed = {name for name, prompts in sets.items() if prompts.texts is None and not prompts.builtin}
    unused = sorted(name for name in options.files if name not in needed and (name or not needed))
    if unused:
        raise SettingsError(
            f"{options.files[unused[0]]} is not used: {experiment.name} needs "
            + (f"files for the prompt sets {', '.join(sorted(needed))}" if needed else "no file of prompts")
            + f" in setup {options.setup}"
        )


def _selected(experiment: Experiment, options: RunOptions) -> list[Cell]:
    cells = experiment.cells_of(options.setup)
    unknown = sorted(set(options.cells) - {cell.name for cell in cells})
    if unknown:
        raise SettingsError(
            f"{experiment.name} has no cell {', '.join(map(repr, unknown))} in setup {options.setup}; it has "
            + ", ".join(repr(cell.name) for cell in cells)
        )
    return [cell for cell in cells if not options.cells or cell.name in options.cells]


def run_key(store: Store, model: Denoiser, path: Path | None) -> WatermarkKey:
    """The key of a run: from a file, or the runs folder's own for this tokenizer and vocabulary.

    Raises:
        KeyFileError: the file is unusable.
    """
    if path is not None:
        return WatermarkKey.load(path)
    own = store.root / "keys" / f"{model.tokenizer.fingerprint}-{model.vocab_size}.json"
    if not own.exists():
        own.parent.mkdir(parents=True, exist_ok=True)
        WatermarkKey.generate(model, code_length=0).save(own)
    return WatermarkKey.load(own)


def make_texts(store: Store, planned: PlannedCell, subject: Subject, options: RunOptions, progress: Progress) -> None:
    """Generate the first texts of a cell, up to the limit, that are not in the store yet, a batch at a time.

    Raises:
        PromptTooLong: a prompt does not fit the model; raised before the first text is made.
    """
    texts = list(zip(planned.row_ids, planned.prompts, strict=True))[: options.limit]
    with store.open("texts", planned.recipe.hash, {"recipe": planned.recipe.hash}) as file:
        rows = RowRun([Task(row_id, prompt) for row_id, prompt in texts], file)
        todo = [task for task in rows.open if isinstance(task, Task)]
        prepared = prepare(planned, subject, [task.content for task in todo], pad=options.pad)
        places = {task.row_id: place for place, task in enumerate(todo)}

        def work(batch: list[Task[Prompt]]) -> list[Row]:
            return _text_rows(planned, prepared, [places[task.row_id] for task in batch], batch)

        done = rows.finished
        progress(planned.cell.name, done, rows.total)
        for batch in rows.batches(work, options.batch_size, ROW_VERSION):
            done += len(batch)
            progress(planned.cell.name, done, rows.total)


def _text_rows(
    planned: PlannedCell, prepared: Prepared, places: Sequence[int], batch: Sequence[Task[Prompt]]
) -> list[Row]:
    start = time.perf_counter()
    texts = generations(prepared, places)
    seconds = time.perf_counter() - start
    shared = {**planned.recipe.to_row(), "versions": versions(), "batch": len(batch), "batch_seconds": seconds}
    return [
        {
            "id": task.row_id,
            "prompt_id": task.content.prompt_id,
            "prompt": task.content.text,
            "seed": task.content.seed,
            "text": one.text,
            "token_ids": one.token_ids,
            "ended": one.ended,
            **shared,
        }
        for task, one in zip(batch, texts, strict=True)
    ]


def _attack(
    store: Store,
    experiment: Experiment,
    planned: PlannedCell,
    subject: Subject,
    options: RunOptions,
    progress: Progress,
) -> None:
    """Attack the marked texts of a cell."""
    if planned.cell.scheme is None or not experiment.attacks_of(options.setup):
        return
    texts = store.read("texts", planned.recipe.hash, planned.row_ids[: options.limit])
    for attack in experiment.attacks_of(options.setup):
        for value in filter(None, attack.values):  # at strength 0 the report reads the texts themselves
            make_attacked(store, attack, value, texts, subject.model.tokenizer, subject.model)
            progress(f"{planned.cell.name}, {attack.label} {value:g}", len(texts), len(texts))


def _perplexities(
    store: Store, experiment: Experiment, planned: Sequence[PlannedCell], options: RunOptions, progress: Progress
) -> dict[str, Any]:
    """Compute the perplexity of all texts in the store, if the experiment uses it; return the judge, for the plan."""
    name = options.judge or experiment.setup(options.setup).judge
    if "perplexity" not in experiment.measures or name == NO_JUDGE:
        return {}
    judge = load_judge(name)
    identity = judge_identity(judge)
    for one in planned:
        texts = _texts(store, one)
        make_perplexities(store, judge, identity, texts)
        progress(f"{one.cell.name}, perplexity", len(texts), len(texts))
    return {"judge": identity}


def _ratings(
    store: Store, experiment: Experiment, planned: Sequence[PlannedCell], options: RunOptions, progress: Progress
) -> dict[str, Any]:
    """Have all texts in the store rated, if the experiment uses ratings and there is a rater; return the rater."""
    if "judge" not in experiment.measures or options.rater is None:
        return {}
    for one in planned:
        texts = _texts(store, one)
        rated = make_ratings(store, options.rater, texts)
        progress(f"{one.cell.name}, ratings", rated, len(texts))
    return {"rater": rater_hash(options.rater)}


def _benchmarks(
    store: Store,
    experiment: Experiment,
    planned: Sequence[PlannedCell],
    subject: Subject,
    options: RunOptions,
    progress: Progress,
) -> None:
    """Run the experiment's tasks, or those that the options name.

    Raises:
        MissingExtra: the harness is not installed.
    """
    try:
        from dgmark_lab.experiments.benchmarking import BenchmarkOptions, make_benchmark
    except ImportError as error:
        raise MissingExtra(
            f"benchmarks need the lm-evaluation-harness: {install_hint('bench', './lab')} ({error})"
        ) from None
    answering = BenchmarkOptions(
        options.include, options.limit, options.batch_size, options.run_unsafe_code, options.length
    )
    for task in options.tasks or experiment.tasks:
        for one in planned:
            make_benchmark(store, one, subject, task, answering)
            progress(f"{one.cell.name}, {task}", 1, 1)


def _texts(store: Store, planned: PlannedCell) -> list[Row]:
    return list(store.read("texts", planned.recipe.hash, planned.row_ids).values())
