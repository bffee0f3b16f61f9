"""The store of rows: JSON Lines files under one folder, each row under the hash of everything that determines it.

    texts/<recipe>.jsonl        generated texts
    attacked/<attack>.jsonl     attacked texts
    perplexity/<judge>.jsonl    nats and tokens of a text under a judge
    judged/<rater>.jsonl        ratings of a text by a language model
    timings/<machine>.jsonl     decoding times
    benchmarks/<recipe>.jsonl   accuracies
    plans/<experiment>.json     the rows of each cell
    keys/<tokenizer>.json       keys

A row is on disk when `append` returns, so an interruption loses at most the current batch.
"""

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any, Literal

from dgmark.errors import InputError, NoTexts
from dgmark.rows.jsonl import BadRow, Row, read_rows
from dgmark.rows.outputs import atomic_write
from dgmark.rows.row_file import RowFile

Kind = Literal["texts", "attacked", "perplexity", "judged", "timings", "benchmarks"]


class Store:
    """The rows of a runs folder."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def path(self, kind: Kind, name: str) -> Path:
        """Return the path of the file for one hash."""
        return self.root / kind / f"{name}.jsonl"

    def read(self, kind: Kind, name: str, ids: Collection[str] | None = None) -> dict[str, Row]:
        """Read finished rows by id: all of a file, or only those with `ids`; empty if there is no file yet.

        A last line that a crash cut off is ignored, as it is when a run resumes the file.
        """
        path = self.path(kind, name)
        if not path.exists():
            return {}
        rows: dict[str, Row] = {}
        chosen = None if ids is None else set(ids)
        for row in read_rows(str(path)):
            if isinstance(row, BadRow) or "error" in row:
                continue
            if chosen is None or row["id"] in chosen:
                rows[row["id"]] = row
        return rows

    def open(self, kind: Kind, name: str, must_agree: Row) -> RowFile:
        """Open a file to append rows to.

        Raises:
            ResumeMismatch: the file holds rows that differ in a field of `must_agree`.
        """
        return RowFile(self.path(kind, name), must_agree)

    def write_plan(self, name: str, plan: dict[str, Any]) -> None:
        """Write which rows belong to a run."""
        atomic_write(self.root / "plans" / f"{name}.json", json.dumps(plan, indent=1, ensure_ascii=False) + "\n")

    def has_plan(self, name: str) -> bool:
        """Return whether the experiment was run."""
        return (self.root / "plans" / f"{name}.json").exists()

    def read_plan(self, name: str) -> dict[str, Any]:
        """Read which rows belong to a run.

        Raises:
            NoTexts: the experiment was not run with this folder.
            InputError: the plan is damaged.
        """
        path = self.root / "plans" / f"{name}.json"
        try:
            return dict(json.loads(path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            raise NoTexts(f"{self.root} holds no run of {name}: make one with `dgmark-lab experiment run`") from None
        except ValueError as error:
            raise InputError(f"{path} is damaged ({error}): run the experiment again; its texts are kept") from None
