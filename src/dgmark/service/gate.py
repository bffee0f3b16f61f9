"""The outermost layer: every request gets an id, every answer its headers, and no body is too long or too slow.

A browser sends requests for any page that is open in it, so a page of another site may neither ask nor frame this one.
Knows nothing of keys and texts.
"""

import asyncio
import re
import secrets
import time
from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dgmark.service.problems import Refused, problem
from dgmark.service.records import Metrics

_ID = re.compile(r"[\w.-]{1,64}", re.ASCII)
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "content-security-policy": POLICY,
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
# the rest of such a body is not read
_CLOSE = {"connection": "close"}


class Gate:
    """An ASGI layer.

    Args:
        app: the application behind it.
        metrics: counts requests.
        body_bytes: size of a request's body.
        body_seconds: time in which it must have arrived.
        hosts: names that the service may be called by, without port; empty for any. A page of another site can have its
            own name lead to this machine, and would then be answered as if it were ours.
    """

    def __init__(
        self, app: ASGIApp, *, metrics: Metrics, body_bytes: int, body_seconds: float, hosts: Collection[str]
    ) -> None:
        self.app, self.metrics = app, metrics
        self.body_bytes, self.body_seconds, self.hosts = body_bytes, body_seconds, frozenset(hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        given = headers.get("x-request-id", "")
        request_id = given if _ID.fullmatch(given) else secrets.token_hex(8)
        scope.setdefault("state", {})["request_id"] = request_id
        began, status = time.perf_counter(), 500

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                own = MutableHeaders(scope=message)
                own["x-request-id"] = request_id
                for name, value in _HEADERS.items():
                    own.setdefault(name, value)
                own.setdefault("cache-control", "no-store")
            await send(message)

        try:
            refusal = self._refusal(headers, scope["method"])
            if refusal:
                await problem(request_id, *refusal)(scope, receive, answer)
            else:
                await self.app(scope, self._bounded(receive), answer)
        finally:
            # a template, not the path itself, of which there is no end
            path = getattr(scope.get("route"), "path", "other")
            self.metrics.requests.labels(path, scope["method"], str(status)).inc()
            self.metrics.seconds.labels(path).observe(time.perf_counter() - began)

    def _refusal(self, headers: Headers, method: str) -> tuple[int, str] | None:
        host = headers.get("host", "").lower()
        if self.hosts and re.sub(r":\d+$", "", host) not in self.hosts:
            return 421, "the service is not known by this name: call it by one of its own"
        # older browsers state the origin only
        elsewhere = headers.get("sec-fetch-site", "none") in ("cross-site", "same-site")
        if method not in ("GET", "HEAD") and (elsewhere or urlsplit(headers.get("origin", f"//{host}")).netloc != host):
            return 403, "a page of another site may not use this service"
        length = headers.get("content-length", "0")
        if length.isdecimal() and int(length) > self.body_bytes:
            return self._too_long()
        return None

    def _too_long(self) -> tuple[int, str]:
        return 413, f"the request has more than {self.body_bytes:,} bytes, which is all that one request may have"

    def _bounded(self, receive: Receive) -> Receive:
        """Receive the body, up to its largest size and within its time."""
        left, ends, arrived = self.body_bytes, time.monotonic() + self.body_seconds, False

        async def bounded() -> Message:
            nonlocal left, arrived
            if arrived:
                return await receive()  # waits until the client goes away
            try:
                message = await asyncio.wait_for(receive(), max(0.0, ends - time.monotonic()))
            except TimeoutError:
                detail = f"the request did not arrive within {self.body_seconds:g} seconds"
                raise Refused(408, detail, headers=_CLOSE) from None
            left -= len(message.get("body", b""))
            if left < 0:
                raise Refused(*self._too_long(), headers=_CLOSE)
            arrived = not message.get("more_body", False)
            return message

        return bounded
