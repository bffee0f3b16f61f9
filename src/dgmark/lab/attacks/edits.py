"""Random edits of a sequence of anything (token ids, words, sentences), with budgets that are met exactly.

A budget eps of n units is round(eps * n) edits, halves up: neither a chance nor a bound. Paper section 4, "Robustness
to Post-editing". Knows no text and no tokenizer.
"""

import math
from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from dgmark.errors import InputError, SettingsError

Unit = TypeVar("Unit")
_TRIES = 32


def edit_count(units: int, budget: float) -> int:
    """How many of `units` a budget edits: round(budget * units), halves up."""
    return math.floor(round(budget * units, 9) + 0.5)  # .29 * 50 is a little less than 14.5


def check_share(name: str, value: float) -> None:
    """Refuse a share outside 0..1.

    Raises:
        SettingsError: it is.
    """
    if not 0 <= value <= 1:
        raise SettingsError(f"{name} {value} is not a share in 0..1")


def places(units: int, budget: float, rng: np.random.Generator) -> list[int]:
    """The distinct units that a budget falls on, in order."""
    return sorted(rng.choice(units, edit_count(units, budget), replace=False).tolist()) if units else []


def another(pool: Sequence[Unit], old: Unit, rng: np.random.Generator) -> Unit:
    """A random member of `pool` that is not `old`, so that every edit changes something.

    Raises:
        InputError: the pool holds nothing else.
    """
    for _ in range(_TRIES if len(pool) else 0):
        drawn = pool[int(rng.integers(len(pool)))]
        if drawn != old:
            return drawn
    others = [unit for unit in pool if unit != old]
    if not others:
        raise InputError(f"there is nothing to put in place of {old!r}: choose another source of replacements")
    return others[int(rng.integers(len(others)))]


def substitute(units: Sequence[Unit], budget: float, pool: Sequence[Unit], rng: np.random.Generator) -> list[Unit]:
    """Replace round(budget * n) units, each by another of `pool`."""
    edited = list(units)
    for place in places(len(units), budget, rng):
        edited[place] = another(pool, edited[place], rng)
    return edited


def delete(units: Sequence[Unit], budget: float, rng: np.random.Generator) -> list[Unit]:
    """Leave round(budget * n) units out."""
    gone = set(places(len(units), budget, rng))
    return [unit for place, unit in enumerate(units) if place not in gone]


def insert(units: Sequence[Unit], budget: float, pool: Sequence[Unit], rng: np.random.Generator) -> list[Unit]:
    """Put one of `pool` before each of round(budget * n) units.

    Raises:
        InputError: the pool is empty.
    """
    chosen = set(places(len(units), budget, rng))
    if chosen and not len(pool):
        raise InputError("there is nothing to insert: choose another source of replacements")
    edited: list[Unit] = []
    for place, unit in enumerate(units):
        if place in chosen:
            edited.append(pool[int(rng.integers(len(pool)))])
        edited.append(unit)
    return edited


def crop(units: Sequence[Unit], front: float, back: float) -> list[Unit]:
    """Cut round(front * n) units off the front and round(back * n) off the back, at most all."""
    stop = len(units) - edit_count(len(units), back)
    return list(units[min(edit_count(len(units), front), stop) : stop])


def paste(units: Sequence[Unit], host: Sequence[Unit], share: float, rng: np.random.Generator) -> list[Unit]:
    """`host` with round(share * n) of its n units replaced by a stretch of `units` (all of them, if there are fewer).

    Where the stretch begins and where it comes to lie is random.
    """
    length = min(edit_count(len(host), share), len(units))
    begin, at = int(rng.integers(len(units) - length + 1)), int(rng.integers(len(host) - length + 1))
    return [*host[:at], *units[begin : begin + length], *host[at + length :]]


def swap_neighbours(parts: Sequence[Unit], swaps: int, rng: np.random.Generator) -> list[Unit]:
    """Swap two neighbouring parts, `swaps` times; fewer than two parts stay as they are."""
    edited = list(parts)
    for _ in range(swaps if len(edited) > 1 else 0):
        at = int(rng.integers(len(edited) - 1))
        edited[at], edited[at + 1] = edited[at + 1], edited[at]
    return edited
