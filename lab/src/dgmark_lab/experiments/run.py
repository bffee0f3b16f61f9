"""Make the rows that an experiment still needs: texts, attacked texts, perplexities; each only once."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from dgmark.checkpoint.folder import BUILTIN, find_checkpoint
from dgmark.decode.texts.generation import generations
from dgmark.decode.texts.prepared import Prepared
from dgmark.decode.texts.requests import Request
from dgmark.errors import SettingsError
from dgmark.files.outputs import atomic_write
from dgmark.models.assembly import NARRATOR_BASE
from dgmark.models.chat import chat_prompt
from dgmark.models.denoiser import Denoiser
from dgmark.models.language_model import LanguageModel
from dgmark.models.load import load_model
from dgmark.rows.item import Row
from dgmark.watermark.key import WatermarkKey
from dgmark_lab import attacks
from dgmark_lab.baselines.replaymark import lend
from dgmark_lab.chat_endpoint import ChatEndpoint
from dgmark_lab.evaluate.likelihood import score_texts
from dgmark_lab.evaluate.rating import QUESTION_VERSION, Rater
from dgmark_lab.experiments.cells import StoredRun, attack_hash, attacked_id, keys_of
from dgmark_lab.experiments.plan import NO_JUDGE, PlannedCell, RunOptions, check_plan, plan_cell, write_plan
from dgmark_lab.experiments.prompt_sets import builtin_prompts
from dgmark_lab.experiments.spec import Cell, Experiment
from dgmark_lab.experiments.store import ROW_VERSION, Progress, Store, checkpoint_hash, digest
from dgmark_lab.experiments.views.rivals import make_scores
from dgmark_lab.options import defaults_of

_LEAST_SECONDS = 60  # a shorter time is not told


def load_with_hash(name: str, **loading: Any) -> tuple[Denoiser, str]:
    """Load a model (see `load_model`), and compute the hash of its weights.

    Raises:
        ModelError: the model is unavailable.
    """
    model = load_model(name, **loading)
    return model, checkpoint_hash(find_checkpoint(name).folder)


def run_experiment(
    experiment: Experiment,
    store: Store,
    options: RunOptions,
    progress: Progress,
    load: Callable[..., tuple[Denoiser, str]] = load_with_hash,
) -> None:
    """Make the rows of an experiment that the store does not have yet, and write the plan.

    `load` loads a model by its name, and computes the hash of its weights.

    Raises:
        SettingsError: there is no such cell, or a setting is invalid.
        NoTexts: prompts need a file that was not given.
    """
    by_model: dict[str, list[Cell]] = {}
    shared = experiment.setup(options.setup)
    selected = _selected(experiment.with_cells([*options.cells]), options)
    check_plan(experiment, selected, options)
    for cell in selected:
        by_model.setdefault(options.model or cell.model or shared.model, []).append(cell)
    for name, cells in by_model.items():
        model, model_hash = load(name, **options.loading)
        lend(model)
        key = run_key(store, model, options.key)
        planned = [plan_cell(experiment, cell, model, model_hash, key, options) for cell in cells]
        note = partial(write_plan, store, experiment, planned, key, options)
        note()
        ids = {one.hash: one.row_ids[: options.limit] for one in planned}
        missing = {name: len(wanted) - len(store.read("texts", name, wanted)) for name, wanted in ids.items()}
        left = TimeLeft({one.hash: _work(one, missing[one.hash]) for one in planned})
        for one in planned:
            _make_texts(store, one, model, options, progress, left)
        for one in planned:
            _make_attacked(experiment, store, one, model, options, progress)
        judge = options.judge or shared.judge
        if experiment.perplexity and judge != NO_JUDGE:
            note(judge=_judge_texts(store, planned, model, judge, progress))
        tokenizers = {model.tokenizer.fingerprint: model.tokenizer}
        run = partial(StoredRun.read, experiment, store, options.setup, keys_of(store, options.key), tokenizers)
        if experiment.view == "rivals":
            reader = _load_judge(shared.reader) if shared.reader else None
            identity = None if reader is None else judge_identity(reader)
            make_scores(run(), reader, identity, progress)
            note(reader=identity)
        if options.rater is not None:
            note(rater=_rate_texts(run(), [one.cell.name for one in planned], options.rater, progress))


def _selected(experiment: Experiment, options: RunOptions) -> list[Cell]:
    cells = experiment.cells_of(options.setup)
    unknown = sorted(set(options.cells) - {cell.name for cell in cells})
    if unknown:
        raise SettingsError(
            f"{experiment.name} has no cell {', '.join(map(repr, unknown))} in setup {options.setup}; it has "
            + ", ".join(repr(cell.name) for cell in cells)
            + "; a new one is written as setting=value, such as rule=kgw,delta=2"
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


class TimeLeft:
    """How long the texts that are still to be made take, at the pace of those that this run has made.

    It is given the work that is left of each cell, in any unit.
    """

    def __init__(self, left: Mapping[str, float]) -> None:
        self._left, self._made, self._start = dict(left), 0.0, time.monotonic()

    def after(self, cell: str, left: float) -> str:
        """Note what is left of a cell, and say how long all of them take: ", about 3 h left"; empty for a minute."""
        self._made += self._left[cell] - left
        self._left[cell] = left
        if not self._made:
            return ""
        seconds = sum(self._left.values()) * (time.monotonic() - self._start) / self._made
        if seconds < _LEAST_SECONDS:
            return ""
        return f", about {seconds / 3600:.1f} h left" if seconds > 5400 else f", about {seconds / 60:.0f} min left"


def _work(one: PlannedCell, texts: int) -> float:
    """The work of so many texts of a cell: tokens, times the forwards of a step."""
    ahead = one.config.lookahead
    return texts * one.config.length * (1 if ahead == 1 else 1 + ahead)


def _make_texts(
    store: Store, one: PlannedCell, model: Denoiser, options: RunOptions, progress: Progress, left: TimeLeft
) -> None:
    """Generate the first texts of a cell, up to the limit.

    Raises:
        PromptTooLong: a prompt does not fit the model; raised before the first text is made.
    """
    prompts = one.prompts[: options.limit]
    keys = [None] if one.cell.key is None else one.keys
    prepared = Prepared.of(
        model,
        [Request(prompt.text, prompt.seed, keys[prompt.seed % len(keys)]) for prompt in prompts],
        one.config,
        chat=one.recipe["chat"],
        pad=options.pad,
        batch_size=options.batch_size,
    )

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

    def tell(name: str, done: int, of: int) -> None:
        progress(name + left.after(one.hash, _work(one, of - done)), done, of)

    todo = {one.row_ids[place]: place for place in range(len(prompts))}
    same, batch = {"recipe": one.hash}, options.batch_size
    store.complete("texts", one.hash, same, todo, make, batch=batch, what=one.cell.name, progress=tell)


# --- attacked texts ---


def _make_attacked(
    experiment: Experiment, store: Store, one: PlannedCell, model: Denoiser, options: RunOptions, progress: Progress
) -> None:
    """Attack the marked texts of a cell under each condition."""
    if one.cell.key is None:
        return
    texts = store.read("texts", one.hash, one.row_ids[: options.limit])
    for name, condition in experiment.scored_under(options.setup).items():
        attacked: Mapping[str, Row] = texts
        for step in condition.steps:
            attacked = _make_step(store, *step, attacked, model)
        if condition.steps:  # the report reads texts that nothing is done to
            progress(f"{one.cell.name}, {name}", len(texts), len(texts))


def _make_step(
    store: Store, kind: str, options: dict[str, Any], texts: Mapping[str, Row], model: Any
) -> Mapping[str, Row]:
    """Attack texts once, each with its own random generator, and return the attacked ones by their own ids."""
    name, load = attack_hash(kind, options), cache(partial(_load_attack, store, kind, options, model))

    def make(batch: list[tuple[str, Row]]) -> list[Row]:
        changed = [load()(row["text"], np.random.default_rng(int(row_id, 16))) for row_id, row in batch]
        return [{"of": row["id"], "text": text} for (_, row), text in zip(batch, changed, strict=True)]

    todo = {row_id: (row_id, row) for row_id, row in ((attacked_id(name, one), row) for one, row in texts.items())}
    same = {"attack": name, "attack_name": kind, "attack_options": options}
    store.complete("attacked", name, same, todo, make, batch=8)
    return store.read("attacked", name, todo)


def _load_attack(store: Store, kind: str, options: Mapping[str, Any], model: Any) -> attacks.Attack:
    defaults = defaults_of(attacks.attack_kind(kind))
    own = {"tokenizer": model.tokenizer, "model": model}
    given: dict[str, Any] = {name: thing for name, thing in own.items() if defaults.get(name) == BUILTIN}
    if "hosts" in defaults and "hosts" not in options:  # human text: passages of books in the public domain
        hosts = store.root / "human.jsonl"
        atomic_write(hosts, "".join(json.dumps({"text": prompt}) + "\n" for prompt in builtin_prompts()))
        given["hosts"] = str(hosts)
    whole = {name: int(value) for name, value in options.items() if type(defaults.get(name)) is int}
    return attacks.attack(kind, **{**given, **options, **whole})


# --- perplexity ---


def _load_judge(name: str) -> LanguageModel:
    return LanguageModel(name, dtype="fp32" if name == NARRATOR_BASE else None)


def judge_identity(judge: LanguageModel) -> dict[str, Any]:
    """Return name, weights and number format of a judge, and their hash, which names the file of its scores."""
    known = {"weights": checkpoint_hash(judge.folder), "dtype": judge.dtype}
    return {"name": judge.name, **known, "hash": digest([known, ROW_VERSION])}


def _judge_texts(
    store: Store, planned: Sequence[PlannedCell], model: Denoiser, name: str, progress: Progress
) -> dict[str, Any]:
    """Compute the perplexity of each text that has none yet, after its prompt, and return the judge's identity.

    The narrator's base reads the narrator's texts after their prompts as a chat, as they were written.
    """
    judge = _load_judge(name)
    identity = judge_identity(judge)

    def make(batch: list[Row]) -> list[Row]:
        prompts = [chat_prompt(model, row["prompt"]) if name == NARRATOR_BASE else row["prompt"] for row in batch]
        scored = score_texts(judge, [row["text"] for row in batch], prompts)
        return [{"nats": one.nats, "tokens": one.tokens} for one in scored]

    same = {"judge": identity["hash"], "judge_name": identity["name"]}
    for one in planned:
        rows = store.read("texts", one.hash, one.row_ids)
        store.complete("perplexity", identity["hash"], same, rows, make)
        progress(f"{one.cell.name}, perplexity", len(rows), len(rows))
    return identity


# --- ratings by a language model ---


def _rate_texts(run: StoredRun, cells: Sequence[str], server: str, progress: Progress) -> dict[str, Any]:
    """Rate each text of some cells, and compare it with the unmarked text of its prompt, as far as it was not done yet.

    Returns name and settings of the rater, and their hash, which names the files of its answers.
    """
    rater = Rater(ChatEndpoint.at(server))
    known: Row = {"name": rater.endpoint.name, "temperature": rater.temperature, "questions": QUESTION_VERSION}
    identity = {**known, "hash": digest([known, ROW_VERSION])}
    same = {"rater": identity["hash"], "rater_name": identity["name"]}
    complete = partial(run.store.complete, name=identity["hash"], same=same, batch=4, progress=progress)

    def rated(batch: list[Row]) -> list[Row]:
        return [asdict(rater.rate(row["text"], row["seed"])) for row in batch]

    def compared(batch: list[tuple[Row, Row]]) -> list[Row]:
        return [rater.compare(row["text"], other["text"], row["seed"]) for row, other in batch]

    for cell in (run.cells[name] for name in cells):
        texts, pairs = {row["id"]: row for row in cell.rows}, run.pairs(cell)
        complete("ratings", todo=texts, make=rated, what=f"{cell.name}, ratings")
        if pairs:
            complete("comparisons", todo=pairs, make=compared, what=f"{cell.name}, comparisons")
    return identity
