"""The messages of a conversation, as requests for a chat model have them."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field, create_model, field_validator, model_validator

from dgmark_service.field_rules import given, neutral_fields
from dgmark_service.schemas import RequestFields

NO_TOOLS = "models call no tools here: leave it out"


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


_MessageFields = create_model(
    "_MessageFields",
    __base__=RequestFields,
    **neutral_fields(
        refusal=((), "what a model refused is no part of a conversation here: put it into content"),
        audio=((), "models hear and speak nothing here: leave it out"),
        annotations=(([],), "a message has no annotations here: leave them out"),
        tool_calls=(([],), NO_TOOLS),
        function_call=((), NO_TOOLS),
    ),
)


class Message(_MessageFields):
    """A message of a conversation; an assistant's may have no content."""

    model_config = ConfigDict(json_schema_extra={"anyOf": [given("role", {"const": "assistant"}), given("content")]})

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[TextPart] | None = Field(None, validate_default=True)
    name: str | None = Field(None, description="Who of several users or assistants it is; not used.")

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


Messages = Annotated[list[Message], Field(min_length=1), AfterValidator(_ends_with_user)]
