"""What generator and detector must agree on, one class for each rule. All of it is public.

A spec is a `BigramSpec` or a `PositionSpec`, told apart by `rule`. What is asked of any key is a property of both.
Knows no secret, no model and no text.
"""

import operator
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Annotated, Any, ClassVar, Final, Literal, get_args

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Strict,
    TypeAdapter,
    ValidationError,
    model_validator,
)
from pydantic.dataclasses import dataclass

from dgmark.arguments import whole
from dgmark.checkpoint.folder import BUILTIN
from dgmark.errors import SettingsError
from dgmark.watermark.bigrams import BIGRAM_PRF, DISTANCES, MAX_DISTANCE, MAX_TABLE

Rule = Literal["position", "bigram"]
Grouping = Literal["keyed", "token-id"]
PRF: Final = "shake256-rank-v1"
MODULI: Final = range(2, 17)
MAX_CODE_LENGTH: Final = 64
# i mod 2 rewards loops: as diverse, its texts have a higher perplexity (lab/docs/results/decoding.md)
DEFAULT_CODE: Final = 16
MAX_SUBKEYS: Final = 65_536
_MAX_INT = 2**31 - 1
# positions of a block: share of pairs at distances 1 to 4 that match; share of tokens, in two groups with a code of 16.
# Of the storyteller's first 128 tokens, at T = .55 for pairs and .6 for tokens (lab/docs/results/decoding.md).
MEASURED_MATCH: Final = {4: (0.70, 0.72), 8: (0.72, 0.80), 16: (0.72, 0.86), 32: (0.72, 0.91), 64: (0.72, 0.92)}
# what the shares of pairs and of tokens exceed 1/2 by, over that of the storyteller: the narrator's, at T = .9 and .5,
# taken for all models but the storyteller
_STRENGTH_OF_OTHER_MODELS = (0.64, 0.75)


def _index(value: Any) -> Any:
    """A whole number of Python's for one of numpy's."""
    try:
        return value if isinstance(value, bool) else operator.index(value)
    except TypeError:
        return value


def _power_of_two(value: int) -> int:
    if value < 1 or value & (value - 1):
        raise ValueError
    return value


_Whole = Annotated[int, Strict(), BeforeValidator(_index)]


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class _Spec:
    """What the specs of all rules have.

    Attributes:
        rule: the rule.
        table_size: the padded vocabulary, whose ids the key tells apart.
        tokenizer: name of the tokenizer, by which the detector loads it.
        tokenizer_fingerprint: hash of its vocabulary; a tokenizer with another hash is an error.
        expected_match: share of the different pairs, or of the tokens, that match in a typical text of the key's model,
            by which short texts are "uncertain"; None if it is not known. No p-value depends on it.
    """

    rule: Rule
    table_size: Annotated[_Whole, Field(ge=2, le=_MAX_INT, description=f"in 2..{_MAX_INT}")]
    tokenizer: Annotated[str, Field(description="a text")] = ""
    tokenizer_fingerprint: Annotated[str, Field(description="a text")] = ""
    expected_match: Annotated[float | None, Strict(), Field(description="a number")] = None

    _column: ClassVar[int]  # of the measured shares
    shown_match: ClassVar[str]  # what is shown as matching, in words
    needs_long_blocks: ClassVar[bool]  # whether the mark is weaker in blocks of few positions

    @property
    def chance(self) -> float:
        """The share of the pairs, or of the tokens, that match by chance."""
        return 0.5

    @property
    def _relative_strength(self) -> float | None:
        """What the share of matches exceeds chance by, over what was measured; None if it is not known."""
        raise NotImplementedError

    @model_validator(mode="wrap")
    @classmethod
    def _refuse_in_words(cls, fields: Any, build: Callable[[Any], "_Spec"]) -> "_Spec":
        try:
            spec = build(fields)
        except ValidationError as error:
            problem = cls._problem(error)
        else:
            spec._check()
            return spec
        raise SettingsError(problem)  # out here, so that it carries no value: one may be a secret in a wrong place

    @classmethod
    def _problem(cls, error: ValidationError) -> str:
        """What is wrong with the fields; only numbers are quoted."""
        found = error.errors(include_url=False, include_context=False)
        unknown = [str(one["loc"][-1]) for one in found if one["type"] == "unexpected_keyword_argument"]
        if unknown:
            names = " and no ".join(unknown).replace("_", " ").replace("subkeys", "sub-keys")
            return (
                f"rule {cls.rule} has no {names}: choose rule "
                f"{'bigram' if cls.rule == 'position' else 'position'}, or leave that out"
            )
        field, value = str(found[0]["loc"][0]), found[0]["input"]
        name = field.replace("_", " ")
        if found[0]["type"].startswith("missing"):
            return f"a key of rule {cls.rule} has no {name}: give it"
        if found[0]["type"].startswith("int"):
            return f"{name} is not a whole number"
        quoted = f" {value}" if isinstance(value, int | float) else ""
        return f"{name}{quoted} is not {cls.__pydantic_fields__[field].description}"  # type: ignore[attr-defined] # pydantic adds it

    def _check(self) -> None:
        """Refuse fields that do not fit each other."""
        if self.expected_match is not None and not self.chance < self.expected_match < 1:
            raise SettingsError(
                f"expected match {self.expected_match} is not between {self.chance:.2g}, which is chance, and 1: "
                "give the share of the pairs or tokens of a typical text that match"
            )

    def measured_match(self, block_length: int) -> float | None:
        """The share that is expected of texts that a model samples in blocks of this length, to two digits.

        None for shorter blocks, and for keys with other groups or codes, than were measured.
        """
        block_length = whole("block length", block_length)
        measured = [shares for block, shares in MEASURED_MATCH.items() if block <= block_length]
        strength = self._relative_strength
        if not measured or strength is None:
            return None
        if self.tokenizer != BUILTIN:
            strength *= _STRENGTH_OF_OTHER_MODELS[self._column]
        return round(0.5 + (measured[-1][self._column] - 0.5) * strength, 2)

    def to_fields(self) -> dict[str, Any]:
        """The fields of key files and of `dgmark key show`; an expected match that is not known is left out."""
        return {name: value for name, value in asdict(self).items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class BigramSpec(_Spec):
    """The spec of rule "bigram": the bit of a pair of nearby tokens must be 1.

    Attributes:
        nearest: the smallest distance of a pair, in tokens.
        farthest: the largest, up to 64.
        subkeys: number of sub-keys, a power of two up to 65,536; each text is marked with one of them. 1 = all texts
            are marked alike.

    Raises:
        SettingsError: a field is missing, out of range or of another rule.
    """

    rule: Literal["bigram"] = "bigram"
    nearest: _Whole
    farthest: _Whole
    subkeys: Annotated[
        _Whole,
        AfterValidator(_power_of_two),
        Field(le=MAX_SUBKEYS, description=f"a power of two from 1 to {MAX_SUBKEYS}; 1 marks all texts alike"),
    ] = 1
    prf: ClassVar[str] = BIGRAM_PRF
    _column: ClassVar[int] = 0
    shown_match: ClassVar[str] = "token of which most pairs match"
    needs_long_blocks: ClassVar[bool] = False
    storyteller_temperature: ClassVar[float] = 0.5
    keyed: ClassVar[bool] = True

    def _check(self) -> None:
        super()._check()
        if not 1 <= self.nearest <= self.farthest <= MAX_DISTANCE:
            raise SettingsError(
                f"the distances of pairs, {self.nearest} to {self.farthest}, are not a range in 1..{MAX_DISTANCE}"
            )
        if self.table_size > MAX_TABLE:
            raise SettingsError(f"rule bigram takes vocabularies of up to {MAX_TABLE} ids, not {self.table_size}")

    @property
    def typical_match(self) -> float:
        """The share of the different pairs of a typical text that match; .65 if the key does not say it."""
        return self.expected_match or 0.65

    @property
    def _relative_strength(self) -> float:
        """It falls with the sixth root of the number of distances (measured at distances 1 to 1, 1 to 4 and 1 to 8)."""
        nearest, farthest = DISTANCES
        return float(((farthest - nearest + 1) / (self.farthest - self.nearest + 1)) ** (1 / 6))


@dataclass(frozen=True, kw_only=True)
class PositionSpec(_Spec):
    """The spec of rule "position": the group of a token must be the one that its position wants (the paper).

    Attributes:
        modulus: number of groups m, 2..16; position i wants group i mod m, or as the position code says.
        rotation: positions after which the groups change; 0 = never.
        grouping: "keyed" (groups from the secret), or "token-id" (group = id mod m, as in the paper's code; keyless).
        code_length: period of a keyed position code, a multiple of m up to 64; 0 = the paper's i mod m.

    Raises:
        SettingsError: a field is missing, out of range or of another rule.
    """

    rule: Literal["position"] = "position"
    modulus: Annotated[_Whole, Field(ge=MODULI[0], le=MODULI[-1], description="in 2..16")] = 2
    rotation: Annotated[_Whole, Field(ge=0, le=_MAX_INT, description=f"in 0..{_MAX_INT}; 0 turns it off")] = 0
    grouping: Annotated[Grouping, Field(description="one of: keyed, token-id")] = "keyed"
    code_length: _Whole = 0
    prf: ClassVar[str] = PRF
    _column: ClassVar[int] = 1
    shown_match: ClassVar[str] = "matching token"
    needs_long_blocks: ClassVar[bool] = True
    subkeys: ClassVar[int] = 1

    def _check(self) -> None:
        super()._check()
        if self.grouping == "token-id" and (self.rotation or self.code_length):
            raise SettingsError("grouping token-id has no key to draw from: use rotation 0 and code length 0")
        if not 0 <= self.code_length <= MAX_CODE_LENGTH or self.code_length % self.modulus:
            raise SettingsError(
                f"code length {self.code_length} is not a multiple of modulus {self.modulus} up to {MAX_CODE_LENGTH}; "
                "0 is the paper's position mod m"
            )
        if self.table_size < self.modulus:
            raise SettingsError(f"table size {self.table_size} is not in {self.modulus}..{_MAX_INT}")

    @property
    def storyteller_temperature(self) -> float | None:
        """The temperature at which the storyteller's marked texts are as diverse as unmarked ones; None if unknown."""
        return 0.6 if self.code_length == DEFAULT_CODE else None

    @property
    def keyed(self) -> bool:
        """Whether the key has a secret."""
        return self.grouping == "keyed"

    @property
    def chance(self) -> float:
        """The share of the tokens that match by chance."""
        return 1 / self.modulus

    @property
    def period(self) -> int:
        """Positions after which the wanted residues repeat: the number of phases of a text without rotation."""
        return self.code_length or self.modulus

    @property
    def typical_match(self) -> float:
        """The share of the tokens of a typical text that match; half of those that chance misses, if it is unknown."""
        return self.expected_match or (1 + self.chance) / 2

    @property
    def _relative_strength(self) -> float | None:
        return 1.0 if (self.modulus, self.code_length) == (2, DEFAULT_CODE) else None


WatermarkSpec = Annotated[BigramSpec | PositionSpec, Discriminator("rule")]
_ANY_SPEC: TypeAdapter[BigramSpec | PositionSpec] = TypeAdapter(WatermarkSpec)


def spec_of(fields: Mapping[str, Any]) -> WatermarkSpec:
    """The spec with these fields, one of which is `rule`, such as those of `to_fields`.

    Raises:
        SettingsError: a field is missing, out of range or of another rule.
    """
    try:
        return _ANY_SPEC.validate_python(dict(fields))
    except ValidationError:
        pass
    raise SettingsError(f"the rule is not one of: {', '.join(get_args(Rule))}")
