"""Errors as answers: problem+json (RFC 9457), with the request's id, and on OpenAI's paths in OpenAI's form.

No message names a path or a key file.
"""

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from dgmark.errors import DgmarkError, InputError, MissingExtra, SettingsError, VocabularyMismatch
from dgmark.service.checking import Table, TooLong
from dgmark.service.jobs import WrongField
from dgmark.service.model_process import NotReady, Stopping
from dgmark.service.pool import Busy, OutOfMemory, TooSlow, WorkerLost

log = logging.getLogger("dgmark.service")

_FAULT = "this is a fault of the service; its operator finds it in the log under the request id"
# the first kind that fits: the status, and whether the message is for whoever asked
_KINDS: tuple[tuple[type[DgmarkError], int, bool], ...] = (
    (Busy, 429, True),
    (NotReady, 503, True),
    (Stopping, 503, True),
    (TooSlow, 503, True),
    (WorkerLost, 503, True),
    (OutOfMemory, 413, True),
    (TooLong, 413, True),
    (Table, 422, True),
    (InputError, 422, True),
    (SettingsError, 400, True),
    (VocabularyMismatch, 400, True),
    (MissingExtra, 501, False),
    (DgmarkError, 500, False),
)


class Refused(Exception):
    """The service does not do what was asked.

    Args:
        status: the HTTP status.
        detail: what is wrong, and what to do.
        param: the field that is wrong.
        headers: further headers of the answer.
        code: OpenAI's word for it.
    """

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        param: str | None = None,
        headers: dict[str, str] | None = None,
        code: str | None = None,
    ) -> None:
        super().__init__(detail)
        self.status, self.detail, self.param, self.headers = status, detail, param, headers or {}
        self.code = code


@dataclass(frozen=True)
class Complaint:
    """What is wrong with a request, or with the service.

    Attributes:
        status: the HTTP status.
        detail: what is wrong, and what to do.
        errors: the fields that are wrong, each as `param` and `message`.
        headers: further headers of the answer.
        code: OpenAI's word for it; None if it has none.
    """

    status: int
    detail: str
    errors: list[dict[str, str]] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    code: str | None = None

    def problem(self, request_id: str) -> dict[str, Any]:
        """The problem document."""
        fields: dict[str, Any] = {
            "type": "about:blank",
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "detail": self.detail,
            "request_id": request_id,
        }
        return fields | {"errors": self.errors} if self.errors else fields

    def openai(self) -> dict[str, Any]:
        """The error as OpenAI's interface has it."""
        fallback = "server_error" if self.status >= 500 else "invalid_request_error"
        return {
            "error": {
                "message": self.detail,
                "type": _OPENAI_TYPES.get(self.status, fallback),
                "param": self.errors[0]["param"] if self.errors else None,
                "code": self.code,
            }
        }

    def response(self, path: str, request_id: str) -> Response:
        """The error as an answer on this path."""
        if path.startswith(OPENAI_PATHS):
            return JSONResponse(self.openai(), self.status, self.headers)
        return JSONResponse(self.problem(request_id), self.status, self.headers, media_type="application/problem+json")


_TYPES = ("str", "bool", "int", "float", "list", "dict")
OPENAI_PATHS = ("/v1/chat/completions", "/v1/completions", "/v1/models")
_OPENAI_TYPES = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}


def complaint_of(error: Exception, request_id: str) -> Complaint:
    """What is said of an error; what is not for whoever asked goes to the log."""
    if isinstance(error, Refused):
        errors = [{"param": error.param, "message": error.detail}] if error.param else []
        return Complaint(error.status, error.detail, errors, error.headers, error.code)
    if isinstance(error, RequestValidationError | ValidationError):
        return _invalid(error)
    if isinstance(error, HTTPException):
        reasons = {404: "there is nothing under this path", 405: "this path does not take this method"}
        detail = reasons.get(error.status_code, str(error.detail))
        return Complaint(error.status_code, detail, headers=dict(error.headers or {}))
    if not isinstance(error, DgmarkError):
        log.error("request %s failed: %s", request_id, type(error).__name__)
        return Complaint(500, _FAULT)
    status, told = next((status, told) for kind, status, told in _KINDS if isinstance(error, kind))
    if not told:
        log.error("request %s failed: %s", request_id, error)
    detail = str(error) if told else "this document needs a reader that is not installed here"
    headers = {"retry-after": str(error.retry_after)} if isinstance(error, Busy | NotReady) else {}
    if isinstance(error, WrongField):
        return Complaint(status, detail, [{"param": error.param, "message": detail}], code=error.code)
    return Complaint(status, _FAULT if status == 500 else detail, headers=headers)


def is_refusal(error: Exception) -> bool:
    """Whether an error lies with whoever asked."""
    status = next((status for kind, status, _ in _KINDS if isinstance(error, kind)), 500)
    return status < 500


def _invalid(error: RequestValidationError | ValidationError) -> Complaint:
    # places and reasons only: the input may be somebody's text
    errors = [
        {"param": ".".join(filter(_is_field, map(str, one["loc"]))) or "body", "message": _reason(one)}
        for one in error.errors()[:20]
    ]
    detail = "; ".join(f"{one['param']}: {one['message']}" for one in errors[:3])
    return Complaint(400, f"the request is invalid: {detail}", errors)


def _reason(one: Mapping[str, Any]) -> str:
    """Why a field is wrong, in words for whoever has not heard of pydantic."""
    if one["type"] == "extra_forbidden":
        return "there is no such field: leave it out, or correct its name"
    return str(one["msg"]).removeprefix("Value error, ")


def _is_field(place: str) -> bool:
    """Whether this part of a place is a field or a number in a list, not the name of one of several types."""
    return re.fullmatch(r"[a-z0-9_]+", place) is not None and place not in _TYPES


def id_of(request: Request) -> str:
    """The id of a request, which the outermost layer gave it."""
    return str(request.state.request_id)


def answer_errors(app: FastAPI) -> None:
    """Let the application answer errors."""

    def answer(request: Request, error: Exception) -> Response:
        request_id = id_of(request)
        return complaint_of(error, request_id).response(request.url.path, request_id)

    for kind in (Refused, RequestValidationError, ValidationError, DgmarkError, HTTPException, Exception):
        app.add_exception_handler(kind, answer)
