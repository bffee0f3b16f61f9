"""The store of rows: JSON Lines files under one folder, each row under the hash of everything that determines it.

    texts/<recipe>.jsonl        generated texts
    attacked/<attack>.jsonl     attacked texts
    perplexity/<judge>.jsonl    nats and tokens of a text under a judge
    ratings/<rater>.jsonl       scores of a text by a language model, and its raw answer
    scores/<test>.jsonl         p-values of texts under a test that may need a model
    comparisons/<rater>.jsonl   which of a marked and an unmarked text of a prompt it takes for the better one
    plans/<experiment>.json     the rows of each cell
    keys/<tokenizer>.json       keys

A row is made once, and is on disk before the next is begun: an interruption loses at most the current batch.
"""

import hashlib
import importlib.metadata
import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar

from dgmark.errors import InputError, NoTexts
from dgmark.files.outputs import atomic_write
from dgmark.rows.item import Item, Row, Tally
from dgmark.rows.jsonl import read_rows
from dgmark.rows.run import run
from dgmark.rows.sinks import RowFile
from dgmark.version import __version__

Kind = Literal["texts", "attacked", "perplexity", "ratings", "comparisons", "scores"]
Content = TypeVar("Content")
# (name of the current part, rows finished, rows in all)
Progress = Callable[[str, int, int], None]

# increased whenever the same hash would stand for another row, and whenever plans change
ROW_VERSION, PLAN_VERSION = 1, 2
_REPORTED = ("torch", "transformers", "tokenizers", "numpy")
_BLOB = re.compile("[0-9a-f]{64}")


def digest(content: Any) -> str:
    """Hash a JSON value to 24 hex digits, independent of the order of its keys."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:24]


def checkpoint_hash(folder: Path) -> str:
    """Hash a model folder's config and weights.

    A file in huggingface_hub's cache is a link to a blob named by its SHA-256, so this is not computed again.
    """
    files = sorted([folder / "config.json", *folder.glob("*.safetensors")])
    return digest({file.name: _content_hash(file) for file in files})


def _content_hash(file: Path) -> str:
    blob = file.resolve().name
    if file.is_symlink() and _BLOB.fullmatch(blob):
        return blob
    with open(file, "rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


@cache
def versions() -> dict[str, str]:
    """Return the versions of dgmark and of the packages that decode, for the rows."""
    return {"dgmark": __version__, **{name: importlib.metadata.version(name) for name in _REPORTED}}


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
        chosen = None if ids is None else set(ids)
        good = (row for row in read_rows(str(path)) if not isinstance(row, Item))
        return {row["id"]: row for row in good if chosen is None or row["id"] in chosen}

    def complete(
        self,
        kind: Kind,
        name: str,
        same: Row,
        todo: Mapping[str, Content],
        make: Callable[[list[Content]], Sequence[Row]],
        *,
        batch: int = 16,
        what: str = "",
        progress: Progress = lambda *_: None,
    ) -> None:
        """Make the rows that a file of this kind and hash lacks, a batch at a time.

        All rows of the file share the fields of `same`, and `todo` says by id of what `make` makes each row. `progress`
        is called with the work in words (`what`), the number of rows that there are, and of all, at first and after
        each batch.

        Raises:
            ResumeMismatch: the file holds rows that differ in a field of `same`.
        """
        tally = Tally()

        def tell(_: object) -> None:
            progress(what, tally.scored, len(todo))

        def row_of(item: Item, row: Row) -> Row:
            return {"id": item.row_id, **row, "versions": versions(), "schema": ROW_VERSION}

        def work(items: list[Item]) -> Sequence[Row]:
            return make([item.content for item in items])

        items = [Item(row_id, content) for row_id, content in todo.items()]
        file = RowFile(self.path(kind, name), same, row_of)
        run(items, work, file, tally=tally, batch_size=batch, on_start=tell, on_results=tell)

    def write_plan(self, name: str, plan: dict[str, Any]) -> None:
        """Write which rows belong to a run."""
        content = json.dumps({"version": PLAN_VERSION, **plan}, indent=1, ensure_ascii=False)
        atomic_write(self._plan(name), content + "\n")

    def read_plan(self, name: str) -> dict[str, Any]:
        """Read which rows belong to a run.

        Raises:
            NoTexts: the experiment was not run with this folder.
            InputError: the plan is damaged, or of another version.
        """
        path = self._plan(name)
        try:
            plan = dict(json.loads(path.read_text(encoding="utf-8")))
            if plan["version"] != PLAN_VERSION:
                raise ValueError(f"version {plan['version']}, not {PLAN_VERSION}")
            return plan
        except FileNotFoundError:
            raise NoTexts(f"{self.root} holds no run of {name}: make one with `dgmark-lab experiment run`") from None
        except (ValueError, KeyError) as error:
            raise InputError(f"{path} is damaged ({error}): run the experiment again; its texts are kept") from None

    def _plan(self, name: str) -> Path:
        return self.root / "plans" / f"{name}.json"
