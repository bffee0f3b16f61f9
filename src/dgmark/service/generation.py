"""`GenerationTask`: one text that is asked for, from the request to the answer, whole or as server-sent events."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from fastapi import Request
from fastapi.responses import Response
from sse_starlette.sse import AppStatus, EventSourceResponse
from starlette.types import Receive, Scope, Send

from dgmark.errors import DgmarkError
from dgmark.service.errors import GONE, is_refusal
from dgmark.service.jobs import Finished, Job, MessageQueue, Started, Stepped
from dgmark.service.state import ServiceState

T = TypeVar("T")
Steps = AsyncIterator[Stepped]  # of a text
Event = dict[str, str]  # the fields of a server-sent event

# texts that are being written when the service ends get an event that says so
AppStatus.enable_automatic_graceful_drain = False
_HEARTBEAT_SECONDS = 15.0  # after which a stream says again that it lives


def event(fields: Mapping[str, Any], name: str | None = None) -> Event:
    """A server-sent event with these fields as JSON."""
    data = {"data": json.dumps(fields, ensure_ascii=False, separators=(",", ":"))}
    return data if name is None else {"event": name, **data}


@dataclass
class GenerationTask:
    """One text that is asked for, from the request to the answer.

    Attributes:
        state: what the routes of one service share.
        request: the request.
        job: the job of the model worker.
        marking: what answers say of how the text is marked.
        seed: the seed that the request chose.
        stops: what ends the text where it would first occur in it.
        on_start: called when the worker has accepted the text.
        written: the text from its beginning to its first gap, while it is written.
        started: the worker's first answer, once it is there.
        finished: its last, once it is there.
    """

    state: ServiceState
    request: Request
    job: Job
    marking: Mapping[str, Any]
    seed: int | None
    stops: Sequence[str]
    on_start: Callable[[], object]
    written: str = ""
    started: Started = field(init=False)
    finished: Finished = field(init=False)
    _outcome: str = "cancelled"
    _began: float = field(default_factory=time.perf_counter)
    _first: tuple[float, int] | None = None  # when the first tokens came, and how many
    _stack: AsyncExitStack = field(default_factory=AsyncExitStack)

    def head(self) -> dict[str, Any]:
        """What is known of the text before it is written."""
        return {
            "id": self.job.id,
            "model": self.job.model,
            "length": self.started.length,
            "block_length": self.started.block_length,
            "watermark": self.watermark(),
            "settings": self.started.settings,
            "seed": self.seed,
        }

    def watermark(self) -> dict[str, Any]:
        """How the text is marked, and which fields of its request weaken the mark, if any do."""
        weak = {"weakened": self.started.weakened} if self.started.weakened else {}
        return {**self.marking, **weak}

    def readable(self) -> str:
        """The text from its beginning on that no later step changes: its end may be the beginning of a stop."""
        unsure = max(map(len, self.stops), default=1) - 1
        return self.written[: max(0, len(self.written) - unsure)]

    @property
    def finish_reason(self) -> str:
        """Why the text ends: "stop" at an end token, "length" at its full length."""
        return "stop" if self.finished.ended else "length"

    def fields(self) -> dict[str, Any]:
        """The fields of `GenerateAnswer`."""
        return {
            **self.head(),
            "text": self.finished.text,
            "finish_reason": self.finish_reason,
            "usage": usage_of([self]),
            "num_denoising_steps": self.finished.steps,
        }

    async def write(self) -> None:
        """Have the text written.

        Raises:
            DgmarkError: it cannot be.
        """
        async with self._stack:
            async for _ in await self.start():
                pass

    async def start(self) -> Steps:
        """The steps of the text, once the worker has accepted it; whoever does not read them all closes the text.

        Raises:
            DgmarkError: it did not; or, from the steps, the text is given up.
        """
        process = self.state.model_process
        assert process is not None
        messages = await self._stack.enter_async_context(process.run(self.job))
        self._stack.callback(self._count)
        message = await messages.get()
        if isinstance(message, DgmarkError):
            raise self._given_up(message)
        assert isinstance(message, Started)
        self.started = message
        self.on_start()
        return self._steps(messages)

    async def close(self) -> None:
        """Let the text go, written or not."""
        await self._stack.aclose()

    async def _steps(self, messages: MessageQueue) -> Steps:
        while self._outcome == "cancelled":
            message = await messages.get()
            if isinstance(message, DgmarkError):
                raise self._given_up(message)
            if isinstance(message, Stepped):
                self._first = self._first or (time.perf_counter(), len(message.positions))
                self.written, stopped = self._up_to_stop(self.written + message.added)
                if stopped:  # the rest is not written
                    self._finish(Finished(self.written, True, message.joined, message.step + 1))
                yield message
            elif isinstance(message, Finished):
                text, stopped = self._up_to_stop(message.text)
                self._finish(replace(message, text=text, ended=message.ended or stopped))
        await self.close()

    def _up_to_stop(self, text: str) -> tuple[str, bool]:
        """A text up to the first stop in it, and whether there is one."""
        end = min((place for stop in self.stops if (place := text.find(stop)) >= 0), default=None)
        return text[:end], end is not None

    def _finish(self, finished: Finished) -> None:
        self._outcome, self.finished = "finished", finished

    def _given_up(self, error: DgmarkError) -> DgmarkError:
        self._outcome = "refused" if is_refusal(error) else "failed"
        return error

    def _count(self) -> None:
        metrics, marked = self.state.metrics, str(self.job.key is not None).lower()
        metrics.texts.labels(self.job.model, marked, self._outcome).inc()
        if self._first is not None:
            metrics.first_token.labels(self.job.model).observe(self._first[0] - self._began)
        if self._outcome == "finished":
            if self._first is not None and (more := self.finished.tokens - self._first[1]) > 0:
                metrics.speed.labels(self.job.model).observe(more / (time.perf_counter() - self._first[0]))
            metrics.tokens.labels(self.job.model, marked).inc(self.finished.tokens)


def usage_of(texts: Sequence[GenerationTask], n: int = 1) -> dict[str, int]:
    """Counts of tokens; a prompt counts once for its `n` texts, which stand side by side."""
    prompt, completion = sum(one.started.prompt_tokens for one in texts[::n]), sum(one.finished.tokens for one in texts)
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


async def whole(texts: Sequence[GenerationTask], answer: Callable[[], Response]) -> Response:
    """The answer once the texts of a request are written.

    Raises:
        DgmarkError: one of them cannot be; the others are given up.
    """
    response = await _unless_gone(texts[0].request, _all(text.write() for text in texts))
    return Response(status_code=GONE) if response is None else answer()


async def stream(texts: Sequence[GenerationTask], events: Callable[[list[Steps]], AsyncIterator[Event]]) -> Response:
    """The answer as events, which are made of the steps of each text, once the worker has accepted all texts.

    Raises:
        DgmarkError: it did not accept one.
    """
    steps = None
    try:
        # whoever leaves before that frees the places, too
        steps = await _unless_gone(texts[0].request, _all(text.start() for text in texts))
    finally:
        if steps is None:
            await _close(texts)
    return Response(status_code=GONE) if steps is None else EventStream(events(steps), partial(_close, texts))


async def _close(texts: Sequence[GenerationTask]) -> None:
    for text in texts:
        await text.close()


async def _all(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """What all of this work gives; when one fails, the others are cancelled."""
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def merged(streams: Iterable[AsyncIterator[T]]) -> AsyncIterator[T]:
    """What several streams yield, as it comes. A slow reader holds all of them up."""
    ahead = {asyncio.ensure_future(anext(one, None)): one for one in streams}
    try:
        while ahead:
            for task in (await asyncio.wait(ahead, return_when=asyncio.FIRST_COMPLETED))[0]:
                if (item := task.result()) is not None:
                    yield item
                    ahead[asyncio.ensure_future(anext(ahead[task], None))] = ahead[task]
                del ahead[task]
    finally:
        for task in ahead:
            task.cancel()
        await asyncio.gather(*ahead, return_exceptions=True)


async def _unless_gone(request: Request, work: Coroutine[Any, Any, T]) -> T | None:
    """The result of some work, which is cancelled when nobody waits for it any more; None then."""
    task, gone = asyncio.ensure_future(work), asyncio.ensure_future(_left(request))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        gone.cancel()
        task.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


class EventStream(EventSourceResponse):
    """A stream of events, after which `close` is called, however the stream ends."""

    def __init__(self, events: AsyncIterator[Event], close: Callable[[], Coroutine[Any, Any, object]]) -> None:
        super().__init__(events, sep="\n", ping=_HEARTBEAT_SECONDS)
        self._close = close

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._close()
