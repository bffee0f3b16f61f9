"""The stored rows of a planned experiment, cell by cell, and how they score. Needs neither the model nor torch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float

from dgmark.checkpoint.tokenizer import Tokenizer
from dgmark.detection.reader import Reader
from dgmark.errors import KeyFileError, SettingsError
from dgmark.lab.experiments.recipe import cell_key
from dgmark.lab.experiments.schemes import scorer
from dgmark.lab.experiments.spec import Cell, Experiment, SetupName
from dgmark.lab.experiments.store import Store
from dgmark.rows.jsonl import Row
from dgmark.watermark.groups import SECRET_BYTES
from dgmark.watermark.key import WatermarkKey

_NULL_SEED = 11


@dataclass(frozen=True)
class Scores:
    """Of each text: p-value, z, green fraction and tokens scored."""

    p: Float[np.ndarray, " texts"]
    z: Float[np.ndarray, " texts"]
    green: Float[np.ndarray, " texts"]
    tokens: Float[np.ndarray, " texts"]


@dataclass(frozen=True)
class CellRows:
    """A cell with the texts that there are.

    Attributes:
        cell: as in the TOML file.
        plan: what the run wrote of it; None if it was not run.
        rows: its texts, in the order of the prompts.
        left_out: texts that are shorter than the setup's `min_tokens`.
        requested: texts of a complete cell.
        key: the cell's key; None if it was not run.
        tokenizer: the key's.
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
        """Whether all texts that were asked for are there."""
        return len(self.rows) + self.left_out >= self.requested

    @cached_property
    def ids(self) -> list[list[int]]:
        """Token ids of the texts, read back from the text as a checker would."""
        return self.read([row["text"] for row in self.rows])

    def read(self, texts: list[str]) -> list[list[int]]:
        """Token ids of texts under the key's tokenizer.

        Raises:
            SettingsError: the cell was not run.
        """
        if self.tokenizer is None:
            raise SettingsError(f"cell {self.name!r} was not run")
        return self.tokenizer.encode_batch(texts) if texts else []

    @cached_property
    def scores(self) -> Scores:
        """The cell's texts under its own key."""
        return self.score(self.ids)

    def score(self, ids: Sequence[Sequence[int]], key: WatermarkKey | None = None, *, deployed: bool = False) -> Scores:
        """Any texts under the cell's scheme and key, or another key; `deployed` as of `scorer`.

        Raises:
            SettingsError: the cell was not run.
        """
        if self.key is None or self.tokenizer is None:
            raise SettingsError(f"cell {self.name!r} was not run")
        detector = scorer(self.cell.scheme, self.cell.options, key or self.key, self.tokenizer, deployed=deployed)
        found = [detector.detect(list(one)) for one in ids]
        return Scores(
            p=np.array([one.p_value for one in found]),
            z=np.array([one.z_score for one in found]),
            green=np.array([one.green_fraction for one in found]),
            tokens=np.array([float(one.num_tokens_scored) for one in found]),
        )

    def null_keys(self, count: int) -> list[WatermarkKey]:
        """Keys of the cell's spec with fixed random secrets, for false-positive rates over keys; none if keyless."""
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
    """All cells of an experiment by name, those that were not run included.

    Args:
        store: the rows.
        experiment: the experiment.
        setup: whose run is read.
        plan: what the run wrote.
        keys: keys of runs by fingerprint.
        tokenizers: by fingerprint; others are found by the name that the key gives.

    Raises:
        KeyFileError: a run's key is not among them.
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
        raise KeyFileError(f"the cell {cell.name!r} was run with key {planned['run_key']}: give its file with --key")
    key = cell_key(keys[planned["run_key"]], cell.key)
    stored = store.read("texts", planned["recipe"], planned["rows"])
    rows = [stored[row_id] for row_id in planned["rows"] if row_id in stored]
    least = experiment.min_tokens_of(cell, setup)
    kept = [row for row in rows if len(row["token_ids"]) >= least]
    tokenizer = tokenizers.get(key.spec.tokenizer_fingerprint) or Reader(key).tokenizer
    return CellRows(cell, planned, kept, len(rows) - len(kept), shared.texts, key, tokenizer)
