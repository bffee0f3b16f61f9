"""From an experiment and a model to the texts that make each cell: recipes, prompts, seeds and row ids.

The plan is stored with the rows, so that a report needs neither the model nor torch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from dgmark.checkpoint.folder import find_checkpoint
from dgmark.decode import DecodeConfig
from dgmark.decode.prompts import Prepared, Request, steering_of
from dgmark.errors import SettingsError
from dgmark.models.denoiser import Denoiser, traits_of
from dgmark.models.load import load_model
from dgmark.watermark.key import WatermarkKey
from dgmark_lab.experiments.prompt_sets import Prompt, load_prompts
from dgmark_lab.experiments.recipe import Recipe, cell_key, checkpoint_hash
from dgmark_lab.experiments.schemes import load_scheme, scheme_options
from dgmark_lab.experiments.spec import Cell, Experiment, SetupName
from dgmark_lab.experiments.store import Store

PLAN_VERSION = 1

# facts that a run adds to the plan; a later run of other cells leaves them as they are
_RUN_FACTS = ("judge", "machine", "rater")


@dataclass(frozen=True)
class Subject:
    """A loaded model and the hash of its weights."""

    model: Denoiser
    model_hash: str

    @classmethod
    def load(cls, name: str, **loading: str | None) -> "Subject":
        """Load a model (see `load_model`), and compute the hash of its weights.

        Raises:
            ModelError: the model is unavailable.
        """
        model = load_model(name, **loading)
        quantization = loading.get("quantization") or ""
        return cls(model, checkpoint_hash(find_checkpoint(name, loading.get("revision")).folder) + quantization)


@dataclass(frozen=True)
class PlannedCell:
    """One cell, planned for one model.

    Attributes:
        cell: the cell as in the TOML file.
        recipe: everything that determines its texts.
        config: its decoding settings.
        key: its key; for an unmarked cell, the run's key, with which its texts are scored.
        prompts: its prompts in order; one text is made for each.
    """

    cell: Cell
    recipe: Recipe
    config: DecodeConfig
    key: WatermarkKey
    prompts: list[Prompt]

    @cached_property
    def row_ids(self) -> list[str]:
        """The ids of its texts, in the order of the prompts."""
        return [self.recipe.row_id(prompt.text, prompt.seed) for prompt in self.prompts]


def plan_cell(
    experiment: Experiment,
    cell: Cell,
    setup: SetupName,
    subject: Subject,
    key: WatermarkKey,
    files: Mapping[str, Path],
    length: int | None = None,
) -> PlannedCell:
    """Plan a cell for this model.

    Args:
        experiment: the experiment of the cell.
        cell: the cell.
        setup: the setup whose prompts and decoding settings are used.
        subject: the model.
        key: the run's key.
        files: files of prompts, by name of the set.
        length: largest number of response tokens, for a quick look; shortens longer responses.

    Raises:
        SettingsError: a setting is invalid.
        NoTexts: the prompts need a file.
        KeyFileError: the key is bound to another model.
    """
    shared = experiment.setup(setup)
    name, prompts = experiment.prompt_set(cell, setup)
    own = {**cell.decoding, **(cell.builtin_decoding if setup == "builtin" else {})}
    scheme = load_scheme(cell.scheme, cell.options)
    settings: dict[str, Any] = {**(scheme.defaults if scheme else {}), **shared.decoding, **own}
    config = DecodeConfig.of(subject.model, **settings)
    if length is not None and length < config.length:
        config = DecodeConfig.of(subject.model, **{**settings, **_shortening(config, length)})
    key.check_model(subject.model)
    own_key = cell_key(key, cell.key)
    steering_of(subject.model, None if cell.scheme is None else own_key, scheme).check(config)
    traits = traits_of(subject.model)
    return PlannedCell(
        cell=cell,
        recipe=Recipe(
            model=traits.name,
            model_hash=subject.model_hash,
            tokenizer_hash=subject.model.tokenizer.fingerprint,
            dtype=traits.number_format,
            chat=prompts.chat and setup == "paper",
            scheme=cell.scheme,
            options=scheme_options(cell.scheme, cell.options),
            key_fingerprint=None if cell.scheme is None else own_key.fingerprint,
            settings=config.to_dict(),
            # texts of before the guard keep their hash
            defaults={**DecodeConfig().to_dict(), "round_trip_guard": False},
        ),
        config=config,
        key=own_key,
        prompts=load_prompts(name, prompts, shared.texts, files),
    )


def prepare(
    planned: PlannedCell, subject: Subject, prompts: Sequence[Prompt], *, pad: bool | None = None, batch_size: int = 8
) -> Prepared:
    """Prepare prompts of a cell for decoding.

    Raises:
        PromptTooLong: a prompt does not fit the model.
    """
    key = None if planned.cell.scheme is None else planned.key
    return Prepared.of(
        subject.model,
        [Request(prompt.text, prompt.seed, key) for prompt in prompts],
        planned.config,
        scheme=load_scheme(planned.cell.scheme, planned.cell.options),
        chat=planned.recipe.chat,
        pad=pad,
        batch_size=batch_size,
    )


def _shortening(config: DecodeConfig, length: int) -> dict[str, Any]:
    block = min(config.block_length, length)
    if length % block:
        raise SettingsError(f"length {length} is not a multiple of block length {block}; choose one that is")
    steps = None if config.steps is None else max(config.steps * length // config.length, length // block)
    return {"length": length, "block_length": block, "steps": steps}


def write_plan(
    store: Store,
    experiment: Experiment,
    setup: SetupName,
    planned: Sequence[PlannedCell],
    key: WatermarkKey,
    shared: dict[str, Any],
    facts: dict[str, Any] | None = None,
) -> list[str]:
    """Add cells to the plan of an experiment: which rows they consist of.

    Args:
        store: the store that holds the plan.
        experiment: the experiment.
        setup: the setup.
        planned: the cells; they replace cells of the same name.
        key: the run's key.
        shared: values that all cells of a plan have in common; cells planned with other values are dropped.
        facts: facts about the run that the plan records: the judge, the machine, the rater.

    Returns:
        The names of the cells that were dropped and not replaced.
    """
    name = experiment.plan_name(setup)
    before = store.read_plan(name) if store.has_plan(name) else {}
    dropped: list[str] = []
    if any(before.get(field) != value for field, value in shared.items()):
        dropped = [cell for cell in before.get("cells", {}) if cell not in {one.cell.name for one in planned}]
        before = {}
    cells = {**before.get("cells", {}), **{one.cell.name: _planned_row(one, key) for one in planned}}
    known: dict[str, Any] = {field: before[field] for field in _RUN_FACTS if field in before}
    plan = {"version": PLAN_VERSION, "experiment": experiment.name, "setup": setup, **shared}
    store.write_plan(name, {**plan, **known, **(facts or {}), "cells": cells})
    return dropped


def _planned_row(one: PlannedCell, key: WatermarkKey) -> dict[str, Any]:
    return {
        **one.recipe.to_row(),
        "key_fingerprint": one.key.fingerprint,
        "run_key": key.fingerprint,
        "prompt_ids": [prompt.prompt_id for prompt in one.prompts],
        "rows": one.row_ids,
        "definition": one.cell.definition,
    }
