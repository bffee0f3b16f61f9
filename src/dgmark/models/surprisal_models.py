"""The language model that a name on the command line stands for. Knows no watermark, but the tokenizer of the texts."""

from typing import TYPE_CHECKING

from dgmark.arguments.checks import instance
from dgmark.checkpoint.folder import BUILTIN
from dgmark.checkpoint.tokenizer import load_tokenizer
from dgmark.errors import SettingsError, needed_extra
from dgmark.models.language_endpoint import LanguageEndpoint

if TYPE_CHECKING:
    from dgmark.models.language_model import LanguageModel

# what the command line calls the built-in model that suits the key
OWN = "builtin"


def load_surprisal_model(
    name: str, tokenizer_fingerprint: str, *, device: str | None = None, context: int | None = None
) -> "LanguageEndpoint | LanguageModel":
    """Load the language model of this name.

    Args:
        name: "builtin", the built-in model that suits the tokenizer: that of fairy tales for the storyteller's, else
            "narrator-base"; the address of a server, with #NAME after it if it serves several models; or what
            `LanguageModel` takes.
        tokenizer_fingerprint: of the tokenizer of the texts.
        device: of a model that is computed here, a torch device.
        context: of a model that is computed here, the most tokens that it reads at once.
    """
    if not instance("the surprisal model", name, str).strip():
        raise SettingsError(
            "a surprisal model has a name: builtin, a folder, a GGUF file, a hub id or the address of a server"
        )
    if name.startswith(("http://", "https://")):
        if context is not None:
            raise SettingsError("the context of a model on a server is set where it is served: leave it out here")
        return LanguageEndpoint.at(name)
    with needed_extra("generate", "a language model that reads along"):
        from dgmark.models.assembly import NARRATOR_BASE
        from dgmark.models.language_model import BUILTIN_JUDGE, LanguageModel
    if name == OWN:
        suits = load_tokenizer(BUILTIN).fingerprint == tokenizer_fingerprint
        name = BUILTIN_JUDGE if suits else NARRATOR_BASE
    return LanguageModel(name, device=device, context=context)
