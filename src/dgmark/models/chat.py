"""One turn of chat as token ids, from the template of the model's family."""

import re

from dgmark.checkpoint.families import Family
from dgmark.errors import SettingsError
from dgmark.models.denoiser import Denoiser, traits_of

_MARKERS = re.compile(r"<\|[^|]+\|>")


def template_of(model: Denoiser) -> str:
    """The template of one turn of chat as text, with "{prompt}" in place of the message.

    Raises:
        SettingsError: the model has no chat template, or its tokenizer lacks the template's tokens.
    """
    family = getattr(model, "family", None)
    template = family.chat if isinstance(family, Family) else None
    if template is None:
        raise SettingsError(
            f"{traits_of(model).name} has no chat template: give it the prompt as plain text or token ids"
        )
    added = {token.content for token in model.tokenizer.backend.get_added_tokens_decoder().values()}
    lacking = sorted(set(_MARKERS.findall(template)) - added)
    if lacking:
        raise SettingsError(f"the tokenizer of {traits_of(model).name} has no token {lacking[0]}: it is no chat model")
    return template


def chat_prompt(model: Denoiser, text: str) -> list[int]:
    """Encode a user's message as a chat model expects it, up to the beginning of the answer.

    The template's markers become special tokens, and no others are added. A marker in `text` also becomes one, as in
    transformers' chat templates.

    Args:
        model: a model with a `family` that has a template.
        text: the message; surrounding white space is removed.

    Raises:
        SettingsError: the model has no chat template, or its tokenizer lacks the template's tokens.
    """
    return model.tokenizer.encode(template_of(model).replace("{prompt}", text.strip()))
