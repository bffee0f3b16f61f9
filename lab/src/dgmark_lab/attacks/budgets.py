"""Budgets of attacks: how many units of a text an attack changes, and which.

A budget eps of n units is round(eps * n) edits, halves up: not a probability, not a bound. Paper section 4, "Robustness
to Post-editing". Knows no tokenizer.
"""

import math
from collections.abc import Sequence
from typing import Annotated

import numpy as np
from pydantic import Field

# a share of the units
Share = Annotated[float, Field(ge=0, le=1)]


def edit_count(units: int, budget: float) -> int:
    """Return how many of `units` a budget edits: round(budget * units), halves up."""
    return math.floor(round(budget * units, 9) + 0.5)  # .29 * 50 is a little less than 14.5


def places(units: int, budget: float, rng: np.random.Generator) -> list[int]:
    """Draw the distinct units that a budget edits, in order."""
    return sorted(rng.choice(units, edit_count(units, budget), replace=False).tolist()) if units else []


def with_others(
    text: str, found: Sequence[tuple[tuple[int, int], Sequence[str]]], budget: float, rng: np.random.Generator
) -> str:
    """Replace a budget of the spans of a text, which are in order, each by one of those that are given beside it."""
    pieces, start = list[str](), 0
    for number in places(len(found), budget, rng):
        (begin, end), others = found[number]
        pieces += [text[start:begin], others[int(rng.integers(len(others)))]]
        start = end
    return "".join([*pieces, text[start:]])
