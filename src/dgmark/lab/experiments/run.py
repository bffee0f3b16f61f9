"""Making what an experiment lacks: texts, attacked texts, times, perplexities and ratings. Each row is made once."""

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dgmark.decode.generation import generations
from dgmark.decode.prompts import Prepared
from dgmark.errors import MissingExtra, SettingsError, install_hint
from dgmark.lab.endpoint import Endpoint
from dgmark.lab.evaluate.judge import load_judge
from dgmark.lab.experiments.attacked_texts import make_attacked
from dgmark.lab.experiments.plan import PlannedCell, Subject, plan_cell, prepare, write_plan
from dgmark.lab.experiments.prompt_sets import Prompt
from dgmark.lab.experiments.recipe import ROW_VERSION, versions
from dgmark.lab.experiments.spec import Cell, Experiment, SetupName
from dgmark.lab.experiments.store import Store
from dgmark.lab.experiments.text_scores import judge_identity, make_perplexities, make_ratings, rater_hash
from dgmark.lab.experiments.timing import time_cells
from dgmark.models.denoiser import Denoiser
from dgmark.rows.jsonl import Row
from dgmark.rows.runner import RowRun, Task
from dgmark.watermark.key import WatermarkKey

NO_JUDGE = "none"

# (what is being made, how many are there, how many there are to be)
Tell = Callable[[str, int, int], None]


@dataclass(frozen=True)
class RunOptions:
    """How much of an experiment is run, and with what.

    Attributes:
        setup: "builtin" or "paper".
        model: instead of the setup's, and of the cells'.
        key: key file; by default one in the runs folder, made when it is missing.
        files: files of prompts, by name of the set; "" for any.
        cells: names of the cells to run; all of them if empty.
        limit: most texts a cell.
        length: most response tokens: for a quick look, into rows of their own.
        batch_size: most rows decoded at once.
        pad: decode prompts of different lengths together; None: where it pays.
        judge: model that perplexity is taken under; None: the setup's; "none": leave it out.
        rater: the language model that rates texts; None: nobody does.
        tasks: of view "benchmark", only these.
        include: folders of further task files.
        run_unsafe_code: let tasks execute what the model writes.
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
    tell: Tell,
    load: Callable[..., Subject] = Subject.load,
    warn: Callable[[str], None] = warnings.warn,
) -> None:
    """Make what the store lacks of an experiment, and write its plan.

    Args:
        experiment: the experiment.
        store: where rows are, and go.
        options: how much, and with what.
        tell: told of progress.
        load: how models are loaded.
        warn: told what a later report will miss.

    Raises:
        SettingsError: no such cell, or invalid settings.
        NoTexts: prompts that need a file.
    """
    by_model: dict[str, list[Cell]] = {}
    for cell in _selected(experiment, options):
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
                "their texts stay, run them again to have them back"
            )
        if experiment.view == "timing":
            machine = time_cells(store, planned, subject, options.limit)
            write_plan(store, experiment, options.setup, planned, key, plan, {"machine": machine})
            continue
        if experiment.view == "benchmark":
            _benchmarks(store, experiment, planned, subject, options, tell)
            continue
        for one in planned:
            make_texts(store, one, subject, options, tell)
        for one in planned:
            _attack(store, experiment, one, subject, options, tell)
        found = {
            **_perplexities(store, experiment, planned, options, tell),
            **_ratings(store, experiment, planned, options, tell),
        }
        write_plan(store, experiment, options.setup, planned, key, plan, found)


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
        KeyFileError: a file that cannot be used.
    """
    if path is not None:
        return WatermarkKey.load(path)
    own = store.root / "keys" / f"{model.tokenizer.vocabulary_fingerprint}-{model.vocab_size}.json"
    if not own.exists():
        own.parent.mkdir(parents=True, exist_ok=True)
        WatermarkKey.generate(model).save(own)
    return WatermarkKey.load(own)


def make_texts(store: Store, planned: PlannedCell, subject: Subject, options: RunOptions, tell: Tell) -> None:
    """Generate the first texts of a cell up to the limit, as far as they are not there, a batch at a time.

    Raises:
        PromptTooLong: a prompt does not fit the model; known before the first text is made.
    """
    wanted = list(zip(planned.row_ids, planned.prompts, strict=True))[: options.limit]
    with store.open("texts", planned.recipe.hash, {"recipe": planned.recipe.hash}) as file:
        rows = RowRun([Task(row_id, prompt) for row_id, prompt in wanted], file)
        todo = [task for task in rows.open if isinstance(task, Task)]
        prepared = prepare(planned, subject, [task.content for task in todo], pad=options.pad)
        places = {task.row_id: place for place, task in enumerate(todo)}

        def work(batch: list[Task[Prompt]]) -> list[Row]:
            return _text_rows(planned, prepared, [places[task.row_id] for task in batch], batch)

        done = rows.finished
        tell(planned.cell.name, done, rows.total)
        for batch in rows.batches(work, options.batch_size, ROW_VERSION):
            done += len(batch)
            tell(planned.cell.name, done, rows.total)


def _text_rows(
    planned: PlannedCell, prepared: Prepared, places: Sequence[int], batch: Sequence[Task[Prompt]]
) -> list[Row]:
    begun = time.perf_counter()
    made = generations(prepared, places)
    seconds = time.perf_counter() - begun
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
        for task, one in zip(batch, made, strict=True)
    ]


def _attack(
    store: Store,
    experiment: Experiment,
    planned: PlannedCell,
    subject: Subject,
    options: RunOptions,
    tell: Tell,
) -> None:
    """Attack the marked texts of a cell."""
    if planned.cell.scheme is None or not experiment.attacks_of(options.setup):
        return
    texts = store.read("texts", planned.recipe.hash, planned.row_ids[: options.limit])
    for attack in experiment.attacks_of(options.setup):
        for value in filter(None, attack.values):  # at strength 0 the texts themselves are read
            make_attacked(store, attack, value, texts, subject.model.tokenizer, subject.model)
            tell(f"{planned.cell.name}, {attack.label} {value:g}", len(texts), len(texts))


def _perplexities(
    store: Store, experiment: Experiment, planned: Sequence[PlannedCell], options: RunOptions, tell: Tell
) -> dict[str, Any]:
    """Take the perplexity of all texts that there are, if the experiment asks for it; the judge, for the plan."""
    name = options.judge or experiment.setup(options.setup).judge
    if "perplexity" not in experiment.measures or name == NO_JUDGE:
        return {}
    judge = load_judge(name)
    identity = judge_identity(judge)
    for one in planned:
        texts = _texts(store, one)
        make_perplexities(store, judge, identity, texts)
        tell(f"{one.cell.name}, perplexity", len(texts), len(texts))
    return {"judge": identity}


def _ratings(
    store: Store, experiment: Experiment, planned: Sequence[PlannedCell], options: RunOptions, tell: Tell
) -> dict[str, Any]:
    """Have all texts that there are rated, if the experiment asks for it and a rater is given."""
    if "judge" not in experiment.measures or options.rater is None:
        return {}
    for one in planned:
        texts = _texts(store, one)
        rated = make_ratings(store, options.rater, texts)
        tell(f"{one.cell.name}, ratings", rated, len(texts))
    return {"rater": rater_hash(options.rater)}


def _benchmarks(
    store: Store,
    experiment: Experiment,
    planned: Sequence[PlannedCell],
    subject: Subject,
    options: RunOptions,
    tell: Tell,
) -> None:
    """Run the experiment's tasks, or those that were asked for.

    Raises:
        MissingExtra: the harness is not installed.
    """
    try:
        from dgmark.lab.experiments.benchmarking import BenchmarkOptions, make_benchmark
    except ImportError as error:
        raise MissingExtra(f"benchmarks need the lm-evaluation-harness: {install_hint('bench')} ({error})") from None
    how = BenchmarkOptions(options.include, options.limit, options.batch_size, options.run_unsafe_code, options.length)
    for task in options.tasks or experiment.tasks:
        for one in planned:
            make_benchmark(store, one, subject, task, how)
            tell(f"{one.cell.name}, {task}", 1, 1)


def _texts(store: Store, planned: PlannedCell) -> list[Row]:
    return list(store.read("texts", planned.recipe.hash, planned.row_ids).values())
