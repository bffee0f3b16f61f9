"""`ErrorAnswer`: what whoever asked is told of an error: problem+json (RFC 9457), or OpenAI's form. Needs no HTTP.

No message names a path or a key file.
"""

import copyreg
import math
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from dgmark.errors import DgmarkError

_OPENAI_TYPES = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}


class ErrorAnswer(DgmarkError):
    """The service does not do what was asked. Its workers raise it as well.

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
        headers: Mapping[str, str] | None = None,
        code: str | None = None,
    ) -> None:
        super().__init__(detail)
        self.status, self.detail, self.param, self.headers, self.code = status, detail, param, headers, code

    def __reduce__(self) -> Any:  # kinds of it are made of other arguments
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]

    def problem(self, request_id: str) -> dict[str, Any]:
        """The problem document."""
        fields: dict[str, Any] = {
            "type": "about:blank",
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "detail": self.detail,
            "request_id": request_id,
        }
        return fields | {"errors": [{"param": self.param, "message": self.detail}]} if self.param else fields

    def openai(self) -> dict[str, Any]:
        """The error as OpenAI's interface has it."""
        kind = _OPENAI_TYPES.get(self.status, "server_error" if self.status >= 500 else "invalid_request_error")
        return {"error": {"message": self.detail, "type": kind, "param": self.param, "code": self.code}}


class Refused(ErrorAnswer):
    """A policy does not allow what was asked, which the audit log notes."""


class Busy(ErrorAnswer):
    """All who can work are at work, and as many requests as may wait are waiting.

    Args:
        seconds: time in which there is probably room.
    """

    def __init__(self, seconds: float) -> None:
        later = math.ceil(max(1.0, seconds))
        detail = f"the service has more to do than it can: try again in {later} seconds"
        super().__init__(429, detail, headers={"retry-after": str(later)})


def smoothed(mean: float, seconds: float) -> float:
    """The mean time of a request, of which the last one took so long."""
    return mean + 0.1 * (seconds - mean)
