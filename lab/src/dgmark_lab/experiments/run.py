"""Make the rows that an experiment still needs: texts, attacked texts, times, perplexities, ratings; each only once."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dgmark.decode.generation import generations
from dgmark.errors import MissingExtra, SettingsError
from dgmark.extras import install_hint
from dgmark.models.denoiser import Denoiser
from dgmark.rows.jsonl import Row
from dgmark.watermark.key import WatermarkKey
from dgmark_lab.evaluate.judge import load_judge
from dgmark_lab.experiments.measures import (
    judge_identity,
    make_attacked,
    make_perplexities,
    make_ratings,
    rater_hash,
    time_cells,
)
from dgmark_lab.experiments.plan import PlannedCell, RunOptions, Subject, plan_cell, write_plan
from dgmark_lab.experiments.spec import Cell, Experiment
from dgmark_lab.experiments.store import Store

NO_JUDGE = "none"

# (name of the current part, rows finished, rows in all)
Progress = Callable[[str, int, int], None]


def run_experiment(
    experiment: Experiment,
    store: Store,
    options: RunOptions,
    progress: Progress,
    load: Callable[..., Subject] = Subject.load,
) -> None:
    """Make the rows of an experiment that the store does not have yet, and write the plan.

    Args:
        experiment: the experiment.
        store: the store of rows, read and written.
        options: how much to run, and with what.
        progress: called as rows are finished.
        load: loads a model by name.

    Raises:
        SettingsError: there is no such cell, or a setting is invalid.
        NoTexts: prompts need a file that was not given.
    """
    by_model: dict[str, list[Cell]] = {}
    for cell in _selected(experiment, options):
        name = options.model or (cell.model if options.setup == "paper" else None)
        by_model.setdefault(name or experiment.setup(options.setup).model, []).append(cell)
    for name, cells in by_model.items():
        subject = load(name, **options.loading)
        key = run_key(store, subject.model, options.key)
        planned = [plan_cell(experiment, cell, subject, key, options) for cell in cells]
        write_plan(store, experiment, planned, key, options)
        facts = _Cells(experiment, store, options, progress, subject, planned).make()
        write_plan(store, experiment, planned, key, options, facts)


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


@dataclass(frozen=True)
class _Cells:
    """The cells of one model."""

    experiment: Experiment
    store: Store
    options: RunOptions
    progress: Progress
    subject: Subject
    planned: Sequence[PlannedCell]

    def make(self) -> dict[str, Any]:
        """Make all rows, and return the facts about the run that belong into its plan."""
        if self.experiment.view == "timing":
            return {"machine": time_cells(self.store, self.planned, self.subject, self.options.limit)}
        if self.experiment.view == "benchmark":
            self._benchmarks()
            return {}
        for one in self.planned:
            self._texts(one)
        for one in self.planned:
            self._attack(one)
        return {**self._perplexities(), **self._ratings()}

    def _texts(self, one: PlannedCell) -> None:
        """Generate the first texts of a cell, up to the limit.

        Raises:
            PromptTooLong: a prompt does not fit the model; raised before the first text is made.
        """
        prompts = one.prompts[: self.options.limit]
        prepared = one.prepare(self.subject, prompts, pad=self.options.pad)

        def make(places: list[int]) -> list[Row]:
            texts = zip(places, generations(prepared, places), strict=True)
            return [
                {
                    "prompt_id": prompts[place].prompt_id,
                    "prompt": prompts[place].text,
                    "seed": prompts[place].seed,
                    "text": text.text,
                    "token_ids": text.token_ids,
                    "ended": text.ended,
                    **one.recipe,
                }
                for place, text in texts
            ]

        todo = {one.row_ids[place]: place for place in range(len(prompts))}
        self.store.complete(
            "texts",
            one.hash,
            {"recipe": one.hash},
            todo,
            make,
            batch=self.options.batch_size,
            progress=lambda done: self.progress(one.cell.name, done, len(todo)),
        )

    def _attack(self, one: PlannedCell) -> None:
        """Attack the marked texts of a cell."""
        attacks = self.experiment.attacks_of(self.options.setup)
        if one.cell.scheme is None or not attacks:
            return
        texts = self.store.read("texts", one.hash, one.row_ids[: self.options.limit])
        for attack in attacks:
            for value in filter(None, attack.values):  # at strength 0 the report reads the texts themselves
                make_attacked(self.store, attack, value, texts, self.subject.model)
                self.progress(f"{one.cell.name}, {attack.label} {value:g}", len(texts), len(texts))

    def _perplexities(self) -> dict[str, Any]:
        """Compute the perplexity of all texts in the store, if the experiment uses it; return the judge."""
        name = self.options.judge or self.experiment.setup(self.options.setup).judge
        if "perplexity" not in self.experiment.measures or name == NO_JUDGE:
            return {}
        judge = load_judge(name)
        identity = judge_identity(judge)
        for one in self.planned:
            texts = self._stored(one)
            make_perplexities(self.store, judge, identity, texts)
            self.progress(f"{one.cell.name}, perplexity", len(texts), len(texts))
        return {"judge": identity}

    def _ratings(self) -> dict[str, Any]:
        """Have all texts in the store rated, if the experiment uses ratings and there is a rater; return the rater."""
        if "judge" not in self.experiment.measures or self.options.rater is None:
            return {}
        for one in self.planned:
            texts = self._stored(one)
            rated = make_ratings(self.store, self.options.rater, texts)
            self.progress(f"{one.cell.name}, ratings", rated, len(texts))
        return {"rater": rater_hash(self.options.rater)}

    def _benchmarks(self) -> None:
        """Run the experiment's tasks.

        Raises:
            MissingExtra: the harness is not installed.
        """
        try:
            from dgmark_lab.experiments.benchmarking import make_benchmark
        except ImportError as error:
            raise MissingExtra(
                f"benchmarks need the lm-evaluation-harness: {install_hint('bench', './lab')} ({error})"
            ) from None
        for task in self.experiment.tasks:
            for one in self.planned:
                make_benchmark(self.store, one, self.subject, task, self.options)
                self.progress(f"{one.cell.name}, {task}", 1, 1)

    def _stored(self, one: PlannedCell) -> list[Row]:
        return list(self.store.read("texts", one.hash, one.row_ids).values())
