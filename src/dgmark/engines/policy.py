"""An engine's policy and the fields of its requests: which key marks, how a step commits, and who may opt out.

Requests carry plain fields, as every engine passes them on: `dgmark` (true or false), `dgmark_key` (the name of a key
file) and `dgmark_payload` (the number of a sub-key). A request never carries a secret.
"""

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from dgmark.arguments.checks import shown
from dgmark.checkpoint.tokenizer import load_tokenizer
from dgmark.decode.config import DecodeConfig
from dgmark.decode.marks.key_store import SLOTS, KeyStore
from dgmark.decode.marks.keyed_side import side_of_rows
from dgmark.detection.keyring import named_keys
from dgmark.errors import SettingsError
from dgmark.watermark.key import WatermarkKey
from dgmark.watermark.policy import MarkingPolicy, MarkingRequest

# the settings of DecodeConfig that mean something inside an engine's own loop
STEP_SETTINGS = ("strategy", "temperature", "top_k", "alpha", "bias", "commit", "threshold", "min_relative_reward")
# names, which values each takes, and what is wrong with others
_Fields = Mapping[str, tuple[Callable[[Any], bool], str]]
_SERVER_SETTINGS: _Fields = {
    "keys": (lambda value: isinstance(value, str | os.PathLike), "is not the path of a folder of key files"),
    "key": (lambda value: isinstance(value, str), "is not the name of a key file: give one, without its .json"),
    "policy": (lambda value: value in ("default", "enforce"), "is not one of: default, enforce"),
    "tokenizer": (lambda _: True, ""),
    "allow_open_keys": (lambda value: isinstance(value, bool), "is neither true nor false; write it without quotes"),
    "slots": (
        lambda value: type(value) is int and value > 0,
        "is not a whole number of at least 1: give more than a batch has requests",
    ),
    **dict.fromkeys(STEP_SETTINGS, (lambda _: True, "")),  # which `DecodeConfig` checks
}
# what a request may carry
MARK, KEY, PAYLOAD = "dgmark", "dgmark_key", "dgmark_payload"
FIELDS: _Fields = {
    # 1 and 0 are equal to true and false: some engines pass numbers only
    MARK: (lambda value: value in (True, False), "is neither true nor false"),
    KEY: (lambda value: value is None or isinstance(value, str), "is not the name of a key"),
    PAYLOAD: (lambda value: value is None or type(value) is int, "is not a whole number"),
}


@dataclass(frozen=True)
class Policy(MarkingPolicy):
    """Which requests are marked, with which key, and how a step commits.

    Attributes:
        config: how a step draws, orders and commits.
        slots: keys stored on the device at once; more than there are requests in a batch.
    """

    config: DecodeConfig = field(default_factory=DecodeConfig)
    slots: int = SLOTS

    def __post_init__(self) -> None:
        if self.default not in self.keys:
            raise SettingsError(f"there is no key {self.default!r}; the keys are {', '.join(sorted(self.keys))}")
        keys = [key.for_text() for key in self.keys.values()]
        side_of_rows(keys, "cpu", fixed_shapes=True).check_config(self.config)  # as the store that holds them will be

    @classmethod
    def of(cls, settings: Mapping[str, Any], **defaults: Any) -> "Policy":
        """Read the settings of a server.

        Args:
            settings: `keys` (a folder of key files), `key` (the name of the one to take, needed if there are several),
                `policy` ("default" or "enforce"), `tokenizer` (the model's folder, to check that the keys are its),
                `allow_open_keys`, `slots`, and settings of `DecodeConfig`: strategy, temperature, top_k, alpha, bias,
                commit, threshold, min_relative_reward.
            defaults: settings of `DecodeConfig` to begin with.

        Raises:
            SettingsError: a setting is missing, unknown, invalid or without effect.
            KeyFileError: a key file cannot be read, or is of another tokenizer.
        """
        _check_fields("setting", settings, _SERVER_SETTINGS)
        if "keys" not in settings:
            raise SettingsError("give the folder of the key files as `keys`")
        config = _step_config(settings, defaults)
        keys = named_keys(settings["keys"], allow_open=settings.get("allow_open_keys", False))
        if "tokenizer" in settings:
            tokenizer = load_tokenizer(settings["tokenizer"])
            for key in keys.values():
                key.check_tokenizer(tokenizer)
        default = settings.get("key", next(iter(keys)))
        if "key" not in settings and len(keys) > 1:
            raise SettingsError(f"there are several keys ({', '.join(keys)}): say with `key` which one to take")
        enforce = settings.get("policy") == "enforce"
        return cls(keys, default, enforce, config=config, slots=settings.get("slots", SLOTS))

    def key_of(self, fields: Mapping[str, Any] | None, request_id: str) -> WatermarkKey | None:
        """The key or sub-key that marks a request; None for one that opted out.

        A key with sub-keys takes the payload, or the sub-key that belongs to the request's id.

        Args:
            fields: what the request carries, among other things perhaps; None for nothing.
            request_id: the id that the answer will carry too.

        Raises:
            SettingsError: a field is unknown or invalid, or the policy does not allow it. The message is for the
                client.
        """
        fields = {name: value for name, value in (fields or {}).items() if name.startswith(MARK)}
        _check_fields("field", fields, FIELDS)
        wanted, name, payload = fields.get(MARK, True), fields.get(KEY), fields.get(PAYLOAD)
        mark = self.choose(MarkingRequest(bool(wanted), name, payload), request_id)
        return None if mark is None else mark.key

    def store(self, table_size: int, device: torch.device) -> KeyStore:
        """The store of the keys on the device of the logits, for a model of this padded vocabulary."""
        return KeyStore(self.keys.values(), table_size, device, self.slots)


def seed_of(request_id: str, seed: int | None = None) -> int:
    """The seed of a request's draws: a signed 64-bit integer, the same on every rank, from its id or its own seed."""
    text = request_id if seed is None else f"seed {seed}"
    return int.from_bytes(
        hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little", signed=True
    )


def rows_of(numbers: Sequence[int] | Sequence[Sequence[int]], like: Tensor) -> Tensor:
    """One whole number for each row, or several, on the device of `like`, without waiting for it."""
    return torch.tensor(numbers, dtype=torch.long).to(like.device, non_blocking=True)


def _step_config(settings: Mapping[str, Any], defaults: Mapping[str, Any]) -> DecodeConfig:
    """How a step goes by these settings; one that another makes void is refused."""
    given = {**defaults, **{name: settings[name] for name in STEP_SETTINGS if name in settings}}
    if given.get("strategy", "confidence") != "confidence" and "commit" not in settings:
        given["commit"] = "quota"  # a threshold compares confidences
    config = DecodeConfig(**given)
    if "threshold" in settings and config.commit != "threshold":
        raise SettingsError(
            "threshold has a meaning under commit threshold only, and the commit is quota here: add `commit` threshold "
            "(with strategy confidence), or leave threshold out"
        )
    return config


def _check_fields(what: str, given: Mapping[str, Any], known: _Fields) -> None:
    unknown = sorted(given.keys() - known.keys())
    if unknown:
        raise SettingsError(f"there is no {what} {', '.join(unknown)}; the {what}s are {', '.join(known)}")
    for name, value in given.items():
        takes, problem = known[name]
        if not takes(value):
            raise SettingsError(f"{name} {shown(value)} {problem}")
