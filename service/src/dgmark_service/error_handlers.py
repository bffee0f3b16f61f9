"""Errors as answers: which status each kind has, and what is left to the log."""

import logging

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from dgmark.errors import DgmarkError, InputError, MissingExtra, SettingsError, VocabularyMismatch
from dgmark.rows.processes import WorkerLost
from dgmark.watermark.policy import MarkingRefused
from dgmark_service.error_answers import ErrorAnswer, Refused

log = logging.getLogger("dgmark_service")
GONE = 499  # whoever asked has left: nobody reads this status
OPENAI_PATHS = ("/v1/chat/completions", "/v1/completions", "/v1/models")
NOTHING_HERE = "there is nothing under this path"
_NOT_FOUND = {404: NOTHING_HERE, 405: "this path does not take this method"}
# statuses whose reason the log has, and what whoever asked is told
_UNSAID = {
    500: "this is a fault of the service; its operator finds it in the log under the request id",
    501: "this document needs a reader that is not installed here",
}
# the first kind that fits
_STATUSES: dict[type[DgmarkError], int]
_STATUSES = {WorkerLost: 503, InputError: 422, SettingsError: 400, VocabularyMismatch: 400, MissingExtra: 501}
# the fields of requests that say what `MarkingRequest` has
_MARKING_PARAMS = {"enabled": "watermark", "key": "watermark.key_id", "subkey": "watermark.subkey"}


def status_of(error: Exception) -> int:
    """The HTTP status of an error; below 500 it lies with whoever asked."""
    if isinstance(error, ErrorAnswer):
        return error.status
    return next((status for kind, status in _STATUSES.items() if isinstance(error, kind)), 500)


def answer_to(error: Exception, request: Request) -> ErrorAnswer:
    """What is said of an error; the audit log has what a policy refuses, and the log what is not for whoever asked."""
    answer = _answer_to(error, request)
    if isinstance(answer, Refused):
        path = getattr(request.scope.get("route"), "path", "")
        request.app.state.service.audit.note(request, "refused", path=path, status=answer.status, param=answer.param)
    return answer


def _answer_to(error: Exception, request: Request) -> ErrorAnswer:
    if isinstance(error, ErrorAnswer):
        return error
    if isinstance(error, HTTPException):
        detail = _NOT_FOUND.get(error.status_code, str(error.detail))
        return ErrorAnswer(error.status_code, detail, headers=error.headers)
    if isinstance(error, MarkingRefused):
        return Refused(403 if error.forbidden else 400, str(error), param=_MARKING_PARAMS[error.asked])
    status = status_of(error)
    if status in _UNSAID:
        why = error if isinstance(error, DgmarkError) else type(error).__name__
        log.error("request %s failed: %s", request.state.request_id, why)
    return ErrorAnswer(status, _UNSAID.get(status, str(error)), param=getattr(error, "field", None))


def response_to(request: Request, error: Exception) -> Response:
    """An error as the answer to a request."""
    answer, path = answer_to(error, request), request.scope["path"].removeprefix(request.scope.get("root_path", ""))
    headers = {"www-authenticate": "Bearer"} if answer.status == 401 else answer.headers
    # clients of OpenAI's interface also ask for parts of it that there are not
    if path.startswith(OPENAI_PATHS) or (path.startswith("/v1/") and answer.detail == NOTHING_HERE):
        return JSONResponse(answer.openai(), answer.status, headers)
    return JSONResponse(answer.problem(request.state.request_id), answer.status, headers, "application/problem+json")


def answer_errors(app: FastAPI) -> None:
    """Let the application answer errors."""
    for kind in (DgmarkError, HTTPException, Exception):
        app.add_exception_handler(kind, response_to)
    app.add_exception_handler(ClientDisconnect, lambda *_: Response(status_code=GONE))
