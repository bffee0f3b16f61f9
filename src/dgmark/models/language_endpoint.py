"""A language model on an OpenAI-compatible server that echoes the log-probabilities of a prompt, such as vLLM.

The official client talks to it. Needs no torch. Knows no watermark.
"""

import hashlib
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, Int

from dgmark.arguments.checks import instance, several
from dgmark.checkpoint.tokenizer import load_tokenizer, well_formed
from dgmark.errors import ModelError, ModelNotFound
from dgmark.models.echoed_tokens import Place, placed
from dgmark.models.endpoint import TIMEOUT, Endpoint

if TYPE_CHECKING:
    from openai.types import Completion

# how servers that are told to show ids in place of tokens do so
_ID = re.compile("token_id:([0-9]+)")
_NOT_SHOWN = "\ufffd".encode()


class LanguageEndpoint(Endpoint):
    """A language model that a server computes.

    Args:
        url: address of the server's interface, such as "http://localhost:8000/v1".
        model: the name under which it serves the model; by default its only one.
        api_key: by default that in $OPENAI_API_KEY, if there is one.
        timeout: seconds to wait for an answer.
        tokenizer: folder, file or hub id of the model's tokenizer, for servers that show ids in place of tokens; by
            default the name under which the model is served.

    Raises:
        SettingsError: the address is none, or another argument is of a wrong type.
        MissingExtra: openai is not installed.
    """

    def __init__(
        self,
        url: str,
        model: str | None = None,
        *,
        api_key: str | None = None,
        timeout: float = TIMEOUT,
        tokenizer: str | None = None,
    ) -> None:
        super().__init__(url, model, api_key=api_key, timeout=timeout)
        self._tokenizer = None if tokenizer is None else instance("the tokenizer", tokenizer, str)

    @property
    def fingerprint(self) -> str:
        """A hash of the model's name, 16 hex digits: a server does not show which weights it has under this name."""
        return hashlib.sha256(b"dgmark/language-endpoint/v1\0" + self.name.encode()).hexdigest()[:16]

    def surprisals(self, texts: Sequence[str]) -> list[tuple[Int[np.ndarray, "_ 2"], Float[np.ndarray, " _"]]]:
        """See `LanguageModel.surprisals`; a request for each text.

        Raises:
            ModelError: the server does not answer in time, refuses the text, echoes no log-probabilities of it or not
                of all its tokens, or shows tokens that are not those of the text.
        """
        return [self._surprisal(well_formed(instance("a text", text, str))) for text in several(texts, "texts")]

    def _surprisal(self, text: str) -> tuple[Int[np.ndarray, "_ 2"], Float[np.ndarray, " _"]]:
        if not text:
            return np.empty((0, 2), dtype=np.int64), np.empty(0)
        with self._failures():
            answer = self._client().completions.create(
                model=self.name, prompt=text, max_tokens=1, echo=True, logprobs=1, temperature=0
            )
        tokens, logs = _echoed(answer)
        if not tokens or len(tokens) != len(logs):
            raise ModelError(
                f"{self.shown_url} gives no log-probabilities of the prompt of {self.name}: serve the model by a "
                "server that echoes them (completions with echo and logprobs), such as vLLM"
            )
        places = self._places(text, tokens)
        if places is None:
            raise ModelError(
                f"the tokens that {self.shown_url} echoes are not those of the text that was sent: serve the model by "
                "another server, or load it here"
            )
        logs = logs[: len(places)]
        # no model predicts a begin token and the token after it from anything
        first = next((number for number, (start, end) in enumerate(places) if start < end), 0)
        if (without := sum(log is None for log in logs[first + 1 :])) > 0:
            raise ModelError(
                f"{self.shown_url} gives no log-probability of {without} of the {len(logs)} tokens of a text, and only "
                "the first may have none: serve the model by another server, or load it here"
            )
        nats = [0.0 if log is None else -float(log) for log in logs]
        return np.array(places, dtype=np.int64).reshape(-1, 2), np.array(nats)

    def _places(self, text: str, tokens: Sequence[str | bytes]) -> list[Place] | None:
        """The characters of each token; None if the text does not consist of them.

        A server that shows ids in place of tokens takes the tokenizer of the model; without one, this is a ModelError.
        """
        ids = [_ID.fullmatch(str(token)) for token in tokens]
        if not all(ids):
            return placed(text, tokens)
        try:
            own = load_tokenizer(self._tokenizer or self.name).encode_with_offsets(text)
        except ModelNotFound as error:
            raise ModelError(
                f"{self.shown_url} shows ids in place of tokens, and the tokenizer of {self.name} is not here "
                f"({error}): give it (LanguageEndpoint(..., tokenizer=...)), or start the server without that option"
            ) from error
        echoed = [int(shown[1]) for shown in ids if shown]
        for begin in range(len(echoed) - len(own.ids) + 1):
            if echoed[begin : begin + len(own.ids)] == own.ids:
                return [(0, 0)] * begin + own.offsets
        return None


def _echoed(answer: "Completion") -> tuple[Sequence[str | bytes], Sequence[float | None]]:
    """The tokens of the prompt, as bytes if the server gives those, and their log-probabilities."""
    echoed = answer.choices[0].logprobs if answer.choices else None
    if echoed is None:
        return [], []
    tokens: Sequence[str | bytes]
    if content := getattr(echoed, "content", None):  # as in answers of chats, with bytes
        tokens = [token["token"] if token.get("bytes") is None else bytes(token["bytes"]) for token in content]
        # some give the bytes of U+FFFD
        tokens = [
            token.decode("utf-8", "replace") if isinstance(token, bytes) and _NOT_SHOWN in token else token
            for token in tokens
        ]
        logs = [token.get("logprob") for token in content]
    else:
        tokens, logs = echoed.tokens or [], list(echoed.token_logprobs or [])
    # without what it has generated, if it says how much it has read
    many = answer.usage.prompt_tokens if answer.usage else 0
    return (tokens[:many], logs[:many]) if 0 < many < len(tokens) == len(logs) else (tokens, logs)
