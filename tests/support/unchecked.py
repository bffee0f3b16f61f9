"""The package as users have it, without the run-time type checks that the tests put around every call.

The checks stop wrong types before the package's own checks can, and take several times as long as scoring a short text.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import jaxtyping


@contextmanager
def unchecked() -> Iterator[None]:
    """No run-time type checks inside this block."""
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        yield
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)
