"""Attacked texts of a cell: each is made once, from a stored text, with its own random generator."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dgmark.checkpoint.folder import BUILTIN
from dgmark.checkpoint.tokenizer import Tokenizer
from dgmark.rows.jsonl import Row
from dgmark_lab import attacks
from dgmark_lab.experiments.recipe import ROW_VERSION, digest, versions
from dgmark_lab.experiments.spec import Attack
from dgmark_lab.experiments.store import Store

_AT_ONCE = 8

Apply = Callable[[str, np.random.Generator], str]


def attack_hash(attack: Attack, value: float) -> str:
    """Return the name of the file for an attack at one strength."""
    return digest([attack.name, attack_options(attack, value), ROW_VERSION])


def attack_options(attack: Attack, value: float) -> dict[str, Any]:
    """Return all options of the attack in the TOML file, with its strength."""
    return {**attack.options, attack.option: value}


def attacked_id(attack: str, text_id: str) -> str:
    """Return the id of an attacked text, from the attack's hash and the id of the text."""
    return digest([attack, text_id])


def attacked_ids(attack: Attack, value: float, text_ids: list[str]) -> list[str]:
    """Return the ids of the attacked texts; at strength 0, those of the texts themselves."""
    if not value:
        return text_ids
    name = attack_hash(attack, value)
    return [attacked_id(name, text_id) for text_id in text_ids]


def load_attack(attack: Attack, value: float, tokenizer: Tokenizer, model: object) -> Apply:
    """Load an attack at one strength; it uses the texts' own tokenizer, and their model if it needs one.

    Raises:
        SettingsError: no attack or option has this name.
        MissingExtra: the attack needs a package or data that is not installed.
    """
    options = attack_options(attack, value)
    defaults = attacks.defaults_of(attack.name) if attack.name in attacks.ATTACKS else {}
    own = {name: thing for name, thing in (("tokenizer", tokenizer), ("model", model)) if defaults.get(name) == BUILTIN}
    if isinstance(defaults.get(attack.option), int):
        options[attack.option] = int(value)
    return attacks.attack(attack.name, **{**own, **options})


def make_attacked(
    store: Store, attack: Attack, value: float, texts: Mapping[str, Row], tokenizer: Tokenizer, model: object
) -> None:
    """Attack the texts that have no attacked version yet.

    Args:
        store: the store that receives the rows.
        attack: the attack.
        value: its strength, not 0.
        texts: stored texts by id.
        tokenizer: the tokenizer of their model.
        model: their model.

    Raises:
        SettingsError: no attack or option has this name.
    """
    name = attack_hash(attack, value)
    with store.open("attacked", name, {"attack": name}) as file:
        todo = {attacked_id(name, text_id): row for text_id, row in texts.items()}
        todo = {row_id: row for row_id, row in todo.items() if row_id not in file.done}
        if not todo:
            return
        apply = load_attack(attack, value, tokenizer, model)
        ids = list(todo)
        for start in range(0, len(ids), _AT_ONCE):
            rows = [
                _attacked_row(row_id, name, attack, value, todo[row_id], apply) for row_id in ids[start:][:_AT_ONCE]
            ]
            file.append(rows)


def _attacked_row(row_id: str, name: str, attack: Attack, value: float, row: Row, apply: Apply) -> Row:
    seed = int(row_id, 16)
    return {
        "id": row_id,
        "attack": name,
        "attack_name": attack.name,
        "attack_options": attack_options(attack, value),
        "seed": seed,
        "of": row["id"],
        "prompt_id": row["prompt_id"],
        "text": apply(row["text"], np.random.default_rng(seed)),
        "key_fingerprint": row["key_fingerprint"],
        "model_hash": row["model_hash"],
        "tokenizer_hash": row["tokenizer_hash"],
        "versions": versions(),
        "schema": ROW_VERSION,
    }
