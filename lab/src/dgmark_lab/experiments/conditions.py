"""What views "frontier" and "rivals" do to texts before they are scored: edits, other attacks, cuts to a length."""

import tomllib
from pathlib import Path
from typing import Any, Literal, NamedTuple

Steps = tuple[tuple[str, dict[str, Any]], ...]  # names and options of attacks, one after the other
ConditionSet = Literal["edits", "attacks", "rivals", "deletion", "published", "rewrites"]


class Condition(NamedTuple):
    """What happens to a text before it is scored, and how it is scored.

    Attributes:
        steps: attacks, made one after the other.
        first: score only so many tokens; None scores them all.
        normalise: whether the detector undoes disguises first.
    """

    steps: Steps = ()
    first: int | None = None
    normalise: bool = False


def _condition(
    attack: str = "",
    rounds: int = 1,
    first: int | None = None,
    normalise: bool = False,
    reordered: bool = False,
    **options: Any,
) -> Condition:
    steps = ((attack, options),) * rounds if attack else ()
    return Condition((*steps, ("reorder", {"unit": "word"})) if reordered else steps, first, normalise)


_FILE = tomllib.loads(Path(__file__).with_name("conditions.toml").read_text(encoding="utf-8"))
_ALL = {name: _condition(**fields) for name, fields in _FILE["conditions"].items()}
CONDITIONS: dict[ConditionSet, dict[str, Condition]] = {
    name: {one: _ALL[one] for one in names} for name, names in _FILE["sets"].items()
}
EDITS: list[str] = _FILE["mean"]
