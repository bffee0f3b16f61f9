"""How often each attempt is made, and with which random numbers: SOAK_ROUNDS and SOAK_SEED."""

import os
import random

import pytest

from soak.bench import Bench

SEED, ROUNDS = os.environ.get("SOAK_SEED", "0"), int(os.environ.get("SOAK_ROUNDS", "25"))


@pytest.fixture(scope="session")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """Files for all attempts."""
    return Bench(tmp_path_factory.mktemp("soak"))


@pytest.fixture(params=range(ROUNDS))
def rng(request: pytest.FixtureRequest) -> random.Random:
    """An attempt's random numbers, which its name, its number and the seed determine."""
    return random.Random(f"{SEED}/{request.node.name}")
