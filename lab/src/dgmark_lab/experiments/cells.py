"""The stored rows of a run, cell by cell, and their scores. Needs neither the model nor torch."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float

from dgmark.checkpoint.tokenizer import Tokenizer
from dgmark.detection.detector import Detector
from dgmark.detection.finding import Phase
from dgmark.detection.reader import Reader
from dgmark.detection.result import Scorer
from dgmark.errors import KeyFileError, SettingsError
from dgmark.rows.jsonl import Row
from dgmark.watermark.bigram import DISTANCES
from dgmark.watermark.key import SECRET_BYTES, WatermarkKey
from dgmark.watermark.rules import find_rule, spec_of
from dgmark.watermark.spec import options_of
from dgmark_lab.baselines import BASELINES, baseline_key
from dgmark_lab.baselines.replaymark import behind_prompt
from dgmark_lab.baselines.rules import REPLAYMARK
from dgmark_lab.experiments.conditions import Steps
from dgmark_lab.experiments.spec import DGMARK, Cell, Experiment, KeyOptions, SetupName
from dgmark_lab.experiments.store import ROW_VERSION, Kind, Store, digest

_NULL_SEED = 11
# the smallest rate that a report shows; detectors that re-draw keys draw enough keys for it
_FPR = 1e-4
# by the rule of a cell's key: the options that a spec needs, and the phase of a text of which nothing is missing
_DISTANCES: Mapping[str, Mapping[str, int]] = {
    "bigram": dict(zip(("nearest", "farthest"), DISTANCES, strict=True)),
    "position": {},
}
_PHASES: Mapping[str, Phase] = {"bigram": "any", "position": "start"}


def rule_settings(cell: Cell) -> Mapping[str, Any]:
    """Return the decoding settings that a cell's scheme has where none are given."""
    return BASELINES[cell.scheme].settings if cell.scheme in BASELINES else {}


def marking_key(cell: Cell, key: WatermarkKey) -> WatermarkKey:
    """Return the key that marks texts of a cell: one of its keys, or for a baseline the baseline's with that secret.

    Raises:
        SettingsError: no baseline or option has this name.
    """
    if cell.scheme == DGMARK and cell.options:
        raise SettingsError(f"scheme {DGMARK} has no option {', '.join(cell.options)}: its key holds its settings")
    return key if cell.scheme in (None, DGMARK) else baseline_key(str(cell.scheme), key, **cell.options)


def cell_key(base: WatermarkKey, options: KeyOptions) -> WatermarkKey:
    """Return the run's key with a cell's spec and the same secret.

    Raises:
        SettingsError: the spec is invalid, the run's key lacks the secret that it needs, or the run's key has sub-keys.
    """
    if base.spec.subkeys > 1:
        raise SettingsError(
            "an experiment marks all texts of a cell alike: give a key without sub-keys (`dgmark keygen --subkeys 1`)"
        )
    if options.rule not in _DISTANCES:
        raise SettingsError(
            f"keys of rule {options.rule} are not made for cells by their rule: name it as the cell's scheme, or give "
            f"a key of one of: {', '.join(_DISTANCES)}"
        )
    has = options_of(find_rule(options.rule).spec)
    # a code of length 0 is none
    given = {name: value for name, value in options.model_dump().items() if value is not None}
    changes = {name: value for name, value in given.items() if value or name in has}
    own = base.spec.to_fields()
    if base.spec.rule != options.rule:
        own = {name: own[name] for name in ("table_size", "tokenizer", "tokenizer_fingerprint")}
    spec = spec_of({**_DISTANCES[options.rule], **own, **changes})
    if spec == base.spec:
        return base
    if spec.keyed and base.secret is None:
        raise SettingsError("the run's key has no secret: give a keyed one (see `dgmark keygen`)")
    return replace(base, spec=spec, secret=base.secret if spec.keyed else None)


def cell_keys(base: WatermarkKey, options: KeyOptions, count: int) -> list[WatermarkKey]:
    """Return the keys that mark a cell's texts in turn: that of `cell_key`, and others derived from its secret.

    Raises:
        SettingsError: see `cell_key`; or there is no secret to derive keys from.
    """
    key = cell_key(base, options)
    if count > 1 and key.secret is None:
        raise SettingsError("an experiment with several keys needs a key with a secret (see `dgmark keygen`)")
    secrets = [hashlib.sha256(bytes([number]) + (key.secret or b"")).digest() for number in range(1, count)]
    return [key, *(replace(key, key_id=f"{key.key_id[:64]}-{n}", secret=one) for n, one in enumerate(secrets, 1))]


def attack_hash(name: str, options: Mapping[str, Any]) -> str:
    """Return the name of the file for an attack with these options."""
    return digest([name, options, ROW_VERSION])


def attacked_id(attack: str, text_id: str) -> str:
    """Return the id of an attacked text, from the attack's hash and the id of the text."""
    return digest([attack, text_id])


def pair_id(text_id: str, other_id: str) -> str:
    """Return the id of the comparison of two texts, from their ids."""
    return digest([text_id, other_id])


PerText = Float[np.ndarray, " texts"]


@dataclass(frozen=True)
class Scores:
    """p-value, z, green fraction and number of scored tokens of each text."""

    p: PerText
    z: PerText
    green: PerText
    tokens: PerText

    @classmethod
    def of(cls, texts: Sequence[tuple[float, float, float, int]]) -> "Scores":
        """The scores of texts, each by its p-value, z, green fraction and number of scored tokens."""
        return cls(*np.array(texts, dtype=float).reshape(-1, 4).T)


@dataclass(frozen=True)
class CellRows:
    """A cell with its stored texts.

    Attributes:
        cell: the cell in the TOML file.
        requested: number of texts of a complete cell.
        plan: the run's record of the cell; None if it was not run with these settings.
        rows: its texts, in the order of the prompts.
        left_out: number of texts that are shorter than the setup's `min_tokens`.
        keys: the cell's keys; text i is marked with key i modulo their number. None if the cell was not run.
        tokenizer: the key's tokenizer; None if the cell was not run.
    """

    cell: Cell
    requested: int
    plan: Mapping[str, Any] | None = None
    rows: list[Row] = field(default_factory=list)
    left_out: int = 0
    keys: Sequence[WatermarkKey] = ()
    tokenizer: Tokenizer | None = None

    @property
    def key(self) -> WatermarkKey:
        """The first of its keys."""
        return self.keys[0]

    def key_of(self, row: Row) -> WatermarkKey:
        """The key that marks a text of the cell."""
        number: int = row["seed"] % len(self.keys)
        return self.keys[number]

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
        assert self.tokenizer is not None  # a cell that was not run has no texts to read
        return self.tokenizer.encode_batch(texts) if texts else []

    @cached_property
    def scores(self) -> Scores:
        """The scores of the cell's texts under its own keys."""
        return self.score(self.ids)

    def score(
        self,
        texts: Sequence[Sequence[int] | str],
        key: WatermarkKey | None = None,
        *,
        deployed: bool = False,
        normalise: Sequence[str] = (),
        rows: Sequence[Row] | None = None,
    ) -> Scores:
        """Score texts or their ids under the cell's watermark.

        dgmark's detector assumes that the text begins at position 0, like the paper's z-test: one phase, exact test.
        With `deployed` it tries all phases, like `dgmark detect`. Baselines make no such difference. ReplayMark's
        detector also reads the prompts of the texts.

        Args:
            texts: texts, or token ids of texts.
            key: the key of all of them; by default each of the cell's texts has the key that marked it, so with several
                keys the texts have to be those of the cell, in their order.
            deployed: whether to detect as `dgmark detect` does.
            normalise: disguises that dgmark's detector undoes first.
            rows: the stored texts that these are, or come from; by default those of the cell.
        """
        if key is not None or len(self.keys) == 1:
            keys = [key or self.key] * len(texts)
        else:
            keys = [self.key_of(row) for row in self.rows]
        if self.cell.scheme == REPLAYMARK.name:
            return self._replayed(texts, keys, self.rows if rows is None else rows)
        scorers = {one.fingerprint: self._scorer(one, deployed=deployed, normalise=normalise) for one in keys}
        results = [scorers[one.fingerprint].detect(text) for one, text in zip(keys, texts, strict=True)]
        return Scores.of([(one.p_value, one.z_score, one.green_fraction, one.num_tokens_scored) for one in results])

    def _replayed(
        self, texts: Sequence[Sequence[int] | str], keys: Sequence[WatermarkKey], rows: Sequence[Row]
    ) -> Scores:
        """The scores of texts by ReplayMark's detector, which reads their prompts."""
        scores = [
            behind_prompt(
                marking_key(self.cell, key),
                row["prompt"],
                self.read([text])[0] if isinstance(text, str) else text,
                chat=row["chat"],
                fpr=_FPR,
            )
            for text, key, row in zip(texts, keys, rows, strict=True)
        ]
        return Scores.of([(one.p_value, one.z_score, one.matched / max(1, one.scored), one.scored) for one in scores])

    def _scorer(self, key: WatermarkKey, *, deployed: bool, normalise: Sequence[str]) -> Scorer:
        marked_by = marking_key(self.cell, key)
        if self.cell.scheme in BASELINES:
            return Detector(marked_by, tokenizer=self.tokenizer, fpr=_FPR)
        phase: Phase = "any" if deployed else _PHASES[key.spec.rule]
        return Detector(key, tokenizer=self.tokenizer, fpr=_FPR, normalise=normalise, phase=phase)

    def null_keys(self, count: int) -> list[WatermarkKey]:
        """Make keys with the cell's spec and fixed random secrets, for false-positive rates; none if keyless."""
        if not self.keys or self.key.keyless:
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
        plan = store.read_plan(experiment.plan_name(setup))
        run = cls(experiment.with_cells([*plan["cells"]]), setup, store, plan, {})
        cells = {cell.name: run._cell(cell, keys, tokenizers or {}) for cell in run.experiment.cells}
        return replace(run, cells=cells)

    def _cell(self, cell: Cell, keys: Mapping[str, WatermarkKey], tokenizers: Mapping[str, Tokenizer]) -> CellRows:
        requested = self.experiment.setup(self.setup).texts
        planned = self.plan["cells"].get(cell.name)
        if planned is None or digest(planned["definition"]) != digest(cell.definition):
            return CellRows(cell, requested)  # texts of other settings are not this cell's
        if planned["run_key"] not in keys:
            raise KeyFileError(f"cell {cell.name!r} was run with key {planned['run_key']}: give its file with --key")
        own = cell_keys(keys[planned["run_key"]], cell.key, self.experiment.keys)
        stored = self.store.read("texts", planned["recipe"], planned["rows"])
        rows = [stored[row_id] for row_id in planned["rows"] if row_id in stored]
        least = self.experiment.min_tokens_of(cell, self.setup)
        long_enough = [row for row in rows if len(row["token_ids"]) >= least]
        tokenizer = tokenizers.get(own[0].spec.tokenizer_fingerprint) or Reader(own[0]).tokenizer
        return CellRows(cell, requested, planned, long_enough, len(rows) - len(long_enough), own, tokenizer)

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
        same = (null.name, str(cell.cell.scheme), digest(dict(cell.cell.options)), cell.key.fingerprint)
        if same not in self._null_scores:
            keys = [cell.key, *cell.null_keys(self.experiment.null_keys)]
            self._null_scores[same] = [cell.score(null.ids, one, rows=null.rows) for one in keys]
        return self._null_scores[same]

    def attacked(self, cell: CellRows, steps: Steps) -> list[str]:
        """Read the texts of a cell after attacks, one after the other, as far as they exist."""
        found = {row["id"]: str(row["text"]) for row in cell.rows}
        for step in steps:
            name = attack_hash(*step)
            ids = [attacked_id(name, before) for before in found]
            stored = self.store.read("attacked", name, ids)
            found = {row_id: stored[row_id]["text"] for row_id in ids if row_id in stored}
        return list(found.values())

    def perplexities(self, cell: CellRows) -> list[Row]:
        """Read nats and tokens of the cell's texts under the run's judge, where they exist."""
        judge = self.plan.get("judge")
        if judge is None:
            return []
        return self._read_by("perplexity", judge, [row["id"] for row in cell.rows])

    def ratings(self, cell: CellRows) -> list[Row]:
        """Read what the run's rater says of the cell's texts, where it was asked."""
        rater = self.plan.get("rater")
        return [] if rater is None else self._read_by("ratings", rater, [row["id"] for row in cell.rows])

    def comparisons(self, cell: CellRows) -> list[Row]:
        """Read what the run's rater says of the cell's texts beside the unmarked ones of their prompts."""
        rater, null = self.plan.get("rater"), self.null_of(cell)
        if rater is None or null is None:
            return []
        unmarked = {(row["prompt"], row["seed"]): row["id"] for row in null.rows}
        found = [(row["id"], unmarked.get((row["prompt"], row["seed"]))) for row in cell.rows]
        ids = [pair_id(one, other) for one, other in found if other is not None]
        return self._read_by("comparisons", rater, ids)

    def _read_by(self, kind: Kind, reader: Mapping[str, Any], ids: list[str]) -> list[Row]:
        """Read the rows of a kind that a judge or rater made, in the order of `ids`."""
        stored = self.store.read(kind, reader["hash"], ids)
        return [stored[row_id] for row_id in ids if row_id in stored]
