"""Shared by all tests: the built-in model and keys, loaded once."""

import pytest

from dgmark.key import WatermarkKey


@pytest.fixture(scope="session")
def key() -> WatermarkKey:
    """A fresh key for the built-in model."""
    return WatermarkKey.generate()
