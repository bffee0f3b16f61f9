"""Errors as answers: problem+json (RFC 9457), with the request's id, and on OpenAI's paths in OpenAI's form.

No message names a path or a key file.
"""

import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Scope

from dgmark.errors import DgmarkError, InputError, MissingExtra, SettingsError, VocabularyMismatch
from dgmark.rows.processes import WorkerLost
from dgmark.watermark.policy import MarkingRefused
from dgmark_service.detection_worker import TooLong
from dgmark_service.invalid_fields import invalid_field
from dgmark_service.jobs import FieldError
from dgmark_service.model_process import NotReady, Stopping
from dgmark_service.worker_pool import Busy, OutOfMemory, TooSlow

log = logging.getLogger("dgmark_service")
GONE = 499  # whoever asked has left: nobody reads this status

OPENAI_PATHS = ("/v1/chat/completions", "/v1/completions", "/v1/models")
_OPENAI_TYPES = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}
_FAULT = "this is a fault of the service; its operator finds it in the log under the request id"
_NO_READER = "this document needs a reader that is not installed here"
NOTHING_HERE = "there is nothing under this path"
_NOT_FOUND = {404: NOTHING_HERE, 405: "this path does not take this method"}
# the first kind that fits
_STATUSES: tuple[tuple[type[DgmarkError], int], ...] = (
    (Busy, 429),
    (NotReady, 503),
    (Stopping, 503),
    (TooSlow, 503),
    (WorkerLost, 503),
    (OutOfMemory, 413),
    (TooLong, 413),
    (InputError, 422),
    (SettingsError, 400),
    (VocabularyMismatch, 400),
    (MissingExtra, 501),
)
# the fields of requests that say what `MarkingRequest` has
_MARKING_PARAMS = {"enabled": "watermark", "key": "watermark.key_id", "subkey": "watermark.subkey"}


class ErrorAnswer(Exception):
    """The service does not do what was asked.

    Args:
        status: the HTTP status.
        detail: what is wrong, and what to do.
        param: the field that is wrong.
        headers: further headers of the answer.
        code: OpenAI's word for it.
        errors: the fields that are wrong, each as `param` and `message`; by default the one of `param`.
    """

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
        code: str | None = None,
        errors: list[dict[str, str]] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status, self.detail, self.param, self.headers, self.code = status, detail, param, headers, code
        self.errors = errors or ([{"param": param, "message": detail}] if param else [])

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

    def response(self, scope: Scope, request_id: str) -> Response:
        """The error as an answer to this request."""
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        # clients of OpenAI's interface also ask for parts of it that there are not
        if path.startswith(OPENAI_PATHS) or (path.startswith("/v1/") and self.detail == NOTHING_HERE):
            return JSONResponse(self.openai(), self.status, self.headers)
        return JSONResponse(self.problem(request_id), self.status, self.headers, media_type="application/problem+json")


def answer_to(error: Exception, request_id: str) -> ErrorAnswer:
    """What is said of an error; what is not for whoever asked goes to the log."""
    if isinstance(error, ErrorAnswer):
        return error
    if isinstance(error, RequestValidationError | ValidationError):
        return _invalid(error)
    if isinstance(error, HTTPException):
        return ErrorAnswer(
            error.status_code, _NOT_FOUND.get(error.status_code, str(error.detail)), headers=error.headers
        )
    if isinstance(error, MarkingRefused):
        return ErrorAnswer(403 if error.forbidden else 400, str(error), param=_MARKING_PARAMS[error.asked])
    status = _status_of(error)
    if status in (500, 501):
        why = error if isinstance(error, DgmarkError) else type(error).__name__
        log.error("request %s failed: %s", request_id, why)
        return ErrorAnswer(status, _FAULT if status == 500 else _NO_READER)
    headers = {"retry-after": str(error.retry_after)} if isinstance(error, Busy | NotReady) else None
    param, code = None, None
    if isinstance(error, FieldError):
        param, code = error.param or None, error.code
    elif isinstance(error, SettingsError):
        param = error.field
    return ErrorAnswer(status, str(error), param=param, code=code, headers=headers)


def is_expected(error: Exception) -> bool:
    """Whether an error lies with whoever asked."""
    return _status_of(error) < 500


def _status_of(error: Exception) -> int:
    return next((status for kind, status in _STATUSES if isinstance(error, kind)), 500)


def _invalid(error: RequestValidationError | ValidationError) -> ErrorAnswer:
    wrong = invalid_field(error)
    detail = f"the request is invalid: {wrong['param']}: {wrong['message']}"
    return ErrorAnswer(400, detail, errors=[wrong])


def id_of(request: Request) -> str:
    """The id of a request, which the outermost layer gave it."""
    return str(request.state.request_id)


def answer_errors(app: FastAPI) -> None:
    """Let the application answer errors."""

    def answer(request: Request, error: Exception) -> Response:
        request_id = id_of(request)
        return answer_to(error, request_id).response(request.scope, request_id)

    for kind in (ErrorAnswer, RequestValidationError, ValidationError, DgmarkError, HTTPException, Exception):
        app.add_exception_handler(kind, answer)
    app.add_exception_handler(ClientDisconnect, lambda *_: Response(status_code=GONE))
