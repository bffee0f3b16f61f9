"""The routes that write texts, with their steps as events if that is asked for."""

import secrets
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any, TypeVar

from fastapi import APIRouter, Request
from fastapi.responses import Response

from dgmark.errors import DgmarkError
from dgmark.service import generation_schemas as schemas
from dgmark.service.bodies import json_body, read_json
from dgmark.service.error_answers import ErrorAnswer, answer_to, id_of
from dgmark.service.generation_task import Event, GenerationTask, event, stream, whole
from dgmark.service.jobs import FREE_SETTINGS, OFF_WITHOUT_MARK, REQUEST_SETTINGS, Job
from dgmark.service.offers import Offer
from dgmark.service.state import ServiceState
from dgmark.watermark.policy import Mark, MarkingRefused

D = TypeVar("D", bound=schemas.DecodingRequest)

MASK = "░"
EVENTS: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/event-stream": {}}, "description": "The text, or events if stream is set."}
}


def routes(state: ServiceState) -> APIRouter:
    """The routes of generation.

    Args:
        state: what the routes of one service share.
    """
    router = APIRouter(tags=["generation"])

    @router.post(
        "/v1/generate",
        summary="Write a text, marked unless you say otherwise; with stream, an event for each step",
        response_model=schemas.GenerateAnswer,
        responses=EVENTS,
        openapi_extra=json_body(schemas.GenerateRequest),
    )
    async def generate(request: Request) -> Response:
        asked, text = await begin(state, request, schemas.GenerateRequest, "gen")
        if asked.stream:
            return await stream(text, _events(text))
        return await whole(text, GenerationTask.fields)

    @router.post(
        "/v1/infill",
        summary="Fill the holes of a text, given or chosen; what surrounds them does not change",
        response_model=schemas.InfillAnswer,
        openapi_extra=json_body(schemas.InfillRequest),
    )
    async def infill(request: Request) -> Response:
        asked, text = await begin(state, request, schemas.InfillRequest, "fill")
        if asked.share is not None:  # the answer has a p-value under the key
            state.auth.authorize(request, "detect:full")
        return await whole(text, _infilled)

    return router


async def begin(state: ServiceState, request: Request, model: type[D], prefix: str) -> tuple[D, GenerationTask]:
    """What a request of whoever has the scope `generate` asks for, and its text; nothing is written yet.

    Args:
        state: what the routes of one service share.
        request: the request.
        model: its fields.
        prefix: of the text's id.

    Raises:
        ErrorAnswer: they may not, the model is unknown, the prompt is too long, or the policy does not allow it.
        ValidationError: a field is wrong or unknown.
    """
    caller = state.auth.authorize(request, "generate")
    asked = await read_json(request, model)
    offer = offer_of(state, asked.model)
    about: dict[str, Any] = {"model": offer.source.name, "policy": offer.policy, "asked": asked.marking_request.enabled}
    log: Callable[..., None] = partial(state.auth.log, request, caller, **about)
    text_id = f"{prefix}-{secrets.token_hex(16)}"
    try:
        mark = offer.marking.choose(asked.marking_request, text_id)
        _check_settings(offer, asked, mark)
    except (ErrorAnswer, MarkingRefused) as error:
        log("generate refused", param=answer_to(error, id_of(request)).param)
        raise
    job = Job(
        id=text_id,
        model=offer.source.name,
        key=mark.key if mark else None,
        seed=secrets.randbits(63) if asked.seed is None else asked.seed,
        settings=asked.decoding(),
        own=offer.source.marked if mark else offer.source.unmarked,
        enforced=offer.marking.enforce,
        **asked.content(),
    )
    _check_prompt(state, job)
    named = {"key": mark.name if mark else None, "subkey_chosen": mark is not None and mark.chosen}
    on_start = partial(log, "generate", text=text_id, **named)
    return asked, GenerationTask(state, request, job, offer.describe(mark), asked.seed, asked.stops, on_start)


def offer_of(state: ServiceState, name: str | None) -> Offer:
    """The model of this name; the first one without a name.

    Raises:
        ErrorAnswer: there is none.
    """
    if name is None:
        return next(iter(state.offers.values()))
    if name not in state.offers:
        detail = f"there is no model {name!r} here; the models: {', '.join(state.offers)}"
        raise ErrorAnswer(404, detail, param="model", code="model_not_found")
    return state.offers[name]


def _check_prompt(state: ServiceState, job: Job) -> None:
    """Refuse a prompt that is too long, or that the model does not take.

    Raises:
        ErrorAnswer: it is.
    """
    facts = state.model_facts(job.model)
    if job.chat and facts is not None and not facts.chat:
        raise ErrorAnswer(400, f"{job.model} has no chat template: send a prompt", param="messages")
    if job.size > state.settings.max_chars:
        raise ErrorAnswer(413, f"the prompt has more than {state.settings.max_chars:,} characters", param="prompt")


def _check_settings(offer: Offer, asked: schemas.DecodingRequest, mark: Mark | None) -> None:
    """Refuse what could leave hardly any mark where every text must be marked, and what says how a mark is made of a
    text that is to have none.

    Raises:
        ErrorAnswer: such a setting is named.
    """
    if offer.marking.enforce:
        for name in (*REQUEST_SETTINGS, "num_denoising_steps"):
            if name not in FREE_SETTINGS and getattr(asked, name, None) is not None:
                detail = f"every text of this service is marked, and {name} could weaken the mark: leave it out"
                raise ErrorAnswer(400, detail, param=name)
    for name, off in OFF_WITHOUT_MARK.items():
        if mark is None and getattr(asked, name) not in (None, off):
            detail = f"{name} says how a mark is made, and this text is to have none: leave it out, or have it marked"
            raise ErrorAnswer(400, detail, param=name)


def _infilled(text: GenerationTask) -> dict[str, Any]:
    """The fields of `InfillAnswer`."""
    fields = text.fields()
    for name in ("length", "finish_reason"):
        del fields[name]
    settings = {name: value for name, value in fields["settings"].items() if name not in ("length", "steps")}
    own = {"settings": settings, "spans": text.finished.spans}
    return {**fields, **own, **text.finished.figures}


async def _events(text: GenerationTask) -> AsyncIterator[Event]:
    """The events `start`, `step`, `done` and `error`. None says whether a token matches: the groups are secret."""
    yield event({**text.head(), "mask": MASK}, "start")
    try:
        async for step in text.steps():
            names = ("step", "block", "positions", "tokens", "pieces")
            yield event({name: getattr(step, name) for name in names}, "step")
        yield event(text.fields(), "done")
    except DgmarkError as error:
        request_id = id_of(text.request)
        yield event(answer_to(error, request_id).problem(request_id), "error")
