"""The stored rows of a planned experiment, cell by cell, and their scores. Needs neither the model nor torch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float

from dgmark.checkpoint.tokenizer import Tokenizer
from dgmark.detection.reader import Reader
from dgmark.errors import KeyFileError, SettingsError
from dgmark.rows.jsonl import Row
from dgmark.watermark.groups import SECRET_BYTES
from dgmark.watermark.key import WatermarkKey
from dgmark_lab.experiments.recipe import cell_key
from dgmark_lab.experiments.schemes import scorer
from dgmark_lab.experiments.spec import Cell, Experiment, SetupName
from dgmark_lab.experiments.store import Store

_NULL_SEED = 11


@dataclass(frozen=True)
class Scores:
    """p-value, z, green fraction and number of scored tokens of each text."""

    p: Float[np.ndarray, " texts"]
    z: Float[np.ndarray, " texts"]
    green: Float[np.ndarray, " texts"]
    tokens: Float[np.ndarray, " texts"]


@dataclass(frozen=True)
class CellRows:
    """A cell with its stored texts.

    Attributes:
        cell: the cell in the TOML file.
        plan: the run's record of the cell; None if it was not run.
        rows: its texts, in the order of the prompts.
        left_out: number of texts that are shorter than the setup's `min_tokens`.
        requested: number of texts of a complete cell.
        key: the cell's key; None if it was not run.
        tokenizer: the key's tokenizer; None if the cell was not run.
    """

    cell: Cell
    plan: Mapping[str, Any] | None
    rows: list[Row]
    left_out: int
    requested: int
    key: WatermarkKey | None
    tokenizer: Tokenizer | None

    @property
    def name(self) -> str:
        """The cell's name."""
        return self.cell.name

    @property
    def complete(self) -> bool:
        """Whether all requested texts exist."""
        return len(self.rows) + self.left_out >= self.requested

    @cached_property
    def ids(self) -> list[list[int]]:
        """Token ids of the texts, read back from the text as a checker would."""
        return self.read([row["text"] for row in self.rows])

    def read(self, texts: list[str]) -> list[list[int]]:
        """Encode texts with the key's tokenizer.

        Raises:
            SettingsError: the cell was not run.
        """
        if self.tokenizer is None:
            raise SettingsError(
                f"cell {self.name!r} was not run, so it has no texts: run it with `dgmark-lab experiment run`"
            )
        return self.tokenizer.encode_batch(texts) if texts else []

    @cached_property
    def scores(self) -> Scores:
        """The scores of the cell's texts under its own key."""
        return self.score(self.ids)

    def score(self, ids: Sequence[Sequence[int]], key: WatermarkKey | None = None, *, deployed: bool = False) -> Scores:
        """Score any texts under the cell's scheme and its key, or another key; for `deployed` see `scorer`.

        Raises:
            SettingsError: the cell was not run.
        """
        if self.key is None or self.tokenizer is None:
            raise SettingsError(
                f"cell {self.name!r} was not run, so it has no texts: run it with `dgmark-lab experiment run`"
            )
        detector = scorer(self.cell.scheme, self.cell.options, key or self.key, self.tokenizer, deployed=deployed)
        results = [detector.detect(list(one)) for one in ids]
        return Scores(
            p=np.array([one.p_value for one in results]),
            z=np.array([one.z_score for one in results]),
            green=np.array([one.green_fraction for one in results]),
            tokens=np.array([float(one.num_tokens_scored) for one in results]),
        )

    def null_keys(self, count: int) -> list[WatermarkKey]:
        """Make keys with the cell's spec and fixed random secrets, for false-positive rates; none if keyless."""
        if self.key is None or self.key.keyless:
            return []
        secrets = [np.random.default_rng([_NULL_SEED, number]).bytes(SECRET_BYTES) for number in range(count)]
        return [WatermarkKey(self.key.spec, f"null-{number}", secret) for number, secret in enumerate(secrets)]


def read_cells(
    store: Store,
    experiment: Experiment,
    setup: SetupName,
    plan: Mapping[str, Any],
    keys: Mapping[str, WatermarkKey],
    tokenizers: Mapping[str, Tokenizer],
) -> dict[str, CellRows]:
    """Read all cells of an experiment by name, including those that were not run.

    Args:
        store: the store of rows.
        experiment: the experiment.
        setup: the setup whose run to read.
        plan: the plan of the run.
        keys: keys of runs by fingerprint.
        tokenizers: tokenizers by fingerprint; others are loaded by the name in the key.

    Raises:
        KeyFileError: a run's key is not in `keys`.
    """
    return {cell.name: _cell_rows(store, experiment, cell, setup, plan, keys, tokenizers) for cell in experiment.cells}


def _cell_rows(
    store: Store,
    experiment: Experiment,
    cell: Cell,
    setup: SetupName,
    plan: Mapping[str, Any],
    keys: Mapping[str, WatermarkKey],
    tokenizers: Mapping[str, Tokenizer],
) -> CellRows:
    shared = experiment.setup(setup)
    planned = plan["cells"].get(cell.name)
    if planned is None:
        return CellRows(cell, None, [], 0, shared.texts, None, None)
    if planned["run_key"] not in keys:
        raise KeyFileError(f"cell {cell.name!r} was run with key {planned['run_key']}: give its file with --key")
    key = cell_key(keys[planned["run_key"]], cell.key)
    if planned["key_fingerprint"] not in (None, key.fingerprint):
        raise KeyFileError(
            f"the texts of cell {cell.name!r} were made under key {planned['key_fingerprint']}, and the cell's key is "
            f"{key.fingerprint} now: run the cell again with `dgmark-lab experiment run`"
        )
    stored = store.read("texts", planned["recipe"], planned["rows"])
    rows = [stored[row_id] for row_id in planned["rows"] if row_id in stored]
    least = experiment.min_tokens_of(cell, setup)
    long_enough = [row for row in rows if len(row["token_ids"]) >= least]
    tokenizer = tokenizers.get(key.spec.tokenizer_fingerprint) or Reader(key).tokenizer
    return CellRows(cell, planned, long_enough, len(rows) - len(long_enough), shared.texts, key, tokenizer)
