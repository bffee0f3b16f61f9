"""OpenAI's interface to the same texts: chat and plain completions, whole or in chunks, and the list of models.

A diffusion model writes out of order; a chunk has what became readable from the beginning on without a gap.
The texts of one request wait, are batched and are marked as those of as many requests.
"""

import time
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from dgmark.errors import DgmarkError
from dgmark_service import openai_schemas as schemas
from dgmark_service.auth import Caller, Generating
from dgmark_service.error_handlers import answer_to
from dgmark_service.generation_routes import begin, offer_of, writes
from dgmark_service.generation_task import Event, GenerationTask, answer, event, merged, usage
from dgmark_service.offers import Offer
from dgmark_service.state import ServiceState

_DONE = {"data": "[DONE]"}


def routes(state: ServiceState) -> APIRouter:
    """The routes of OpenAI's interface."""
    router = APIRouter(tags=["OpenAI's interface"])
    began = int(time.time())

    @writes(router, "/v1/chat/completions", schemas.ChatRequest, "Answer messages, in OpenAI's form")
    async def chat_completions(request: Request, caller: Generating) -> Response:
        return await _answer(*await begin(state, request, caller, schemas.ChatRequest, "chatcmpl"))

    @writes(router, "/v1/completions", schemas.CompletionRequest, "Continue a text, in OpenAI's form")
    async def completions(request: Request, caller: Generating) -> Response:
        return await _answer(*await begin(state, request, caller, schemas.CompletionRequest, "cmpl"))

    @router.get("/v1/models", summary="The models that write texts")
    async def models(caller: Generating) -> dict[str, Any]:
        return {"object": "list", "data": [_model(offer, caller, began) for offer in state.offers.values()]}

    @router.get("/v1/models/{name:path}", summary="One model")
    async def model(name: str, caller: Generating) -> dict[str, Any]:
        return _model(offer_of(state, name), caller, began)

    return router


def _model(offer: Offer, caller: Caller, began: int) -> dict[str, Any]:
    """A model in OpenAI's form; the policy, and the keys that the caller may use, are ours."""
    own = {"policy": offer.policy, "keys": list(caller.own(offer.marking.keys))}
    return {"id": offer.source.name, "object": "model", "created": began, "owned_by": "dgmark", **own}


async def _answer(asked: schemas.CompletionRequest | schemas.ChatRequest, texts: Sequence[GenerationTask]) -> Response:
    job, kind = texts[0].job, "text_completion"
    if job.chat:
        kind = "chat.completion.chunk" if asked.stream else "chat.completion"
    head = {"id": texts[0].about["id"], "object": kind, "created": int(time.time()), "model": job.model}
    counts = partial(usage, texts, asked.n or 1)
    counted = asked.stream_options is not None and asked.stream_options.include_usage
    events = _events(head, texts, counts if counted else None) if asked.stream else None

    def completion() -> dict[str, Any]:
        choices = []
        for index, one in enumerate(texts):
            text = one.finished.text
            content = {"message": {"role": "assistant", "content": text}} if job.chat else {"text": text}
            choices.append(_choice(index, content, one.finish_reason))
        return {**head, "choices": choices, "usage": counts(), **_own(texts)}

    return await answer(texts, events, completion)


def _choice(index: int, fields: dict[str, Any], reason: str | None) -> dict[str, Any]:
    """A text, or a piece of one."""
    return {"index": index, **fields, "finish_reason": reason, "logprobs": None}


def _own(texts: Sequence[GenerationTask]) -> dict[str, Any]:
    """The fields that OpenAI's form does not have: the steps of all texts, and the longest block."""
    return {
        "num_denoising_steps": sum(text.finished.steps for text in texts),
        "block_length": max(text.started.settings["block_length"] for text in texts),
        "watermark": texts[0].about["watermark"],
        "repeatable": texts[0].about["repeatable"],
    }


async def _events(
    head: dict[str, Any], texts: Sequence[GenerationTask], counts: Callable[[], dict[str, int]] | None
) -> AsyncIterator[Event]:
    """The chunks of all texts as they come, maybe one with counts, and the end."""
    if counts is not None:
        head = {**head, "usage": None}
    try:
        async for chunk in merged([_chunks(head, index, text) for index, text in enumerate(texts)]):
            yield chunk
        if counts is not None:
            yield event({**head, "choices": [], "usage": counts()})
        yield _DONE
    except DgmarkError as error:
        yield event(answer_to(error, texts[0].request).openai())


async def _chunks(head: dict[str, Any], index: int, text: GenerationTask) -> AsyncIterator[Event]:
    """The chunks of one text, of which the last one has the reason of its end."""

    def chunk(piece: str, reason: str | None = None, *, role: str | None = None, **more: Any) -> Event:
        """An event with a piece of the text."""
        delta = {} if role is None else {"role": role}
        if piece or delta:
            delta["content"] = piece
        fields = {"delta": delta} if text.job.chat else {"text": piece}
        return event({**head, "choices": [_choice(index, fields, reason)], **more})

    sent = ""
    if text.job.chat:
        yield chunk("", role="assistant", watermark=text.about["watermark"])
    async for _ in text.steps():
        if piece := text.readable()[len(sent) :]:
            sent += piece
            yield chunk(piece)
    if rest := text.finished.text.removeprefix(sent):
        yield chunk(rest)
    yield chunk("", text.finish_reason, **_own([text]))
