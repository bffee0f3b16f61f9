"""Work for a request that a worker does in its turn, and work that ends when nobody waits for it any more."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable
from contextlib import AsyncExitStack
from typing import Any, TypeVar

from fastapi import Request
from starlette.requests import ClientDisconnect

from dgmark_service.state import ServiceState

Output = TypeVar("Output")


async def in_worker(request: Request, work: Callable[..., Output], *arguments: Any) -> Output:
    """The result of a method of `Checker` with these arguments, in a worker.

    Who leaves before the turn of a request gives it up. Whatever takes long with what strangers send is done so: a
    thread would hold up the event loop.

    Raises:
        ErrorAnswer: a stranger's time is used up.
        ClientDisconnect: nobody waits for it any more.
        DgmarkError: see `WorkerPool.turn` and `WorkerPool.run`.
    """
    state: ServiceState = request.app.state.service
    caller = request.state.caller
    async with AsyncExitStack() as stack:
        turn = stack.enter_async_context(state.workers.turn(stranger=caller.stranger))
        if not await unless_gone(request, turn):
            raise ClientDisconnect
        state.auth.check_seconds(caller)  # others of the same caller may have used them up meanwhile
        began = time.monotonic()
        try:
            return await state.workers.run(work, *arguments)
        finally:
            state.auth.spend_seconds(caller, time.monotonic() - began)


async def unless_gone(request: Request, work: Coroutine[Any, Any, None]) -> bool:
    """Do some work, which is cancelled when nobody waits for it any more; whether it was done."""
    task, gone = asyncio.ensure_future(work), asyncio.ensure_future(_left(request))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
        return task.done()
    finally:
        await end([task, gone])


async def end(tasks: Iterable[asyncio.Future[Any]]) -> None:
    """End what is under way."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
