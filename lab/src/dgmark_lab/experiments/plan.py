"""From an experiment and a model to the texts that make each cell: settings, prompts, seeds and row ids.

A recipe is all that determines a text except its prompt and seed; cells with one recipe share their texts, even across
experiments. The plan is stored with the rows, so that a report needs neither the model nor torch.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from dgmark.checkpoint.folder import find_checkpoint
from dgmark.decode import DecodeConfig
from dgmark.decode.texts.prepared import check_marking
from dgmark.errors import NoTexts, SettingsError
from dgmark.models.assembly import NARRATOR_BASE
from dgmark.models.chat import template_of
from dgmark.models.denoiser import Denoiser, traits_of
from dgmark.models.language_model import BUILTIN_JUDGE
from dgmark.watermark.key import WatermarkKey
from dgmark.watermark.rules import find_rule
from dgmark_lab.experiments.cells import cell_keys
from dgmark_lab.experiments.prompt_sets import Prompt, load_prompts
from dgmark_lab.experiments.spec import Cell, Experiment, SetupName
from dgmark_lab.experiments.store import ROW_VERSION, Store, digest

NO_JUDGE = "none"


@dataclass(frozen=True)
class RunOptions:
    """How much of an experiment is run, and with what.

    Attributes:
        setup: "builtin" or "paper".
        model: model to use instead of the setup's and of the cells'.
        key: key file; by default one in the runs folder, made when it is missing.
        files: files of prompts, by name of the set.
        cells: the cells to run, by name or written out (`Cell.parse`); all of them if empty.
        limit: largest number of texts in a cell.
        length: largest number of response tokens, for a quick look; such texts have rows of their own.
        batch_size: largest number of rows decoded at once.
        pad: decode prompts of different lengths together; None: where it is faster.
        judge: model that computes perplexities; None: the setup's; "none": no perplexities.
        rater: address of the server of a language model that rates the texts (`ChatEndpoint.at`); None: no ratings.
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
    rater: str | None = None
    loading: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True)
class PlannedCell:
    """One cell, planned for one model.

    Attributes:
        cell: the cell as in the TOML file.
        recipe: the fields that all its rows share; "recipe" is the hash of everything that determines them.
        config: its decoding settings.
        keys: its keys, in turn one for each text; an unmarked cell's texts are scored under them.
        prompts: its prompts in order; one text is made for each.
    """

    cell: Cell
    recipe: dict[str, Any]
    config: DecodeConfig
    keys: list[WatermarkKey]
    prompts: list[Prompt]

    @property
    def hash(self) -> str:
        """The name of the file that holds its texts."""
        return str(self.recipe["recipe"])

    @cached_property
    def row_ids(self) -> list[str]:
        """The ids of its texts, in the order of the prompts."""
        return [digest([self.hash, prompt.text, prompt.seed]) for prompt in self.prompts]


def check_plan(experiment: Experiment, cells: Sequence[Cell], options: RunOptions) -> None:
    """Check what can be checked before a model is fetched: prompts, decoding settings and the judge.

    Of a judge on the hub its small files are fetched, which a gated model refuses to those who have not accepted its
    licence.

    Raises:
        SettingsError: a setting is invalid.
        NoTexts: the prompts need a file.
        ModelNotFound: there is no such judge, or it cannot be fetched.
    """
    shared = experiment.setup(options.setup)
    for cell in cells:
        DecodeConfig(**_settings(experiment, cell, options))
        load_prompts(*experiment.prompt_set(cell, options.setup), shared.texts, options.files)
    judge = options.judge or shared.judge
    if experiment.perplexity and judge not in (NO_JUDGE, NARRATOR_BASE, BUILTIN_JUDGE):
        find_checkpoint(judge)


def plan_cell(
    experiment: Experiment, cell: Cell, model: Denoiser, model_hash: str, key: WatermarkKey, options: RunOptions
) -> PlannedCell:
    """Plan a cell for this model, whose weights have this hash.

    Raises:
        SettingsError: a setting is invalid.
        NoTexts: the prompts need a file.
        KeyFileError: the key is bound to another model.
    """
    shared = experiment.setup(options.setup)
    name, prompts = experiment.prompt_set(cell, options.setup)
    keys = cell_keys(key, cell, experiment.keys)
    marked_by = None if cell.key is None else keys[0]
    config = _config(experiment, cell, model, options)
    key.check_model(model)
    check_marking(model, marked_by, config)
    traits, chat = traits_of(model), False
    with suppress(SettingsError):  # a base model, or the storyteller, has no template
        chat = prompts.chat and bool(template_of(model))
    fields = {
        "model_hash": model_hash,
        "tokenizer_hash": model.tokenizer.fingerprint,
        "dtype": traits.number_format,
        "chat": chat,
        "rule": cell.rule,
        "key_fingerprint": None if marked_by is None else marked_by.fingerprint,
        "settings": config.to_dict(),
        **({"keys": len(keys)} if marked_by is not None and len(keys) > 1 else {}),
    }
    return PlannedCell(
        cell=cell,
        recipe={"recipe": recipe_hash(fields), "model": traits.name, "options": cell.options, **fields},
        config=config,
        keys=keys,
        prompts=load_prompts(name, prompts, shared.texts, options.files),
    )


def recipe_hash(fields: Mapping[str, Any]) -> str:
    """Hash all that determines a text except prompt and seed.

    Settings at their default do not count, so a setting that is added later leaves the hash unchanged.
    """
    defaults = DecodeConfig().to_dict()
    changed = {name: value for name, value in fields["settings"].items() if (name, value) not in defaults.items()}
    return digest({**fields, "settings": changed, "row_version": ROW_VERSION})


def _config(experiment: Experiment, cell: Cell, model: Denoiser, options: RunOptions) -> DecodeConfig:
    """The cell's decoding settings; with a `length`, of shortened responses."""
    config, length = DecodeConfig.of(model, **_settings(experiment, cell, options)), options.length
    if length is None or length >= config.length:
        return config
    shortened = replace(config, length=length, steps=None)
    if config.steps is None:
        return shortened
    return replace(shortened, steps=config.steps // config.block_count * shortened.block_count)


def _settings(experiment: Experiment, cell: Cell, options: RunOptions) -> dict[str, Any]:
    """The decoding settings that the rule, the setup and the cell state, the later ones over the earlier."""
    of_rule = {} if cell.rule is None else find_rule(cell.rule).settings
    return {**of_rule, **experiment.setup(options.setup).decoding, **cell.decoding}


def write_plan(
    store: Store,
    experiment: Experiment,
    planned: Sequence[PlannedCell],
    key: WatermarkKey,
    options: RunOptions,
    **readers: dict[str, Any] | None,
) -> None:
    """Add cells to the plan of an experiment: which rows they consist of. They replace cells of the same name.

    Cells of a run with another model or length than `options` state are dropped. `key` is the run's, and `readers` are
    its "judge", "reader" and "rater", as far as it had them; else the plan keeps that of the run before.
    """
    name = experiment.plan_name(options.setup)
    before: Mapping[str, Any] = {}
    with suppress(NoTexts):  # it was not run yet
        before = store.read_plan(name)
    shared = {"length": options.length, "model": options.model}
    if any(before.get(field) != value for field, value in shared.items()):
        before = {}
    new = {
        one.cell.name: {
            **one.recipe,
            "key_fingerprint": one.keys[0].fingerprint,
            "run_key": key.fingerprint,
            "rows": one.row_ids,
            "definition": one.cell.definition,
        }
        for one in planned
    }
    of_before = {name: before.get(name) for name in ("judge", "reader", "rater")}
    plan = {"experiment": experiment.name, "setup": options.setup, **shared, **of_before, **readers}
    store.write_plan(name, {**plan, "cells": {**before.get("cells", {}), **new}})
