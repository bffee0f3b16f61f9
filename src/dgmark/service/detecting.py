"""The routes that check texts: one text, a batch, a report. Bodies are JSON, or a form with a document."""

from typing import Any, TypeVar

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException

from dgmark.service import fields
from dgmark.service.callers import Caller
from dgmark.service.checking import Answer, Checker, Content, Extras, Options, Upload
from dgmark.service.house import House
from dgmark.service.policy import Offer
from dgmark.service.problems import Refused, id_of
from dgmark.version import __version__

R = TypeVar("R", bound=BaseModel)

DOCUMENT = "document"
_MOST_FIELDS = 64
# what the public form may choose: anything else would make its verdict a number
_PUBLIC_FIELDS = {"key", "keys", "text", "passages", "include_text", "name", "format"}
_KINDS = {"html": "text/html; charset=utf-8", "json": "application/json"}


def routes(house: House) -> APIRouter:
    """The routes of detection.

    Args:
        house: what the routes of one service share.
    """
    router = APIRouter(tags=["detection"])

    @router.get("/v1/about", summary="What the service holds, and which form you get")
    async def about(request: Request) -> fields.About:
        """The keys, limits and models, and what your token lets you do."""
        caller = house.callers.with_scope(request, "detect")
        settings = house.settings
        return fields.About(
            dgmark=__version__,
            keys=[
                fields.KeyFields(name=name, key_fingerprint=key.fingerprint, tokenizer=key.spec.tokenizer)
                for name, key in house.keys.items()
            ],
            fpr=settings.fpr,
            form="public" if caller.public else "full",
            signed=settings.signer is not None,
            max_chars=settings.max_chars,
            max_texts=settings.max_texts,
            body_bytes=settings.body_bytes,
            models=[_model(house, offer) for offer in house.offers.values()],
            may_generate=bool(house.offers) and "generate" in caller.scopes,
        )

    @router.post(
        "/v1/detect",
        summary="Check one text, the token ids of one response, or one document",
        response_model=fields.FullAnswer | fields.PublicAnswer,
        openapi_extra=_body(fields.DetectRequest, ("text", "token_ids"), "A document in place of text and token_ids."),
    )
    async def detect(request: Request) -> Response:
        """The verdict, in the form that your token gives."""
        caller = house.callers.who_checks(request)
        asked, upload = await _read(house, request, fields.DetectRequest)
        options = _options(house, request, caller, asked)
        source = _one_text(asked, upload)
        extras = Extras(caller.public, asked.passages, tuple(asked.rates), asked.include_text)
        answer = await house.check(Checker.detect, source, options, extras)
        _note(house, request, caller, options, "detect", answer)
        return Response(answer.content, media_type="application/json")

    @router.post(
        "/v1/detect/batch",
        summary="Check several texts, or the rows of a table",
        response_model=fields.BatchAnswer,
        openapi_extra=_body(fields.BatchRequest, ("texts",), "A table (.csv, .xlsx) in place of texts."),
    )
    async def detect_batch(request: Request) -> Response:
        """An answer for each text, in the order of the request; a text that cannot be checked has an error."""
        caller = house.callers.with_scope(request, "detect:full")
        asked, upload = await _read(house, request, fields.BatchRequest)
        if (upload is None) == (not asked.texts):
            raise Refused(400, "give texts, or one document, and not both", param="texts")
        source = upload or [(one.id, _content(one)) for one in asked.texts]
        options = _options(house, request, caller, asked)
        answer = await house.check(Checker.detect_many, source, options)
        _note(house, request, caller, options, "detect/batch", answer)
        return Response(answer.content, media_type="application/json")

    @router.post(
        "/v1/report",
        summary="Make the signed report of one text or document",
        response_class=Response,
        responses={200: {"content": {"text/html": {}, "application/json": {}}, "description": "The report."}},
        openapi_extra=_body(fields.ReportRequest, ("text",), "A document in place of text."),
    )
    async def report(request: Request) -> Response:
        """The report as a page or as JSON, signed if the service has a signing key."""
        caller = house.callers.who_checks(request)
        asked, upload = await _read(house, request, fields.ReportRequest)
        options = _options(house, request, caller, asked)
        source = _one_text(asked, upload)
        name = upload.name if upload and "name" not in asked.model_fields_set else asked.name
        answer = await house.check(_report, source, options, asked.format, name, caller.public)
        signer = house.settings.signer
        content = await run_in_threadpool(signer.sign, answer.content) if signer else answer.content
        _note(house, request, caller, options, "report", answer)
        headers = {"content-disposition": f'attachment; filename="report.{asked.format}"'}
        return Response(content, media_type=_KINDS[asked.format], headers=headers)

    return router


def _model(house: House, offer: Offer) -> fields.ModelFields:
    facts = house.writer.facts.get(offer.source.name) if house.writer else None
    return fields.ModelFields(
        name=offer.source.name,
        ready=facts is not None,
        context_length=facts and facts.context_length,
        block_length=facts and facts.block_length,
        chat=facts and facts.chat,
        keys=list(offer.keys),
        policy=offer.policy,
    )


def _report(checker: Checker, source: Content | Upload, options: Options, kind: Any, name: str, public: bool) -> Answer:
    return checker.report(source, options, kind, name, public=public)


async def _read(house: House, request: Request, model: type[R]) -> tuple[R, Upload | None]:
    """The fields of a body, and the document in it; nothing is read for a request that could not even wait.

    Raises:
        Busy: there is no room to wait.
        Refused: the body is of another kind, or is damaged.
        ValidationError: a field is wrong or unknown.
    """
    house.check_room()
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "application/json":
        return model.model_validate_json(await request.body(), strict=True), None
    if kind != "multipart/form-data":
        raise Refused(415, "send application/json, or multipart/form-data with a document", param="content-type")
    try:
        async with request.form(max_files=1, max_fields=_MOST_FIELDS) as form:
            upload, values = None, dict[str, Any]()
            for name, value in form.multi_items():
                if isinstance(value, UploadFile):
                    if name != DOCUMENT:
                        raise Refused(400, f"a file is sent in the field {DOCUMENT}", param=name)
                    upload = Upload(value.filename or DOCUMENT, await value.read())
                elif _is_list(model, name):
                    values.setdefault(name, []).append(value)
                elif name in values:
                    raise Refused(400, "this field stands twice", param=name)
                else:
                    values[name] = value
    except MultiPartException as error:
        raise Refused(400, f"the form is damaged: {error.message}") from None
    return model.model_validate(values), upload


def _is_list(model: type[BaseModel], name: str) -> bool:
    field = model.model_fields.get(name)
    return field is not None and "list" in str(field.annotation)


def _one_text(asked: fields.OneText, upload: Upload | None) -> Content | Upload:
    given = [one for one in (upload, asked.text, asked.token_ids) if one is not None]
    if len(given) != 1:
        raise Refused(400, "give text, token_ids or a document, one of them", param="text")
    return given[0]


def _content(item: fields.Item) -> Content:
    content = item.text if item.text is not None else item.token_ids
    assert content is not None
    return content


def _options(house: House, request: Request, caller: Caller, asked: fields.Options) -> Options:
    """How the texts are checked.

    Raises:
        Refused: a key is unknown, or the public form does not let it be chosen.
    """
    if caller.public:
        for name in sorted(asked.model_fields_set - _PUBLIC_FIELDS):
            detail = f"{name} can be chosen only with a token of the scope detect:full"
            house.callers.refuse(request, 403, detail, caller.address, caller.name, param=name)
    named = asked.keys or ([asked.key] if asked.key is not None else list(house.keys))
    for name in named:
        if name not in house.keys:
            raise Refused(400, f"there is no key {name!r} here: /v1/about names the keys", param="key")
    keys = tuple(dict.fromkeys(named))
    fpr = house.settings.fpr if asked.fpr is None else asked.fpr
    if caller.public:
        # each key has the same share whichever are named, so that a choice of keys is no choice of the rate
        fpr *= len(keys) / len(house.keys)
    return Options(
        keys=keys,
        fpr=fpr,
        mode=asked.mode,
        phase=asked.phase,
        max_crop=asked.max_crop,
        normalise=tuple(asked.normalise),
    )


def _note(house: House, request: Request, caller: Caller, options: Options, what: str, answer: Answer) -> None:
    for verdict in answer.verdicts:
        house.metrics.verdicts.labels(verdict).inc()
    house.audit.note(
        what,
        request=id_of(request),
        token=caller.name,
        address=caller.address,
        form="public" if caller.public else "full",
        keys=list(options.keys),
        fpr=options.fpr,
        mode=options.mode,
        texts=len(answer.verdicts),
    )


def body_schemas() -> dict[str, Any]:
    """The schemas that the descriptions of bodies and errors refer to, by name."""
    found: dict[str, Any] = {}
    for model in (fields.BatchRequest, fields.Problem):
        schema, behind = fields.schema_of(model)
        found |= {**behind, schema["title"]: schema}
    return found


def _body(model: type[BaseModel], contents: tuple[str, ...], document: str) -> dict[str, Any]:
    """The description of a body that is JSON, with one of the fields `contents`, or a form with a document."""
    schema, _ = fields.schema_of(model)
    fields_of_form = {
        name: _without_null(field) for name, field in schema["properties"].items() if name not in ("token_ids", "texts")
    }
    fields_of_form[DOCUMENT] = {"type": "string", "format": "binary", "description": document}
    form = {**schema, "title": f"{schema['title']}Form", "properties": fields_of_form}
    in_form = [{"required": [name]} for name in ("text", DOCUMENT) if name in fields_of_form]
    in_json = [{"required": [name], "properties": {name: {"not": {"type": "null"}}}} for name in contents]
    bodies = {
        "application/json": {"schema": {**schema, "oneOf": in_json}},
        "multipart/form-data": {"schema": {**form, "oneOf": in_form}},
    }
    return {"requestBody": {"required": True, "content": bodies}}


def _without_null(field: dict[str, Any]) -> dict[str, Any]:
    """A field's description in a form, where a field is given or left out."""
    kinds = [kind for kind in field.get("anyOf", []) if kind != {"type": "null"}]
    rest = {name: value for name, value in field.items() if name != "anyOf" and (name, value) != ("default", None)}
    return {**rest, **kinds[0]} if kinds else field
