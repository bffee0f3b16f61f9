"""The messages of a conversation, as requests for a chat model have them."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field, field_validator, model_validator

from dgmark_service.schemas import Items, RequestFields, given


class TextPart(RequestFields):
    """A part of a message."""

    type: Literal["text"]
    text: str

    @model_validator(mode="before")
    @classmethod
    def _is_text(cls, value: object) -> object:
        if isinstance(value, dict) and value.get("type", "text") != "text":
            raise ValueError("the parts of a message are texts here: leave out images, sounds and files")
        return value


class Message(RequestFields):
    """A message of a conversation; an assistant's may have no content. Other fields are not used."""

    model_config = ConfigDict(
        extra="ignore", json_schema_extra={"anyOf": [given("role", "assistant"), given("content")]}
    )

    role: Literal["system", "developer", "user", "assistant"]
    content: str | Items[TextPart] | None = Field(None, validate_default=True)

    @field_validator("content")
    @classmethod
    def _of_an_assistant(cls, value: object, info: Any) -> object:
        if value is None and info.data.get("role", "assistant") != "assistant":
            raise ValueError("it must be a text or a list of texts: only an assistant's may be null")
        return value

    @property
    def turn(self) -> tuple[str, str]:
        """The role, as templates call it, and what it says, its parts joined."""
        text = self.content if isinstance(self.content, str) else "".join(part.text for part in self.content or ())
        return "system" if self.role == "developer" else self.role, text


def _ends_with_user(messages: list[Message]) -> list[Message]:
    systems = [place for place, message in enumerate(messages) if message.role in ("system", "developer")]
    if systems not in ([], [0]) or messages[-1].role != "user":
        raise ValueError("the last message is a user's, and only the first one may be the system's")
    return messages


Messages = Annotated[Items[Message], Field(min_length=1), AfterValidator(_ends_with_user)]
