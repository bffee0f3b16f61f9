"""Training on one thread, and shards of forty tales."""

from typing import Any

import pytest
import torch

from support.training_setup import tiny_shards
from training.shards import Shards


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Shards:
    return tiny_shards(tmp_path_factory.mktemp("data"))
