"""The processes that check texts: each for so long, and with so much memory.

Work that a killed worker had begun is given to another one, once, and a new worker takes the place of the lost one.
Knows nothing of HTTP and of what the work is.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from dgmark.errors import DgmarkError
from dgmark.rows.processes import Worker, WorkerLost, in_thread
from dgmark_service.error_answers import ErrorAnswer

Shared = TypeVar("Shared")
_ATTEMPTS = 2


class _Worker(Worker):
    """One process, which is started and warmed up at once."""

    def __init__(self, warm: Callable[[Any], Any], shared: Any, memory: int) -> None:
        super().__init__(shared, memory=memory)
        self.warmed = in_thread(self.call, warm)


@dataclass
class WorkerPool(Generic[Shared]):
    """Runs functions in processes that share one object, which each of them gets once.

    Attributes:
        shared: the first argument of all work.
        warm: called with it when a process starts, so that fewer requests wait for it.
        workers: number of processes.
        seconds: the longest that one piece of work may take.
        memory: bytes that one process may have, where the system can limit it.
        on_lost: called for each worker that ends before its work does.
        ready: whether the processes are warmed up.
    """

    shared: Shared
    warm: Callable[[Shared], Any]
    workers: int
    seconds: float
    memory: int
    on_lost: Callable[[], object]
    ready: bool = False

    def __post_init__(self) -> None:
        self._processes: set[_Worker] = set()
        self._idle: asyncio.Queue[_Worker] = asyncio.Queue()

    async def start(self) -> list[Any]:
        """Start the processes, wait until they are warmed up, and return what `warm` returned in each.

        Raises:
            DgmarkError: the warm-up fails.
        """
        for _ in range(self.workers):
            self._add()
        found = await asyncio.gather(*(asyncio.wrap_future(worker.warmed) for worker in self._processes))
        self.ready = True
        return found

    async def run(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """The result of `work(shared, *arguments)` from one of the processes, with what is shared now.

        Args:
            work: a module-level function, or a method of the shared object's class.
            arguments: its other arguments.

        Raises:
            ErrorAnswer: it took too long, and its process was ended, or it needs more memory than a process has.
            WorkerLost: two processes ended over it.
            DgmarkError: what the work raises.
        """
        shared = self.shared
        for _ in range(_ATTEMPTS):
            with suppress(WorkerLost):
                return await self._attempt(shared, work, arguments)
        raise WorkerLost("the process that checked this ended before it had a result, twice: there is no result")

    async def _attempt(self, shared: Shared, work: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        worker = await self._warm_worker()
        if worker.shared[0] is not shared:  # renewed while this waited: it gets the old object for this one time
            worker.shared = (shared,)
        usable = False
        try:
            result = await asyncio.wrap_future(in_thread(partial(worker.call, work, *arguments, seconds=self.seconds)))
            usable = True
            return result
        except TimeoutError as error:
            detail = f"checking this took longer than {self.seconds:g} seconds: check it in parts"
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
            worker = await self._idle.get()
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
            self._idle.put_nowait(worker)
        else:
            self._replace(worker)
            if not usable:
                self.on_lost()

    def renew(self, shared: Shared) -> None:
        """Share another object from now on: work that is under way or waits ends with the old one."""
        self.shared = shared
        for _ in range(self._idle.qsize()):
            self._replace(self._idle.get_nowait())

    def _replace(self, worker: _Worker) -> None:
        self._processes.discard(worker)
        worker.kill()
        self._add()

    def _add(self) -> None:
        worker = _Worker(self.warm, self.shared, self.memory)
        self._processes.add(worker)
        self._idle.put_nowait(worker)

    def close(self) -> None:
        """End the processes. Work that has not ended has no result."""
        self.ready = False
        for worker in self._processes:
            worker.kill()
