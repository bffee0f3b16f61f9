"""The table of rules: from the name in a key's spec to the rule's spec, its decode side and its test.

A rule is one kind of watermark. Two are dgmark's own; other packages add theirs by an entry point in the group
`dgmark.rules`, whose name is the rule's and whose object is a `Rule`. Nothing else in dgmark asks which rule a key has.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pkgutil import resolve_name
from typing import Any

from dgmark.errors import MissingExtra, SettingsError
from dgmark.watermark.bigram import BigramSpec
from dgmark.watermark.measured import match_of_pairs, match_of_tokens
from dgmark.watermark.position import PositionSpec
from dgmark.watermark.spec import WatermarkSpec, fields_of, options_of

GROUP = "dgmark.rules"


def _unknown_match(spec: Any, block_length: int) -> None:
    """No share of matches is expected."""


@dataclass(frozen=True)
class Rule:
    """A rule: a watermark on every floor.

    Its two sides are named as "module:object", so that torch is imported only when a text is decoded.

    Attributes:
        spec: the class of its specs, which names the rule.
        decoding: its decode side, a class as `dgmark.decode.keyed_side.KeyedSide` describes.
        detection: its test, a class as `dgmark.detection.rules.TextTest` describes.
        title: what stands before "watermark" in sentences, such as "KGW"; empty for dgmark's own.
        expected_match: the share of what it counts that is expected to match, of a spec and a model's block length;
            None where that is not known.
        settings: decoding settings of marked texts where none are given.
        distribution: the package that adds it; empty for dgmark's own. Key files name it.
    """

    spec: type[WatermarkSpec]
    decoding: str
    detection: str
    title: str = ""
    expected_match: Callable[[Any, int], float | None] = _unknown_match
    settings: Mapping[str, Any] = field(default_factory=dict)
    distribution: str = ""

    @property
    def name(self) -> str:
        """The name of the rule."""
        return str(fields_of(self.spec)["rule"].default)

    def decode_side(self) -> Any:
        """Import the decode side, and torch with it."""
        return resolve_name(self.decoding)

    def test(self) -> Any:
        """Import the test."""
        return resolve_name(self.detection)


_OWN = {
    rule.name: rule
    for rule in (
        Rule(
            BigramSpec,
            decoding="dgmark.decode.bigram:BigramSide",
            detection="dgmark.detection.bigram:BigramTest",
            expected_match=match_of_pairs,
        ),
        Rule(
            PositionSpec,
            decoding="dgmark.decode.position:PositionSide",
            detection="dgmark.detection.position:PositionTest",
            expected_match=match_of_tokens,
        ),
    )
}


@cache
def _added() -> dict[str, EntryPoint]:
    """The entry points of the rules that other packages add, by name."""
    return {point.name: point for point in entry_points(group=GROUP) if point.name not in _OWN}


def rule_names() -> list[str]:
    """The names of all rules, dgmark's own first."""
    return [*_OWN, *sorted(_added())]


def find_rule(name: object, distribution: str = "") -> Rule:
    """The rule of this name.

    Args:
        name: the name.
        distribution: the package that is said to add it, for the error.

    Raises:
        SettingsError: no package has such a rule.
        MissingExtra: the package that adds it is known, and not installed.
    """
    if isinstance(name, str) and name in _OWN:
        return _OWN[name]
    if isinstance(name, str) and name in _added():
        return _loaded(name)
    if isinstance(name, str) and distribution:
        raise MissingExtra(
            f"rule {name} is added by the package {distribution}, which is not installed: install it with pip"
        )
    raise SettingsError(f"the rule is not one of: {', '.join(rule_names())}")


@cache
def _loaded(name: str) -> Rule:
    """The rule of an entry point."""
    point = _added()[name]
    rule = point.load()
    if not isinstance(rule, Rule) or rule.name != name:
        raise SettingsError(
            f"the entry point {name} of {GROUP} ({point.value}) is no rule of that name: it names an object of "
            "dgmark.watermark.rules.Rule"
        )
    return rule


def rule_with_options(options: Mapping[str, Any]) -> str:
    """The name of the first of dgmark's own rules that has all these options.

    Raises:
        SettingsError: none has them all.
    """
    for name, rule in _OWN.items():
        if options.keys() <= {*options_of(rule.spec), "subkeys"}:
            return name
    owners = {
        option: next((name for name, rule in _OWN.items() if option in options_of(rule.spec)), None)
        for option in sorted(options)
    }
    unknown = [option for option, owner in owners.items() if owner is None]
    if unknown:
        raise SettingsError(f"there is no option {unknown[0]} of keys: name the rule that has it, or leave it out")
    named: dict[str | None, str] = {}
    for option, owner in owners.items():
        named.setdefault(owner, option)
    (first, one), (second, other) = list(named.items())[:2]
    raise SettingsError(f"{one} is for the {first} rule and {other} for the {second} rule: leave one of them out")


def spec_of(fields: Mapping[str, Any], distribution: str = "") -> WatermarkSpec:
    """The spec with these fields, one of which is `rule`, such as those of `to_fields`.

    Args:
        fields: the fields.
        distribution: the package that is said to add the rule, for the error.

    Raises:
        SettingsError: a field is missing, out of range or of another rule.
        MissingExtra: the rule is added by a package that is not installed.
    """
    return find_rule(fields.get("rule"), distribution).spec(**fields)
