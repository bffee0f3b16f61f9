"""A server with OpenAI's interface: its address, the model that is asked for, and what its failures mean."""

import math
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

from dgmark.arguments.checks import instance, number, shown
from dgmark.checkpoint.folder import first_line
from dgmark.errors import ModelError, SettingsError, needed_extra

if TYPE_CHECKING:
    from openai import OpenAI

TIMEOUT = 60.0
Made = TypeVar("Made", bound="Endpoint")
_CREDENTIALS = re.compile("(^|//)[^/]*@")


class Endpoint:
    """A model that a server with OpenAI's interface computes; `LanguageEndpoint` says what its arguments mean."""

    def __init__(
        self, url: str, model: str | None = None, *, api_key: str | None = None, timeout: float = TIMEOUT
    ) -> None:
        # errors show the address, and no password in it
        self.shown_url = _CREDENTIALS.sub(r"\1***@", instance("the address", url, str).rstrip("/"))
        if not _is_address(url):
            raise SettingsError(
                f"{self.shown_url} is not an address of a server: give one such as http://localhost:8000/v1"
            )
        for what, given in (("the model's name", model), ("the key of the server", api_key)):
            if given is not None:
                instance(what, given, str)
        if not 0 < number("timeout", timeout) < math.inf:
            raise SettingsError(f"timeout {shown(timeout)} is not a number of seconds above 0")
        self.url, self._model, self._api_key, self._timeout = url.rstrip("/"), model, api_key, float(timeout)
        self._client()  # a missing package is an error of the endpoint, not of a text

    @classmethod
    def at(cls: type[Made], address: str) -> Made:
        """The endpoint at an address, with #NAME after it if the server has several models.

        Raises:
            SettingsError: it is not an address, or no text.
            MissingExtra: openai is not installed.
        """
        url, _, model = instance("the address", address, str).partition("#")
        return cls(url, model or None)

    @cached_property
    def name(self) -> str:
        """The name under which the server serves the model.

        Raises:
            ModelError: the server does not answer, or serves several models, of which none is named.
        """
        if self._model is not None:
            return self._model
        with self._failures():
            served = [model.id for model in self._client().models.list()]
        if len(served) != 1:
            raise ModelError(
                f"{self.shown_url} serves {len(served)} models ({', '.join(served[:5])}): name one, as in "
                f"{self.shown_url}#NAME"
            )
        return served[0]

    def _client(self) -> "OpenAI":
        """OpenAI's client of this server; a new one each time, as it cannot go to another process."""
        with needed_extra("endpoint", "a language model on a server", "openai"):
            from openai import OpenAI
        key = self._api_key or os.environ.get("OPENAI_API_KEY") or "none"
        return OpenAI(base_url=self.url, api_key=key, timeout=self._timeout)

    @contextmanager
    def _failures(self) -> Iterator[None]:
        """Report what the client raises as a ModelError that says what it means."""
        import openai

        try:
            yield
        except openai.APITimeoutError as error:
            raise ModelError(
                f"{self.shown_url} did not answer in time: send shorter texts, or fewer at once"
            ) from error
        except openai.APIConnectionError as error:
            raise ModelError(f"{self.shown_url} cannot be reached ({first_line(error)}): start the server") from error
        except openai.OpenAIError as error:
            raise ModelError(f"{self.shown_url} refused a text: {first_line(error)}") from error


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0 and url.isprintable()
    except ValueError:  # an unclosed bracket, or a port that is not a number
        return False
