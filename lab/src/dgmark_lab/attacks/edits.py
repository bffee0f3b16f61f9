"""Random edits of a sequence of any units (token ids, words, sentences), with budgets that are met exactly.

A budget eps of n units is round(eps * n) edits, halves up: not a probability, not a bound. Paper section 4, "Robustness
to Post-editing". Knows no text and no tokenizer.
"""

import math
from collections.abc import Sequence
from typing import Annotated, TypeVar

import numpy as np
from pydantic import Field

from dgmark.errors import InputError

Unit = TypeVar("Unit")
# a share of the units
Share = Annotated[float, Field(ge=0, le=1)]


def edit_count(units: int, budget: float) -> int:
    """Return how many of `units` a budget edits: round(budget * units), halves up."""
    return math.floor(round(budget * units, 9) + 0.5)  # .29 * 50 is a little less than 14.5


def places(units: int, budget: float, rng: np.random.Generator) -> list[int]:
    """Draw the distinct units that a budget edits, in order."""
    return sorted(rng.choice(units, edit_count(units, budget), replace=False).tolist()) if units else []


def _draw_other(pool: Sequence[Unit], old: Unit, rng: np.random.Generator) -> Unit:
    """Draw a member of `pool` that is not `old`, so that every edit changes something.

    Raises:
        InputError: the pool has no other member.
    """
    for _ in range(32 if len(pool) else 0):
        drawn = pool[int(rng.integers(len(pool)))]
        if drawn != old:
            return drawn
    others = [unit for unit in pool if unit != old]
    if not others:
        raise InputError(f"nothing is available to replace {old!r}: choose another source of replacements")
    return others[int(rng.integers(len(others)))]


def substitute(units: Sequence[Unit], budget: float, pool: Sequence[Unit], rng: np.random.Generator) -> list[Unit]:
    """Replace round(budget * n) units, each by a different one from `pool`."""
    edited = list(units)
    for place in places(len(units), budget, rng):
        edited[place] = _draw_other(pool, edited[place], rng)
    return edited


def delete(units: Sequence[Unit], budget: float, rng: np.random.Generator) -> list[Unit]:
    """Delete round(budget * n) units."""
    chosen = set(places(len(units), budget, rng))
    return [unit for place, unit in enumerate(units) if place not in chosen]


def insert(units: Sequence[Unit], budget: float, pool: Sequence[Unit], rng: np.random.Generator) -> list[Unit]:
    """Insert one of `pool` before each of round(budget * n) units.

    Raises:
        InputError: the pool is empty.
    """
    chosen = set(places(len(units), budget, rng))
    if chosen and not len(pool):
        raise InputError("nothing is available to insert: choose another source of replacements")
    edited: list[Unit] = []
    for place, unit in enumerate(units):
        if place in chosen:
            edited.append(pool[int(rng.integers(len(pool)))])
        edited.append(unit)
    return edited


def crop(units: Sequence[Unit], front: float, back: float) -> list[Unit]:
    """Cut round(front * n) units off the front and round(back * n) off the back, at most all n."""
    stop = len(units) - edit_count(len(units), back)
    return list(units[min(edit_count(len(units), front), stop) : stop])


def paste(units: Sequence[Unit], host: Sequence[Unit], rng: np.random.Generator) -> list[Unit]:
    """Put all units at a random place of `host`."""
    at = int(rng.integers(len(host) + 1))
    return [*host[:at], *units, *host[at:]]


def swap_neighbours(parts: Sequence[Unit], swaps: int, rng: np.random.Generator) -> list[Unit]:
    """Swap two neighbouring parts, `swaps` times; fewer than two parts stay unchanged."""
    edited = list(parts)
    for _ in range(swaps if len(edited) > 1 else 0):
        at = int(rng.integers(len(edited) - 1))
        edited[at], edited[at + 1] = edited[at + 1], edited[at]
    return edited
