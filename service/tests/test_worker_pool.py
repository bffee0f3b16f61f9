"""The workers: their replacement when one is killed or hangs."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from dgmark.errors import SettingsError
from dgmark.rows.processes import WorkerLost
from dgmark_service.error_answers import ErrorAnswer
from dgmark_service.worker_pool import WorkerPool

MEMORY = 4 * 2**30


def nothing(shared: str) -> None:
    pass


def pause(shared: str) -> None:
    time.sleep(3)


def answer(shared: str, number: int) -> tuple[str, int, int]:
    return shared, number, os.getpid()


def sleep(shared: str, seconds: float) -> int:
    time.sleep(seconds)
    return os.getpid()


def shared_after(shared: str, seconds: float) -> str:
    time.sleep(seconds)
    return shared


def end(shared: str) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def hog(shared: str, size: int) -> int:
    return len(bytearray(size))


def refuse(shared: str) -> None:
    raise SettingsError("this is wrong")


@asynccontextmanager
async def pool(lost: list[int], *, workers: int = 1, seconds: float = 30) -> AsyncIterator[WorkerPool]:
    made = WorkerPool(
        "shared",
        nothing,
        workers=workers,
        seconds=seconds,
        memory=MEMORY,
        on_lost=lambda: lost.append(1),
    )
    try:
        await made.start()
        yield made
    finally:
        made.close()


def test_one_pool_through_everything_that_goes_wrong() -> None:
    """One test, as each pool starts a process."""
    lost: list[int] = []

    async def everything() -> None:
        async with pool(lost) as workers:
            shared, number, first = await workers.run(answer, 5)
            assert (shared, number) == ("shared", 5)

            with pytest.raises(SettingsError, match="this is wrong"):
                await workers.run(refuse)
            assert await workers.run(hog, MEMORY // 2) == MEMORY // 2
            with pytest.raises(ErrorAnswer, match="more memory") as too_much:
                await workers.run(hog, MEMORY)
            assert too_much.value.status == 413
            assert (await workers.run(answer, 6))[2] == first  # neither costs the worker its life
            assert not lost

            # a worker that is killed in the middle: the work is done all the same
            work = asyncio.create_task(workers.run(sleep, 0.3))
            await asyncio.sleep(0.1)
            os.kill(first, signal.SIGTERM)
            second = await work
            assert second != first
            assert len(lost) == 1

            # one that is killed while it is idle
            os.kill(second, signal.SIGKILL)
            await asyncio.sleep(0.1)
            assert (await workers.run(answer, 7))[2] not in (first, second)

            # work that kills whoever takes it
            with pytest.raises(WorkerLost):
                await workers.run(end)
            assert (await workers.run(answer, 8))[1] == 8

            # another object to share: work under way or waiting ends with the old one
            under_way, lost_before = asyncio.create_task(workers.run(shared_after, 0.3)), len(lost)
            await asyncio.sleep(0.1)
            waiting = asyncio.create_task(workers.run(shared_after, 0))
            await asyncio.sleep(0)
            workers.renew("other")
            later = asyncio.create_task(workers.run(answer, 9))
            assert (await under_way, await waiting, (await later)[0]) == ("shared", "shared", "other")
            workers.renew("third")  # while all are idle
            assert (await workers.run(answer, 10))[0] == "third"
            assert len(lost) == lost_before

            # work that takes too long
            workers.seconds = 0.2
            with pytest.raises(ErrorAnswer, match="longer than"):
                await workers.run(sleep, 60)
            workers.seconds = 30
            assert (await workers.run(answer, 9))[1] == 9

    asyncio.run(everything())


def test_workers_that_ended_while_idle_cost_a_request_nothing() -> None:
    """Neither of its attempts, nor of its time: the new workers take longer to warm up than the work may."""
    lost: list[int] = []

    async def end_all() -> None:
        async with pool(lost, workers=2, seconds=2) as workers:
            workers.warm = pause
            for process in await asyncio.gather(workers.run(sleep, 0.2), workers.run(sleep, 0.2)):
                os.kill(process, signal.SIGKILL)
            await asyncio.sleep(0.5)
            assert (await workers.run(answer, 5))[1] == 5
            assert len(lost) == 2

    asyncio.run(end_all())
