"""Messages of a chat as token ids, by the template of the model's family."""

import re
from collections.abc import Sequence
from typing import Any

from dgmark.arguments.checks import is_of, several, shown
from dgmark.checkpoint.families import ROLES, ChatTemplate, Family
from dgmark.errors import SettingsError
from dgmark.models.denoiser import Denoiser, encode_text, traits_of

_MARKERS = re.compile(r"<\|[^|]+\|>|<\[[^\]]+\]>")


def template_of(model: Denoiser) -> ChatTemplate:
    """The chat template of a model; none, or one whose tokens its tokenizer lacks, is a SettingsError."""
    family = getattr(model, "family", None)
    template = family.chat if isinstance(family, Family) else None
    if template is None:
        raise SettingsError(
            f"{traits_of(model).name} has no chat template: give it the prompt as plain text or token ids"
        )
    added = {token.content for token in model.tokenizer.backend.get_added_tokens_decoder().values()}
    lacking = sorted(set(_MARKERS.findall(template.text([("user", "")]))) - added)
    if lacking:
        raise SettingsError(f"the tokenizer of {traits_of(model).name} has no token {lacking[0]}: it is not for chat")
    return template


def chat_prompt(model: Denoiser, messages: str | Sequence[tuple[str, str]]) -> list[int]:
    """Encode messages (one of a user, or role and content of several) as a chat model expects them, up to the answer.

    The template's markers become special tokens, and no others are added. A marker in a message also becomes one, as in
    transformers' chat templates; but a mask in a message is text. What is no message, and a model without a template,
    is a SettingsError.
    """
    template = template_of(model)
    text = template.text(_checked([("user", messages)] if is_of(messages, str) else messages))
    return encode_text(model, text)


def _checked(messages: Any) -> list[tuple[str, str]]:
    """Messages as role and content, at least one; anything else is a SettingsError."""
    checked = []
    for number, message in enumerate(several(messages, "messages")):
        if not is_of(message, tuple, list) or len(message) != 2 or not all(is_of(part, str) for part in message):
            raise SettingsError(f"message {number} (counted from 0) is {shown(message)}: give a pair (role, content)")
        role, content = message
        if role not in ROLES:
            raise SettingsError(
                f"message {number} (counted from 0) has the role {shown(role)}, which is not one of: {', '.join(ROLES)}"
            )
        checked.append((role, content))
    if not checked:
        raise SettingsError("there is no message: give at least one, such as the user's")
    return checked
