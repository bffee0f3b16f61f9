"""The model worker as the service sees it, without the process: one that cannot load, or hangs; slow readers."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from itertools import count
from typing import Any

import pytest

from dgmark.errors import DgmarkError, ModelError
from dgmark.service import model_process
from dgmark.service.jobs import (
    MAX_STEPS,
    Cancel,
    Dropped,
    Finished,
    Job,
    Loaded,
    ModelFacts,
    NotLoaded,
    Stepped,
    ToWorker,
)
from dgmark.service.model_process import ModelProcess
from dgmark.service.worker_pool import TooSlow

LOADED = Loaded({"toy": ModelFacts(512, 32, chat=False)})
BROKEN = NotLoaded(ModelError("the weights are damaged"))


class Watched(ModelProcess):
    """Counts the processes that it would start."""

    def __init__(self, seconds: float = 60) -> None:
        self.spawned, self.killed, self.failures = 0, 0, list[DgmarkError]()
        self.told = list[ToWorker]()
        super().__init__(
            {},
            {},
            rows=1,
            batches=1,
            queue=4,
            seconds=seconds,
            on_lost=lambda: None,
            on_failed=lambda error: self.failures.append(error),
        )

    def _spawn(self) -> None:
        self.spawned += 1
        self._process: Any = self

    def _send(self, message: ToWorker) -> None:
        self.told.append(message)

    def kill(self) -> None:
        self.killed += 1


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
        process._on_message(BROKEN)
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
        process._on_message(LOADED)
        process._lost()
        await until(lambda: process.spawned == 2)
        pauses = [process._pause]
        for spawned in (3, 4):
            if spawned == 3:
                process._on_message(BROKEN)
            process._lost()
            assert not process.ready
            await until(lambda wanted=spawned: process.spawned == wanted)  # type: ignore[misc]
            pauses.append(process._pause)
        assert pauses == [0.01, 0.02, 0.04]
        process._on_message(LOADED)
        assert process.ready
        assert process._pause == 0.01
        assert not process.failures

    asyncio.run(run())


def job(name: str) -> Job:
    return Job(name, "toy", "w1", chat=False, key=None, subkey=None, seed=1, max_tokens=8, settings={})


def stepped(name: str, number: int) -> Stepped:
    return Stepped(name, number, number // 32, [number], [number + 7], [f" {number}"], f" {number}", number + 1)


def test_a_reader_who_falls_behind_holds_few_steps_and_gets_every_token() -> None:
    async def run() -> None:
        process = Watched()
        await process.start()
        process._on_message(LOADED)
        async with process.run(job("slow")) as answers:
            for number in range(5000):
                process._on_message(stepped("slow", number))
                assert len(answers) <= MAX_STEPS + 1
            process._on_message(Finished("slow", "whole", False, 5000, 5000))
            steps = [await answers.get() for _ in range(MAX_STEPS + 1)]
            assert [step.step for step in steps if isinstance(step, Stepped)] == [*range(MAX_STEPS), 4999]
            last: Any = steps[-1]
            assert last.positions == list(range(MAX_STEPS, 5000))
            assert last.tokens == [number + 7 for number in last.positions]
            assert "".join(last.pieces) == last.added == "".join(f" {number}" for number in last.positions)
            assert (last.joined, last.block) == (5000, 4999 // 32)
            assert await answers.get() == Finished("slow", "whole", False, 5000, 5000)
            # a reader who keeps up has each step for itself
        async with process.run(job("quick")) as answers:
            for number in range(2 * MAX_STEPS):
                process._on_message(stepped("quick", number))
                assert await answers.get() == stepped("quick", number)

    asyncio.run(run())


@pytest.mark.parametrize("hangs", [False, True])
def test_a_text_has_its_time_and_a_worker_that_hangs_is_ended(hangs: bool) -> None:
    seconds = 0.2 if hangs else 1.0  # a machine with much to do must not make a worker that speaks look silent

    async def run() -> None:
        process = Watched(seconds)
        await process.start()
        process._on_message(LOADED)
        numbers = count()

        async def work() -> None:
            read = 0
            while True:
                if not hangs:
                    process._on_message(stepped("other", next(numbers)))
                    if Cancel("late") in process.told[read:]:
                        process._on_message(Dropped("late"))
                    read = len(process.told)
                await asyncio.sleep(0.01)

        async with AsyncExitStack() as stack:
            worker = asyncio.create_task(work())
            stack.callback(worker.cancel)
            answers = await stack.enter_async_context(process.run(job("late")))
            error = await answers.get()
            assert isinstance(error, TooSlow)
            assert f"within {seconds:g} seconds" in str(error)
            assert process.held == 0
            assert Cancel("late") in process.told
            if hangs:
                await until(lambda: process.killed == 1)
            await asyncio.sleep(0.6 * seconds)
            assert process.killed == hangs

    asyncio.run(run())


def test_a_worker_that_says_nothing_to_whoever_left_is_ended() -> None:
    async def run() -> None:
        process = Watched(seconds=0.2)
        await process.start()
        process._on_message(LOADED)
        async with process.run(job("left")):
            pass
        assert process.told == [job("left"), Cancel("left")]
        await until(lambda: process.killed == 1)

    asyncio.run(run())


def test_a_worker_that_had_nothing_to_say_is_not_ended_when_somebody_leaves_at_once() -> None:
    async def run() -> None:
        process = Watched()
        await process.start()
        process._on_message(LOADED)
        process._last_message -= 3600  # for an hour nobody asked for anything
        async with process.run(job("left")):
            pass
        await asyncio.sleep(0.05)
        assert process.killed == 0

    asyncio.run(run())
