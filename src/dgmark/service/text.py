"""`Text`: one text that is asked for, from the request to the answer, whole or as a stream."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any, TypeVar

from fastapi import Request
from fastapi.responses import Response

from dgmark.errors import DgmarkError
from dgmark.service.answers import Answers
from dgmark.service.events import EventStream
from dgmark.service.house import House
from dgmark.service.jobs import Finished, Job, Started, Stepped
from dgmark.service.model_process import LOADING, NotReady
from dgmark.service.policy import Marking
from dgmark.service.problems import Complaint, complaint_of, id_of, is_refusal

T = TypeVar("T")

_BEAT = 15.0  # seconds after which a silent stream says that it lives
_GONE = 499  # nobody reads this status


def end_of(text: str, stops: Sequence[str], start: int = 0) -> int | None:
    """Where a text is to end because of what it says: at the first of these that stands in it; None for nowhere.

    Args:
        text: the text.
        stops: what ends it.
        start: characters before which none of them stands.
    """
    return min((place for stop in stops if (place := text.find(stop, start)) >= 0), default=None)


# what is made of a text: a whole answer once it is finished, or events while it is written
Answering = Callable[[], Response]
Events = Callable[["Text", AsyncIterator[Stepped | None]], AsyncIterator[bytes]]


class Text:
    """One text that is asked for, from the request to the answer.

    Attributes:
        job: what the model worker is told.
        marking: how the text is marked.
        seed: the seed that the request chose.
        stops: what ends the text where it would first stand in it.
        written: the text from its beginning to its first gap, while it is written.
        started: the worker's first answer.
        finished: its last.
    """

    def __init__(
        self,
        house: House,
        request: Request,
        job: Job,
        marking: Marking,
        *,
        seed: int | None,
        stops: Sequence[str] = (),
        on_start: Callable[[], object] = lambda: None,
    ) -> None:
        self._house, self._request, self._on_start = house, request, on_start
        self.job, self.marking, self.seed, self.stops = job, marking, seed, stops
        self.written = ""
        self.started: Started | None = None
        self.finished: Finished | None = None
        self._outcome = "cancelled"
        self._stack = AsyncExitStack()

    def head(self) -> dict[str, Any]:
        """What is known of the text before it is written."""
        assert self.started is not None
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
        assert self.started is not None
        weak = {"weakened": self.started.weakened} if self.started.weakened else {}
        return self.marking.told() | weak

    def usage(self) -> dict[str, int]:
        """Counts of tokens."""
        assert self.started is not None
        assert self.finished is not None
        prompt, completion = self.started.prompt_tokens, self.finished.tokens
        return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}

    @property
    def finish_reason(self) -> str:
        """Why the text ends: "stop" at an end token, "length" at its full length."""
        assert self.finished is not None
        return "stop" if self.finished.ended else "length"

    def fields(self) -> dict[str, Any]:
        """The fields of `Written`."""
        assert self.finished is not None
        return {
            **self.head(),
            "text": self.finished.text,
            "finish_reason": self.finish_reason,
            "usage": self.usage(),
            "num_denoising_steps": self.finished.steps,
        }

    async def whole(self, answer: Answering) -> Response:
        """The answer once the text is written.

        Raises:
            DgmarkError: it cannot be.
        """

        async def write() -> Response:
            async with self._stack:
                async for _ in self.answers(await self._start()):
                    pass
            return answer()

        response = await _unless_gone(self._request, write())
        return Response(status_code=_GONE) if response is None else response

    async def stream(self, events: Events) -> Response:
        """The answer as events, once the worker has accepted the text.

        Raises:
            DgmarkError: it did not.
        """
        try:
            # whoever leaves before the worker has accepted the text frees the place, too
            answers = await _unless_gone(self._request, self._start())
        except BaseException:
            await self._stack.aclose()
            raise
        if answers is None:
            await self._stack.aclose()
            return Response(status_code=_GONE)
        return EventStream(events(self, self.answers(answers)), self._stack)

    async def answers(self, answers: Answers) -> AsyncIterator[Stepped | None]:
        """The steps; None where nothing has happened for long.

        Raises:
            DgmarkError: the text is given up.
        """
        while self.finished is None:
            try:
                async with asyncio.timeout(_BEAT):
                    message = await answers.get()
            except TimeoutError:
                yield None
                continue
            if isinstance(message, DgmarkError):
                raise self._given_up(message)
            if isinstance(message, Stepped):
                known = len(self.written) - max(map(len, self.stops), default=0)  # no stop begins before it
                self.written += message.added
                yield message
                if (end := end_of(self.written, self.stops, max(0, known))) is not None:  # the rest is not written
                    self._finish(Finished(message.id, self.written[:end], True, message.joined, message.step + 1))
            elif isinstance(message, Finished):
                end = end_of(message.text, self.stops)
                self._finish(message if end is None else replace(message, text=message.text[:end], ended=True))

    def _finish(self, finished: Finished) -> None:
        self._outcome, self.finished = "finished", finished

    def _given_up(self, error: DgmarkError) -> DgmarkError:
        self._outcome = "refused" if is_refusal(error) else "failed"
        return error

    def complaint(self, error: Exception) -> Complaint:
        """What is said of an error."""
        return complaint_of(error, self.request_id)

    @property
    def request_id(self) -> str:
        """The id of the request."""
        return id_of(self._request)

    async def _start(self) -> Answers:
        if self._house.writer is None:
            raise NotReady(LOADING)
        answers = await self._stack.enter_async_context(self._house.writer.doing(self.job))
        self._stack.callback(self._count)
        message = await answers.get()
        if not isinstance(message, Started):
            assert isinstance(message, DgmarkError)
            raise self._given_up(message)
        self.started = message
        self._on_start()
        return answers

    def _count(self) -> None:
        metrics, marked = self._house.metrics, str(self.marking.key is not None).lower()
        metrics.texts.labels(self.job.model, marked, self._outcome).inc()
        if self.finished is not None:
            metrics.tokens.labels(self.job.model, marked).inc(self.finished.tokens)


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
