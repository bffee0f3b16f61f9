"""The model worker as the service sees it, without the process: what becomes of one that cannot load its models."""

import asyncio
from collections.abc import Callable

import pytest

from dgmark.errors import DgmarkError, ModelError
from dgmark.service import model_process
from dgmark.service.jobs import Loaded, ModelFacts, NotLoaded
from dgmark.service.model_process import ModelProcess

LOADED = Loaded({"toy": ModelFacts(512, 32, chat=False)})
BROKEN = NotLoaded(ModelError("the weights are damaged"))


class Watched(ModelProcess):
    """Counts the processes that it would start."""

    def __init__(self) -> None:
        self.spawned, self.failures = 0, list[DgmarkError]()
        super().__init__(
            {},
            {},
            rows=1,
            batches=1,
            queue=1,
            on_lost=lambda: None,
            on_failed=lambda error: self.failures.append(error),
        )

    def _spawn(self) -> None:
        self.spawned += 1


async def until(what: Callable[[], bool]) -> None:
    for _ in range(1000):
        if what():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it did not happen")


def test_a_model_that_cannot_be_loaded_at_the_start_is_told_once_and_not_tried_again() -> None:
    async def run() -> None:
        process = Watched()
        await process.start()
        process._hear(BROKEN)
        process._lost()
        await asyncio.sleep(0.05)
        assert (process.spawned, process.failures) == (1, [BROKEN.why])
        dead = Watched()
        await dead.start()
        dead._lost()
        assert len(dead.failures) == 1

    asyncio.run(run())


def test_a_worker_that_dies_while_it_loads_again_is_started_again_after_growing_pauses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(model_process, "_FIRST_PAUSE", 0.01)

    async def run() -> None:
        process = Watched()
        await process.start()
        process._hear(LOADED)
        process._lost()
        await until(lambda: process.spawned == 2)
        pauses = [process._pause]
        for spawned in (3, 4):
            if spawned == 3:
                process._hear(BROKEN)
            process._lost()
            assert not process.ready
            await until(lambda wanted=spawned: process.spawned == wanted)  # type: ignore[misc]
            pauses.append(process._pause)
        assert pauses == [0.01, 0.02, 0.04]
        process._hear(LOADED)
        assert process.ready
        assert process._pause == 0.01
        assert not process.failures

    asyncio.run(run())
