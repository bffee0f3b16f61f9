"""The routes that write texts, with their steps as events if that is asked for."""

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from pydantic import BaseModel
from starlette.types import Receive, Send
from starlette.types import Scope as AsgiScope

from dgmark.errors import DgmarkError
from dgmark.service import generation_fields as fields
from dgmark.service.callers import Caller
from dgmark.service.house import House
from dgmark.service.jobs import Finished, Job, Started, Stepped
from dgmark.service.model_process import LOADING, Answers, NotReady
from dgmark.service.policy import WEAKENING, Marking, Offer
from dgmark.service.problems import Complaint, Refused, complaint_of, id_of, is_refusal

T = TypeVar("T")
R = TypeVar("R", bound=BaseModel)

MASK = "░"
_BEAT = 15.0  # seconds after which a silent stream says that it lives
_GONE = 499  # nobody reads this status
EVENTS: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/event-stream": {}}, "description": "The text, or events if stream is set."}
}


def routes(house: House) -> APIRouter:
    """The routes of generation.

    Args:
        house: what the routes of one service share.
    """
    router = APIRouter(tags=["generation"])

    @router.post(
        "/v1/generate",
        summary="Write a text, marked unless you say otherwise; with stream, an event for each step",
        response_model=fields.Written,
        responses=EVENTS,
        openapi_extra=json_body(fields.GenerateRequest),
    )
    async def generate(request: Request) -> Response:
        caller = house.callers.with_scope(request, "generate")
        asked = await read(request, fields.GenerateRequest)
        text = begin(house, request, caller, asked, prompt=prompt_of(asked.prompt, asked.messages), name="gen")
        if asked.stream:
            return await text.stream(_events)
        return await text.whole(lambda: JSONResponse(text.fields()))

    @router.post(
        "/v1/infill",
        summary="Fill the holes of a text; what stands around them stays as it is",
        response_model=fields.Infilled,
        openapi_extra=json_body(fields.InfillRequest),
    )
    async def infill(request: Request) -> Response:
        caller = house.callers.with_scope(request, "generate")
        asked = await read(request, fields.InfillRequest)
        content = asked.parts if asked.text is None else asked.text
        assert content is not None
        prompt = Prompt(content, fill_from=asked.count_from)
        text = begin(house, request, caller, asked, prompt=prompt, name="fill")
        return await text.whole(lambda: JSONResponse(_infilled(text)))

    return router


def _infilled(text: "Text") -> dict[str, Any]:
    """The fields of `Infilled`."""
    assert text.finished is not None
    whole = text.fields()
    for name in ("length", "finish_reason"):
        del whole[name]
    settings = {name: value for name, value in whole["settings"].items() if name not in ("length", "steps")}
    return {**whole, "settings": settings, "spans": text.finished.spans, "count_from": text.job.fill_from}


async def read(request: Request, model: type[R]) -> R:
    """The fields of a JSON body.

    Raises:
        Refused: the body is of another kind.
        ValidationError: a field is wrong or unknown.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise Refused(415, "send application/json", param="content-type")
    return model.model_validate_json(await request.body(), strict=True)


@dataclass(frozen=True)
class Prompt:
    """What is to be continued, and whether it is a message to a chat model; or a text with holes.

    `fill_from` tells where the positions of holes are counted from; None continues the prompt.
    """

    content: str | list[int] | list[str | int]
    chat: bool = False
    fill_from: Literal["text", "hole"] | None = None

    @property
    def size(self) -> int:
        """Its characters, or its ids and the tokens of its holes."""
        parts = self.content if isinstance(self.content, list) else [self.content]
        holes = self.fill_from is not None
        return sum(len(part) if isinstance(part, str) else part if holes else 1 for part in parts)


def prompt_of(prompt: str | list[int] | None, messages: list[fields.Message] | None) -> Prompt:
    """The prompt of a request.

    Raises:
        Refused: the messages are more than one of a user, which is all that a template of one turn takes.
    """
    if messages is None:
        assert prompt is not None
        return Prompt(prompt)
    if [message.role for message in messages] != ["user"]:
        detail = "give one message, with the role user: the models' templates have one turn of one user"
        raise Refused(400, detail, param="messages")
    return Prompt(messages[0].content, chat=True)


class Text:
    """One text that is asked for, from the request to the answer.

    Attributes:
        job: what the model worker is told.
        marking: how the text is marked.
        seed: the seed that the request chose.
        stops: what ends the text where it would first stand in it.
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

    async def whole(self, answer: "Answering") -> Response:
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

    async def stream(self, events: "Events") -> Response:
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
        return _EventStream(events(self, self.answers(answers)), self._stack)

    async def answers(self, answers: Answers) -> AsyncIterator[Stepped | None]:
        """The steps; None where nothing has happened for long.

        Raises:
            DgmarkError: the text is given up.
        """
        while self.finished is None:
            try:
                message = await asyncio.wait_for(answers.get(), _BEAT)
            except TimeoutError:
                yield None
                continue
            if isinstance(message, DgmarkError):
                self._outcome = "refused" if is_refusal(message) else "failed"
                raise message
            if isinstance(message, Stepped):
                yield message
                text, steps = message.text, message.step + 1
                if (end := self._end(text)) is not None:  # the rest is not written
                    self._finish(Finished(message.id, text[:end], True, message.joined, steps))
            elif isinstance(message, Finished):
                end = self._end(message.text)
                self._finish(message if end is None else replace(message, text=message.text[:end], ended=True))

    def _end(self, text: str) -> int | None:
        """Where the text is to end because of what it says; None for nowhere."""
        return min((place for stop in self.stops if (place := text.find(stop)) >= 0), default=None)

    def _finish(self, finished: Finished) -> None:
        self._outcome, self.finished = "finished", finished

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
            self._outcome = "refused" if is_refusal(message) else "failed"
            raise message
        self.started = message
        self._on_start()
        return answers

    def _count(self) -> None:
        metrics, marked = self._house.metrics, str(self.marking.key is not None).lower()
        metrics.texts.labels(self.job.model, marked, self._outcome).inc()
        if self.finished is not None:
            metrics.tokens.labels(self.job.model, marked).inc(self.finished.tokens)


Answering = Callable[[], Response]
Events = Callable[[Text, AsyncIterator[Stepped | None]], AsyncIterator[bytes]]


def begin(
    house: House,
    request: Request,
    caller: Caller,
    asked: fields.Decoding,
    *,
    prompt: Prompt,
    name: str,
    stops: Sequence[str] = (),
) -> Text:
    """The text that a request asks for, and how it is to be marked; nothing is begun yet.

    Args:
        house: what the routes of one service share.
        request: the request.
        caller: who asks.
        asked: how the text is to be written.
        prompt: what it continues.
        name: what its id begins with.
        stops: what ends the text where it would first stand in it.

    Raises:
        Refused: the model is unknown, the prompt is too long, or the policy does not allow what is asked for.
    """
    offer = offer_of(house, asked.model)
    text_id = f"{name}-{secrets.token_hex(16)}"
    writer = house.writer
    facts = None if writer is None else writer.facts.get(offer.source.name)
    if prompt.chat and facts is not None and not facts.chat:
        raise Refused(400, f"{offer.source.name} has no chat template: send a prompt", param="messages")
    if prompt.size > house.settings.max_chars:
        raise Refused(413, f"the prompt has more than {house.settings.max_chars:,} characters", param="prompt")
    try:
        marking = offer.marking(asked.wish, text_id)
        _check_strength(offer, asked)
    except Refused as refusal:
        _note(house, request, caller, "generate refused", offer, asked, param=refusal.param)
        raise
    settings = offer.source.unmarked if marking.key is None else offer.source.marked
    job = Job(
        id=text_id,
        model=offer.source.name,
        prompt=prompt.content,
        chat=prompt.chat,
        key=marking.key,
        subkey=marking.subkey,
        seed=secrets.randbits(63) if asked.seed is None else asked.seed,
        max_tokens=getattr(asked, "max_tokens", None),
        settings=asked.decoding(),
        own=settings,
        enforced=offer.policy == "enforced",
        fill_from=prompt.fill_from,
    )

    def note() -> None:
        more = {"text": text_id, "key": marking.key, "subkey_chosen": marking.chosen}
        _note(house, request, caller, "generate", offer, asked, **more)

    return Text(house, request, job, marking, seed=asked.seed, stops=stops, on_start=note)


def offer_of(house: House, name: str | None) -> Offer:
    """The model of this name; the first one without a name.

    Raises:
        Refused: there is none.
    """
    if name is None:
        return next(iter(house.offers.values()))
    if name not in house.offers:
        detail = f"there is no model {name!r} here; the models: {', '.join(house.offers)}"
        raise Refused(404, detail, param="model", code="model_not_found")
    return house.offers[name]


def _check_strength(offer: Offer, asked: fields.Decoding) -> None:
    """Refuse what could leave hardly any mark, where every text must be marked.

    Raises:
        Refused: a setting of this kind is named.
    """
    if offer.policy == "default":
        return
    named = [name for name in WEAKENING if getattr(asked, name, None) is not None]
    if named:
        detail = f"every text of this service is marked, and {named[0]} could weaken the mark: leave it out"
        raise Refused(400, detail, param=named[0])


def _note(
    house: House,
    request: Request,
    caller: Caller,
    decision: str,
    offer: Offer,
    asked: fields.Decoding,
    **more: Any,
) -> None:
    house.audit.note(
        decision,
        request=id_of(request),
        token=caller.name,
        address=caller.address,
        model=offer.source.name,
        policy=offer.policy,
        asked=asked.wish.enabled,
        **more,
    )


async def _events(text: Text, steps: AsyncIterator[Stepped | None]) -> AsyncIterator[bytes]:
    """The events `start`, `step`, `done` and `error`. None says whether a token matches: the groups are secret."""
    yield event("start", {**text.head(), "mask": MASK})
    try:
        async for step in steps:
            if step is None:
                yield HEARTBEAT
                continue
            yield event(
                "step",
                {
                    "step": step.step,
                    "block": step.block,
                    "positions": step.positions,
                    "tokens": step.tokens,
                    "pieces": step.pieces,
                },
            )
        yield event("done", text.fields())
    except DgmarkError as error:
        yield event("error", text.complaint(error).problem(text.request_id))


HEARTBEAT = b": waiting\n\n"


def event(name: str | None, fields_: Mapping[str, Any] | str) -> bytes:
    """A server-sent event."""
    data = fields_ if isinstance(fields_, str) else json.dumps(fields_, ensure_ascii=False, separators=(",", ":"))
    return (f"event: {name}\n" if name else "").encode() + f"data: {data}\n\n".encode("utf-8", "replace")


class _EventStream(StreamingResponse):
    """A stream of events, after which the job is let go, however the stream ends."""

    media_type = "text/event-stream"

    def __init__(self, events: AsyncIterator[bytes], stack: AsyncExitStack) -> None:
        super().__init__(events, headers={"x-accel-buffering": "no"})
        self._stack = stack

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        async with self._stack:
            await super().__call__(scope, receive, send)


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


def json_body(model: type[BaseModel]) -> dict[str, Any]:
    """The description of a JSON body."""
    schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
    schema.pop("$defs", None)
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def body_schemas() -> dict[str, Any]:
    """The schemas that the descriptions of the bodies refer to, by name."""
    found: dict[str, Any] = {}
    for model in (fields.GenerateRequest, fields.InfillRequest, fields.ChatRequest):
        found |= model.model_json_schema(ref_template="#/components/schemas/{model}")["$defs"]
    return found
