"""The stored rows of a run, cell by cell, and their scores. Needs neither the model nor torch."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from dgmark.checkpoint.tokenizer import Tokenizer
from dgmark.detection.detector import Detector
from dgmark.detection.reading.reader import Reader
from dgmark.detection.statistics.position import PositionOptions
from dgmark.detection.statistics.rules import rule_test
from dgmark.errors import KeyFileError, SettingsError
from dgmark.rows.item import Row
from dgmark.watermark.key import SECRET_BYTES, WatermarkKey
from dgmark_lab.baselines.published import ReadsPrompts
from dgmark_lab.experiments.conditions import Condition, Steps
from dgmark_lab.experiments.spec import Cell, Experiment, SetupName
from dgmark_lab.experiments.store import ROW_VERSION, Kind, Store, digest
from dgmark_lab.rule_keys import rule_key

_NULL_SEED = 11
# the smallest rate that a report shows; detectors that re-draw keys draw enough keys for it
RATE = 1e-4
# what unmarked texts are scored under: the paper's i mod 2
_UNMARKED = "position"


def keys_of(store: Store, path: Path | None) -> dict[str, WatermarkKey]:
    """Load the keys of runs by fingerprint: those in the runs folder, and one from a file.

    Raises:
        KeyFileError: a file is not a key.
    """
    own = sorted((store.root / "keys").glob("*.json"))
    keys = [WatermarkKey.load(file) for file in [*own, *([] if path is None else [path])]]
    return {key.fingerprint: key for key in keys}


def cell_keys(base: WatermarkKey, cell: Cell, count: int) -> list[WatermarkKey]:
    """Return the keys that mark a cell's texts in turn: one with the secret of the run's key, and others derived.

    Raises:
        SettingsError: an option is invalid, or there is no secret to make or derive keys from.
    """
    key = rule_key(cell.rule or _UNMARKED, base, **cell.options)
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


TextOrIds = str | Sequence[int]
PerText = Float[np.ndarray, " texts"]
# p-value, z, green fraction and number of scored tokens of a text
Scored = tuple[float, float, float, int]
Scorer = Callable[[TextOrIds, Row], Scored]  # of a text and its row


@dataclass(frozen=True)
class Scores:
    """p-value, z, green fraction and number of scored tokens of each text."""

    p: PerText
    z: PerText
    green: PerText
    tokens: PerText


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
        return self.key if len(self.keys) == 1 else self.keys[row["seed"] % len(self.keys)]

    def over(self, rows: Sequence[Row]) -> "CellRows":
        """Return the cell with other texts in the place of its own, to score them under its keys."""
        return replace(self, rows=list(rows))

    @property
    def name(self) -> str:
        """The cell's name."""
        return self.cell.name

    @property
    def temperature(self) -> float:
        """The temperature at which its texts were drawn, if it was run."""
        return float((self.plan or {})["settings"]["temperature"])

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
        texts: Sequence[TextOrIds],
        key: WatermarkKey | None = None,
        *,
        deployed: bool = False,
        normalise: Sequence[str] = (),
    ) -> Scores:
        """Score the cell's texts, their ids or parts of them under the cell's watermark.

        A rule that counts positions is told that the text begins at position 0, like the paper's z-test. With
        `deployed` it is told nothing, like `dgmark detect`. A test that reads prompts (`ReadsPrompts`) is given them.

        Args:
            texts: one text, or its token ids, for each of the cell's rows.
            key: the key of all of them; by default each has the key that marked it.
            deployed: whether to detect as `dgmark detect` does.
            normalise: disguises that are undone first.
        """
        keys = [key or self.key_of(row) for row in self.rows]
        scorers = {one.fingerprint: self._scorer(one, deployed=deployed, normalise=normalise) for one in keys}
        of_rows = zip(keys, texts, self.rows, strict=True)
        scored = [scorers[one.fingerprint](text, row) for one, text, row in of_rows]
        return Scores(*np.array(scored, dtype=float).reshape(-1, 4).T)

    def _scorer(self, key: WatermarkKey, *, deployed: bool, normalise: Sequence[str]) -> Scorer:
        """What scores a text of a row under a key."""
        test = rule_test(key)
        if isinstance(test, ReadsPrompts):

            def replay(text: TextOrIds, row: Row) -> Scored:
                ids = self.read([text])[0] if isinstance(text, str) else text
                one = test.after_prompt(key, row["prompt"], ids, chat=row["chat"], fpr=RATE)
                return one.p_value, one.z_score, one.matched / max(1, one.scored), one.scored

            return replay
        counts_positions = issubclass(test.options_type, PositionOptions)
        whole: dict[str, Any] = {"phase": "start"} if counts_positions and not deployed else {}
        detector = Detector(key, tokenizer=self.tokenizer, fpr=RATE, normalise=normalise, **whole)

        def detect(text: TextOrIds, _: Row) -> Scored:
            one = detector.detect(text)
            return one.p_value, one.z_score, one.green_fraction, one.num_tokens_scored

        return detect

    def null_keys(self, count: int) -> list[WatermarkKey]:
        """Make keys with the cell's spec and fixed random secrets, for false-positive rates; none if keyless."""
        if not self.keys or self.key.keyless:
            return []
        secrets = [np.random.default_rng([_NULL_SEED, number]).bytes(SECRET_BYTES) for number in range(count)]
        return [WatermarkKey(self.key.spec, f"null-{number}", secret) for number, secret in enumerate(secrets)]


@dataclass(frozen=True)
class StoredRun:
    """A stored run of an experiment: its plan, and its cells by name, in the order of the TOML file.

    Cells that were not run are among them.
    """

    experiment: Experiment
    setup: SetupName
    store: Store
    plan: Mapping[str, Any]
    cells: Mapping[str, CellRows]
    _null_scores: dict[tuple[str, str], list[Scores]] = field(default_factory=dict, repr=False, compare=False)

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

        Keys and tokenizers are given by fingerprint; a tokenizer that is not given is loaded by the name in the key.

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
        own = cell_keys(keys[planned["run_key"]], cell, self.experiment.keys)
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

    @property
    def complete(self) -> bool:
        """Whether every cell of the setup has all its texts."""
        return all(cell.complete for cell in self.to_run)

    @property
    def scored_under(self) -> Mapping[str, Condition]:
        """What is done to the texts before they are scored, by name."""
        return self.experiment.scored_under(self.setup)

    def null_of(self, cell: CellRows) -> CellRows | None:
        """Return the unmarked cell that a marked one is compared with, if it has texts."""
        name = self.experiment.null_of(cell.cell)
        null = None if name is None else self.cells[name]
        return null if null is not None and null.rows else None

    def null_scores(self, cell: CellRows, null: CellRows) -> list[Scores]:
        """Score the unmarked texts under the cell's key, then under each null key; computed once for equal inputs."""
        same = (null.name, cell.key.fingerprint)
        if same not in self._null_scores:
            keys = [cell.key, *cell.null_keys(self.experiment.null_keys)]
            self._null_scores[same] = [cell.over(null.rows).score(null.ids, one) for one in keys]
        return self._null_scores[same]

    def attacked(self, cell: CellRows, steps: Steps) -> CellRows:
        """Return a cell with its texts after attacks, one after the other, as far as they exist."""
        found = {row["id"]: row for row in cell.rows}
        for step in steps:
            name = attack_hash(*step)
            of = {attacked_id(name, before): row for before, row in found.items()}
            stored = self.store.read("attacked", name, of)
            found = {row_id: {**row, "text": stored[row_id]["text"]} for row_id, row in of.items() if row_id in stored}
        return cell.over([*found.values()])

    def nats_and_tokens(self, cell: CellRows) -> tuple[PerText, PerText]:
        """Read nats and tokens of the cell's texts under the run's judge, of those that it has read."""
        judged = self._read_by("perplexity", "judge", [row["id"] for row in cell.rows])
        nats, tokens = (np.array([float(row[name]) for row in judged]) for name in ("nats", "tokens"))
        return nats, tokens

    def ratings(self, cell: CellRows) -> list[Row]:
        """Read what the run's rater says of the cell's texts, where it was asked."""
        return self._read_by("ratings", "rater", [row["id"] for row in cell.rows])

    def pairs(self, cell: CellRows) -> dict[str, tuple[Row, Row]]:
        """The cell's texts beside the unmarked ones of their prompts, by the id of their comparison."""
        null = self.null_of(cell)
        unmarked = {} if null is None else {(row["prompt"], row["seed"]): row for row in null.rows}
        found = [(row, unmarked.get((row["prompt"], row["seed"]))) for row in cell.rows]
        return {digest([row["id"], other["id"]]): (row, other) for row, other in found if other is not None}

    def comparisons(self, cell: CellRows) -> list[Row]:
        """Read what the run's rater says of the cell's texts beside the unmarked ones of their prompts."""
        return self._read_by("comparisons", "rater", [*self.pairs(cell)])

    def _read_by(self, kind: Kind, role: Literal["judge", "rater"], ids: list[str]) -> list[Row]:
        """Read the rows of a kind that the run's judge or rater made, in the order of `ids`; none if it had none."""
        reader = self.plan.get(role)
        stored = {} if reader is None else self.store.read(kind, reader["hash"], ids)
        return [stored[row_id] for row_id in ids if row_id in stored]
