"""The names of the columns of a table: those that are read, and those that are added."""

from collections.abc import Collection, Mapping, Sequence

from dgmark.arguments.checks import shown
from dgmark.errors import InputError

# name and Arrow's type of each column that is added to a table
Fields = Mapping[str, str]


def check_named(names: Sequence[object], name: str, where: str = "the batch") -> None:
    """Refuse a table with no column, or several, of a name with an InputError, in which `where` is the table."""
    times = list(names).count(name)
    if not times:
        raise InputError(
            f"{where} has no column {shown(name)}: the columns are {', '.join(map(shown, names)) or 'none'}; name one "
            "of them"
        )
    if times > 1:
        raise InputError(f"{where} has {times} columns of the name {shown(name)}: rename all but one")


def check_added(names: Sequence[object], added: Collection[str]) -> None:
    """Refuse a table that has a column of a name that is to be added with an InputError."""
    taken = [name for name in names if name in added]
    if taken:
        raise InputError(
            f"there are columns {', '.join(map(shown, taken))} already, which would be added: give a prefix for the "
            "added ones, or rename these"
        )
