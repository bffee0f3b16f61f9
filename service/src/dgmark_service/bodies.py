"""The bodies of requests, which are JSON, or a form with a document: reading them, and their OpenAPI description."""

from typing import Any, TypeVar

from fastapi import Request
from pydantic import BaseModel
from python_multipart.multipart import parse_options_header
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser

from dgmark.rows.jsonl import RepeatedField, parse_json
from dgmark_service.detection_worker import Upload
from dgmark_service.error_answers import ErrorAnswer
from dgmark_service.schemas import RequestFields

R = TypeVar("R", bound=RequestFields)

DOCUMENT, OPTIONS = "document", "options"
_LARGE = 100_000  # bytes of JSON that are read in a thread, and of the options in a form
SCHEMAS = "#/components/schemas/{model}"


async def read_json(request: Request, model: type[R]) -> R:
    """The fields of a JSON body.

    Raises:
        ErrorAnswer: the body is of another kind or empty, or names a field twice.
        ValidationError: a field is wrong or unknown.
    """
    if _kind(request)[0] != "application/json":
        raise ErrorAnswer(415, "send application/json", param="content-type")
    return await _parsed(await request.body(), model, None)


async def read_json_or_form(request: Request, model: type[R]) -> tuple[R, Upload | None]:
    """The fields of a body, and the document in it.

    Raises:
        ErrorAnswer: the body is of another kind, or is damaged.
        ValidationError: a field is wrong or unknown.
    """
    kind, parameters = _kind(request)
    if kind == "application/json":
        return await _parsed(await request.body(), model, document=False), None
    if kind != "multipart/form-data":
        raise ErrorAnswer(415, "send application/json, or multipart/form-data with a document", param="content-type")
    if parameters.get(b"charset", b"utf-8").lower() not in (b"utf-8", b"utf8"):
        raise ErrorAnswer(400, "a form is in UTF-8: leave the charset out", param="content-type")
    # Latin-1 takes each byte as a character, which gives the bytes back
    boundary = parameters.get(b"boundary", b"").decode("latin-1")
    headers = Headers({"content-type": f"multipart/form-data; boundary={boundary}; charset=latin-1"})
    upload, options = None, b"{}"
    try:
        parser = MultiPartParser(headers, request.stream(), max_files=1, max_fields=1, max_part_size=_LARGE)
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
    return await _parsed(options, model, document=True), upload


async def _parsed(body: bytes, model: type[R], document: bool | None) -> R:
    """The fields of a JSON text; a long one is read in a thread, so that nobody else waits for it."""
    if len(body) < _LARGE:
        return fields_of(body, model, document)
    return await run_in_threadpool(fields_of, body, model, document)


def fields_of(body: bytes, model: type[R], document: bool | None = None) -> R:
    """The fields of a JSON text.

    Args:
        body: the text.
        model: the fields.
        document: whether a document came with it; None where none can come.

    Raises:
        ErrorAnswer: it is empty or no JSON, or names a field twice.
        ValidationError: a field is wrong or unknown.
    """
    if not body:
        raise ErrorAnswer(400, "the body is empty: send a JSON object", param="body")
    try:
        fields = parse_json(body.decode(), parse_float=_number, parse_constant=_no_number)
    except RepeatedField as error:
        raise ErrorAnswer(400, "this is a duplicate field", param=error.name) from None
    except RecursionError:
        raise ErrorAnswer(400, "the body is nested too deeply", param="body") from None
    except ValueError as error:
        raise ErrorAnswer(400, f"the body is no JSON in UTF-8 ({error})", param="body") from None
    return model.model_validate(fields, strict=True, context=None if document is None else {"document": document})


def _number(digits: str) -> float:
    """A number with a point or an exponent: in JSON, 16.0 is the whole number 16."""
    number = float(digits)
    return int(number) if number.is_integer() else number


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is no number")


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
