"""A server with OpenAI's interface: its address, the model that is asked for, and what its failures mean."""

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from dgmark.arguments import instance, number, shown
from dgmark.checkpoint.folder import first_line
from dgmark.errors import ModelError, SettingsError
from dgmark.extras import needed_extra

if TYPE_CHECKING:
    from openai import OpenAI

TIMEOUT = 60.0
Made = TypeVar("Made", bound="Endpoint")


# what servers call a question or an answer that they hold back
_HELD_BACK = ("content_filter", "content_policy_violation")


class Answer(NamedTuple):
    """What a model answers.

    Attributes:
        text: the answer; with a refusal, its words if it has any.
        refused: whether the model or its server refused to answer.
    """

    text: str
    refused: bool


class Endpoint:
    """A model that a server with OpenAI's interface computes.

    Args:
        url: address of the server's interface, such as "http://localhost:8000/v1".
        model: the name under which it serves the model; by default its only one.
        api_key: by default that in $OPENAI_API_KEY, if there is one.
        timeout: seconds to wait for an answer.

    Raises:
        SettingsError: the address is none, or another argument is of a wrong type.
        MissingExtra: openai is not installed.
    """

    def __init__(
        self, url: str, model: str | None = None, *, api_key: str | None = None, timeout: float = TIMEOUT
    ) -> None:
        if not instance("the address", url, str).startswith(("http://", "https://")):
            raise SettingsError(f"{url} is no address of a server: give one such as http://localhost:8000/v1")
        for what, given in (("the model's name", model), ("the key of the server", api_key)):
            if given is not None:
                instance(what, given, str)
        if not 0 < number("timeout", timeout) < math.inf:
            raise SettingsError(f"timeout {shown(timeout)} is no number of seconds above 0")
        self.url, self._model, self._api_key, self._timeout = url.rstrip("/"), model, api_key, float(timeout)
        self.client()  # a missing package is an error of the endpoint, not of a text

    @classmethod
    def at(cls: type[Made], address: str) -> Made:
        """The endpoint at an address, with #NAME behind it if the server has several models.

        Raises:
            SettingsError: it is no address.
            MissingExtra: openai is not installed.
        """
        url, _, model = address.partition("#")
        return cls(url, model or None)

    @cached_property
    def name(self) -> str:
        """The name under which the server serves the model.

        Raises:
            ModelError: the server does not answer, or serves several models, of which none is named.
        """
        if self._model is not None:
            return self._model
        with self.failures():
            served = [model.id for model in self.client().models.list()]
        if len(served) != 1:
            raise ModelError(
                f"{self.url} serves {len(served)} models ({', '.join(served[:5])}): name one, as in {self.url}#NAME"
            )
        return served[0]

    def answer(self, question: str, *, max_tokens: int, temperature: float, seed: int) -> Answer:
        """Ask the model a question, as the only message of a chat.

        Args:
            question: the message.
            max_tokens: most tokens of the answer.
            temperature: of the answer's draws.
            seed: of the answer's draws; some servers take no notice.

        Raises:
            ModelError: the server does not answer in time, or refuses the request for another reason than its content.
        """
        import openai

        with self.failures():
            try:
                made = self.client().chat.completions.create(
                    model=self.name,
                    messages=[{"role": "user", "content": question}],
                    max_tokens=max_tokens,
                    temperature=temperature,
                    seed=seed,
                )
            except openai.BadRequestError as error:
                if error.code not in _HELD_BACK:
                    raise
                return Answer(first_line(error), refused=True)
        if not made.choices:
            raise ModelError(f"{self.url} sends an answer without a text: is it a server of chats?")
        message, reason = made.choices[0].message, made.choices[0].finish_reason
        text = message.content or message.refusal or ""
        return Answer(text, refused=message.refusal is not None or reason in _HELD_BACK)

    def client(self) -> "OpenAI":
        """OpenAI's client of this server; a new one each time, as it cannot go to another process.

        Raises:
            MissingExtra: openai is not installed.
        """
        with needed_extra("endpoint", "a language model behind a server", "openai"):
            from openai import OpenAI
        key = self._api_key or os.environ.get("OPENAI_API_KEY") or "none"
        return OpenAI(base_url=self.url, api_key=key, timeout=self._timeout)

    @contextmanager
    def failures(self) -> Iterator[None]:
        """Report what the client raises as what it means.

        Raises:
            ModelError: the server does not answer, or refuses the request.
        """
        import openai

        try:
            yield
        except openai.APITimeoutError as error:
            raise ModelError(f"{self.url} did not answer in time: send shorter texts, or fewer at once") from error
        except openai.APIConnectionError as error:
            raise ModelError(f"{self.url} cannot be reached ({first_line(error)}): start the server") from error
        except openai.OpenAIError as error:
            raise ModelError(f"{self.url} refused a text: {first_line(error)}") from error
