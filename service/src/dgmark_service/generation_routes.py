"""The routes that write texts, with their steps as events if that is asked for."""

import hashlib
import json
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from fastapi import APIRouter, Request
from fastapi.responses import Response

from dgmark.errors import DgmarkError
from dgmark.watermark.policy import Mark, MarkingPolicy
from dgmark_service import generation_schemas as schemas
from dgmark_service.auth import Caller, Generating, network
from dgmark_service.bodies import json_body, read_json
from dgmark_service.error_answers import ErrorAnswer, Refused
from dgmark_service.error_handlers import answer_to
from dgmark_service.generation_task import Event, GenerationTask, answer, event
from dgmark_service.jobs import FREE_SETTINGS, OFF_WITHOUT_MARK, REQUEST_SETTINGS, Job, Marked
from dgmark_service.offers import Offer
from dgmark_service.openai_schemas import ChatRequest, CompletionRequest
from dgmark_service.state import ServiceState

D = TypeVar("D", schemas.GenerateRequest, schemas.InfillRequest, CompletionRequest, ChatRequest)
W = TypeVar("W", bound=Callable[..., Any])

MASK = "░"
_EVENTS: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/event-stream": {}}, "description": "The text, or events if stream is set."}
}


def writes(router: APIRouter, path: str, model: type[D], summary: str, answer_model: Any = None) -> Callable[[W], W]:
    """The decorator of a route that takes these fields and writes texts."""
    described = json_body(model)
    return router.post(path, summary=summary, response_model=answer_model, responses=_EVENTS, openapi_extra=described)


def routes(state: ServiceState) -> APIRouter:
    """The routes of generation."""
    router = APIRouter(tags=["generation"])

    said = "Write a text, marked unless you say otherwise; with stream, an event for each step"

    @writes(router, "/v1/generate", schemas.GenerateRequest, said, schemas.GenerateAnswer)
    async def generate(request: Request, caller: Generating) -> Response:
        return await _answer(*await begin(state, request, caller, schemas.GenerateRequest, "gen"))

    said = "Fill the holes of a text, given or chosen; what surrounds them does not change"

    @writes(router, "/v1/infill", schemas.InfillRequest, said, schemas.InfillAnswer)
    async def infill(request: Request, caller: Generating) -> Response:
        return await _answer(*await begin(state, request, caller, schemas.InfillRequest, "fill"))

    return router


async def _answer(asked: schemas.GenerateRequest | schemas.InfillRequest, texts: list[GenerationTask]) -> Response:
    (text,) = texts
    if text.job.check or text.job.remask is not None:  # the answer has a p-value under the key
        text.state.auth.authorize(text.request, "detect:full")
    return await answer(texts, _events(text) if asked.stream else None, text.fields)


async def begin(
    state: ServiceState, request: Request, caller: Caller, model: type[D], prefix: str
) -> tuple[D, list[GenerationTask]]:
    """What a request asks for, and its texts; nothing is written yet.

    Args:
        state: what the routes of one service share.
        request: the request.
        caller: who asks.
        model: its fields.
        prefix: of the texts' ids. The first text has the id of the answer, the one at place i of further ones that id
            with -i behind it.

    Raises:
        ErrorAnswer: a field is wrong, the model is unknown, the prompts are too many or too long, or the policy does
            not allow it.
    """
    asked = await read_json(request, model)
    offer, contents = offer_of(state, asked.model), asked.contents()
    most = state.settings.rows + state.settings.queue
    if len(contents) > most:
        detail = f"the request asks for {len(contents):,} texts, and this service holds {most} at once: ask for fewer"
        raise ErrorAnswer(400, f"{detail} in each request", param="n" if contents[0]["place"] is None else "prompt")
    # what each row of the audit log about this request says
    request.state.about = {"model": offer.source.name, "policy": offer.policy, "asked": asked.marking_request.enabled}
    retried = _retried_id(request, caller, await request.body())
    answer_id = f"{prefix}-{retried or secrets.token_hex(16)}"
    first_seed = int(retried[:15], 16) if retried and asked.seed is None else asked.seed
    texts = []
    for row, content in enumerate(contents):
        text_id, seed = f"{answer_id}-{row}" if row else answer_id, None if first_seed is None else first_seed + row
        mark = _policy_for(caller, offer).choose(asked.marking_request, text_id)
        _check_settings(offer, asked, mark)
        job = Job(
            id=f"{text_id} {secrets.token_hex(4)}",  # that of a request which is sent again may be under way
            caller=caller.name or network(caller.address),
            model=offer.source.name,
            key=mark.key if mark else None,
            seed=secrets.randbits(63) if seed is None else seed,
            settings=asked.decoding(),
            own=offer.source.marked if mark else offer.source.unmarked,
            enforced=offer.marking.enforce,
            check=getattr(asked, "check", False),
            seconds=state.settings.text_seconds,
            **content,
        )
        # a request that is sent again gets the same text; any other one gets another sub-key, if that is drawn
        repeatable = seed is not None and (retried is not None or mark is None or not mark.drawn)
        about = {"id": text_id, "watermark": offer.describe(mark), "seed": seed, "repeatable": repeatable}
        used, chosen = ([mark.key], mark.chosen) if mark else ([], False)
        note = partial(state.audit.note, request, keys=used, text=text_id, subkey_chosen=chosen)
        texts.append(GenerationTask(state, request, job, about, asked.stops, note))
    _check_prompts(state, [text.job for text in texts])
    return asked, texts


def _policy_for(caller: Caller, offer: Offer) -> MarkingPolicy:
    """The marking policy of a model with the keys that the caller may use, of which there must be one."""
    keys = caller.own(offer.marking.keys)
    if not keys:
        raise Refused(403, "this access token is for keys that mark no text of this model", param="watermark.key_id")
    default = offer.marking.default if offer.marking.default in keys else next(iter(keys))
    return replace(offer.marking, keys=keys, default=default)


def _retried_id(request: Request, caller: Caller, body: bytes) -> str | None:
    """What stands for a request that may be sent again: the same for the same caller, header and body; None without.

    The body is part of it, so that no caller can give two texts one sub-key.
    """
    given = request.headers.get("idempotency-key")
    if not given:
        return None
    said = json.dumps([caller.name, given, hashlib.sha256(body).hexdigest()])
    return hashlib.sha256(said.encode()).hexdigest()[:32]


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


def _check_prompts(state: ServiceState, jobs: Sequence[Job]) -> None:
    """Refuse prompts that are too long together, or that the model does not take."""
    job = jobs[0]
    facts = state.model_process.facts.get(job.model)
    if job.chat and facts is not None and not facts.chat:
        raise ErrorAnswer(400, f"{job.model} has no chat template: send a prompt", param="messages")
    if sum(job.size for job in jobs) > state.settings.max_chars:
        many = f"the prompts of {len(jobs)} texts have" if len(jobs) > 1 else "the prompt has"
        detail = f"{many} more than {state.settings.max_chars:,} characters"
        raise ErrorAnswer(413, detail, param=job.prompt_param.partition(".")[0])


def _check_settings(offer: Offer, asked: schemas.DecodingRequest, mark: Mark | None) -> None:
    """Refuse settings that could weaken a mark that must be there, or say how one is made where there is none."""
    if offer.marking.enforce:
        for name in (*REQUEST_SETTINGS, "num_denoising_steps"):
            if name not in FREE_SETTINGS and getattr(asked, name, None) is not None:
                detail = f"every text of this service is marked, and {name} could weaken the mark: leave it out"
                raise Refused(400, detail, param=name)
    if mark is None and getattr(asked, "check", False):
        raise ErrorAnswer(
            400, "check looks for a mark, and this text is to have none: leave it out, or have it marked", param="check"
        )
    for name, off in OFF_WITHOUT_MARK.items():
        if mark is None and getattr(asked, name) not in (None, off):
            detail = f"{name} says how a mark is made, and this text is to have none: leave it out, or have it marked"
            raise ErrorAnswer(400, detail, param=name)


async def _events(text: GenerationTask) -> AsyncIterator[Event]:
    """The events `start`, `step`, `done` and `error`. None says whether a token matches: the groups are secret.

    The steps of an infilling say how many tokens are done, of how many if that is known.
    """
    head, fills, filled = text.head(), text.job.fills, 0
    about = ("id", "model", "watermark", "seed", "repeatable")
    yield event({name: head[name] for name in about} if fills else {**head, "mask": MASK}, "start")
    try:
        async for step in text.steps():
            if isinstance(step, Marked):
                yield event({"done": step.done, "of": step.of}, "step")
            elif fills:
                filled += len(step.positions)
                yield event({"done": filled, "of": None}, "step")
            else:
                names = ("step", "block", "positions", "tokens", "pieces")
                yield event({name: getattr(step, name) for name in names}, "step")
        yield event(text.fields(), "done")
    except DgmarkError as error:
        yield event(answer_to(error, text.request).problem(text.request.state.request_id), "error")
