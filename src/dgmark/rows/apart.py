"""Refuse to write a file that is read."""

import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from dgmark.errors import SettingsError
from dgmark.rows.inputs import STDIN


def check_apart(out: Path | None, sources: Iterable[str | None]) -> None:
    """Refuse an output that is one of the inputs, under any name, or lies in a folder of them.

    Its rows would be read as inputs, endlessly, or replace the only copy of them.

    Args:
        out: the output, which need not exist; None for none.
        sources: the inputs: files, folders, "-" for standard input, and None for none.

    Raises:
        SettingsError: the output is read.
    """
    if out is None:
        return
    place, written = Path(os.path.realpath(out)), _status(out)
    for source in (one for one in sources if one is not None):
        if source != STDIN and os.path.isdir(source) and place.is_relative_to(os.path.realpath(source)):
            raise SettingsError(f"the output {out} lies in {source}, which is read: choose a place outside it")
        if written and any(read and os.path.samestat(written, read) for read in map(_status, _files(source))):
            name = "standard input" if source == STDIN else source
            raise SettingsError(f"the output {out} is the same file as {name}, which is read: choose another file")


def _status(file: str | Path | int) -> os.stat_result | None:
    """The file that a name or descriptor leads to, if there is one."""
    try:
        return os.stat(file)
    except (OSError, ValueError):
        return None


def _files(source: str) -> Iterator[str | int]:
    """The files that reading a source opens, by name or descriptor."""
    if source == STDIN:
        try:
            yield sys.stdin.fileno()
        except (OSError, ValueError, AttributeError):  # it is closed, or not a file
            return
    elif os.path.isdir(source):
        for folder, _, names in os.walk(source):
            yield from (os.path.join(folder, name) for name in names)
    else:
        yield source
