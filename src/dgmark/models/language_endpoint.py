"""A language model behind an OpenAI-compatible server that echoes the log-probabilities of a prompt, such as vLLM.

The official client talks to it. Needs no torch. Knows no watermark.
"""

import hashlib
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int

from dgmark.arguments import instance, several
from dgmark.checkpoint.tokenizer import well_formed
from dgmark.errors import ModelError
from dgmark.models.endpoint import Endpoint

_MOST_BYTES = 4  # of one character


class LanguageEndpoint(Endpoint):
    """A language model that a server computes.

    Args:
        url: address of the server's interface, such as "http://localhost:8000/v1".
        model: the name under which it serves the model; by default its only one.
        api_key: by default that in $OPENAI_API_KEY, if there is one.
        timeout: seconds to wait for an answer.

    Raises:
        SettingsError: the address is none, or another argument is of a wrong type.
        MissingExtra: openai is not installed.
    """

    @property
    def fingerprint(self) -> str:
        """A hash of the model's name, 16 hex digits: a server does not show which weights it has under this name."""
        return hashlib.sha256(b"dgmark/language-endpoint/v1\0" + self.name.encode()).hexdigest()[:16]

    def surprisals(self, texts: Sequence[str]) -> list[tuple[Int[np.ndarray, "_ 2"], Float[np.ndarray, " _"]]]:
        """See `LanguageModel.surprisals`; a request for each text.

        Raises:
            ModelError: the server does not answer in time, refuses the text, or echoes no log-probabilities of it.
        """
        return [self._surprisal(well_formed(instance("a text", text, str))) for text in several(texts, "texts")]

    def _surprisal(self, text: str) -> tuple[Int[np.ndarray, "_ 2"], Float[np.ndarray, " _"]]:
        if not text:
            return np.empty((0, 2), dtype=np.int64), np.empty(0)
        with self._failures():
            answer = self._client().completions.create(
                model=self.name, prompt=text, max_tokens=1, echo=True, logprobs=1, temperature=0
            )
        echoed = answer.choices[0].logprobs if answer.choices else None
        tokens, logs = (echoed.tokens or [], echoed.token_logprobs or []) if echoed else ([], [])
        if not tokens or len(tokens) != len(logs):
            raise ModelError(
                f"{self.url} gives no log-probabilities of the prompt of {self.name}: serve the model by a server that "
                "echoes them (completions with echo and logprobs), such as vLLM"
            )
        offsets = _offsets_of(text, list(tokens))
        if offsets is None:
            raise ModelError(
                f"the tokens that {self.url} echoes are not those of the text that was sent: serve the model by "
                "another server, or load it here"
            )
        # the first token has none
        nats = [0.0 if log is None else -float(log) for log in list(logs)[: len(offsets)]]
        return np.array(offsets, dtype=np.int64).reshape(-1, 2), np.array(nats)


def _offsets_of(text: str, tokens: list[str]) -> list[tuple[int, int]] | None:
    """The characters of each token, up to the end of the text; None if the text does not consist of them.

    A begin token stands at the start and in no character; tokens that are bytes of a character share it.
    """
    offsets, place, pieces = list[tuple[int, int]](), 0, 0

    def close(end: int) -> None:
        nonlocal pieces
        offsets.extend([(place, end)] * pieces)
        pieces = 0

    for token in tokens:
        ahead = range(place + 1, place + 1 + _MOST_BYTES) if pieces else range(place, place + 1)
        found = next((at for at in ahead if token and text.startswith(token, at)), None)
        if found is not None:
            close(found)
            place = found + len(token)
            offsets.append((found, place))
        elif place == len(text):
            break
        elif "\ufffd" in token or token.startswith("bytes:"):
            pieces += 1
        elif place == 0 and not pieces:
            offsets.append((0, 0))
        else:
            return None
    if pieces:
        close(len(text))
        return offsets if len(text) - place <= _MOST_BYTES else None
    return offsets if place == len(text) else None
