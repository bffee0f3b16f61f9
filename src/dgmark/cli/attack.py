"""`dgmark attack`: texts in, the texts that an attacker makes of them out."""

import hashlib
import json
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.markup import escape

from dgmark.cli.console import speaks, stderr, stdout
from dgmark.cli.options import RowsOut
from dgmark.errors import DgmarkError, EmptyInput, InputError, ResumeMismatch, SettingsError
from dgmark.lab.attacks import ATTACKS, Attack, defaults_of, describe, options_of
from dgmark.lab.attacks import attack as by_name
from dgmark.rows.jsonl import STDIN, BadRow, Row, read_rows, to_line
from dgmark.rows.row_file import RowFile
from dgmark.rows.texts import Item, read_texts

ATTACK_SCHEMA = 1
# fields by which a finished row is known to answer the same question
_SAME = ("source_sha256", "seed")


@speaks
def attack(
    name: Annotated[str | None, typer.Argument(help="The attack; --list names them all.", show_default=False)] = None,
    inputs: Annotated[
        str | None,
        typer.Argument(
            metavar="INPUT", help="A text, .jsonl or .parquet file, a folder; - is stdin.", show_default=False
        ),
    ] = None,
    out: RowsOut = None,
    budget: Annotated[
        float | None, typer.Option(help="Share of the units that is edited, exactly.", show_default="the attack's own")
    ] = None,
    option: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="An option of the attack; may be repeated.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Text i is attacked with seed + i.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Rows instead of plain text on stdout.")] = False,
    list_attacks: Annotated[bool, typer.Option("--list", help="List the attacks and their options.")] = False,
) -> None:
    """Attack texts: edits, disguises, paraphrases, refilling, to see what a mark survives."""
    if list_attacks:
        _print_list()
        return
    if name is None:
        raise SettingsError("name an attack; `dgmark attack --list` lists them")
    given = _options(option or [])
    if budget is not None:
        given["budget"] = budget
    made = by_name(name, **given)
    items = _number(_rows(inputs), seed)
    must_agree: Row = {"attack": name, "options": json.loads(json.dumps(options_of(made)))}
    with RowFile(out, must_agree, _SAME) if out is not None else nullcontext() as file:
        todo = items if file is None else _open_items(items, file)
        if len(todo) < len(items):
            stderr().print(f"{len(items) - len(todo)} of {len(items)} rows are already in {out}")
        errors: list[DgmarkError] = []
        for item in todo:
            row = _attacked(made, item, must_agree, errors)
            if file is not None:
                file.append([row])
            if as_json or (file is None and len(items) > 1):
                print(to_line(row), flush=True)
            elif file is None and "error" not in row:
                print(row["text"], flush=True)
    if errors and len(errors) == len(todo):
        raise errors[0]
    if errors:
        stderr().print(f"{len(errors)} of {len(todo)} rows have errors")


def _print_list() -> None:
    console = stdout()
    for name in ATTACKS:
        console.print(f"[bold]{name}[/bold]  {escape(describe(name))}", soft_wrap=True)
        shown = {"of": "NAME", "rounds": 3} if name == "chain" else defaults_of(name)
        console.print("    " + "  ".join(f"{key}={_shown(value)}" for key, value in shown.items()), soft_wrap=True)


def _shown(value: Any) -> str:
    text = str(value) if value not in (None, "") else "..."
    return escape(text if len(text) < 50 else f"{text[:47]}...")


def _options(given: list[str]) -> dict[str, Any]:
    """`name=value` pairs; a value is JSON where it can be, else text."""
    options: dict[str, Any] = {}
    for pair in given:
        name, equals, value = pair.partition("=")
        if not equals:
            raise SettingsError(f"--option {pair} is not NAME=VALUE")
        try:
            options[name.strip().replace("-", "_")] = json.loads(value)
        except ValueError:
            options[name.strip().replace("-", "_")] = value
    return options


def _rows(source: str | None) -> Iterator[Row | BadRow]:
    """The texts of a source as rows; a JSON Lines row keeps its prompt."""
    if source is None and sys.stdin.isatty():
        raise SettingsError("give texts to attack: a file, a folder, or - for standard input")
    source = source or STDIN
    if Path(source).suffix.lower() == ".jsonl":
        yield from read_rows(source)
        return
    for item in read_texts(source):
        yield {"id": item.row_id, "text": item.content} if isinstance(item, Item) else item


def _number(rows: Iterator[Row | BadRow], seed: int) -> list[tuple[Row | BadRow, int]]:
    """Rows with seed + index.

    Raises:
        EmptyInput: there is no row.
        InputError: two rows have one id.
    """
    items = [(_checked(row), seed + index) for index, row in enumerate(rows)]
    if not items:
        raise EmptyInput("there is no text to attack")
    seen: set[str] = set()
    for row, _ in items:
        if _id(row) in seen:
            raise InputError(f"two rows have the id {_id(row)!r}: ids tell finished rows from open ones")
        seen.add(_id(row))
    return items


def _checked(row: Row | BadRow) -> Row | BadRow:
    if isinstance(row, BadRow) or isinstance(row.get("text"), str):
        return row
    return BadRow(row["id"], str(row.get("error") or 'no "text"'))


def _id(row: Row | BadRow) -> str:
    return row.row_id if isinstance(row, BadRow) else str(row["id"])


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _open_items(items: list[tuple[Row | BadRow, int]], file: RowFile) -> list[tuple[Row | BadRow, int]]:
    """The items that the file has no row of.

    Raises:
        ResumeMismatch: it has a row of the same id that another text or seed made.
    """
    for row, seed in items:
        if isinstance(row, BadRow) or row["id"] not in file.done:
            continue
        if file.done[row["id"]] != dict(zip(_SAME, (_sha256(row["text"]), seed), strict=True)):
            raise ResumeMismatch(
                f"{file.path} holds a row {row['id']!r} made from another text or seed; choose another --out"
            )
    return [(row, seed) for row, seed in items if _id(row) not in file.done]


def _attacked(made: Attack, item: tuple[Row | BadRow, int], must_agree: Row, errors: list[DgmarkError]) -> Row:
    """The row of one attacked text; what cannot be attacked becomes an error row, what can be for none stops all."""
    row, seed = item
    try:
        if isinstance(row, BadRow):
            raise row.kind(row.error)
        text = made(row["text"], np.random.default_rng(seed))
    except InputError as error:
        errors.append(error)
        return BadRow(_id(row), str(error)).to_row(ATTACK_SCHEMA)
    kept = {"prompt": row["prompt"]} if "prompt" in row else {}
    source = {"seed": seed, "source_sha256": _sha256(row["text"])}
    return {"id": row["id"], **kept, "text": text, **must_agree, **source, "schema": ATTACK_SCHEMA}
