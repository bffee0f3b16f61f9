"""The bodies of requests, which are JSON, or a form with a document: reading them, and their OpenAPI description."""

from collections.abc import Sequence
from typing import Any, TypeVar

from fastapi import Request
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException

from dgmark.rows.jsonl import RepeatedField, parse_json
from dgmark_service.detection_worker import Upload
from dgmark_service.error_answers import ErrorAnswer
from dgmark_service.field_rules import one_given
from dgmark_service.schemas import ONE_KEY_FIELD

R = TypeVar("R", bound=BaseModel)

DOCUMENT = "document"
_MAX_FIELDS = 64
_REPEATED = "this is a duplicate field"
_REF = "#/components/schemas/{model}"


async def read_json(request: Request, model: type[R]) -> R:
    """The fields of a JSON body.

    Raises:
        ErrorAnswer: the body is of another kind or empty, or names a field twice.
        ValidationError: a field is wrong or unknown.
    """
    if _kind(request) != "application/json":
        raise ErrorAnswer(415, "send application/json", param="content-type")
    body = await request.body()
    if not body:
        raise ErrorAnswer(400, "the body is empty: send a JSON object", param="body")
    try:
        parse_json(body)
    except RepeatedField as error:
        raise ErrorAnswer(400, _REPEATED, param=error.name) from None
    except (ValueError, RecursionError):
        pass  # the model says what is wrong
    return model.model_validate_json(body, strict=True)


async def read_json_or_form(request: Request, model: type[R]) -> tuple[R, Upload | None]:
    """The fields of a body, and the document in it.

    Raises:
        ErrorAnswer: the body is of another kind, or is damaged.
        ValidationError: a field is wrong or unknown.
    """
    if _kind(request) == "application/json":
        return await read_json(request, model), None
    if _kind(request) != "multipart/form-data":
        raise ErrorAnswer(415, "send application/json, or multipart/form-data with a document", param="content-type")
    upload, values = None, dict[str, Any]()
    try:
        async with request.form(max_files=1, max_fields=_MAX_FIELDS) as form:
            for name, value in form.multi_items():
                if isinstance(value, UploadFile):
                    if name != DOCUMENT:
                        raise ErrorAnswer(400, f"a file is sent in the field {DOCUMENT}", param=name)
                    upload = Upload(value.filename or DOCUMENT, await value.read())
                elif _is_list(model, name):
                    values.setdefault(name, []).append(value)
                elif name in values:
                    raise ErrorAnswer(400, _REPEATED, param=name)
                else:
                    values[name] = value
    except MultiPartException as error:
        raise ErrorAnswer(400, f"the form is damaged: {error.message}") from None
    return model.model_validate(values), upload


def _kind(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def _is_list(model: type[BaseModel], name: str) -> bool:
    field = model.model_fields.get(name)
    return field is not None and "list" in str(field.annotation)


def json_body(model: type[BaseModel]) -> dict[str, Any]:
    """The description of a JSON body."""
    schema = {"$ref": _REF.format(model=model.__name__)}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def json_or_form_body(model: type[BaseModel], document: str) -> dict[str, Any]:
    """The description of a body that is JSON, or a form with a document."""
    described = json_body(model)
    schema = model.model_json_schema(ref_template=_REF)
    fields = {name: _of_form(field) for name, field in schema["properties"].items() if name != "token_ids"}
    fields[DOCUMENT] = {"type": "string", "format": "binary", "description": document}
    rules = {"allOf": [one_given("text", DOCUMENT), ONE_KEY_FIELD]}
    form = {**schema, "title": f"{model.__name__}Form", "properties": fields, **rules}
    form.pop("$defs", None)
    described["requestBody"]["content"]["multipart/form-data"] = {"schema": form}
    return described


def _of_form(field: dict[str, Any]) -> dict[str, Any]:
    """A field as a form has it, where nothing is null."""
    described = {name: value for name, value in field.items() if (name, value) != ("default", None)}
    if "anyOf" in described:
        described["anyOf"] = [one for one in described["anyOf"] if one != {"type": "null"}]
    return described


def schemas_of(models: Sequence[type[BaseModel]]) -> dict[str, Any]:
    """The schemas of these models, and of those that they refer to, by name."""
    _, schemas = models_json_schema([(model, "validation") for model in models], ref_template=_REF)
    found: dict[str, Any] = schemas["$defs"]
    return found
