"""Fixtures of several test modules."""

import gc
import os
from collections.abc import Iterator

import hypothesis
import pytest
import torch

from support import covering, shape_checks

gc.disable()  # until all is collected

# The same examples in each run, so that a run fails for what was changed; `--hypothesis-profile search` tries others.
# There is no deadline: speed is measured in benchmarks.
hypothesis.settings.register_profile("dgmark", deadline=None, derandomize=True)
hypothesis.settings.register_profile("search", deadline=None, max_examples=1000, print_blob=True)
hypothesis.settings.load_profile("dgmark")
shape_checks.install()  # before what is to be checked is imported

from support import shared_tokenizers  # noqa: E402

shared_tokenizers.install()

from dgmark.models.load import NetworkDenoiser, load_model  # noqa: E402
from dgmark_lab.training.corpus import Corpus  # noqa: E402
from support.training_setup import tiny_corpus  # noqa: E402


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Without the tests and the cases that `make soak` alone runs."""
    covering.leave_out(config, items)


def pytest_collection_finish() -> None:
    """What is imported and collected by now stays, so it is not searched for what can be freed: a sixth of all time."""
    gc.freeze()
    gc.enable()


def pytest_runtest_setup() -> None:
    """The first calls of each function are checked in every test, and no test has a terminal of a certain width."""
    shape_checks.begin_test()
    os.environ.pop("COLUMNS", None)  # a package that an earlier test imported, or the shell, may have set it


@pytest.fixture(scope="session")
def storyteller() -> NetworkDenoiser:
    """The built-in model, loaded once."""
    model = load_model(dtype="fp32", device="cpu")
    assert isinstance(model, NetworkDenoiser)
    return model


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """Forty tales as training reads them."""
    return tiny_corpus(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module", autouse=True)
def _one_thread_in_training(request: pytest.FixtureRequest) -> Iterator[None]:
    """Training is compared bit by bit, which holds on one thread."""
    threads = torch.get_num_threads()
    if request.path.name.startswith("test_training"):
        torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
