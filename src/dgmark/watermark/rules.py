"""The table of rules: from the name in a key's spec to the rule's spec, its decode side and its test.

A rule is one kind of watermark. Two are dgmark's own; other packages add theirs by an entry point in the group
`dgmark.rules`, whose name is the rule's and whose object is a `Rule`. Nothing else in dgmark asks which rule a key has.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pkgutil import resolve_name
from typing import Any

from dgmark.errors import MissingExtra, SettingsError
from dgmark.watermark.bigram import BigramSpec
from dgmark.watermark.key_file import KeyFile
from dgmark.watermark.measured import match_of_pairs, match_of_tokens
from dgmark.watermark.position import PositionSpec
from dgmark.watermark.spec import WatermarkSpec, fields_of, options_of

GROUP = "dgmark.rules"
# names that an option of an added rule cannot have: those of what a spec does, and of the other fields of key files,
# arguments of `WatermarkKey.generate`, options of `dgmark keygen` and fields of `dgmark key show`
RESERVED = (
    {name for name in dir(WatermarkSpec) if not name.startswith("_")}
    | KeyFile.model_fields.keys()
    | {"file", "fpr", "help", "key_fingerprint", "model", "options", "schema", "tokens_needed"}
) - {"subkeys"}


@dataclass(frozen=True)
class Rule:
    """A rule: one kind of watermark, with its options, its decode side and its test.

    Its two sides are named as "module:object", so that torch is imported only when a text is decoded.

    Attributes:
        spec: the class of its specs, which names the rule.
        decoding: its decode side, a class as `dgmark.decode.marks.keyed_side.KeyedSide` describes.
        detection: its test, a class as `dgmark.detection.statistics.rules.TextTest` describes.
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
    expected_match: Callable[[Any, int], float | None] = lambda _spec, _block_length: None
    settings: Mapping[str, Any] = field(default_factory=dict)
    distribution: str = ""

    @property
    def name(self) -> str:
        """The name of the rule."""
        return str(fields_of(self.spec)["rule"].default)

    def decode_side(self) -> Any:
        """Import the decode side, and torch with it; MissingExtra if the package of the rule fails or lacks it."""
        return self._part(self.decoding)

    def test(self) -> Any:
        """Import the test; MissingExtra if the package of the rule fails or lacks it."""
        return self._part(self.detection)

    def expects(self, spec: WatermarkSpec) -> bool:
        """Whether the rule says what its marked texts are expected to show."""
        return self.test().expectation(spec, 1, 1.0) is not None

    def _part(self, path: str) -> Any:
        if not self.distribution:
            return resolve_name(path)
        with _code_of(self.name, self.distribution):
            return resolve_name(path)


OWN = {
    rule.name: rule
    for rule in (
        Rule(
            BigramSpec,
            decoding="dgmark.decode.marks.bigram:BigramSide",
            detection="dgmark.detection.statistics.bigram:BigramTest",
            expected_match=match_of_pairs,
        ),
        Rule(
            PositionSpec,
            decoding="dgmark.decode.marks.position:PositionSide",
            detection="dgmark.detection.statistics.position:PositionTest",
            expected_match=match_of_tokens,
        ),
    )
}


@cache
def _added() -> dict[str, EntryPoint]:
    """The entry points of the rules that other packages add, by name."""
    return {point.name: point for point in entry_points(group=GROUP) if point.name not in OWN}


def rule_names() -> list[str]:
    """The names of all rules, dgmark's own first."""
    return [*OWN, *sorted(_added())]


def find_rule(name: object, distribution: str = "") -> Rule:
    """The rule of this name; an error names the package that is said to add it."""
    if isinstance(name, str) and name in OWN:
        return OWN[name]
    if isinstance(name, str) and name in _added():
        return _loaded(name)
    if isinstance(name, str) and distribution:
        raise MissingExtra(
            f"rule {name} is added by the package {distribution}, which is not installed: install it with pip"
        )
    raise SettingsError(f"the rule is not one of: {', '.join(rule_names())}")


@cache
def _loaded(name: str) -> Rule:
    """The rule of an entry point; MissingExtra if its package has no such rule, or fails when it is imported."""
    point = _added()[name]
    package = point.dist.name if point.dist else point.module
    with _code_of(name, package):
        rule = _checked(point.load(), name)
        return rule if rule.distribution else replace(rule, distribution=package)


def _options_of_added(name: str) -> Collection[str]:
    """The options of a rule that another package adds; none if it cannot be used."""
    try:
        return options_of(_loaded(name).spec)
    except MissingExtra:
        return ()


@contextmanager
def _code_of(name: str, package: str) -> Iterator[None]:
    """Whatever the code of another package raises in the block, a MissingExtra that names the package."""
    try:
        yield
    except Exception as error:
        said = str(error) if isinstance(error, SettingsError) else f"{type(error).__name__}: {error}"
        raise MissingExtra(
            f"rule {name} of the package {package} cannot be used ({said}): install the package again with what it "
            "needs, or remove it"
        ) from None


def _checked(rule: object, name: str) -> Rule:
    """Refuse what is not a rule of this name, or has options that keys and commands have themselves."""
    if not isinstance(rule, Rule):
        raise SettingsError(
            f"its entry point in {GROUP} names an object of {type(rule).__name__}, not of dgmark.watermark.rules.Rule"
        )
    if rule.name != name:
        raise SettingsError(f"its entry point in {GROUP} names the rule {rule.name}")
    taken = sorted(RESERVED & options_of(rule.spec).keys())
    if taken:
        raise SettingsError(f"{taken[0]} is not a name for an option of a rule, as keys or commands have it already")
    rule.spec.defaults_of_new({})
    return rule


def rule_with_options(options: Mapping[str, Any]) -> str:
    """The name of the first of dgmark's own rules that has all these options; SettingsError if none has."""
    own = {name: {*options_of(rule.spec), "subkeys"} for name, rule in OWN.items()}
    for name, known in own.items():
        if options.keys() <= known:
            return name
    for option in sorted(options.keys() - set().union(*own.values())):
        having = [name for name in sorted(_added()) if option in _options_of_added(name)]
        if not having:
            raise SettingsError(f"there is no option {option} of keys: leave it out")
        raise SettingsError(f"is needed with {option}, which is an option of: {', '.join(having)}", field="rule")
    # each of the two rules has an option that the other lacks
    (first, of_first), (second, of_second) = own.items()
    option, other = min(options.keys() - of_first), min(options.keys() - of_second)
    raise SettingsError(f"{option} is for the {second} rule and {other} for the {first} rule: leave one of them out")


def spec_of(fields: Mapping[str, Any], distribution: str = "") -> WatermarkSpec:
    """The spec with these fields, such as those of `to_fields`; `find_rule` and `WatermarkSpec` say what is refused."""
    return find_rule(fields.get("rule"), distribution).spec(**fields)
