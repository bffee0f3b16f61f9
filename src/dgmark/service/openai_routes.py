"""OpenAI's interface to the same texts: chat and plain completions, whole or in chunks, and the list of models.

A diffusion model writes out of order; a chunk has what became readable from the beginning on without a gap.
"""

import time
from collections.abc import AsyncIterator
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from dgmark.errors import DgmarkError
from dgmark.service import generation_schemas as schemas
from dgmark.service.bodies import json_body
from dgmark.service.errors import id_of, refusal_of
from dgmark.service.generation import HEARTBEAT, Events, GenerationTask, event, whole
from dgmark.service.generation_routes import EVENTS, begin, offer_of
from dgmark.service.jobs import Stepped
from dgmark.service.policy import Offer
from dgmark.service.state import ServiceState

_DONE = "[DONE]"


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
    own = {"policy": offer.policy, "keys": list(offer.keys)}
    return {"id": offer.source.name, "object": "model", "created": began, "owned_by": "dgmark", **own}


async def _answer(asked: schemas.CompletionRequest | schemas.ChatRequest, texts: list[GenerationTask]) -> Response:
    created, text = int(time.time()), texts[0]
    if not asked.stream:
        return await whole(texts, lambda: JSONResponse(_whole(texts, asked.n or 1, created)))
    with_usage = asked.stream_options is not None and asked.stream_options.include_usage
    return await text.stream(_chunks(created, with_usage=with_usage))


def _whole(texts: list[GenerationTask], n: int, created: int) -> dict[str, Any]:
    first = texts[0]
    # a prompt counts once for all choices of it
    prompt, completion = (
        sum(text.started.prompt_tokens for text in texts[::n]),
        sum(text.finished.tokens for text in texts),
    )
    return {
        "id": first.job.id,
        "object": "chat.completion" if first.job.chat else "text_completion",
        "created": created,
        "model": first.job.model,
        "choices": [_choice(index, text) for index, text in enumerate(texts)],
        "usage": {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion},
        **_own(first),
    }


def _choice(index: int, text: GenerationTask) -> dict[str, Any]:
    """A choice; its id is ours, and that which its sub-key follows from."""
    content = text.finished.text
    fields = {"message": {"role": "assistant", "content": content}} if text.job.chat else {"text": content}
    return {"index": index, "id": text.job.id, **fields, "finish_reason": text.finish_reason, "logprobs": None}


def _own(text: GenerationTask) -> dict[str, Any]:
    """The fields that OpenAI's form does not have."""
    return {
        "num_denoising_steps": text.finished.steps,
        "block_length": text.started.block_length,
        "watermark": text.watermark(),
    }


def _chunks(created: int, *, with_usage: bool) -> Events:
    """The events of a stream: chunks, one with the reason of the end, maybe one with the counts, and the end."""

    async def chunks(text: GenerationTask, steps: AsyncIterator[Stepped | None]) -> AsyncIterator[bytes]:
        """The events of one text."""
        kind, chat = "chat.completion.chunk" if text.job.chat else "text_completion", text.job.chat

        def chunk(choices: list[dict[str, Any]], **more: Any) -> bytes:
            """An event; `choices` is empty in the event with the counts."""
            head = {"id": text.job.id, "object": kind, "created": created, "model": text.job.model}
            usage = {"usage": None} if with_usage else {}
            return event(None, {**head, "choices": choices, **usage, **more})

        def choice(piece: str, reason: str | None = None, **delta: str) -> list[dict[str, Any]]:
            """The one choice that there is, with its piece of the text."""
            content = {"content": piece} if piece or delta else {}
            fields = {"delta": {**delta, **content}} if chat else {"text": piece}
            return [{"index": 0, **fields, "finish_reason": reason, "logprobs": None}]

        if chat:
            yield chunk(choice("", role="assistant"), watermark=text.watermark())
        sent = ""
        try:
            async for step in steps:
                if step is None:
                    yield HEARTBEAT
                elif piece := text.readable()[len(sent) :]:
                    sent += piece
                    yield chunk(choice(piece))
            if rest := text.finished.text.removeprefix(sent):
                yield chunk(choice(rest))
            yield chunk(choice("", text.finish_reason), **_own(text))
            if with_usage:
                yield chunk([], usage=text.usage())
            yield event(None, _DONE)
        except DgmarkError as error:
            yield event(None, refusal_of(error, id_of(text.request)).openai())

    return chunks
