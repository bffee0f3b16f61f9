"""Errors as answers: problem+json (RFC 9457), with the request's id. No message names a path or a key file."""

import logging
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
from dgmark.service.pool import Busy, OutOfMemory, TooSlow, WorkerLost

log = logging.getLogger("dgmark.service")

_FAULT = "this is a fault of the service; its operator finds it in the log under the request id"
# the first kind that fits: the status, and whether the message is for whoever asked
_KINDS: tuple[tuple[type[DgmarkError], int, bool], ...] = (
    (Busy, 429, True),
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
    """

    def __init__(
        self, status: int, detail: str, *, param: str | None = None, headers: dict[str, str] | None = None
    ) -> None:
        super().__init__(detail)
        self.status, self.detail, self.param, self.headers = status, detail, param, headers or {}


def problem(
    request_id: str,
    status: int,
    detail: str,
    *,
    errors: list[dict[str, str]] | None = None,
    headers: dict[str, str] | None = None,
) -> Response:
    """An error as an answer."""
    fields: dict[str, Any] = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        "request_id": request_id,
    }
    if errors:
        fields["errors"] = errors
    return JSONResponse(fields, status, headers, media_type="application/problem+json")


def id_of(request: Request) -> str:
    """The id of a request, which the outermost layer gave it."""
    return str(request.state.request_id)


def answer_errors(app: FastAPI) -> None:
    """Let the application answer with problems."""

    @app.exception_handler(Refused)
    def _refused(request: Request, error: Refused) -> Response:
        errors = [{"param": error.param, "message": error.detail}] if error.param else None
        return problem(id_of(request), error.status, error.detail, errors=errors, headers=error.headers)

    @app.exception_handler(RequestValidationError)
    @app.exception_handler(ValidationError)
    def _invalid(request: Request, error: RequestValidationError | ValidationError) -> Response:
        # places and reasons only: the input may be somebody's text
        errors = [
            {"param": ".".join(map(str, one["loc"])) or "body", "message": str(one["msg"])}
            for one in error.errors()[:20]
        ]
        detail = "; ".join(f"{one['param']}: {one['message']}" for one in errors[:3])
        return problem(id_of(request), 400, f"the request is invalid: {detail}", errors=errors)

    @app.exception_handler(DgmarkError)
    def _failed(request: Request, error: DgmarkError) -> Response:
        status, told = next((status, told) for kind, status, told in _KINDS if isinstance(error, kind))
        if not told:
            log.error("request %s failed: %s", id_of(request), error)
        detail = str(error) if told else "this document needs a reader that is not installed here"
        if status == 500:
            detail = _FAULT
        headers = {"retry-after": str(error.retry_after)} if isinstance(error, Busy) else None
        return problem(id_of(request), status, detail, headers=headers)

    @app.exception_handler(HTTPException)
    def _http(request: Request, error: HTTPException) -> Response:
        reasons = {404: "there is nothing under this path", 405: "this path does not take this method"}
        detail = reasons.get(error.status_code, str(error.detail))
        return problem(id_of(request), error.status_code, detail, headers=dict(error.headers or {}))

    @app.exception_handler(Exception)
    def _fault(request: Request, error: Exception) -> Response:
        log.error("request %s failed: %s", id_of(request), type(error).__name__)
        return problem(id_of(request), 500, _FAULT)
