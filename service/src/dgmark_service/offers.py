"""The models that write texts, and the keys that fit each; `MarkingPolicy` says which of their texts are marked.

Knows nothing of HTTP.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from dgmark.checkpoint.folder import find_checkpoint
from dgmark.checkpoint.tokenizer import Tokenizer, load_tokenizer
from dgmark.errors import KeyFileError, SettingsError
from dgmark.watermark.key import WatermarkKey
from dgmark.watermark.policy import Mark, MarkingPolicy
from dgmark_service.settings import ModelSource, ServiceSettings

Policy = Literal["default", "enforced"]


@dataclass(frozen=True)
class Offer:
    """A model, with the policy by which its texts are marked.

    Attributes:
        source: the model.
        marking: its keys, and what requests may choose.
    """

    source: ModelSource
    marking: MarkingPolicy

    @property
    def policy(self) -> Policy:
        """What answers call the policy: "enforced" if no request can leave the mark out, else "default"."""
        return "enforced" if self.marking.enforce else "default"

    def describe(self, mark: Mark | None) -> dict[str, Any]:
        """What an answer says of the mark of its text; the sub-key only if the request chose it."""
        fields = {
            "enabled": mark is not None,
            "key_id": mark.name if mark else None,
            "key_fingerprint": mark.key.fingerprint if mark else None,
            "policy": self.policy,
        }
        return fields | {"subkey": mark.key.number} if mark is not None and mark.chosen else fields


# what a key needs to know about a model that is not loaded
class _Shape(NamedTuple):
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
    offers = {}
    for source in settings.models:
        fitting = _fitting(source, keys, settings.generate_keys)
        marking = MarkingPolicy(fitting, next(iter(fitting)), settings.enforce, settings.payloads)
        offers[source.name] = Offer(source, marking)
    return offers


def _fitting(source: ModelSource, keys: Mapping[str, WatermarkKey], chosen: tuple[str, ...]) -> dict[str, WatermarkKey]:
    revision = source.loading.get("revision")
    tokenizer = load_tokenizer(source.loading.get("tokenizer", source.location), revision)
    shape = _Shape(tokenizer, find_checkpoint(source.location, revision).vocab_size)
    fitting = {}
    for name in chosen or keys:
        with suppress(KeyFileError):
            keys[name].check_model(shape)
            fitting[name] = keys[name]
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
            source.tuned.check_rule(key)
    return fitting
