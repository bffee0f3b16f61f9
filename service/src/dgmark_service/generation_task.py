"""`GenerationTask`: one text that is asked for, from the request to the answer, whole or as server-sent events."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fastapi import Request
from fastapi.responses import JSONResponse, Response
from sse_starlette.sse import AppStatus, EventSourceResponse
from starlette.types import Receive, Scope, Send

from dgmark.errors import DgmarkError
from dgmark_service.error_answers import ErrorAnswer
from dgmark_service.error_handlers import GONE, status_of
from dgmark_service.jobs import Finished, Job, Marked, Outcome, Started, Stepped
from dgmark_service.state import ServiceState
from dgmark_service.waiting import end, unless_gone

Event = dict[str, str]  # the fields of a server-sent event

# texts that are being written when the service ends get an event that says so
AppStatus.enable_automatic_graceful_drain = False
_HEARTBEAT_SECONDS = 15.0  # after which a stream says again that it lives


def event(fields: Mapping[str, Any], name: str | None = None) -> Event:
    """A server-sent event with these fields as JSON."""
    data = {"data": json.dumps(fields, ensure_ascii=False, separators=(",", ":"))}
    return data if name is None else {"event": name, **data}


def usage(texts: "Sequence[GenerationTask]", n: int = 1) -> dict[str, int]:
    """Counts of tokens of texts, of which `n` have each prompt; a prompt counts once."""
    prompt, completion = sum(one.started.prompt_tokens for one in texts[::n]), sum(one.finished.tokens for one in texts)
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


@dataclass
class GenerationTask:
    """One text that is asked for, from the request to the answer.

    Attributes:
        state: what the routes of one service share.
        request: the request.
        job: the job of the model worker.
        about: what answers say of it beside that: its id, how it is marked, the seed that the request chose, and
            whether the same request gives the same text.
        stops: what ends the text where it would first occur in it.
        note: writes to the audit log what was done.
        written: the text from its beginning to its first gap, while it is written.
        started: the worker's first answer, once it is there.
        finished: its last, once it is there.
    """

    state: ServiceState
    request: Request
    job: Job
    about: Mapping[str, Any]
    stops: Sequence[str]
    note: Callable[[str], object]
    written: str = ""
    started: Started = field(init=False)
    finished: Finished = field(init=False)
    _outcome: str = ""  # until the worker has the job
    _began: float = field(default_factory=time.perf_counter)
    _first: tuple[float, int] | None = None  # when the first tokens came, and how many
    _messages: asyncio.Queue[Outcome] = field(init=False)

    def head(self) -> dict[str, Any]:
        """What is known of the text before it is written."""
        settings = self.started.settings
        return {
            "id": self.about["id"],
            "model": self.job.model,
            "length": settings["length"],
            "block_length": settings["block_length"],
            "settings": settings,
            **self.about,
        }

    def readable(self) -> str:
        """The text from its beginning on that no later step changes: its end may be the beginning of a stop."""
        unsure = max(map(len, self.stops), default=1) - 1
        return self.written[: max(0, len(self.written) - unsure)]

    @property
    def finish_reason(self) -> str:
        """Why the text ends: "stop" at an end token, "length" at its full length."""
        return "stop" if self.finished.ended else "length"

    def fields(self) -> dict[str, Any]:
        """The fields of `GenerateAnswer` or `InfillAnswer`."""
        finished, fields = self.finished, self.head()
        for name in ("text", "choices", "check"):
            fields[name] = getattr(finished, name)
        fields |= {"usage": usage([self]), "num_denoising_steps": finished.steps}
        if finished.check is None:
            del fields["check"]
        if not self.job.fills:
            return {**fields, "finish_reason": self.finish_reason}
        del fields["length"]  # the holes have one each
        fields["settings"] = {name: one for name, one in fields["settings"].items() if name not in ("length", "steps")}
        return {**fields, "spans": finished.spans, **finished.figures}

    async def write(self) -> None:
        """Have the text written.

        Raises:
            DgmarkError: it cannot be.
        """
        await self.start()
        async for _ in self.steps():
            pass

    async def start(self) -> None:
        """Wait until the worker has accepted the text; whoever does not read all its steps closes it.

        Raises:
            DgmarkError: it did not.
        """
        self._messages, self._outcome = self.state.model_process.take(self.job), "cancelled"
        message = await self._message()
        assert isinstance(message, Started)
        self.started = message
        self.note("mark" if self.job.remask is not None else "fill" if self.job.fills else "write")

    async def _message(self) -> Outcome:
        """What comes next of the text.

        Raises:
            DgmarkError: it is given up.
        """
        message = await self._messages.get()
        if isinstance(message, DgmarkError):
            self._outcome = "refused" if status_of(message) < 500 else "failed"
            raise message
        return message

    def close(self) -> None:
        """Let the text go, written or not."""
        self.state.model_process.drop(self.job.id)
        if self._outcome:
            self._count()
            self._outcome = ""

    async def steps(self) -> AsyncIterator[Stepped | Marked]:
        """The steps of the text, which is finished after them.

        Raises:
            DgmarkError: the text is given up.
        """
        again = False
        while self._outcome == "cancelled":
            message = await self._message()
            if isinstance(message, Stepped):
                self._first = self._first or (time.perf_counter(), len(message.positions))
                self.written, stopped = self._up_to_stop(self.written + message.added)
                if stopped:  # the rest is not written
                    self._finish(Finished(self.written, True, message.joined, message.step + 1))
                yield message
            elif isinstance(message, Marked):
                yield message
            elif isinstance(message, Started):  # what is known better than before, or another process has begun it
                self.started, again = message, not self.job.fills
            elif isinstance(message, Finished):
                text, stopped = self._up_to_stop(message.text)
                if again and not text.startswith(self.readable()):
                    raise ErrorAnswer(503, "this text had to be begun again and came out otherwise: ask again")
                self._finish(replace(message, text=text, ended=message.ended or stopped))
        self.close()

    def _up_to_stop(self, text: str) -> tuple[str, bool]:
        """A text up to the first stop in it, and whether there is one."""
        end = min((place for stop in self.stops if (place := text.find(stop)) >= 0), default=None)
        return text[:end], end is not None

    def _finish(self, finished: Finished) -> None:
        self._outcome, self.finished = "finished", finished
        if finished.check is not None or finished.figures:
            self.note("check of a written text")

    def _count(self) -> None:
        metrics, marked = self.state.metrics, str(self.job.key is not None).lower()
        metrics.texts.labels(self.job.model, marked, self._outcome).inc()
        if self._first is not None:
            metrics.first_token.labels(self.job.model).observe(self._first[0] - self._began)
        if self._outcome == "finished":
            if self._first is not None and (more := self.finished.tokens - self._first[1]) > 0:
                metrics.speed.labels(self.job.model).observe(more / (time.perf_counter() - self._first[0]))
            metrics.tokens.labels(self.job.model, marked).inc(self.finished.tokens)


async def answer(
    texts: Sequence[GenerationTask], events: AsyncIterator[Event] | None, fields: Callable[[], dict[str, Any]]
) -> Response:
    """The answer to a request for texts.

    Args:
        texts: the texts; nothing is written yet.
        events: what the answer has as soon as the worker has accepted all texts; they follow the texts' steps.
        fields: without events, what it has once all texts are written.

    Raises:
        DgmarkError: a text cannot be written or was not accepted, or only some of them could wait.
    """

    def close() -> None:
        for text in texts:
            text.close()

    texts[0].state.model_process.check_room(len(texts), texts[0].job.caller)
    works, done = [text.write() if events is None else text.start() for text in texts], False
    try:
        done = await unless_gone(texts[0].request, _together(works))
    finally:
        if not done or events is None:
            close()
    if not done:
        return Response(status_code=GONE)
    return JSONResponse(fields()) if events is None else EventStream(events, close)


async def merged(streams: Sequence[AsyncIterator[Event]]) -> AsyncIterator[Event]:
    """The events of several streams as they come; no stream runs ahead of the reader by more than one event."""
    coming = {asyncio.ensure_future(anext(one)): one for one in streams}
    try:
        while coming:
            done, _ = await asyncio.wait(coming, return_when=asyncio.FIRST_COMPLETED)
            for one in [task for task in coming if task in done]:
                source = coming.pop(one)
                if not isinstance(one.exception(), StopAsyncIteration):
                    yield one.result()
                    coming[asyncio.ensure_future(anext(source))] = source
    finally:
        await end(coming)


async def _together(works: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Do several works at once; an error of one ends the others."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        await asyncio.gather(*tasks)
    finally:
        await end(tasks)


class EventStream(EventSourceResponse):
    """A stream of events, after which `close` is called, however the stream ends."""

    def __init__(self, events: AsyncIterator[Event], close: Callable[[], object]) -> None:
        super().__init__(events, sep="\n", ping=_HEARTBEAT_SECONDS)
        self._close = close

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._close()
