"""Who asks, and what they may: access tokens and their scopes, the public form, and how often it may be used.

A detector answers whoever wants to remove or forge a mark as well. So the public form has no numbers, one rate, and a
limit for each token and each address.
"""

import ipaddress
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil
from typing import Annotated, TypeVar

from fastapi import Request, Security
from fastapi.security import HTTPBearer, SecurityScopes
from limits import parse

from dgmark.errors import DgmarkError
from dgmark_service.error_answers import ErrorAnswer, Refused
from dgmark_service.moving_window import MovingWindow
from dgmark_service.settings import ServiceSettings
from dgmark_service.token_file import ALL_SCOPES, Scope, TokenFile, find

log = logging.getLogger("dgmark_service")
# headers by which a proxy says that somebody else asked
_FORWARDED = ("forwarded", "x-forwarded-for", "x-real-ip")
_NETWORK_BITS = 64  # of an IPv6 address: one network, which one person has
_TRANSLATED = ipaddress.IPv6Network("64:ff9b::/96")  # IPv4 clients of a network that has IPv6 alone (RFC 6052)
_HOW_TO_SEND = "send it as `Authorization: Bearer TOKEN`"
_BEARER = re.compile("bearer +([\x21-\x7e]+)", re.IGNORECASE)
Key = TypeVar("Key")
_SCHEME = HTTPBearer(scheme_name="accessToken", description="An access token of the service.", auto_error=False)


@dataclass(frozen=True)
class Caller:
    """Who asks.

    Attributes:
        name: the name of their token; None without one.
        scopes: what they may do; those of everybody are among them.
        address: where they ask from.
        keys: the names of the keys that they may use; None for all.
        stranger: whether they have no token where others have one.
    """

    name: str | None
    scopes: frozenset[Scope]
    address: str
    keys: frozenset[str] | None = None
    stranger: bool = False

    def own(self, keys: Mapping[str, Key]) -> dict[str, Key]:
        """Those of the keys, by name, that they may use."""
        return {name: key for name, key in keys.items() if self.keys is None or name in self.keys}

    @property
    def checks(self) -> bool:
        """Whether they may check texts."""
        return not {"detect", "detect:full"}.isdisjoint(self.scopes)

    @property
    def public(self) -> bool:
        """Whether they get the public form."""
        return "detect:full" not in self.scopes


class Authenticator:
    """Tells who asks, and refuses those who may not.

    Args:
        settings: the service's settings.
    """

    def __init__(self, settings: ServiceSettings) -> None:
        self._file = TokenFile(settings.tokens) if settings.tokens else None
        if self._file:
            self._file.tokens()  # a file that cannot be used is an error now, not at each request
        self._public, self._needs_token = settings.public, settings.needs_token
        self._api_token = [settings.api_token] if settings.api_token else []
        self._rate = rate = parse(settings.public_rate)
        self._requests = MovingWindow(rate.amount, rate.get_expiry())
        self._seconds = MovingWindow(settings.public_seconds, 60)

    def authorize(self, request: Request, scope: str) -> Caller:
        """Who asks this, if they may do what needs this scope.

        Raises:
            ErrorAnswer: they may not, or ask for checks too often.
        """
        caller = self.identify(request)
        # whoever may see all numbers may see the verdict
        if not (caller.checks if scope == "detect" else scope in caller.scopes):
            if caller.stranger:
                raise Refused(401, f"this needs an access token with the scope {scope}: {_HOW_TO_SEND}")
            raise Refused(403, f"this needs a token with the scope {scope}")
        if scope == "detect":
            self.count(caller)
        return caller

    def identify(self, request: Request) -> Caller:
        """Who asks this, whatever they may do; the request keeps it.

        Raises:
            ErrorAnswer: their token is not valid, or they have none and need one.
        """
        request.state.caller = nobody = Caller(None, frozenset(), request.client.host if request.client else "unknown")
        everybody: frozenset[Scope] = frozenset({"detect"}) if self._public else frozenset()
        given = request.headers.getlist("authorization")
        # clients that cannot do without a token send any to a service that has none
        if given and (self._needs_token or self._public):
            sent = _BEARER.fullmatch(given[0]) if len(given) == 1 else None
            if sent is None:
                detail = "the header Authorization cannot be read: send it once, as `Authorization: Bearer TOKEN`"
                raise Refused(401, detail)
            try:
                token = find(sent[1], [*self._api_token, *(self._file.last_good() if self._file else ())])
            except DgmarkError as error:  # the file cannot be read any more, which is no fault of whoever asks
                log.error("access tokens cannot be checked: %s", error)
                detail = "access tokens cannot be checked at present: try again in a minute, or tell the operator"
                raise ErrorAnswer(503, detail, headers={"retry-after": "60"}) from error
            if token is None:
                raise Refused(401, "this access token is not valid here, or no longer: ask the operator for another")
            keys = None if token.keys is None else frozenset(token.keys)
            caller = Caller(token.name, everybody | set(token.scopes), nobody.address, keys)
        elif self._public:
            caller = replace(nobody, scopes=everybody, stranger=True)
        elif self._needs_token or any(name in request.headers for name in _FORWARDED):
            raise Refused(401, f"an access token is needed: {_HOW_TO_SEND}")
        else:
            caller = replace(nobody, scopes=ALL_SCOPES)
        request.state.caller = caller
        return caller

    def count(self, caller: Caller, requests: int = 1, *, before: int = 0) -> None:
        """Count checks of the public form, before which so many of the same request were counted.

        Raises:
            ErrorAnswer: they are too many.
        """
        # where nobody needs a token, a limit of its own would give a token less than none
        counted = [network(caller.address), *([(caller.name,)] if caller.name and not self._public else [])]
        if caller.public:
            if before + requests > self._rate.amount:
                raise Refused(429, f"no more than {self._rate} are answered: send fewer texts in a request")
            wait = max(self._requests.wait(one, requests) for one in counted)
            _refuse_for(wait, f"no more than {self._rate} are answered")
            for one in counted:
                self._requests.spend(one, requests)

    def check_seconds(self, caller: Caller) -> None:
        """Refuse a stranger who has used up the seconds of a minute."""
        if caller.stranger:
            wait = self._seconds.wait(network(caller.address))
            _refuse_for(wait, "your checks took all the time that they may take in a minute")

    def spend_seconds(self, caller: Caller, seconds: float) -> None:
        """Count the time that a check took."""
        if caller.stranger:
            self._seconds.spend(network(caller.address), seconds)


def _refuse_for(wait: float, why: str) -> None:
    """Refuse a request for so many seconds, unless they are none."""
    if wait:
        seconds = max(1, ceil(wait))
        raise Refused(429, f"{why}: try again in {seconds} seconds", headers={"retry-after": str(seconds)})


def network(address: str) -> str:
    """An address, or the network of an IPv6 address: what stands for one client."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if parsed.version == 6:
        # IPv4 addresses as a socket for both versions or a translator writes them: all of them are in one network
        low = ipaddress.IPv4Address(int(parsed) % 2**32)
        parsed = parsed.ipv4_mapped or (low if parsed in _TRANSLATED else parsed)
    return str(parsed if parsed.version == 4 else ipaddress.ip_network((parsed, _NETWORK_BITS), strict=False))


async def _caller(request: Request, needed: SecurityScopes, _: Annotated[object, Security(_SCHEME)]) -> Caller:
    """Who asks this, if they may: the dependency of all routes that need a scope, or any valid token."""
    auth: Authenticator = request.app.state.service.auth
    return auth.authorize(request, needed.scopes[0]) if needed.scopes else auth.identify(request)


# the argument of a route that tells it who asks, by the scope that it needs
Anybody = Annotated[Caller, Security(_caller)]
Detecting = Annotated[Caller, Security(_caller, scopes=["detect"])]
Generating = Annotated[Caller, Security(_caller, scopes=["generate"])]
Administering = Annotated[Caller, Security(_caller, scopes=["admin"])]
