"""Which texts are marked, and with what: the models' keys, and what a request may choose.

Text is marked unless a request says otherwise, and with `enforce` whatever it says. Knows nothing of HTTP but the
errors.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from dgmark.checkpoint.folder import find_checkpoint
from dgmark.checkpoint.tokenizer import Tokenizer, load_tokenizer
from dgmark.errors import KeyFileError, SettingsError
from dgmark.service.errors import Refused
from dgmark.service.settings import ModelSource, ServiceSettings
from dgmark.watermark.key import WatermarkKey
from dgmark.watermark.policy import MarkingPolicy, MarkingRefused, MarkingRequest

Policy = Literal["default", "enforced"]
# the fields of requests that say what `MarkingRequest` has
_PARAMS = {"enabled": "watermark", "key": "watermark.key_id", "subkey": "watermark.subkey"}
# with these a request could leave hardly any mark
WEAKENING = (
    *("alpha", "bias", "block_length", "num_denoising_steps", "strategy", "commit", "threshold", "factor"),
    *("guard", "repetition_guard", "lookahead", "noise"),
)


@dataclass(frozen=True)
class MarkingDecision:
    """How a text is marked.

    Attributes:
        policy: "enforced" if no request can leave the mark out, else "default".
        key: the name of the key; None for no mark.
        fingerprint: the fingerprint of the key.
        subkey: the number of the sub-key, if the key has any. It is secret from whoever did not choose it: it would
            sort texts by the groups that they share, which is half the work of whoever steals a key.
        chosen: whether the request chose the sub-key.
    """

    policy: Policy
    key: str | None = None
    fingerprint: str | None = None
    subkey: int | None = None
    chosen: bool = False

    def public(self) -> dict[str, Any]:
        """What an answer says of it."""
        fields = {
            "enabled": self.key is not None,
            "key_id": self.key,
            "key_fingerprint": self.fingerprint,
            "policy": self.policy,
        }
        return fields | {"subkey": self.subkey} if self.chosen else fields


@dataclass(frozen=True)
class Offer:
    """A model, with the keys that its texts are marked with.

    Attributes:
        source: the model.
        keys: the keys by name; the first is that of requests that name none.
        policy: what requests may choose.
        payloads: whether they may choose the sub-key.
    """

    source: ModelSource
    keys: Mapping[str, WatermarkKey]
    policy: Policy
    payloads: bool = False

    def marking(self, request: MarkingRequest, text_id: str) -> MarkingDecision:
        """How a text is marked.

        Args:
            request: what the request says.
            text_id: the id of the text, which the service drew at random.

        Raises:
            Refused: the request may not choose this, or there is no such key or sub-key.
        """
        policy = MarkingPolicy(self.keys, next(iter(self.keys)), self.policy == "enforced", self.payloads)
        try:
            chosen = policy.choose(request, text_id)
        except MarkingRefused as error:
            raise Refused(403 if error.forbidden else 400, str(error), param=_PARAMS[error.field]) from None
        if chosen is None:
            return MarkingDecision(self.policy)
        name, key = chosen
        return MarkingDecision(self.policy, name, key.fingerprint, key.number, chosen=request.subkey is not None)


@dataclass(frozen=True)
class _Shape:
    """What a key needs to know about a model that is not loaded."""

    tokenizer: Tokenizer
    vocab_size: int


def offers_of(settings: ServiceSettings, keys: Mapping[str, WatermarkKey]) -> dict[str, Offer]:
    """The models by name, each with the keys that fit it.

    Raises:
        SettingsError: a model has no key, or several and none is chosen; a named key does not exist, or has another
            position code than the model's settings file.
        ModelNotFound: there is no such model.
        CheckpointFormat: a model's folder is damaged.
    """
    unknown = [name for name in settings.generate_keys if name not in keys]
    if unknown:
        raise SettingsError(f"the folder of keys has no {unknown[0]}.json to mark with; it has: {', '.join(keys)}")
    policy: Policy = "enforced" if settings.enforce else "default"
    return {
        source.name: Offer(source, _fitting(source, keys, settings.generate_keys), policy, settings.payloads)
        for source in settings.models
    }


def _fitting(source: ModelSource, keys: Mapping[str, WatermarkKey], chosen: tuple[str, ...]) -> dict[str, WatermarkKey]:
    revision = source.loading.get("revision")
    tokenizer = load_tokenizer(source.loading.get("tokenizer", source.location), revision)
    shape = _Shape(tokenizer, find_checkpoint(source.location, revision).vocab_size)
    fitting = {name: keys[name] for name in chosen or keys if _fits(keys[name], shape)}
    if not fitting:
        raise SettingsError(
            f"no key that texts may be marked with fits {source.location}: make one with "
            f"`dgmark keygen KEYS/main.json --model {source.location}`"
        )
    if len(fitting) > 1 and not chosen:
        raise SettingsError(
            f"several keys fit {source.location} ({', '.join(fitting)}): name those that may mark, with --generate-key"
        )
    for key in fitting.values():
        if source.tuned is not None:
            source.tuned.check_key(key)
    return fitting


def _fits(key: WatermarkKey, shape: _Shape) -> bool:
    try:
        key.check_model(shape)
    except KeyFileError:
        return False
    return True
