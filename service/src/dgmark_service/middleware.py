"""The outermost layer: every request gets an id, every answer its headers, and no body is too long.

Memory is bounded whoever sends: all requests together have a largest number, and their bodies a largest size.
A browser sends requests for any page that is open in it, so a page of another site may neither ask nor frame this one.
Knows nothing of keys and texts.
"""

import asyncio
import json
import logging
import re
import secrets
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import quote

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dgmark_service.error_answers import ErrorAnswer, Refused
from dgmark_service.error_handlers import NOTHING_HERE, response_to
from dgmark_service.settings import LOCAL_NAMES, ServiceSettings
from dgmark_service.telemetry import Metrics

access = logging.getLogger("dgmark.access")
_ID = re.compile(r"[\w.-]{1,64}", re.ASCII)
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "content-security-policy": POLICY,
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
}
_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
_BODILESS = ("GET", "HEAD")
_MAX_PATH = 200  # characters of a path in the access log
_BODY_SECONDS = 120.0  # in which a body must come
_READ_SECONDS = 60.0  # in which somebody must read a part of an answer, once the system's own buffers are full
_STRANGERS_PART = 2  # strangers may have one part in so many of the memory for bodies


@dataclass
class RequestMiddleware:
    """An ASGI layer.

    Attributes:
        app: the application behind it.
        settings: the service's settings, which have the limits of requests and their bodies.
        metrics: counts requests.
    """

    app: ASGIApp
    settings: ServiceSettings
    metrics: Metrics
    _requests: int = 0  # not answered yet
    _bytes: int = 0  # of their bodies
    _strangers_bytes: int = 0  # of those of strangers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        given, request_id = headers.get("x-request-id", ""), secrets.token_hex(8)
        client_id = given if _ID.fullmatch(given) else None
        scope.setdefault("state", {}).update(request_id=request_id, client_id=client_id)
        if root := self.settings.root_path:
            scope["root_path"] = root
            if not f"{scope['path']}/".startswith(f"{root}/"):  # the proxy took it off
                scope["path"] = root + scope["path"]
        began, status = time.perf_counter(), 500

        async def answer(message: Message) -> None:
            """Send a part of the answer, with the headers of every answer."""
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                own = MutableHeaders(scope=message)
                own["x-request-id"] = request_id
                for name, value in _HEADERS.items():
                    own.setdefault(name, value)
            async with asyncio.timeout(_READ_SECONDS):
                await send(message)

        try:
            refusal = self._refusal(headers, scope["method"], scope["path"])
            if refusal:
                rejected = response_to(Request(scope), refusal)
                await rejected(scope, receive, answer)
            elif scope["method"] in _BODILESS:
                await self.app(scope, receive, answer)
            else:
                await self._with_body(scope, receive, answer)
        finally:
            # a template, not the path itself, of which there is no end
            path, seconds = getattr(scope.get("route"), "path", "other"), time.perf_counter() - began
            method = scope["method"] if scope["method"] in _METHODS else "other"
            self.metrics.requests.labels(path, method, str(status)).inc()
            self.metrics.seconds.labels(path).observe(seconds)
            if access.isEnabledFor(logging.INFO):
                fields = {
                    "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
                    "address": (scope.get("client") or ("unknown",))[0],
                    "method": scope["method"],
                    # neither line breaks nor a query, which may hold anything
                    "path": quote(scope["path"][:_MAX_PATH]),
                    "status": status,
                    "seconds": round(seconds, 4),
                    "request": request_id,
                    "client_request": client_id,
                }
                access.info("%s", json.dumps(fields))

    def _refusal(self, headers: Headers, method: str, path: str) -> ErrorAnswer | None:
        host = headers.get("host", "").lower()
        if self.settings.local and re.sub(r":\d+$", "", host) not in LOCAL_NAMES:
            return Refused(421, "the service is not known by this name: call it by one of its own")
        if _CONTROL.search(path):  # routes match whether a line break follows or not
            return ErrorAnswer(404, NOTHING_HERE)
        if method in _BODILESS:
            return None
        # older browsers state the origin only
        elsewhere = headers.get("sec-fetch-site", "none") in ("cross-site", "same-site")
        if elsewhere or headers.get("origin", f"//{host}").partition("//")[2] != host:
            return Refused(403, "a page of another site may not use this service")
        if {one.strip().lower() for one in headers.getlist("content-encoding")} - {"", "identity"}:
            detail = "no body is unpacked here: send it as it is, without Content-Encoding"
            return ErrorAnswer(415, detail, param="content-encoding", headers={"accept-encoding": "identity"})
        length = headers.get("content-length", "0")
        if length.isdecimal() and int(length) > self.settings.body_bytes:
            return self._too_long()
        return self._too_many() if self._requests >= self.settings.at_once else None

    def _too_long(self) -> ErrorAnswer:
        detail = f"the request has more than {self.settings.body_bytes:,} bytes, which is all that one request may have"
        return ErrorAnswer(413, detail, headers={"connection": "close"})  # the rest of the body is not read

    def _too_many(self) -> ErrorAnswer:
        detail = "the service holds as many requests as it can: try again in a second"
        return ErrorAnswer(429, detail, headers={"retry-after": "1"})

    async def _with_body(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the application receive the body, up to its largest size and within its time."""
        size, strangers, arrived, end = 0, 0, False, asyncio.get_running_loop().time() + _BODY_SECONDS

        async def bounded() -> Message:
            """The next part of the body.

            Raises:
                ErrorAnswer: the body is too long or too slow, or all bodies together are too long.
            """
            nonlocal size, strangers, arrived
            if arrived:
                return await receive()  # waits until the client goes away
            try:
                async with asyncio.timeout_at(end):
                    message = await receive()
            except TimeoutError:
                detail = f"the body did not come within {_BODY_SECONDS:g} seconds: send it again, or less of it"
                raise ErrorAnswer(408, detail, headers={"connection": "close"}) from None
            part = len(message.get("body", b""))
            size += part
            self._bytes += part
            if getattr(scope["state"].get("caller"), "stranger", False):  # who asks is known before a body is read
                strangers += part
                self._strangers_bytes += part
            if size > self.settings.body_bytes:
                raise self._too_long()
            most = self.settings.all_bytes
            if self._bytes > most or (strangers and self._strangers_bytes > most // _STRANGERS_PART):
                raise self._too_many()
            arrived = not message.get("more_body", False)
            return message

        self._requests += 1
        try:
            await self.app(scope, bounded, send)
        finally:
            self._requests -= 1
            self._bytes -= size
            self._strangers_bytes -= strangers
