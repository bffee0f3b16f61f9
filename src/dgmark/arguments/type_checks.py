"""Whether a value is of a class, also of one of a library that may not be installed. No library is imported for it."""

import sys

import numpy as np

from dgmark.arguments.checks import is_of


def is_from(value: object, library: str, *names: str) -> bool:
    """Whether a value is of one of these classes of a library: one that is not imported yet has no values."""
    module = sys.modules.get(library)
    kinds = [getattr(module, name, None) for name in names]
    return is_of(value, *(kind for kind in kinds if isinstance(kind, type)))


def is_id(value: object) -> bool:
    """Whether a value is a whole number: Python's, or one of numpy's of at least 16 bits."""
    if is_of(value, np.integer):
        return value.dtype.kind in "iu" and value.dtype.itemsize > 1  # type: ignore[attr-defined]
    return is_of(value, int) and not is_of(value, bool)
