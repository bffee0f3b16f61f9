"""The secret key: 32 secret bytes bound to a watermark spec.

The secret never leaves this object except into the key file and the group tables: not into `repr`, logs, results
or messages. Everything else names a key by its fingerprint.
"""

import base64
import hashlib
import json
import os
import secrets
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

from pydantic import ValidationError

from dgmark.arguments.checks import as_path, check_name, whole, wrong_fields
from dgmark.arguments.contents import id_of_row
from dgmark.checkpoint.families import family_of
from dgmark.checkpoint.folder import BUILTIN, find_checkpoint
from dgmark.checkpoint.tokenizer import Tokenizer, load_tokenizer
from dgmark.errors import (
    CheckpointFormat,
    KeyFileError,
    KeyFileFormat,
    KeyFileNotFound,
    MissingExtra,
    SettingsError,
    TokenizerMismatch,
    VocabularyMismatch,
)
from dgmark.files.own_files import instead
from dgmark.watermark.key_file import KeyFile, check_mode, found_key_file, read_private, write_private
from dgmark.watermark.rules import Rule, find_rule, rule_with_options, spec_of
from dgmark.watermark.secret import Secret
from dgmark.watermark.spec import WatermarkSpec
from dgmark.watermark.word_classes import check_word_classes

# ids of a padded vocabulary beside twice the tokenizer's own; a table beyond that costs memory and serves no model
MAX_PADDING = 65_536
SECRET_BYTES = 32


@runtime_checkable
class ModelLike(Protocol):
    """What a key needs to know about a model: its tokenizer and its padded vocabulary."""

    @property
    def tokenizer(self) -> Tokenizer:
        """Its tokenizer."""

    @property
    def vocab_size(self) -> int:
        """Its padded vocabulary."""


@dataclass(frozen=True)
class WatermarkKey:
    """A secret and the spec it is used with.

    `secret` is None only for the keyless grouping "token-id". `key_id` is random and public: a name to file it under.
    `number` is that of a sub-key, which marks one text; None for the whole key.
    `name` is public and says whose texts it marks, such as "ACME"; None if that is not said.
    `key_id` and `name` have 1 to 80 visible characters.
    """

    spec: WatermarkSpec
    key_id: str
    secret: bytes | None = field(default=None, repr=False)
    number: int | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.spec, WatermarkSpec):
            raise SettingsError(f"the spec of a key is a WatermarkSpec, not a {type(self.spec).__name__}")
        if (self.secret is not None) != self.spec.keyed:
            raise SettingsError("grouping keyed needs a secret, and token-id takes none")
        if self.secret is not None:
            if not isinstance(self.secret, bytes):
                raise SettingsError(f"the secret is of type {type(self.secret).__name__} instead of bytes")
            if len(self.secret) != SECRET_BYTES:
                raise SettingsError(f"the secret has {len(self.secret)} bytes instead of {SECRET_BYTES}")
            object.__setattr__(self, "secret", Secret(self.secret))
        check_name(self.key_id, "the key, its key_id,")
        if self.name is not None:
            check_name(self.name, "whoever marks with the key")
        if self.number is not None:
            self._check_subkey(self.number)

    @classmethod
    def generate(
        cls,
        model: "str | os.PathLike[str] | ModelLike" = BUILTIN,
        *,
        rule: str | None = None,
        expected_match: float | None = None,
        name: str | None = None,
        **options: Any,
    ) -> "WatermarkKey":
        """Make a new key for `model` (a name, a folder, or a loaded model). The operating system draws its secret.

        Args:
            model: whose tokenizer and padded vocabulary the key is bound to.
            rule: "bigram" (pairs of nearby tokens; it survives insertions and deletions), "position" (the paper's), or
                one that another package adds. None: "position" if one of its options is given, else "bigram".
            expected_match: share of the different pairs, or of the tokens, that match in a typical text of the model,
                used to decide when a text is too short to judge; None: what was measured at the model's own block
                length.
            name: whose texts it marks, such as "ACME", for the sentences of verdicts: up to 80 visible characters.
            options: options of the rule, which are the fields of its spec; None stands for the default. `BigramSpec`
                has nearest (1), farthest (4), tokens ("exact") and subkeys (64); `PositionSpec` has modulus (2),
                rotation (0), grouping ("keyed") and code_length (16 for a keyed key of modulus 2 without rotation, else
                0).

        Raises:
            SettingsError: an option is out of range or of another rule.
            ModelNotFound: no such model.
        """
        if isinstance(model, str | os.PathLike):
            tokenizer, table_size = load_tokenizer(model), find_checkpoint(model).vocab_size
        elif isinstance(model, ModelLike):
            tokenizer, table_size = model.tokenizer, model.vocab_size
        else:
            raise SettingsError(f"a model is a name, a folder or a loaded model, not a {type(model).__name__}")
        given = {option: value for option, value in options.items() if value is not None}
        found = find_rule(rule_with_options(given) if rule is None else rule)
        spec = found.spec.new(tokenizer, table_size, **given, expected_match=expected_match)
        if expected_match is not None and not found.expects(spec):
            raise SettingsError(
                f"has no meaning for rule {found.name}, which expects no share of matches: leave it out",
                field="expected_match",
            )
        block = block_length_of(model)
        if expected_match is None and block is not None:
            spec = replace(spec, expected_match=found.expected_match(spec, block))
        secret = Secret(secrets.token_bytes(SECRET_BYTES)) if spec.keyed else None
        key = cls(spec=spec, key_id=secrets.token_hex(8), secret=secret, name=name)
        key.check_tokenizer(tokenizer)
        return key

    @property
    def rule(self) -> Rule:
        """The rule of the key."""
        return find_rule(self.spec.rule)

    @property
    def keyless(self) -> bool:
        """Whether the key has no secret. Then anybody can compute the groups, and p-values carry no guarantee."""
        return self.secret is None

    @property
    def spec_bytes(self) -> bytes:
        """The public half of the key as canonical JSON: sorted names, no spaces, ASCII (docs/formats.md)."""
        public = {"prf": self.spec.prf, **self.spec.to_fields()}
        return json.dumps(public, sort_keys=True, separators=(",", ":")).encode()

    @cached_property
    def fingerprint(self) -> str:
        """16 hex digits that identify this secret and spec without revealing the secret."""
        blake = hashlib.blake2b(self.spec_bytes, key=self.secret or b"", digest_size=8, person=b"dgmark/key/v1")
        return blake.hexdigest()

    @property
    def num_subkeys(self) -> int:
        """How many sub-keys may have marked a text; 1 for a key without sub-keys, and for one sub-key."""
        return self.spec.subkeys if self.number is None else 1

    @property
    def whole(self) -> "WatermarkKey":
        """The key that a sub-key belongs to, which is what checkers have; the key itself if it is no sub-key."""
        return self if self.number is None else replace(self, number=None)

    def subkey(self, number: int) -> "WatermarkKey":
        """The sub-key of this number, which marks one text and finds its mark; SettingsError if there is none."""
        return replace(self, number=number)

    def for_text(self, subkey: int | None = None) -> "WatermarkKey":
        """The key that marks one text: a sub-key that the operating system draws, or the key itself if it has none.

        Args:
            subkey: the number of the sub-key to take instead, which is then the payload of the text.

        Raises:
            SettingsError: there is no such sub-key.
        """
        if subkey is not None:
            return self.subkey(subkey)
        if self.spec.subkeys == 1 or self.number is not None:
            return self
        return self.subkey(secrets.randbelow(self.spec.subkeys))

    def _check_subkey(self, number: int) -> None:
        if self.spec.subkeys == 1:
            raise SettingsError(
                "this key has no sub-keys: make one that has, with `dgmark keygen --subkeys` or "
                "WatermarkKey.generate(subkeys=...)"
            )
        if not 0 <= whole("sub-key", number) < self.spec.subkeys:
            raise SettingsError(f"sub-key {number} is not in 0..{self.spec.subkeys - 1}, the sub-keys of this key")

    def check_tokenizer(self, tokenizer: Tokenizer) -> None:
        """Refuse any tokenizer but the one that the key is bound to.

        Raises:
            TokenizerMismatch: the fingerprints differ, or those of the classes of words.
            SettingsError: this is not a tokenizer.
            VocabularyMismatch: the key's vocabulary is smaller than the tokenizer's, or far larger than any model
                pads it.
        """
        if not isinstance(tokenizer, Tokenizer):
            raise SettingsError(
                "a tokenizer is a Tokenizer (dgmark.checkpoint.load_tokenizer reads one) or the path of one, "
                f"not a {type(tokenizer).__name__}"
            )
        if tokenizer.fingerprint != self.spec.tokenizer_fingerprint:
            raise TokenizerMismatch(
                f"key {self.fingerprint} is bound to tokenizer {self.spec.tokenizer!r} "
                f"({self.spec.tokenizer_fingerprint}), not to {tokenizer.name!r} ({tokenizer.fingerprint}): "
                "use the model and tokenizer that the key was made for (--tokenizer names that of a GGUF file), or "
                "make a key for this one"
            )
        if not tokenizer.vocab_size <= self.spec.table_size <= 2 * tokenizer.vocab_size + MAX_PADDING:
            raise VocabularyMismatch(
                f"key {self.fingerprint} has groups for {self.spec.table_size} token ids, its tokenizer "
                f"{tokenizer.name!r} has {tokenizer.vocab_size}: the key file is damaged, or of another model"
            )
        check_word_classes(self.spec, tokenizer)

    def check_model(self, model: "ModelLike") -> None:
        """Refuse a model whose tokenizer or padded vocabulary is not the key's.

        Raises:
            TokenizerMismatch: the tokenizers differ.
            VocabularyMismatch: the padded vocabularies differ.
            SettingsError: this is not a model.
        """
        if not isinstance(model, ModelLike):
            raise SettingsError(f"a model has a tokenizer and a vocab_size, which a {type(model).__name__} lacks")
        self.check_tokenizer(model.tokenizer)
        self.check_vocabulary(model.vocab_size)

    def check_vocabulary(self, vocab_size: int) -> None:
        """Refuse a padded vocabulary that is not the key's.

        Raises:
            VocabularyMismatch: the sizes differ.
            SettingsError: the size is not a whole number.
        """
        if whole("vocabulary", vocab_size) != self.spec.table_size:
            raise VocabularyMismatch(
                f"key {self.fingerprint} has groups for {self.spec.table_size} token ids, the model predicts "
                f"{vocab_size}: make a key for this model with `dgmark keygen --model`"
            )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the key file with mode 0600. Never overwrites a file; "-" is standard output.

        Raises:
            KeyFileExists: `path` exists.
            SettingsError: `path` is not a path, or this is a sub-key.
        """
        if self.number is not None:
            raise SettingsError("a sub-key is not saved: save the key that it belongs to")
        content = KeyFile(
            format="dgmark-key",
            version=1,
            key_id=self.key_id,
            name=self.name,
            package=self.rule.distribution or None,
            secret=None if self.secret is None else base64.b64encode(self.secret).decode(),
            prf=self.spec.prf,
            fingerprint=self.fingerprint,
            **self.spec.to_fields(),
        )
        unset = {"package"} if content.package is None else set()
        # in one expression: no frame may hold the secret in the open
        write_private(
            as_path(path, "a key file"), Secret(content.model_dump_json(indent=2, exclude=unset).encode() + b"\n")
        )

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, allow_open: bool = False) -> "WatermarkKey":
        """Read a key file.

        Args:
            path: the file, or the name of a key in the user's folder of keys (`dgmark keygen --name`); "-" is standard
                input.
            allow_open: accept a file that every user can read (a mounted secret, say), with a warning.

        Raises:
            KeyFileNotFound: no such file.
            KeyFileError: every user of the machine can read it, and `allow_open` is not set; or its rule is added by a
                package that is not installed.
            KeyFileFormat: not a key file, a damaged one, or of another version.
        """
        path = found_key_file(as_path(path, "a key file"))
        content, mode = read_private(path, "dgmark keygen")
        key = _key_of(content, f"the key file {path}")
        if key.secret is not None:
            check_mode(mode, path, allow_open)
        return key


def key_of_environment(name: str) -> WatermarkKey:
    """The key that an environment variable holds: the content of a key file, as secret managers hand it over."""
    content = os.environb.get(os.fsencode(name), b"")
    if not content:
        raise KeyFileNotFound(
            f"the environment variable {name} is not set here: set it to the content of a key file in every process "
            "that reads the key"
        )
    return _key_of(Secret(content), f"the environment variable {name}")


def _key_of(content: bytes, source: str) -> WatermarkKey:
    """The key that the content of a key file states; see `WatermarkKey.load` for what is refused."""
    try:
        key, fingerprint = _parsed(content)
    except MissingExtra as error:
        raise KeyFileError(f"{source} cannot be used here: {error}") from None
    except ValidationError as error:
        why = instead(content, "dgmark-key") or f"fields invalid or missing: {wrong_fields(error)}"
        problem = f"is not a key file for marking: {why}; give what `dgmark keygen` wrote"
    except (SettingsError, ValueError) as error:
        problem = f"is not a key file for marking: it is damaged: {error}; give what `dgmark keygen` wrote"
    else:
        if fingerprint == key.fingerprint:
            return key
        problem = "is damaged: its contents do not have the fingerprint that it states; restore it from a copy"
    # out here, so that it carries no exception that holds the secret
    raise KeyFileFormat(f"{source} {problem}")


def _parsed(content: bytes) -> tuple[WatermarkKey, str]:
    file = KeyFile.model_validate_json(content)
    spec = spec_of(file.model_extra or {}, file.package or "")
    secret = None if file.secret is None else Secret(base64.b64decode(file.secret, validate=True))
    if file.prf != spec.prf:
        raise ValueError(f"its prf is not that of a key of rule {spec.rule}, {spec.prf}")
    return WatermarkKey(spec, file.key_id, secret, name=file.name), file.fingerprint


def subkey_of(key: WatermarkKey, request_id: str | int) -> int:
    """The number of the sub-key that belongs to a request's id, for engines that return nothing but the id.

    The same id has the same sub-key for ever. Without the key, the numbers cannot be told from random ones. Give each
    request another id. A whole number stands for its digits.

    Raises:
        SettingsError: the key has no sub-keys, or the id is neither a text nor a whole number.
    """
    check_key(key)
    name = id_of_row(request_id)
    if name is None:
        raise SettingsError(f"a request id is a text or a whole number, not a {type(request_id).__name__}")
    head = f"dgmark/request/{key.spec.prf}\0{name}".encode("utf-8", "surrogatepass")
    drawn = hashlib.shake_256(Secret(head + (key.secret or b""))).digest(8)
    number = int.from_bytes(drawn, "little") % key.spec.subkeys
    key._check_subkey(number)
    return number


def block_length_of(model: "str | os.PathLike[str] | ModelLike") -> int | None:
    """The block length of a model's own decoding settings; None if dgmark's own loop does not decode it."""
    if not isinstance(model, str | os.PathLike):
        block = getattr(model, "defaults", {}).get("block_length")
        return None if block is None else int(block)
    checkpoint = find_checkpoint(model)
    try:
        family = family_of(checkpoint)
        return int(family.defaults_with(family.block_of(checkpoint))["block_length"])
    except CheckpointFormat:
        return None


def check_key(key: object, *, or_none: bool = False) -> None:
    """Refuse what is not a key, such as a path or a list of keys, with a SettingsError; None passes if `or_none` is
    set.

    The message does not quote it: it may be a secret.
    """
    if isinstance(key, WatermarkKey) or (or_none and key is None):
        return
    raise SettingsError(
        f"a key is a WatermarkKey, not a {type(key).__name__}: read a key file with WatermarkKey.load('key.json')"
    )


def check_has_key(keys: object) -> None:
    """Refuse to check texts without a key with a SettingsError; `keys` is that of all texts, or a list with each."""
    if keys is None or (isinstance(keys, list | tuple) and keys and all(key is None for key in keys)):
        raise SettingsError("a check looks for the mark of a key, and there is none: give a key, or leave check out")
