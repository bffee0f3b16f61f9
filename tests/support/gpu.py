"""Tests on a CUDA device, where there is one: elsewhere they are skipped, and counted as skipped."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch


def has_cuda() -> bool:
    """Whether torch can use a CUDA device."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a driver that is too old
        return torch.cuda.is_available()


CUDA = pytest.param(
    "cuda", marks=(pytest.mark.gpu, pytest.mark.skipif(not has_cuda(), reason="torch sees no CUDA device"))
)


class CountedCuda:
    """While it is entered, the waits of the host for CUDA are counted.

    Attributes:
        waits: the warnings that CUDA's debug mode gave, one for each.
    """

    def __init__(self) -> None:
        self.waits: list[str] = []

    def __enter__(self) -> "CountedCuda":
        self._caught = warnings.catch_warnings()
        self._caught.__enter__()
        warnings.simplefilter("always")
        warnings.showwarning = self._show  # type: ignore[assignment]
        torch.cuda.set_sync_debug_mode("warn")
        return self

    def __exit__(self, *_: object) -> None:
        torch.cuda.set_sync_debug_mode("default")
        self._caught.__exit__(None, None, None)

    def _show(self, message: Warning | str, *_: object) -> None:
        if "synchronizing CUDA operation" in str(message):
            self.waits.append(str(message))

    @contextmanager
    def uncounted(self) -> Iterator[None]:
        """Count no waits, as in the model."""
        torch.cuda.set_sync_debug_mode("default")
        yield
        torch.cuda.set_sync_debug_mode("warn")
