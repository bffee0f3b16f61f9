"""From a request for a text to the `Text`: its fields, its prompt, and what the policy makes of it."""

import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import BaseModel

from dgmark.service import generation_fields as fields
from dgmark.service.callers import Caller
from dgmark.service.fields import schema_of
from dgmark.service.house import House
from dgmark.service.jobs import Job
from dgmark.service.policy import WEAKENING, Offer
from dgmark.service.problems import Refused, id_of
from dgmark.service.text import Text

D = TypeVar("D", bound=fields.Decoding)

_EVENTS: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/event-stream": {}}, "description": "The text, or events if stream is set."}
}


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


def add_route(
    router: APIRouter,
    house: House,
    path: str,
    *,
    summary: str,
    takes: type[D],
    gives: type[BaseModel],
    ids: str,
    prompt: Callable[[D], Prompt],
    answer: Callable[[Text, D], Awaitable[Response]],
) -> None:
    """Add a route that writes a text for whoever has the scope `generate`.

    Args:
        router: the routes that it is added to.
        house: what the routes of one service share.
        path: its path; the part after the version names it in the description.
        summary: what it does.
        takes: the fields of a request; with a field `stream` the answer may be events.
        gives: the fields of an answer.
        ids: what the ids of its texts begin with.
        prompt: what a request wants to be continued or filled.
        answer: writes the text, and makes the answer.
    """

    async def write(request: Request) -> Response:
        caller = house.callers.with_scope(request, "generate")
        asked = await _read(request, takes)
        return await answer(_begin(house, request, caller, asked, prompt(asked), ids), asked)

    router.add_api_route(
        path,
        write,
        methods=["POST"],
        name=path.removeprefix("/v1/").partition("/")[0],
        summary=summary,
        response_model=gives,
        responses=_EVENTS if "stream" in takes.model_fields else None,
        openapi_extra=_json_body(takes),
    )


async def _read(request: Request, model: type[D]) -> D:
    """The fields of a JSON body.

    Raises:
        Refused: the body is of another kind.
        ValidationError: a field is wrong or unknown.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise Refused(415, "send application/json", param="content-type")
    return model.model_validate_json(await request.body(), strict=True)


def _begin(house: House, request: Request, caller: Caller, asked: fields.Decoding, prompt: Prompt, ids: str) -> Text:
    """The text that a request asks for, and how it is to be marked; nothing is begun yet.

    Raises:
        Refused: the model is unknown, the prompt is too long, or the policy does not allow what is asked for.
    """
    offer = offer_of(house, asked.model)
    text_id = f"{ids}-{secrets.token_hex(16)}"
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
    if marking.key is None:
        _check_unmarked(asked)
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

    return Text(house, request, job, marking, seed=asked.seed, stops=asked.stops, on_start=note)


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


def _check_unmarked(asked: fields.Decoding) -> None:
    """Refuse what says how a mark is made of a text that is to have none.

    Raises:
        Refused: such a setting is named, with a value that turns it on.
    """
    for name, off in (("guard", 0.0), ("repetition_guard", False), ("lookahead", 1)):
        if getattr(asked, name) not in (None, off):
            detail = f"{name} says how a mark is made, and this text is to have none: leave it out, or have it marked"
            raise Refused(400, detail, param=name)


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


def _json_body(model: type[BaseModel]) -> dict[str, Any]:
    """The description of a JSON body."""
    schema, _ = schema_of(model)
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def body_schemas() -> dict[str, Any]:
    """The schemas that the descriptions of the bodies refer to, by name."""
    found: dict[str, Any] = {}
    for model in (fields.GenerateRequest, fields.InfillRequest, fields.ChatRequest):
        found |= schema_of(model)[1]
    return found
