"""Cases of tests that are plain data: those of `test_x.py` stand in `test_x.toml` beside it."""

import tomllib
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import pytest


@cache
def _tables(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text(encoding="utf-8"))


def data(module: str, name: str) -> Any:
    """A copy of what stands under a name in the data beside a test module, whose `__file__` is given."""
    return deepcopy(_tables(Path(module).with_suffix(".toml"))[name])


def cases(module: str, name: str) -> list[Any]:
    """The parameters of each case under a name: of a list, one for each argument of the test.

    The id of a case is its name in a table, and in an array its first value. As TOML has no None, the arguments that a
    case leaves out at its end are None.
    """
    given = data(module, name)
    named = given.items() if isinstance(given, dict) else ((None, case) for case in given)
    rows = [(case, row if isinstance(row, list) else [row]) for case, row in named]
    width = max(len(row) for _, row in rows)
    return [pytest.param(*row, *[None] * (width - len(row)), id=case or str(row[0])) for case, row in rows]
