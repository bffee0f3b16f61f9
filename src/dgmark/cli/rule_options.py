"""The options of `keygen`: those that all keys have, and those of each rule, whoever adds it."""

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import typer
from pydantic import TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from dgmark.cli.option_groups import OptionGroup
from dgmark.cli.options import set_options
from dgmark.errors import SettingsError
from dgmark.watermark.rules import Rule, rule_with_options
from dgmark.watermark.spec import options_of

_IN_WORDS = {bool: "true or false", int: "a whole number", float: "a number"}


def rule_options(rules: Sequence[Rule]) -> OptionGroup:
    """The arguments of `WatermarkKey.generate` beside the model, as options.

    An option that several rules have is one option, whose help names them.
    """
    having: dict[str, list[_Option]] = {}
    for rule in rules:
        for name, field in options_of(rule.spec).items():
            having.setdefault(name, []).append(_Option(rule, name, field))

    def key_options(**options: Any) -> dict[str, Any]:
        return _as_rule_takes_them(set_options(options), having)

    named = typer.Option(
        metavar="RULE",
        help="What is marked: bigram (pairs of nearby tokens), position (each token at its position, the paper's rule)"
        + "".join(f", {_with_title(rule)}" for rule in rules if rule.distribution)
        + ".",
        show_default="bigram; position with one of its options",
    )
    match = typer.Option(
        help="Share of the pairs (position: of the tokens) that match in a typical text of the model, by which a text "
        "is too short to tell.",
        show_default="what was measured at the model's own block length",
    )
    name = typer.Option(help="Whose texts it marks, such as ACME: verdicts name it.")
    parameters = [
        _parameter("rule", str, named),
        *(_shared(option, alike) for option, alike in having.items()),
        _parameter("expected_match", float, match),
        _parameter("name", str, name),
    ]
    # typer reads the options of a command from a signature
    key_options.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return OptionGroup(key_options)


@dataclass(frozen=True)
class _Option:
    """An option of one rule.

    Attributes:
        rule: the rule.
        name: the name of the option.
        field: what the rule's spec says of it.
    """

    rule: Rule
    name: str
    field: FieldInfo

    @property
    def _extra(self) -> Any:
        return self.field.json_schema_extra or {}

    @property
    def help(self) -> str:
        """What it does."""
        return str(self._extra.get("help", ""))

    @property
    def default(self) -> str:
        """Its default for new keys, in words; empty if it must be given."""
        if "default_text" in self._extra:
            return str(self._extra["default_text"])
        of_new = self.rule.spec.defaults_of_new({})
        if self.name not in of_new and self.field.is_required():
            return ""
        default = of_new.get(self.name, self.field.default)
        return ",".join(map(str, default)) if isinstance(default, tuple) else str(default)

    @property
    def kind(self) -> Any:
        """How the command line reads it: a choice, a switch, a number, or a text that the spec reads."""
        kind: Any = self.field.annotation
        if get_origin(kind) in (Union, UnionType):
            kinds = [one for one in get_args(kind) if one is not NoneType]
            kind = kinds[0] if len(kinds) == 1 else str
        words = get_origin(kind) is Literal and all(isinstance(one, str) for one in get_args(kind))
        return kind if words or kind in _IN_WORDS else str


def _shared(name: str, alike: list[_Option]) -> inspect.Parameter:
    """An option of the rules that have it; a text until the rule is known, where they read it in different ways."""
    kinds = {one.kind for one in alike}
    helps = _by_rules(alike, [one.help for one in alike])
    defaults = _by_rules(alike, [one.default for one in alike])
    # one default needs no names, as the help has them
    shown = (
        next(iter(defaults)) if len(defaults) == 1 else _listed({text or "none": of for text, of in defaults.items()})
    )
    option = typer.Option(
        help="; ".join(f"{', '.join(of)}: {text.removesuffix('.')}" for text, of in helps.items()) + ".",
        show_default=shown or False,
    )
    return _parameter(name, kinds.pop() if len(kinds) == 1 else str, option)


def _by_rules(alike: list[_Option], texts: list[str]) -> dict[str, list[str]]:
    """The rules that each text is for."""
    rules: dict[str, list[str]] = {}
    for one, text in zip(alike, texts, strict=True):
        rules.setdefault(text, []).append(one.rule.name)
    return rules


def _listed(rules: dict[str, list[str]]) -> str:
    return "; ".join(f"{', '.join(of)}: {text}" for text, of in rules.items())


def _with_title(rule: Rule) -> str:
    return f"{rule.name} ({rule.title})" if rule.title else rule.name


def _parameter(name: str, kind: Any, option: Any) -> inspect.Parameter:
    annotation = Annotated[kind | None, option]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _as_rule_takes_them(options: dict[str, Any], having: dict[str, list[_Option]]) -> dict[str, Any]:
    """The options, with those that rules read in different ways as the key's rule reads them.

    Raises:
        SettingsError: the rule does not read one of them, or no rule has them all.
    """
    mixed = {name for name in options if len({one.kind for one in having.get(name, [])}) > 1}
    if not mixed:
        return options
    rule = options.get("rule") or rule_with_options({name: value for name, value in options.items() if name in having})
    kinds = {name: one.kind for name in mixed for one in having[name] if one.rule.name == rule}
    return {**options, **{name: _read(name, options[name], kind) for name, kind in kinds.items()}}


def _read(name: str, text: str, kind: Any) -> Any:
    if kind not in _IN_WORDS:
        return text  # which the spec reads
    try:
        return TypeAdapter(kind).validate_python(text)
    except ValidationError:
        raise SettingsError(f"{text} is not {_IN_WORDS[kind]}", field=name) from None
