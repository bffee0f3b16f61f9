"""`dgmark-lab attack`: change texts as an attacker would."""

import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from dgmark.arguments.contents import sha256_of
from dgmark.cli.console import command_errors
from dgmark.cli.options import AsRows, RowsOut
from dgmark.cli.row_output import items_of, write_rows
from dgmark.errors import DgmarkError, InputError, ModelFault, PromptTooLong, SettingsError, each
from dgmark.files.inputs import STDIN
from dgmark.files.outputs import check_output
from dgmark.rows.item import SOURCE_SHA256, Item, Row
from dgmark.rows.jsonl import SUFFIXES
from dgmark.rows.sources import read_prompts, read_texts
from dgmark.rows.tables import ANY_ROWS
from dgmark_lab.attacks import Attack, attack_kind, attack_names
from dgmark_lab.attacks import attack as attack_named
from dgmark_lab.cli.baselines import print_kinds
from dgmark_lab.options import defaults_of, parse_options, summary_of

ATTACK_SCHEMA = 1


@command_errors
def attack(
    name: Annotated[
        str | None, typer.Argument(help="Name of the attack; --list lists them all.", show_default=False)
    ] = None,
    inputs: Annotated[
        str | None,
        typer.Argument(
            metavar="INPUT", help="Text or .jsonl file, or folder; - is standard input.", show_default=False
        ),
    ] = None,
    out: RowsOut = None,
    budget: Annotated[
        float | None,
        typer.Option(help="Share of the tokens (or other units) to edit, 0 to 1.", show_default="the attack's own"),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE", help="Option of the attack, such as unit=word; may be repeated. --list lists all."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Random seed; text i, counted from 0, uses seed + i.")] = 0,
    as_json: AsRows = False,
    list_attacks: Annotated[bool, typer.Option("--list", help="List the attacks and their options.")] = False,
) -> None:
    """Attack texts by edits, disguises, documents, paraphrases or refilling, to see what a mark survives."""
    if list_attacks:
        names = attack_names()
        print_kinds(dict(zip(names, map(_described, each(attack_kind, names)), strict=True)))
        return
    if name is None:
        raise SettingsError("no attack is named: give a name; `dgmark-lab attack --list` lists them")
    options: dict[str, Any] = dict(parse_options(option or []))
    if budget is not None:
        options["budget"] = budget
    chosen = attack_named(name, **options)
    check_output(out, [inputs or STDIN])
    items = items_of(_items(inputs), _item, seed=seed, purpose="text to attack")
    shared: Row = {"attack": name, "options": asdict(chosen)}  # type: ignore[call-overload]
    about: Any = {"schema": ATTACK_SCHEMA, "out": out, "source": "text or seed", "as_json": as_json}
    write_rows(items, lambda batch, _: [_attacked(chosen, item, shared) for item in batch], shared=shared, **about)


def _described(kind: type[Any] | DgmarkError) -> tuple[str, dict[str, Any]]:
    """What an attack does, and its options; of one that cannot be used, why."""
    return (str(kind), {}) if isinstance(kind, DgmarkError) else (summary_of(kind), defaults_of(kind))


def _items(source: str | None) -> Iterator[Item]:
    """Read the texts of a source; the rows of a JSON Lines file keep their prompts."""
    if source is None and sys.stdin.isatty():
        raise SettingsError("no texts to attack: give a file, a folder, or - for standard input")
    source = source or STDIN
    if Path(source).suffix.lower() in SUFFIXES:
        yield from read_prompts(source, ANY_ROWS)
        return
    for item in read_texts(source):
        yield replace(item, content={"text": item.content})


def _item(item: Item, seed: int) -> Item:
    text = item.content.get("text")
    if not isinstance(text, str):
        raise InputError(str(item.content.get("error") or 'no "text"'))
    return replace(item, source={"seed": seed, SOURCE_SHA256: sha256_of(text)})


def _attacked(chosen: Attack, item: Item, shared: Row) -> Row | DgmarkError:
    """Attack one text, and return its row, or an error that concerns this row alone."""
    row = item.content
    try:
        text = chosen(row["text"], np.random.default_rng(item.source["seed"]))
    except (InputError, PromptTooLong, ModelFault) as error:
        return error
    prompt = {"prompt": row["prompt"]} if "prompt" in row else {}
    return {"id": item.row_id, **prompt, "text": text, **shared, **item.source, "schema": ATTACK_SCHEMA}
