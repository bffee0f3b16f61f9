"""The processes that check texts: each for so long, and with so much memory; who waits for one takes a turn.

Work that a killed worker had begun is given to another one, once, and a new worker takes the place of the lost one.
Strangers are those without a token where others have one. Knows nothing of HTTP and of what the work is.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar, cast

from dgmark.errors import DgmarkError
from dgmark.rows.processes import Worker, WorkerLost, in_thread
from dgmark_service.error_answers import Busy, ErrorAnswer, smoothed
from dgmark_service.settings import ServiceSettings

_ATTEMPTS = 2


Output = TypeVar("Output")


class _Worker(Worker):
    """One process, which is started and warmed up at once."""

    def __init__(self, shared: Any, memory: int) -> None:
        super().__init__(shared, memory=memory)
        self.warmed = in_thread(self.call, type(shared).warm)


@dataclass
class WorkerPool:
    """Calls methods of one object in processes, each of which gets the object once.

    Attributes:
        shared: the object; its method `warm` does in each new process what the first work would wait for.
        settings: the service's settings, which have the number of processes, how many token holders and how many
            strangers may wait, and how much time and memory one piece of work may take. As many as there are processes
            may use one at once; strangers may use half of them.
        on_lost: called for each worker that ends before its work does.
        places: the number of processes.
        ready: whether the processes are warmed up.
    """

    shared: Any
    settings: ServiceSettings
    on_lost: Callable[[], object]
    ready: bool = False

    def __post_init__(self) -> None:
        self._processes, self._idle = set[_Worker](), deque[_Worker]()
        self.places = self.settings.processes
        self._free, self._for_strangers = asyncio.Semaphore(self.places), asyncio.Semaphore(max(1, self.places // 2))
        self._held, self._mean = {True: 0, False: 0}, 0.1

    @property
    def held(self) -> int:
        """How many use a process or wait for one."""
        return sum(self._held.values())

    async def start(self) -> list[Any]:
        """Start the processes, wait until they are warmed up, and return what `warm` returns in each.

        Raises:
            DgmarkError: the warm-up fails.
        """
        for _ in range(self.places):
            self._add()
        found = await asyncio.gather(*(asyncio.wrap_future(worker.warmed) for worker in self._processes))
        self.ready = True
        return found

    @asynccontextmanager
    async def turn(self, *, stranger: bool = False) -> AsyncIterator[None]:
        """Wait for a process, and keep it free for `run`.

        Raises:
            Busy: there is no room to wait.
        """
        if self._held[stranger] >= self.places + self.settings.queue:
            raise Busy(self._held[stranger] * self._mean / self.places)
        self._held[stranger] += 1
        try:
            async with self._for_strangers if stranger else nullcontext(), self._free:
                began = time.monotonic()
                yield
                self._mean = smoothed(self._mean, time.monotonic() - began)
        finally:
            self._held[stranger] -= 1

    async def run(self, work: Callable[..., Output], *arguments: Any) -> Output:
        """The result of `work(shared, *arguments)` from one of the processes, by whoever has a turn.

        Args:
            work: a method of the class of what is shared.
            arguments: its other arguments.

        Raises:
            ErrorAnswer: it took too long, and its process was ended, or it needs more memory than a process has.
            WorkerLost: two processes ended over it.
            DgmarkError: what the work raises.
        """
        shared = self.shared
        for _ in range(_ATTEMPTS):
            with suppress(WorkerLost):
                return cast(Output, await self._attempt(shared, work, arguments))
        raise WorkerLost("the process that checked this ended before it had a result, twice: there is no result")

    async def _attempt(self, shared: Any, work: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        worker = await self._warm_worker()
        if worker.shared[0] is not shared:  # renewed while this waited: it gets the old object for this one time
            worker.shared = (shared,)
        usable = False
        try:
            call = partial(worker.call, work, *arguments, seconds=self.settings.seconds)
            result = await asyncio.wrap_future(in_thread(call))
            usable = True
            return result
        except TimeoutError as error:
            detail = f"checking this took longer than {self.settings.seconds:g} seconds: check it in parts"
            raise ErrorAnswer(503, detail) from error
        except MemoryError as error:
            usable = True
            detail = "this needs more memory than one request may have here: check it in parts"
            raise ErrorAnswer(413, detail) from error
        except DgmarkError as error:
            usable = not isinstance(error, WorkerLost)
            raise
        finally:
            self._give_back(worker, usable=usable)

    async def _warm_worker(self) -> _Worker:
        """A worker that is warmed up and has nothing to do; those that ended while they were idle are replaced."""
        while True:
            worker = self._idle.popleft()
            try:
                await asyncio.wrap_future(worker.warmed)
            except BaseException as error:
                self._give_back(worker, usable=isinstance(error, asyncio.CancelledError))
                raise
            if worker.alive:
                return worker
            self._give_back(worker, usable=False)

    def _give_back(self, worker: _Worker, *, usable: bool) -> None:
        """Let the worker take other work, or put a new one in its place."""
        if usable and worker.shared[0] is self.shared:
            self._idle.append(worker)
        else:
            self._replace(worker)
            if not usable:
                self.on_lost()

    def renew(self, shared: Any) -> None:
        """Share another object from now on: work that is under way ends with the old one."""
        self.shared = shared
        for _ in range(len(self._idle)):
            self._replace(self._idle.popleft())

    def _replace(self, worker: _Worker) -> None:
        self._processes.discard(worker)
        worker.kill()
        self._add()

    def _add(self) -> None:
        worker = _Worker(self.shared, self.settings.worker_bytes)
        self._processes.add(worker)
        self._idle.append(worker)

    def close(self) -> None:
        """End the processes. Work that has not ended has no result."""
        self.ready = False
        for worker in self._processes:
            worker.kill()
