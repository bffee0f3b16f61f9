"""Rows that `dgmark generate` wrote, taken into the store under the recipes that they state."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dgmark.decode import DecodeConfig
from dgmark.errors import InputError, SettingsError
from dgmark.lab.experiments.plan import Subject
from dgmark.lab.experiments.recipe import Recipe, versions
from dgmark.lab.experiments.schemes import DGMARK, scheme_options
from dgmark.lab.experiments.store import Store
from dgmark.models.denoiser import dtype_of, name_of
from dgmark.rows.jsonl import BadRow, Row, read_rows

_NEEDED = ("prompt", "text", "token_ids", "seed", "model", "settings", "key_fingerprint", "ended")


@dataclass(frozen=True)
class Imported:
    """What one file gave.

    Attributes:
        path: the file.
        recipes: new rows by recipe.
        known: rows that were there before.
    """

    path: Path
    recipes: dict[str, int]
    known: int


def import_rows(store: Store, paths: Sequence[Path], subject: Subject) -> list[Imported]:
    """Take the rows of `dgmark generate` files into the store.

    The rows state the model's name, not its weights: they are taken to be of the model as it is loaded now, which is
    checked as far as a row can tell (name, number format, and that its ids are its text under this tokenizer).

    Args:
        store: where to.
        paths: JSON Lines files.
        subject: the model that made them.

    Raises:
        InputError: a row that lacks a field, or that this model did not make.
        NoTexts: a file that cannot be read.
    """
    return [_import_file(store, path, subject) for path in paths]


def _import_file(store: Store, path: Path, subject: Subject) -> Imported:
    by_recipe: dict[str, tuple[Recipe, list[Row]]] = {}
    for row in read_rows(str(path)):
        if isinstance(row, BadRow):
            raise InputError(f"{row.row_id}: {row.error}")
        if "error" in row:
            continue
        recipe = recipe_of(row, subject, f"{path}, row {row['id']}")
        by_recipe.setdefault(recipe.hash, (recipe, []))[1].append(_stored(row, recipe, path))
    counts, known = {}, 0
    for name, (_, rows) in by_recipe.items():
        with store.open("texts", name, {"recipe": name}) as file:
            new = _unseen(rows, file.done)
            file.append(new)
        counts[name] = len(new)
        known += len(rows) - len(new)
    return Imported(path, counts, known)


def _unseen(rows: Iterable[Row], done: dict[str, Any]) -> list[Row]:
    return list({row["id"]: row for row in rows if row["id"] not in done}.values())


def recipe_of(row: Row, subject: Subject, where: str) -> Recipe:
    """The recipe that a row of `dgmark generate` states.

    Raises:
        InputError: a field is missing or does not fit the model.
    """
    missing = [name for name in _NEEDED if name not in row]
    if missing:
        raise InputError(f"{where} lacks {', '.join(missing)}: only rows of `dgmark generate` can be imported")
    model = subject.model
    if row["model"] != name_of(model):
        raise InputError(f"{where} is of model {row['model']!r}, not of {name_of(model)!r}: give --model")
    if row.get("dtype") != dtype_of(model):
        raise InputError(f"{where} was made in {row.get('dtype')}, the model runs in {dtype_of(model)}: give --dtype")
    if model.tokenizer.decode(row["token_ids"]) != row["text"]:
        raise InputError(f"{where}: its token ids are not its text under the tokenizer of {name_of(model)!r}")
    try:
        config = DecodeConfig(**row["settings"])
    except (TypeError, SettingsError) as error:
        raise InputError(f"{where} has settings that this version does not know: {error}") from error
    scheme, options = _scheme_of(row)
    return Recipe(
        model=name_of(model),
        model_hash=subject.model_hash,
        tokenizer_hash=model.tokenizer.vocabulary_fingerprint,
        dtype=dtype_of(model),
        chat=bool(row.get("chat", False)),
        scheme=scheme,
        options=scheme_options(scheme, options),
        key_fingerprint=row["key_fingerprint"],
        settings=config.to_dict(),
        defaults=DecodeConfig().to_dict(),
    )


def _scheme_of(row: Row) -> tuple[str | None, dict[str, Any]]:
    """Name and options; rows of dgmark's own scheme name none, and unmarked rows have no key."""
    given = row.get("scheme")
    if given is None:
        return (None if row["key_fingerprint"] is None else DGMARK), {}
    options = dict(given)
    return str(options.pop("name")), options


def _stored(row: Row, recipe: Recipe, path: Path) -> Row:
    return {
        "id": recipe.row_id(row["prompt"], row["seed"]),
        "prompt_id": row["id"],
        "prompt": row["prompt"],
        "seed": row["seed"],
        "text": row["text"],
        "token_ids": row["token_ids"],
        "ended": row["ended"],
        **recipe.to_row(),
        # the rows do not tell the versions that made them
        "versions": None,
        "imported": {"file": path.name, "versions": versions()},
    }
