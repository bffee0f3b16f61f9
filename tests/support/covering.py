"""Tests with many cases, and tests that take long: `make soak` runs all of them, with DGMARK_ALL_CASES=1.

Other runs leave out tests under `@pytest.mark.soak`. Of a test under `@pytest.mark.cover(2)`, the cases that run have
each pair of settings together: what two settings break fails in one of them. `@pytest.mark.cover(1)` leaves each
setting once.
"""

import os
from collections.abc import Sequence
from itertools import combinations, groupby
from typing import Any

import pytest


def leave_out(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect what `make soak` alone runs."""
    if os.environ.get("DGMARK_ALL_CASES"):
        return
    left = [item for item in items if item.get_closest_marker("soak")]
    for _, some in groupby(items, lambda item: item.nodeid.partition("[")[0]):
        cases = list(some)
        if marker := cases[0].get_closest_marker("cover"):
            kept = covering([settings_of(case) for case in cases], *marker.args)
            left += [case for number, case in enumerate(cases) if number not in kept]
    config.hook.pytest_deselected(items=left)
    deselected = {*left}
    items[:] = [item for item in items if item not in deselected]


def settings_of(case: pytest.Item) -> dict[str, Any]:
    """The parameters of a case by name, and in place of a dictionary its entries."""
    found: dict[str, Any] = {}
    for name, value in case.callspec.params.items():  # type: ignore[attr-defined]
        entries = value.items() if isinstance(value, dict) else [(name, value)]
        found |= {entry: one if isinstance(one, str | int | float) else id(one) for entry, one in entries}
    return found


def covering(cases: Sequence[dict[str, Any]], together: int) -> set[int]:
    """The numbers of cases that cover all: each time the case with the most settings together that no other one has."""
    names = sorted({name for case in cases for name in case})
    shown = [{*combinations([(name, case.get(name)) for name in names], together)} for case in cases]
    missing, kept = set().union(*shown), set[int]()
    while missing:
        best = max(range(len(cases)), key=lambda number: len(shown[number] & missing))
        kept.add(best)
        missing -= shown[best]
    return kept
