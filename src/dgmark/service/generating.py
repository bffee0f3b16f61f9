"""The routes that write texts, with their steps as events if that is asked for."""

from collections.abc import AsyncIterator
from typing import Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse, Response

from dgmark.errors import DgmarkError
from dgmark.service import generation_fields as fields
from dgmark.service.asking import Prompt, add_route, prompt_of
from dgmark.service.events import HEARTBEAT, event
from dgmark.service.house import House
from dgmark.service.jobs import Stepped
from dgmark.service.text import Text

MASK = "░"


def routes(house: House) -> APIRouter:
    """The routes of generation.

    Args:
        house: what the routes of one service share.
    """
    router = APIRouter(tags=["generation"])
    add_route(
        router,
        house,
        "/v1/generate",
        summary="Write a text, marked unless you say otherwise; with stream, an event for each step",
        takes=fields.GenerateRequest,
        gives=fields.Written,
        ids="gen",
        prompt=lambda asked: prompt_of(asked.prompt, asked.messages),
        answer=_written,
    )
    add_route(
        router,
        house,
        "/v1/infill",
        summary="Fill the holes of a text; what stands around them stays as it is",
        takes=fields.InfillRequest,
        gives=fields.Infilled,
        ids="fill",
        prompt=_with_holes,
        answer=lambda text, _: text.whole(lambda: JSONResponse(_infilled(text))),
    )
    return router


async def _written(text: Text, asked: fields.GenerateRequest) -> Response:
    if asked.stream:
        return await text.stream(_events)
    return await text.whole(lambda: JSONResponse(text.fields()))


def _with_holes(asked: fields.InfillRequest) -> Prompt:
    content = asked.parts if asked.text is None else asked.text
    assert content is not None
    return Prompt(content, fill_from=asked.count_from)


def _infilled(text: Text) -> dict[str, Any]:
    """The fields of `Infilled`."""
    assert text.finished is not None
    whole = text.fields()
    for name in ("length", "finish_reason"):
        del whole[name]
    settings = {name: value for name, value in whole["settings"].items() if name not in ("length", "steps")}
    return {**whole, "settings": settings, "spans": text.finished.spans, "count_from": text.job.fill_from}


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
