"""`WatermarkSpec`: what generator and detector must agree on. All of it is public.

This is what the specs of all rules have. The spec of a rule is a subclass, whose further fields are the rule's options
(`bigram.py`, `position.py`); `rules.py` finds it by the rule's name. Knows no secret, no model and no text.
"""

import operator
from dataclasses import asdict
from typing import Annotated, Any, ClassVar, Protocol, TypeVar, cast, runtime_checkable

import numpy as np
from jaxtyping import Int
from pydantic import BeforeValidator, ConfigDict, Field, Strict, ValidationError, model_validator
from pydantic.dataclasses import dataclass
from pydantic.fields import FieldInfo

from dgmark.arguments.checks import is_of, refused_in_words
from dgmark.checkpoint.tokenizer import Tokenizer
from dgmark.errors import SettingsError, VocabularyMismatch

MAX_INT = 2**31 - 1


def _index(value: Any) -> Any:
    """A whole number of Python's for one of numpy's."""
    try:
        return value if isinstance(value, bool) else operator.index(value)
    except TypeError:
        return value


Whole = Annotated[int, Strict(), BeforeValidator(_index)]
"""A whole number, Python's or numpy's: the type of such fields of a spec."""


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class WatermarkSpec:
    """What the specs of all rules have.

    A rule's spec is a frozen pydantic dataclass that inherits from this. It narrows `rule` to the rule's name, sets
    `prf`, and adds the rule's options as fields. The `description` of a field says which values are allowed ("in
    2..16"), and errors quote it; the key "help" of its `json_schema_extra` says what it does, for `dgmark keygen`.

    Attributes:
        rule: the name of the rule.
        table_size: the ids of the padded vocabulary, which the key distinguishes.
        tokenizer: name of the tokenizer, by which the detector loads it.
        tokenizer_fingerprint: hash of its vocabulary; a tokenizer with another hash is an error.
        word_classes: hash of the classes of words that the key's bits are of; None for a key of exact tokens.
        expected_match: share of what the rule counts that matches in a typical text of the key's model, by which short
            texts are "uncertain"; None if it is not known. No p-value depends on it.

    Raises:
        SettingsError: a field is missing, out of range or of another rule.
    """

    rule: str
    table_size: Annotated[Whole, Field(ge=2, le=MAX_INT, description=f"in 2..{MAX_INT}")]
    tokenizer: Annotated[str, Field(description="a text")] = ""
    tokenizer_fingerprint: Annotated[str, Field(description="a text")] = ""
    word_classes: Annotated[str | None, Field(description="a text")] = None
    expected_match: Annotated[float | None, Strict(), Field(description="a number")] = None

    prf: ClassVar[str]  # name and version of the function that makes keyed bits from the secret

    @classmethod
    def new(cls, tokenizer: Tokenizer, table_size: int, **options: Any) -> "WatermarkSpec":
        """The spec of a new key: options that are left out, or None, have the rule's defaults for new keys.

        Args:
            tokenizer: the tokenizer of the key's model.
            table_size: the model's padded vocabulary.
            options: fields of the spec.

        Raises:
            SettingsError: the rule has no such option, or a value is out of range.
        """
        given = {name: value for name, value in options.items() if value is not None}
        alike = is_of(given.get("subkeys"), int, np.integer) and given["subkeys"] == 1
        if alike and "subkeys" not in fields_of(cls):
            del given["subkeys"]  # as of every key of a rule without sub-keys
        if not isinstance(tokenizer, Tokenizer):
            kind = type(tokenizer).__name__
            raise SettingsError(f"a tokenizer is a Tokenizer, which load_tokenizer reads, not a {kind}")
        fields = {**cls.defaults_of_new(given), **given}
        return cls(**{"table_size": table_size, **cls.bound_to(tokenizer, fields), **fields})

    @classmethod
    def bound_to(cls, tokenizer: Tokenizer, fields: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG003 (subclasses read it)
        """The fields that bind a new key with these other fields to a tokenizer."""
        return {"tokenizer": tokenizer.name, "tokenizer_fingerprint": tokenizer.fingerprint}

    @classmethod
    def defaults_of_new(cls, options: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG003 (subclasses read it)
        """The options of a new key beside the given ones, where they differ from those of a key file without them."""
        return {}

    @property
    def keyed(self) -> bool:
        """Whether a key with this spec has a secret."""
        return True

    @property
    def subkeys(self) -> int:
        """The number of sub-keys; 1 where all texts are marked alike."""
        return 1

    @property
    def caution(self) -> str | None:
        """What a holder of the key should know before texts are marked; None for nothing."""
        return None

    @property
    def chance(self) -> float:
        """The share of what the rule counts that matches by chance."""
        return 0.5

    @property
    def typical_match(self) -> float:
        """The share that matches in a typical text; half of what chance misses, if it is not known."""
        return self.expected_match or (1 + self.chance) / 2

    def to_fields(self) -> dict[str, Any]:
        """The fields of key files and of `dgmark key show`; those that are None are left out."""
        values = {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}
        return {name: value for name, value in values.items() if value is not None}

    def check(self) -> None:
        """Refuse fields that do not go together with a SettingsError."""
        if self.expected_match is not None and not self.chance < self.expected_match < 1:
            raise SettingsError(
                f"expected match {self.expected_match} is not between {self.chance:.2g}, which is chance, and 1: "
                "give the share of the pairs or tokens of a typical text that match"
            )

    @model_validator(mode="after")
    def _check(self) -> "WatermarkSpec":
        self.check()
        return self

    _refuse = refused_in_words(lambda spec, error: _problem(spec, error))


@runtime_checkable
class KeyLike(Protocol):
    """What rules ask of a key."""

    @property
    def spec(self) -> WatermarkSpec:
        """Its spec."""

    @property
    def secret(self) -> bytes | None:
        """Its secret; None for a keyless key."""

    @property
    def fingerprint(self) -> str:
        """What identifies it."""


_Spec = TypeVar("_Spec", bound=WatermarkSpec)


def spec_as(kind: type[_Spec], key: KeyLike) -> _Spec:
    """The spec of a key of this rule; a key of another rule is a SettingsError."""
    rule = fields_of(kind)["rule"].default
    if key.spec.rule != rule:
        raise SettingsError(f"key {key.fingerprint} is of rule {key.spec.rule}: take a key of rule {rule} here")
    return cast(_Spec, key.spec)


def fields_of(spec: type[WatermarkSpec]) -> dict[str, FieldInfo]:
    """The fields of a spec by name, as pydantic has them."""
    return spec.__pydantic_fields__  # type: ignore[attr-defined,no-any-return] # pydantic adds it


def options_of(spec: type[WatermarkSpec]) -> dict[str, FieldInfo]:
    """The fields of a spec that are its rule's own options."""
    return {name: field for name, field in fields_of(spec).items() if name not in fields_of(WatermarkSpec)}


def _problem(spec: type[WatermarkSpec], error: ValidationError) -> str:
    """What is wrong with the fields of a spec; only numbers are quoted."""
    found = error.errors(include_url=False, include_context=False)
    rule = fields_of(spec)["rule"].default
    unknown = [str(fault["loc"][-1]) for fault in found if fault["type"] == "unexpected_keyword_argument"]
    if unknown:
        names = " and no ".join(unknown).replace("_", " ").replace("subkeys", "sub-keys")
        return f"rule {rule} has no {names}: leave that out, or choose a rule that has it"
    field, value = str(found[0]["loc"][0]), found[0]["input"]
    name = field.replace("_", " ")
    if found[0]["type"].startswith("missing"):
        return f"a key of rule {rule} has no {name}: give it"
    whole = len(found[0]["loc"]) == 1
    if whole and found[0]["type"].startswith("int"):
        return f"{name} is not a whole number"
    quoted = f" {value}" if whole and isinstance(value, int | float) else ""
    allowed = fields_of(spec)[field].description
    if allowed:
        return f"{name}{quoted} is not {allowed}"
    return f"{name}{quoted}: {found[0]['msg'].replace('Input should', 'it must')}"


def check_ids(ids: Int[np.ndarray, " n"], table_size: int) -> None:
    """Refuse ids outside a key's vocabulary with a VocabularyMismatch: scored, they would give a z near 0."""
    if len(ids) and (int(ids.min()) < 0 or int(ids.max()) >= table_size):
        wrong = int(ids.min()) if int(ids.min()) < 0 else int(ids.max())
        raise VocabularyMismatch(
            f"token id {wrong} lies outside the key's vocabulary of {table_size} ids: "
            "these ids come from another tokenizer than the key's"
        )
