"""The bodies of requests, which are JSON, or a form with a document: reading them, and their OpenAPI description."""

from typing import Any, TypeVar

from fastapi import Request
from pydantic import BaseModel
from python_multipart.multipart import parse_options_header
from starlette.datastructures import Headers, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser

from dgmark_service.detection_worker import Checker, Upload
from dgmark_service.error_answers import ErrorAnswer
from dgmark_service.json_fields import fields_of
from dgmark_service.schemas import RequestFields
from dgmark_service.waiting import in_worker

R = TypeVar("R", bound=RequestFields)

DOCUMENT, OPTIONS = "document", "options"
# bytes of the options in a form; and of JSON from which on, and items from which on, a worker reads it
MAX_OPTIONS, _LONG, _MANY = 100_000, 1_000_000, 10_000
SCHEMAS = "#/components/schemas/{model}"


async def read_json(request: Request, model: type[R]) -> R:
    """The fields of a JSON body.

    Raises:
        ErrorAnswer: the body is of another kind or damaged, or a field is wrong or unknown.
    """
    if _kind(request)[0] != "application/json":
        raise ErrorAnswer(415, "send application/json", param="content-type")
    return await _parsed(request, await request.body(), model, None)


async def read_json_or_form(request: Request, model: type[R]) -> tuple[R, Upload | None]:
    """The fields of a body, and the document in it.

    Raises:
        ErrorAnswer: the body is of another kind or damaged, or a field is wrong or unknown.
    """
    kind, parameters = _kind(request)
    if kind == "application/json":
        return await _parsed(request, await request.body(), model, document=False), None
    if kind != "multipart/form-data":
        raise ErrorAnswer(415, "send application/json, or multipart/form-data with a document", param="content-type")
    if parameters.get(b"charset", b"utf-8").lower() not in (b"utf-8", b"utf8"):
        raise ErrorAnswer(400, "a form is in UTF-8: leave the charset out", param="content-type")
    # Latin-1 takes each byte as a character, which gives the bytes back
    boundary = parameters.get(b"boundary", b"").decode("latin-1")
    headers = Headers({"content-type": f"multipart/form-data; boundary={boundary}; charset=latin-1"})
    upload, options = None, b"{}"
    try:
        parser = MultiPartParser(headers, request.stream(), max_files=1, max_fields=1, max_part_size=MAX_OPTIONS)
        form = await parser.parse()
    except (MultiPartException, KeyError) as error:
        raise ErrorAnswer(400, f"the form is damaged: {getattr(error, 'message', 'it has no boundary')}") from None
    try:
        for name, value in form.multi_items():
            if isinstance(value, UploadFile) and name == DOCUMENT:
                upload = Upload(_text(value.filename or DOCUMENT, DOCUMENT), await value.read())
            elif name == OPTIONS and isinstance(value, str):
                options = _text(value, OPTIONS).encode()
            else:
                detail = f"a form holds a file in {DOCUMENT} and all other fields as JSON in {OPTIONS}"
                raise ErrorAnswer(400, detail, param=_text(name, "body"))
    finally:
        await form.close()
    if upload is None:
        raise ErrorAnswer(400, "the form has no document: send one, or the other fields as JSON", param=DOCUMENT)
    return await _parsed(request, options, model, document=True), upload


async def _parsed(request: Request, body: bytes, model: type[R], document: bool | None) -> R:
    """The fields of a JSON text. One of many items is read by a worker, as reading it holds up the whole process."""
    if len(body) < _LONG and sum(map(body.count, (b",", b"[", b"{"))) < _MANY:
        return fields_of(body, model, document)
    fields: R = await in_worker(request, Checker.fields, body, model, document)
    return fields


def _text(field: str, param: str) -> str:
    """A text that was read as Latin-1, whose bytes must be UTF-8."""
    try:
        return field.encode("latin-1").decode()
    except UnicodeDecodeError:
        raise ErrorAnswer(400, "a form is in UTF-8, and this is not", param=param) from None


def _kind(request: Request) -> tuple[str, dict[bytes, bytes]]:
    """The kind of a body, and the parameters of the header that says it."""
    kind, parameters = parse_options_header(request.headers.get("content-type", ""))
    return kind.decode("latin-1").strip().lower(), parameters


def json_body(model: type[BaseModel]) -> dict[str, Any]:
    """The description of a JSON body."""
    schema = model.model_json_schema(ref_template=SCHEMAS)
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def json_or_form_body(model: type[RequestFields]) -> dict[str, Any]:
    """The description of a body that is JSON, or a form with a document."""
    described, options = json_body(model), model.model_json_schema(ref_template=SCHEMAS)
    options["allOf"].pop(0)  # the document is the one of `one_of`
    for name in model.one_of:
        del options["properties"][name]
    said = f"A document in place of {' or '.join(model.one_of)}."
    fields = {DOCUMENT: {"type": "string", "format": "binary", "description": said}, OPTIONS: options}
    form = {"type": "object", "properties": fields, "required": [DOCUMENT], "additionalProperties": False}
    encoding = {OPTIONS: {"contentType": "application/json"}}
    described["requestBody"]["content"]["multipart/form-data"] = {"schema": form, "encoding": encoding}
    return described
