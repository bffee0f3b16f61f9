"""The workers: whose turn it is, and their replacement when one is killed or hangs."""

import asyncio
import os
import signal
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest

from dgmark.errors import SettingsError
from dgmark.rows.processes import WorkerLost
from dgmark_service.error_answers import Busy, ErrorAnswer
from dgmark_service.settings import ServiceSettings
from dgmark_service.worker_pool import WorkerPool

T = TypeVar("T")
MEMORY = 4 * 2**30


@dataclass
class Shared:
    """What the processes of a pool share."""

    name: str
    warming: float = 0

    def warm(self) -> None:
        time.sleep(self.warming)

    def answer(self, number: int) -> tuple[str, int, int]:
        return self.name, number, os.getpid()

    def sleep(self, seconds: float) -> int:
        time.sleep(seconds)
        return os.getpid()

    def name_after(self, seconds: float) -> str:
        time.sleep(seconds)
        return self.name

    def end(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def hog(self, size: int) -> int:
        return len(bytearray(size))

    def refuse(self) -> None:
        raise SettingsError("this is wrong")


def pool_of(workers: int = 1, *, queue: int = 9, seconds: float = 30) -> tuple[WorkerPool, list[int]]:
    """A pool, which is not started, and a number for each worker that it loses."""
    lost: list[int] = []
    settings = ServiceSettings(Path("keys"), workers=workers, queue=queue, seconds=seconds, worker_bytes=MEMORY)
    return WorkerPool(Shared("shared"), settings, lambda: lost.append(1)), lost


async def run(pool: WorkerPool, work: Callable[..., T], *arguments: Any) -> T:
    async with pool.turn():
        return await pool.run(work, *arguments)


class Asking:
    """Somebody who waits for a turn, and holds it until they are to go."""

    def __init__(self, workers: WorkerPool, *, stranger: bool) -> None:
        self.over = asyncio.Event()
        self.has_it = False
        self.task = asyncio.create_task(self._ask(workers, stranger))

    async def _ask(self, workers: WorkerPool, stranger: bool) -> None:
        async with workers.turn(stranger=stranger):
            self.has_it = True
            await self.over.wait()


async def soon() -> None:
    """Let everybody do what they can without anything else."""
    for _ in range(5):
        await asyncio.sleep(0)


def test_strangers_leave_half_of_the_turns_and_the_queue_to_token_holders() -> None:
    async def asking() -> None:
        workers, _ = pool_of(4, queue=3)
        strangers, holders = ([Asking(workers, stranger=one) for _ in range(7)] for one in (True, False))
        await soon()
        for everybody in (strangers, holders):
            assert [one.has_it for one in everybody] == [True] * 2 + [False] * 5
        for stranger in (True, False):  # the queue of each is full
            with pytest.raises(Busy) as refused:
                await workers.turn(stranger=stranger).__aenter__()
            assert int((refused.value.headers or {})["retry-after"]) >= 1
        strangers[0].over.set()
        await soon()
        assert holders[2].has_it  # before the strangers that have waited for longer
        assert not strangers[2].has_it
        assert workers.held == 13
        for one in (*strangers, *holders):
            one.over.set()
        await asyncio.gather(*(one.task for one in (*strangers, *holders)))
        assert workers.held == 0

    asyncio.run(asking())


def test_who_leaves_the_queue_holds_nothing() -> None:
    async def asking() -> None:
        workers, _ = pool_of(1, queue=1)
        first = Asking(workers, stranger=False)
        for stranger in (True, False) * 3:
            waiting = Asking(workers, stranger=stranger)
            await soon()
            assert not waiting.has_it
            waiting.task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting.task
        assert workers.held == 1
        first.over.set()
        for stranger in (True, False):
            async with workers.turn(stranger=stranger):
                pass
        await first.task
        assert workers.held == 0

    asyncio.run(asking())


def test_one_pool_through_everything_that_goes_wrong() -> None:
    """One test, as each pool starts a process."""
    workers, lost = pool_of()
    ask = partial(run, workers)

    async def everything() -> None:
        await workers.start()
        with closing(workers):
            name, number, first = await ask(Shared.answer, 5)
            assert (name, number) == ("shared", 5)

            with pytest.raises(SettingsError, match="this is wrong"):
                await ask(Shared.refuse)
            assert await ask(Shared.hog, MEMORY // 2) == MEMORY // 2
            with pytest.raises(ErrorAnswer, match="more memory") as too_much:
                await ask(Shared.hog, MEMORY)
            assert too_much.value.status == 413
            assert (await ask(Shared.answer, 6))[2] == first  # neither costs the worker its life
            assert not lost

            # a worker that is killed in the middle: the work is done all the same
            work = asyncio.create_task(ask(Shared.sleep, 0.3))
            await asyncio.sleep(0.1)
            os.kill(first, signal.SIGTERM)
            second = await work
            assert second != first
            assert len(lost) == 1

            # one that is killed while it is idle
            os.kill(second, signal.SIGKILL)
            await asyncio.sleep(0.1)
            assert (await ask(Shared.answer, 7))[2] not in (first, second)

            # work that kills whoever takes it
            with pytest.raises(WorkerLost):
                await ask(Shared.end)
            assert (await ask(Shared.answer, 8))[1] == 8

            # another object to share: work under way ends with the old one
            under_way, lost_before = asyncio.create_task(ask(Shared.name_after, 0.3)), len(lost)
            await asyncio.sleep(0.1)
            waiting = asyncio.create_task(ask(Shared.name_after, 0))
            await asyncio.sleep(0)
            workers.renew(Shared("other"))
            later = asyncio.create_task(ask(Shared.answer, 9))
            assert (await under_way, await waiting, (await later)[0]) == ("shared", "other", "other")
            workers.renew(Shared("third"))  # while all are idle
            assert (await ask(Shared.answer, 10))[0] == "third"
            assert len(lost) == lost_before

            # work that takes too long
            settings = workers.settings
            workers.settings = replace(settings, seconds=0.2)
            with pytest.raises(ErrorAnswer, match="longer than"):
                await ask(Shared.sleep, 60)
            workers.settings = settings
            assert (await ask(Shared.answer, 9))[1] == 9

    asyncio.run(everything())


@pytest.mark.soak
def test_workers_that_ended_while_idle_cost_a_request_nothing() -> None:
    """Neither of its attempts, nor of its time: the new workers take longer to warm up than the work may."""
    workers, lost = pool_of(2, seconds=2)
    shared, ask = workers.shared, partial(run, workers)

    async def end_all() -> None:
        await workers.start()
        with closing(workers):
            shared.warming = 3
            for process in await asyncio.gather(ask(Shared.sleep, 0.2), ask(Shared.sleep, 0.2)):
                os.kill(process, signal.SIGKILL)
            await asyncio.sleep(0.5)
            assert (await ask(Shared.answer, 5))[1] == 5
            assert len(lost) == 2

    asyncio.run(end_all())
