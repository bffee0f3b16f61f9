"""OpenAI's interface to the same texts: chat and plain completions, whole or in chunks, and the list of models.

A diffusion model writes out of order; a chunk has what became readable from the beginning on without a gap.
"""

import time
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from dgmark.errors import DgmarkError
from dgmark.service import generation_schemas as schemas
from dgmark.service.bodies import json_body
from dgmark.service.error_answers import answer_to, id_of
from dgmark.service.generation_routes import EVENTS, begin, offer_of
from dgmark.service.generation_task import Event, GenerationTask, event, stream, whole
from dgmark.service.offers import Offer
from dgmark.service.state import ServiceState

_DONE = {"data": "[DONE]"}


def routes(state: ServiceState) -> APIRouter:
    """The routes of OpenAI's interface.

    Args:
        state: what the routes of one service share.
    """
    router = APIRouter(tags=["OpenAI's interface"])
    began = int(time.time())

    @router.post(
        "/v1/chat/completions",
        summary="Answer messages, in OpenAI's form",
        responses=EVENTS,
        openapi_extra=json_body(schemas.ChatRequest),
    )
    async def chat_completions(request: Request) -> Response:
        return await _answer(*await begin(state, request, schemas.ChatRequest, "chatcmpl"))

    @router.post(
        "/v1/completions",
        summary="Continue a text, in OpenAI's form",
        responses=EVENTS,
        openapi_extra=json_body(schemas.CompletionRequest),
    )
    async def completions(request: Request) -> Response:
        return await _answer(*await begin(state, request, schemas.CompletionRequest, "cmpl"))

    @router.get("/v1/models", summary="The models that write texts")
    async def models(request: Request) -> dict[str, Any]:
        state.auth.authorize(request, "generate")
        return {"object": "list", "data": [_model(offer, began) for offer in state.offers.values()]}

    @router.get("/v1/models/{name:path}", summary="One model")
    async def model(request: Request, name: str) -> dict[str, Any]:
        state.auth.authorize(request, "generate")
        return _model(offer_of(state, name), began)

    return router


def _model(offer: Offer, began: int) -> dict[str, Any]:
    """A model in OpenAI's form; policy and keys are ours."""
    own = {"policy": offer.policy, "keys": list(offer.marking.keys)}
    return {"id": offer.source.name, "object": "model", "created": began, "owned_by": "dgmark", **own}


async def _answer(asked: schemas.CompletionRequest | schemas.ChatRequest, text: GenerationTask) -> Response:
    job, kind = text.job, "text_completion"
    if job.chat:
        kind = "chat.completion.chunk" if asked.stream else "chat.completion"
    head = {"id": job.id, "object": kind, "created": int(time.time()), "model": job.model}
    if asked.stream:
        counted = asked.stream_options is not None and asked.stream_options.include_usage
        return await stream(text, _events(head, text, counted=counted))
    return await whole(text, partial(_completion, head))


def _completion(head: dict[str, Any], text: GenerationTask) -> dict[str, Any]:
    """The answer that begins with these fields."""
    content = text.finished.text
    fields = {"message": {"role": "assistant", "content": content}} if text.job.chat else {"text": content}
    choice = {"index": 0, **fields, "finish_reason": text.finish_reason, "logprobs": None}
    return {**head, "choices": [choice], "usage": text.usage(), **_own(text)}


def _own(text: GenerationTask) -> dict[str, Any]:
    """The fields that OpenAI's form does not have."""
    return {
        "num_denoising_steps": text.finished.steps,
        "block_length": text.started.settings["block_length"],
        "watermark": text.marking,
    }


async def _events(head: dict[str, Any], text: GenerationTask, *, counted: bool) -> AsyncIterator[Event]:
    """The chunks of the text, of which the last one has the reason of its end, maybe one with counts, and the end."""
    if counted:
        head = {**head, "usage": None}

    def chunk(piece: str, reason: str | None = None, *, role: str | None = None, **more: Any) -> Event:
        """An event with a piece of the text."""
        delta = {} if role is None else {"role": role}
        if piece or delta:
            delta["content"] = piece
        fields = {"delta": delta} if text.job.chat else {"text": piece}
        choice = {"index": 0, **fields, "finish_reason": reason, "logprobs": None}
        return event({**head, "choices": [choice], **more})

    sent = ""
    try:
        if text.job.chat:
            yield chunk("", role="assistant", watermark=text.marking)
        async for _ in text.steps():
            if piece := text.readable()[len(sent) :]:
                sent += piece
                yield chunk(piece)
        if rest := text.finished.text.removeprefix(sent):
            yield chunk(rest)
        yield chunk("", text.finish_reason, **_own(text))
        if counted:
            yield event({**head, "choices": [], "usage": text.usage()})
        yield _DONE
    except DgmarkError as error:
        yield event(answer_to(error, id_of(text.request)).openai())
