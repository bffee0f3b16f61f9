"""OpenAI's interface to the same texts: chat and plain completions, whole or in chunks, and the list of models.

A diffusion model writes out of order; a chunk has what became readable from the beginning on without a gap.
"""

import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from dgmark.errors import DgmarkError
from dgmark.service import generation_fields as fields
from dgmark.service.asking import Prompt, add_route, offer_of, prompt_of
from dgmark.service.events import HEARTBEAT, event
from dgmark.service.house import House
from dgmark.service.jobs import Stepped
from dgmark.service.policy import Offer
from dgmark.service.text import Events, Text, end_of

_DONE = "[DONE]"


@dataclass(frozen=True)
class _Kind:
    """What differs between chat and plain completions.

    Attributes:
        whole: the name of a whole answer.
        chunk: the name of a chunk.
        opening: the first chunk's delta; None if there is no such chunk.
        content: the text as a field of a choice.
        delta: a piece of the text as a field of a chunk's choice.
    """

    whole: str
    chunk: str
    opening: dict[str, Any] | None
    content: Callable[[str], dict[str, Any]]
    delta: Callable[[str], dict[str, Any]]


_CHAT = _Kind(
    whole="chat.completion",
    chunk="chat.completion.chunk",
    opening={"delta": {"role": "assistant", "content": ""}},
    content=lambda text: {"message": {"role": "assistant", "content": text}},
    delta=lambda piece: {"delta": {"content": piece} if piece else {}},
)
_PLAIN = _Kind(
    whole="text_completion",
    chunk="text_completion",
    opening=None,
    content=lambda text: {"text": text},
    delta=lambda piece: {"text": piece},
)


def routes(house: House) -> APIRouter:
    """The routes of OpenAI's interface.

    Args:
        house: what the routes of one service share.
    """
    router = APIRouter(tags=["OpenAI's interface"])
    began = int(time.time())

    add_route(
        router,
        house,
        "/v1/chat/completions",
        summary="Answer a message, in OpenAI's form",
        takes=fields.ChatRequest,
        gives=fields.ChatCompletion,
        ids="chatcmpl",
        prompt=lambda asked: prompt_of(None, [message.plain for message in asked.messages]),
        answer=lambda text, asked: _answer(text, asked, _CHAT),
    )
    add_route(
        router,
        house,
        "/v1/completions",
        summary="Continue a text, in OpenAI's form",
        takes=fields.CompletionRequest,
        gives=fields.Completion,
        ids="cmpl",
        prompt=lambda asked: Prompt(asked.prompt),
        answer=lambda text, asked: _answer(text, asked, _PLAIN),
    )

    @router.get("/v1/models", summary="The models that write texts")
    async def models(request: Request) -> fields.Models:
        house.callers.with_scope(request, "generate")
        return fields.Models(object="list", data=[_model(offer, began) for offer in house.offers.values()])

    @router.get("/v1/models/{name:path}", summary="One model")
    async def model(request: Request, name: str) -> fields.Model:
        house.callers.with_scope(request, "generate")
        return _model(offer_of(house, name), began)

    return router


def _model(offer: Offer, began: int) -> fields.Model:
    return fields.Model(
        id=offer.source.name,
        object="model",
        created=began,
        owned_by="dgmark",
        policy=offer.policy,
        keys=list(offer.keys),
    )


async def _answer(text: Text, asked: fields.ChatRequest | fields.CompletionRequest, kind: _Kind) -> Response:
    created = int(time.time())
    if not asked.stream:
        return await text.whole(lambda: JSONResponse(_whole(text, kind, created)))
    with_usage = asked.stream_options is not None and asked.stream_options.include_usage
    return await text.stream(_chunks(kind, created, with_usage=with_usage))


def _whole(text: Text, kind: _Kind, created: int) -> dict[str, Any]:
    assert text.finished is not None
    choice = {"index": 0, **kind.content(text.finished.text), "finish_reason": text.finish_reason, "logprobs": None}
    return {
        "id": text.job.id,
        "object": kind.whole,
        "created": created,
        "model": text.job.model,
        "choices": [choice],
        "usage": text.usage(),
        **_own(text),
    }


def _own(text: Text) -> dict[str, Any]:
    """The fields that OpenAI's form does not have."""
    assert text.started is not None
    assert text.finished is not None
    return {
        "num_denoising_steps": text.finished.steps,
        "block_length": text.started.block_length,
        "watermark": text.watermark(),
    }


def _chunks(kind: _Kind, created: int, *, with_usage: bool) -> Events:
    """The events of a stream: chunks, one with the reason of the end, maybe one with the counts, and the end."""

    async def chunks(text: Text, steps: AsyncIterator[Stepped | None]) -> AsyncIterator[bytes]:
        """The events of one text."""

        def chunk(choices: list[dict[str, Any]], **more: Any) -> bytes:
            """An event; `choices` is empty where only the counts are told."""
            head = {"id": text.job.id, "object": kind.chunk, "created": created, "model": text.job.model}
            usage = {"usage": None} if with_usage else {}
            return event(None, {**head, "choices": choices, **usage, **more})

        def choice(fields_: dict[str, Any], reason: str | None = None) -> list[dict[str, Any]]:
            """The one choice that there is, with its piece of the text."""
            return [{"index": 0, **fields_, "finish_reason": reason, "logprobs": None}]

        if kind.opening is not None:
            yield chunk(choice(kind.opening), watermark=text.watermark())
        sent = ""
        try:
            async for step in steps:
                if step is None:
                    yield HEARTBEAT
                elif piece := _readable(text.written, text.stops, sent):
                    sent += piece
                    yield chunk(choice(kind.delta(piece)))
            assert text.finished is not None
            if rest := text.finished.text.removeprefix(sent):
                yield chunk(choice(kind.delta(rest)))
            yield chunk(choice(kind.delta(""), text.finish_reason), **_own(text))
            if with_usage:
                yield chunk([], usage=text.usage())
            yield event(None, _DONE)
        except DgmarkError as error:
            yield event(None, text.complaint(error).openai())

    return chunks


def _readable(text: str, stops: Sequence[str], sent: str) -> str:
    """What can be sent of the text after what was sent: what is no beginning of what ends it."""
    # what was sent has no stop in it
    end = end_of(text, stops, len(sent))
    if end is None:
        end = len(text)
        unsent = len(text) - len(sent)
        beginnings = (stop[:size] for stop in stops for size in range(1, min(len(stop), unsent + 1)))
        end -= max((len(one) for one in beginnings if text.endswith(one)), default=0)
    return text[len(sent) : end]
