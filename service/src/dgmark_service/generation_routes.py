"""The routes that write texts, with their steps as events if that is asked for."""

import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from fastapi import APIRouter, Request
from fastapi.responses import Response

from dgmark.errors import DgmarkError
from dgmark.watermark.policy import Mark, MarkingRefused
from dgmark_service import generation_schemas as schemas
from dgmark_service.auth import Caller, needs
from dgmark_service.bodies import json_body, read_json
from dgmark_service.error_answers import ErrorAnswer, answer_to, id_of
from dgmark_service.generation_task import Event, GenerationTask, event, stream, whole
from dgmark_service.jobs import FREE_SETTINGS, OFF_WITHOUT_MARK, REQUEST_SETTINGS, Job
from dgmark_service.offers import Offer
from dgmark_service.state import ServiceState

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
        openapi_extra=json_body(schemas.GenerateRequest) | needs("generate"),
    )
    async def generate(request: Request) -> Response:
        asked, texts = await begin(state, request, schemas.GenerateRequest, "gen")
        if asked.check:  # the answer has a p-value under the key
            state.auth.authorize(request, "detect:full")
        if asked.stream:
            return await stream(texts, _events(*texts))
        return await whole(texts, lambda written: written[0].fields())

    @router.post(
        "/v1/infill",
        summary="Fill the holes of a text, given or chosen; what surrounds them does not change",
        response_model=schemas.InfillAnswer,
        openapi_extra=json_body(schemas.InfillRequest) | needs("generate"),
    )
    async def infill(request: Request) -> Response:
        asked, texts = await begin(state, request, schemas.InfillRequest, "fill")
        if asked.check or asked.share is not None:  # the answer has a p-value under the key
            state.auth.authorize(request, "detect:full")
        return await whole(texts, lambda written: _infilled(written[0]))

    return router


async def begin(state: ServiceState, request: Request, model: type[D], prefix: str) -> tuple[D, list[GenerationTask]]:
    """What a request of whoever has the scope `generate` asks for, and its texts; nothing is written yet.

    Args:
        state: what the routes of one service share.
        request: the request.
        model: its fields.
        prefix: of the texts' ids. The first text has the id of the answer, the one at place i of further ones that id
            with -i behind it.

    Raises:
        ErrorAnswer: they may not, the model is unknown, the prompts are too many or too long, or the policy does not
            allow it.
        ValidationError: a field is wrong or unknown.
    """
    caller = state.auth.authorize(request, "generate")
    asked = await read_json(request, model)
    offer = offer_of(state, asked.model)
    _check_number(state, asked)
    answer_id = f"{prefix}-{secrets.token_hex(16)}"
    texts = []
    for row, content in enumerate(asked.contents()):
        text_id = answer_id if row == 0 else f"{answer_id}-{row}"
        seed = None if asked.seed is None else asked.seed + row
        texts.append(_text(state, request, caller, offer, asked, content, text_id, seed))
    _check_prompts(state, [text.job for text in texts])
    return asked, texts


def _text(
    state: ServiceState,
    request: Request,
    caller: Caller,
    offer: Offer,
    asked: schemas.DecodingRequest,
    content: dict[str, Any],
    text_id: str,
    seed: int | None,
) -> GenerationTask:
    """One text of a request.

    Raises:
        ErrorAnswer: the policy does not allow a setting.
        MarkingRefused: it does not allow this mark.
    """
    about: dict[str, Any] = {"model": offer.source.name, "policy": offer.policy, "asked": asked.marking_request.enabled}
    log: Callable[..., None] = partial(state.auth.log, request, caller, **about)
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
        seed=secrets.randbits(63) if seed is None else seed,
        settings=asked.decoding(),
        own=offer.source.marked if mark else offer.source.unmarked,
        enforced=offer.marking.enforce,
        check=getattr(asked, "check", False),
        **content,
    )
    named = {"key": mark.name if mark else None, "subkey_chosen": mark is not None and mark.chosen}
    on_start = partial(log, "generate", text=text_id, **named)
    repeatable = seed is not None and not (mark is not None and mark.drawn)
    return GenerationTask(state, request, job, offer.describe(mark), seed, repeatable, asked.stops, on_start)


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


def _check_number(state: ServiceState, asked: schemas.DecodingRequest) -> None:
    """Refuse a request for more texts than the service ever holds at once.

    Raises:
        ErrorAnswer: it is one.
    """
    most = state.settings.rows + state.settings.queue
    if asked.number > most:
        detail = (
            f"the request asks for {asked.number:,} texts, and this service holds {most} at once: ask for fewer in "
        )
        raise ErrorAnswer(400, detail + "each request", param=asked.number_param)


def _check_prompts(state: ServiceState, jobs: Sequence[Job]) -> None:
    """Refuse prompts that are too long together, or that the model does not take.

    Raises:
        ErrorAnswer: they are.
    """
    job = jobs[0]
    facts = state.model_facts(job.model)
    if job.chat and facts is not None and not facts.chat:
        raise ErrorAnswer(400, f"{job.model} has no chat template: send a prompt", param="messages")
    if sum(job.size for job in jobs) > state.settings.max_chars:
        many = f"the prompts of {len(jobs)} texts have" if len(jobs) > 1 else "the prompt has"
        detail = f"{many} more than {state.settings.max_chars:,} characters"
        raise ErrorAnswer(413, detail, param=job.prompt_param.partition(".")[0])


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
    if mark is None and getattr(asked, "check", False):
        raise ErrorAnswer(
            400, "check looks for a mark, and this text is to have none: leave it out, or have it marked", param="check"
        )
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
