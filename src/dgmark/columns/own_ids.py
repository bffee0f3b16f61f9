"""Whether two rows have the same id, for any number of rows: digests of the ids are compared, which are on disk.

They stand in one file, in sorted runs. Those that begin with the same byte are compared at a time.
"""

import hashlib
import tempfile
from collections.abc import Callable, Iterator
from itertools import islice
from typing import IO, Any

import numpy as np

from dgmark.arguments import shown
from dgmark.contents.row_ids import id_of_row
from dgmark.errors import InputError

# of so many bytes that no two ids have the same one
_DIGEST = np.dtype("S16")
# digests of a run, which are in memory at a time
_RUN = 2**17
_FIRST_BYTES = np.array([bytes([first]) for first in range(256)], _DIGEST)


def check_own_ids(read: Callable[[], Iterator[Any]]) -> None:
    """Refuse rows of which two have the same id.

    It takes 16 bytes a row of the disk that holds temporary files, and memory for `_RUN` rows; of more than
    a hundred million rows, .2 bytes a row.

    Args:
        read: gives the column of ids as arrays of Arrow, from the first row on at each call. What names no row is left
            out.

    Raises:
        InputError: two rows have the same id, or the disk is full.
    """
    digests = (_digest(one) for one in _ids(read()))
    with tempfile.TemporaryFile() as file:
        runs = []
        while len(run := np.sort(np.fromiter(islice(digests, _RUN), _DIGEST))):
            runs.append(np.append(np.searchsorted(run, _FIRST_BYTES), len(run)))
            _append(file, run)
        twice = _twice(file, runs)
    if twice is None:
        return
    named, times = "", 0
    for one in _ids(read()):
        if _digest(one) == twice:
            named, times = one, times + 1
    raise InputError(f"{times} rows have the id {shown(named)}: give each row its own id")


def _ids(columns: Iterator[Any]) -> Iterator[str]:
    for column in columns:
        try:
            values = column.to_pylist()
        except UnicodeDecodeError:  # of a string that is none, which names no row
            values = list(column)
        yield from (one for one in map(id_of_row, values) if one is not None)


def _digest(row_id: str) -> bytes:
    return hashlib.blake2b(row_id.encode("utf-8", "surrogatepass"), digest_size=_DIGEST.itemsize).digest()


def _append(file: IO[bytes], run: np.ndarray) -> None:
    """Write a run behind the others.

    Raises:
        InputError: the disk is full.
    """
    try:
        file.write(run.tobytes())
        file.flush()
    except OSError as error:
        raise InputError(
            f"the ids of all rows cannot be compared: {error.strerror or error}; {_DIGEST.itemsize} bytes a row are "
            f"written to {tempfile.gettempdir()}: make room there, or name another folder by the variable TMPDIR"
        ) from error


def _twice(file: IO[bytes], runs: list[np.ndarray]) -> bytes | None:
    """A digest that is there twice.

    Args:
        file: the runs.
        runs: where in each run the digests of each first byte begin, and its length.
    """
    for first in range(len(_FIRST_BYTES)):
        alike, begin = [np.zeros(0, _DIGEST)], 0
        for starts in runs:
            low, high = starts[first : first + 2].tolist()
            file.seek(_DIGEST.itemsize * (begin + low))
            alike.append(np.frombuffer(file.read(_DIGEST.itemsize * (high - low)), _DIGEST))
            begin += int(starts[-1])
        digests = np.sort(np.concatenate(alike))
        same = digests[1:] == digests[:-1]
        if same.any():
            return bytes(digests[1:][same][0]).ljust(_DIGEST.itemsize, b"\0")
    return None
