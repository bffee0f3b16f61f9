"""The stored rows of a run, cell by cell, and their scores. Needs neither the model nor torch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float

from dgmark.checkpoint.tokenizer import Tokenizer
from dgmark.detection.detector import Detector
from dgmark.detection.reader import Reader
from dgmark.detection.result import Scorer
from dgmark.detection.rules import rule_of
from dgmark.errors import KeyFileError, SettingsError
from dgmark.rows.jsonl import Row
from dgmark.watermark.bigrams import DISTANCES
from dgmark.watermark.key import WatermarkKey
from dgmark.watermark.key_file import SECRET_BYTES
from dgmark.watermark.spec import spec_of
from dgmark_lab.baselines import Baseline, baseline
from dgmark_lab.experiments.spec import Attack, Cell, Experiment, KeyOptions, SetupName
from dgmark_lab.experiments.store import ROW_VERSION, Store, digest

DGMARK = "dgmark"

_NULL_SEED = 11
# the smallest rate that a report shows; detectors that re-draw keys draw enough keys for it
_FPR = 1e-4


def baseline_of(cell: Cell) -> Baseline | None:
    """Return the baseline of a cell with its options; None for no mark, and for dgMARK itself, which has no options.

    Raises:
        SettingsError: no baseline or option has this name.
    """
    if cell.scheme == DGMARK and cell.options:
        raise SettingsError(f"scheme {DGMARK} has no option {', '.join(cell.options)}: its key holds its settings")
    return None if cell.scheme in (None, DGMARK) else baseline(str(cell.scheme), **cell.options)


def cell_key(base: WatermarkKey, options: KeyOptions) -> WatermarkKey:
    """Return the run's key with a cell's spec: the same secret, unless the cell uses the keyless grouping.

    Raises:
        SettingsError: the spec is invalid, the cell is keyed but the run's key is keyless, or the run's key has
            sub-keys.
    """
    if base.spec.subkeys > 1:
        raise SettingsError(
            "an experiment marks all texts of a cell alike: give a key without sub-keys (`dgmark keygen --subkeys 1`)"
        )
    changes = {name: value for name, value in options.model_dump().items() if value is not None}
    own = base.spec.to_fields()
    if base.spec.rule != options.rule:
        own = {name: own[name] for name in ("table_size", "tokenizer", "tokenizer_fingerprint")}
    if options.rule == "bigram":
        own = dict(zip(("nearest", "farthest"), DISTANCES, strict=True)) | own
        changes = {name: value for name, value in changes.items() if value}  # a code of length 0 is none
    spec = spec_of({**own, **changes})
    if spec == base.spec:
        return base
    if spec.keyed and base.secret is None:
        raise SettingsError("the run's key has no secret: give a keyed one (see `dgmark keygen`)")
    return replace(base, spec=spec, secret=base.secret if spec.keyed else None)


def attack_hash(attack: Attack, value: float) -> str:
    """Return the name of the file for an attack at one strength."""
    return digest([attack.name, attack.options_at(value), ROW_VERSION])


def attacked_id(attack: str, text_id: str) -> str:
    """Return the id of an attacked text, from the attack's hash and the id of the text."""
    return digest([attack, text_id])


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
        requested: number of texts of a complete cell.
        plan: the run's record of the cell; None if it was not run with these settings.
        rows: its texts, in the order of the prompts.
        left_out: number of texts that are shorter than the setup's `min_tokens`.
        key: the cell's key; None if it was not run.
        tokenizer: the key's tokenizer; None if the cell was not run.
    """

    cell: Cell
    requested: int
    plan: Mapping[str, Any] | None = None
    rows: list[Row] = field(default_factory=list)
    left_out: int = 0
    key: WatermarkKey | None = None
    tokenizer: Tokenizer | None = None

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
        """Encode texts with the key's tokenizer."""
        return self._reading[1].encode_batch(texts) if texts else []

    @cached_property
    def scores(self) -> Scores:
        """The scores of the cell's texts under its own key."""
        return self.score(self.ids)

    def score(self, ids: Sequence[Sequence[int]], key: WatermarkKey | None = None, *, deployed: bool = False) -> Scores:
        """Score any texts under the cell's watermark and its key, or another key.

        dgmark's detector assumes that the text begins at position 0, like the paper's z-test: one phase, exact test.
        With `deployed` it tries all phases, like `dgmark detect`. Baselines make no such difference.
        """
        own, tokenizer = self._reading
        detector = self._scorer(key or own, tokenizer, deployed=deployed)
        results = [detector.detect(list(one)) for one in ids]
        return Scores(
            p=np.array([one.p_value for one in results]),
            z=np.array([one.z_score for one in results]),
            green=np.array([one.green_fraction for one in results]),
            tokens=np.array([float(one.num_tokens_scored) for one in results]),
        )

    def _scorer(self, key: WatermarkKey, tokenizer: Tokenizer, *, deployed: bool) -> Scorer:
        other = baseline_of(self.cell)
        if other is not None:
            return other.detector(key, fpr=_FPR, tokenizer=tokenizer)
        if deployed or "phase" not in rule_of(key.spec).settings:
            return Detector(key, tokenizer=tokenizer, fpr=_FPR)
        return Detector(key, tokenizer=tokenizer, fpr=_FPR, phase="start")

    @property
    def _reading(self) -> tuple[WatermarkKey, Tokenizer]:
        assert self.key is not None  # a cell that was not run has no texts to read
        assert self.tokenizer is not None
        return self.key, self.tokenizer

    def null_keys(self, count: int) -> list[WatermarkKey]:
        """Make keys with the cell's spec and fixed random secrets, for false-positive rates; none if keyless."""
        if self.key is None or self.key.keyless:
            return []
        secrets = [np.random.default_rng([_NULL_SEED, number]).bytes(SECRET_BYTES) for number in range(count)]
        return [WatermarkKey(self.key.spec, f"null-{number}", secret) for number, secret in enumerate(secrets)]


@dataclass(frozen=True)
class StoredRun:
    """A stored run of an experiment.

    Attributes:
        experiment: the experiment.
        setup: the setup that was run.
        store: the store of its rows.
        plan: the plan of the run.
        cells: its cells by name, in the order of the TOML file, including those that were not run.
    """

    experiment: Experiment
    setup: SetupName
    store: Store
    plan: Mapping[str, Any]
    cells: Mapping[str, CellRows]
    _null_scores: dict[tuple[str, ...], list[Scores]] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def read(
        cls,
        experiment: Experiment,
        store: Store,
        setup: SetupName,
        keys: Mapping[str, WatermarkKey],
        tokenizers: Mapping[str, Tokenizer] | None = None,
    ) -> "StoredRun":
        """Read the rows of a run; no model is loaded.

        Args:
            experiment: the experiment.
            store: the store of its rows.
            setup: the setup that was run.
            keys: the run's keys by fingerprint.
            tokenizers: tokenizers by fingerprint; others are loaded by the name in the key.

        Raises:
            NoTexts: the experiment was not run.
            KeyFileError: a key is missing.
        """
        run = cls(experiment, setup, store, store.read_plan(experiment.plan_name(setup)), {})
        return replace(run, cells={cell.name: run._cell(cell, keys, tokenizers or {}) for cell in experiment.cells})

    def _cell(self, cell: Cell, keys: Mapping[str, WatermarkKey], tokenizers: Mapping[str, Tokenizer]) -> CellRows:
        requested = self.experiment.setup(self.setup).texts
        planned = self.plan["cells"].get(cell.name)
        if planned is None or digest(planned["definition"]) != digest(cell.definition):
            return CellRows(cell, requested)  # texts of other settings are not this cell's
        if planned["run_key"] not in keys:
            raise KeyFileError(f"cell {cell.name!r} was run with key {planned['run_key']}: give its file with --key")
        key = cell_key(keys[planned["run_key"]], cell.key)
        stored = self.store.read("texts", planned["recipe"], planned["rows"])
        rows = [stored[row_id] for row_id in planned["rows"] if row_id in stored]
        least = self.experiment.min_tokens_of(cell, self.setup)
        long_enough = [row for row in rows if len(row["token_ids"]) >= least]
        tokenizer = tokenizers.get(key.spec.tokenizer_fingerprint) or Reader(key).tokenizer
        return CellRows(cell, requested, planned, long_enough, len(rows) - len(long_enough), key, tokenizer)

    @property
    def present(self) -> list[CellRows]:
        """The cells that have texts."""
        return [cell for cell in self.cells.values() if cell.rows]

    @property
    def to_run(self) -> list[CellRows]:
        """The cells that are run in this setup."""
        return [cell for cell in self.cells.values() if self.setup in cell.cell.setups]

    def null_of(self, cell: CellRows) -> CellRows | None:
        """Return the unmarked cell that a marked one is compared with, if it has texts."""
        name = self.experiment.null_of(cell.cell)
        null = None if name is None else self.cells[name]
        return null if null is not None and null.rows else None

    def null_scores(self, cell: CellRows, null: CellRows) -> list[Scores]:
        """Score the unmarked texts under the cell's key, then under each null key; computed once for equal inputs."""
        key = None if cell.key is None else cell.key.fingerprint
        same = (null.name, str(cell.cell.scheme), digest(dict(cell.cell.options)), str(key))
        if same not in self._null_scores:
            keys = [None, *cell.null_keys(self.experiment.null_keys)]
            self._null_scores[same] = [cell.score(null.ids, one) for one in keys]
        return self._null_scores[same]

    def attacked(self, cell: CellRows, attack: Attack, value: float) -> list[str]:
        """Read the attacked texts of a cell that exist; at strength 0, the texts themselves."""
        if not value:
            return [row["text"] for row in cell.rows]
        name = attack_hash(attack, value)
        ids = [attacked_id(name, row["id"]) for row in cell.rows]
        stored = self.store.read("attacked", name, ids)
        return [stored[row_id]["text"] for row_id in ids if row_id in stored]

    def perplexities(self, cell: CellRows) -> list[Row]:
        """Read nats and tokens of the cell's texts under the run's judge, where they exist; empty texts have none."""
        judge = self.plan.get("judge")
        if judge is None:
            return []
        stored = self.store.read("perplexity", judge["hash"], [row["id"] for row in cell.rows])
        return [stored[row["id"]] for row in cell.rows if row["id"] in stored and stored[row["id"]]["tokens"]]
