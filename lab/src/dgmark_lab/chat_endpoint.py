"""A language model on a server with OpenAI's interface that answers questions: raters and paraphrasers."""

from typing import NamedTuple

from dgmark.checkpoint.folder import first_line
from dgmark.errors import ModelError
from dgmark.models.endpoint import Endpoint

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


class ChatEndpoint(Endpoint):
    """A model of chats that a server computes; its arguments are those of `Endpoint`."""

    def answer(self, question: str, *, max_tokens: int, temperature: float, seed: int) -> Answer:
        """Ask the model a question, as the only message of a chat; some servers take no notice of the seed.

        Raises:
            ModelError: the server does not answer in time, or refuses the request for another reason than its content.
        """
        import openai

        with self._failures():
            try:
                made = self._client().chat.completions.create(
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
            raise ModelError(f"{self.shown_url} sends an answer without a text: is it a server of chats?")
        message, reason = made.choices[0].message, made.choices[0].finish_reason
        text = message.content or message.refusal or ""
        return Answer(text, refused=message.refusal is not None or reason in _HELD_BACK)
