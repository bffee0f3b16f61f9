"""The model worker as the service sees it, with a worker in this process: one that cannot load, or hangs."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from queue import Queue
from typing import Any

import pytest

from dgmark.errors import DgmarkError, ModelError
from dgmark.rows.processes import WorkerLost
from dgmark_service import model_process
from dgmark_service.error_answers import Busy, ErrorAnswer
from dgmark_service.jobs import Job, ModelFacts, Started, Stepped
from dgmark_service.model_process import ModelProcess
from dgmark_service.settings import ServiceSettings

LOADED = None, {"toy": ModelFacts(512, 32, chat=False)}
BROKEN = None, ModelError("the weights are damaged")


class Worker:
    """A worker that says what the test says."""

    def __init__(self) -> None:
        self.sent, self.said = Queue[Any](), Queue[Any]()
        self.killed = False

    def send(self, message: Any) -> None:
        self.sent.put(message)

    def receive(self) -> Any:
        message = self.said.get()
        if message is WorkerLost:
            raise WorkerLost("ended")
        return message

    def kill(self) -> None:
        if not self.killed:
            self.killed = True
            self.say(WorkerLost)

    def say(self, message: Any) -> None:
        self.said.put(message)

    async def received(self) -> Any:
        return await asyncio.to_thread(self.sent.get)


class Watched:
    """A process, its workers, and the failures that it told of."""

    def __init__(self, seconds: float) -> None:
        self.workers, self.failures, self.lost = list[Worker](), list[DgmarkError](), list[int]()
        settings = ServiceSettings(Path("keys"), rows=1, queue=4, text_seconds=seconds)
        self.process = ModelProcess(self.launch, settings, lambda: self.lost.append(1), self.failures.append)

    def launch(self) -> Any:
        self.workers.append(Worker())
        return self.workers[-1]


@asynccontextmanager
async def watched(*, loaded: bool = True, seconds: float = 60) -> AsyncIterator[Watched]:
    made = Watched(seconds)
    made.process.start()
    try:
        if loaded:
            made.workers[0].say(LOADED)
            await until(lambda: made.process.ready)
        yield made
    finally:
        made.process.close()


async def until(what: Callable[[], bool]) -> None:
    for _ in range(1000):
        if what():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it did not happen")


async def speak(worker: Worker) -> None:
    while True:
        worker.say(("other", None))
        await asyncio.sleep(0.01)


def job(name: str) -> Job:
    return Job(name, "somebody", "toy", "w1", chat=False, key=None, seed=1, max_tokens=8, settings={})


@pytest.mark.parametrize("says", [True, False])
def test_a_model_that_cannot_be_loaded_at_the_start_is_not_tried_again(says: bool) -> None:
    async def run() -> None:
        async with watched(loaded=False) as made:
            if says:
                made.workers[0].say(BROKEN)
            made.workers[0].kill()
            await until(lambda: bool(made.failures))
            await asyncio.sleep(0.05)
            assert [str(one) for one in made.failures] == [str(BROKEN[1])] if says else len(made.failures) == 1
            assert (len(made.workers), made.lost) == (1, [])

    asyncio.run(run())


def test_a_worker_that_dies_while_it_loads_again_is_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_process, "PAUSE", 0.01)

    async def run() -> None:
        async with watched() as made:
            messages = made.process.take(job("lost"))
            made.workers[0].kill()
            await until(lambda: len(made.workers) == 2)
            made.workers[1].say(BROKEN)
            assert "could not be loaded" in str(await messages.get())
            for number in (1, 2):
                made.workers[number].kill()
                await until(lambda wanted=number + 2: len(made.workers) == wanted)  # type: ignore[misc]
                assert not made.process.ready
            made.workers[3].say(LOADED)
            await until(lambda: made.process.ready)
            assert (made.failures, len(made.lost)) == ([], 3)

    asyncio.run(run())


def test_texts_of_a_process_that_ends_are_written_by_the_next_one_and_no_third() -> None:
    async def run() -> None:
        async with watched() as made:
            messages, started = made.process.take(job("text")), Started(1, {})
            steps = [Stepped(number, 0, [number], [number], ["w"], "w", number + 1) for number in range(3)]
            for outcome in (started, *steps[:2]):
                made.workers[0].say(("text", outcome))
            assert [await messages.get() for _ in range(3)] == [started, *steps[:2]]
            made.workers[0].kill()
            await until(lambda: len(made.workers) == 2)
            made.workers[1].say(LOADED)
            assert await made.workers[1].received() == job("text")
            for outcome in (started, *steps):  # of which nobody is told a step twice
                made.workers[1].say(("text", outcome))
            assert [await messages.get() for _ in range(2)] == [started, steps[2]]
            made.workers[1].kill()
            assert isinstance(await messages.get(), WorkerLost)

    asyncio.run(run())


def test_a_process_that_says_nothing_for_long_has_time_to_answer() -> None:
    async def run() -> None:
        async with watched(seconds=2.0) as made:
            (worker,) = made.workers
            leaver, other = made.process.take(job("leaver")), made.process.take(job("other"))
            await asyncio.sleep(1.2)  # over half of the time of a text, in which it chooses words
            made.process.drop("leaver")
            worker.say(("leaver", None))
            await asyncio.sleep(1.2)
            assert (worker.killed, leaver.empty()) == (False, True)
            assert isinstance(await other.get(), ErrorAnswer)  # whose time is up

    asyncio.run(run())


def test_a_caller_has_a_share_of_the_room_beside_one_who_asks_for_all() -> None:
    async def run() -> None:
        async with watched() as made:
            for number in range(5):
                made.process.take(job(f"text {number}"))
            with pytest.raises(Busy):
                made.process.take(job("one more"))
            others = [replace(job(f"other {number}"), caller="other") for number in range(3)]
            for one in others[:2]:
                made.process.take(one)
            with pytest.raises(Busy):
                made.process.take(others[2])

    asyncio.run(run())


@pytest.mark.parametrize("hangs", [False, True])
def test_a_text_has_its_time_and_a_worker_that_hangs_is_ended(hangs: bool) -> None:
    seconds = 0.2 if hangs else 1.0  # a machine with much to do must not make a worker that speaks look silent

    async def run() -> None:
        async with watched(seconds=seconds) as made:
            (worker,) = made.workers
            speaking = asyncio.create_task(speak(worker)) if not hangs else None
            error = await made.process.take(job("late")).get()
            assert isinstance(error, ErrorAnswer)
            assert f"within {seconds:g} seconds" in str(error)
            assert made.process.held == 0
            if speaking is None:
                await until(lambda: worker.killed)
                return
            assert [await worker.received(), await worker.received()] == [job("late"), "late"]
            await asyncio.sleep(0.6 * seconds)
            assert not worker.killed
            speaking.cancel()

    asyncio.run(run())


def test_a_worker_that_says_nothing_to_whoever_left_is_ended() -> None:
    async def run() -> None:
        async with watched(seconds=2) as made:
            await asyncio.sleep(1.1)  # for a while nobody asked for anything, which does not count
            made.process.take(job("left"))
            made.process.drop("left")
            await asyncio.sleep(0.05)
            assert not made.workers[0].killed
            await until(lambda: made.workers[0].killed)

    asyncio.run(run())
