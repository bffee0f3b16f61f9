"""Style sheets: their rules, and the texts in them that a page can show. tinycss2 takes them apart.

Knows nothing of pages.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from dgmark_documents.data_urls import data_text

Open = Callable[[str], str | None]  # the text of a file beside the page, by its address; None if it is not at hand

# properties whose strings name fonts, files and areas, which no page shows
_NAMES = frozenset((
    "font-family", "font", "src", "grid-template-areas", "grid-template", "grid-area", "grid", "font-feature-settings",
    "font-variation-settings", "font-language-override", "filter", "-ms-filter", "format", "unicode-range",
))  # fmt: skip
_SCREENS = ((1280, 720), (1920, 1080))  # in pixels; a page is read as these show it
_FEATURE = re.compile(r"\(\s*(?:(min|max)-)?(width|height)\s*:\s*([\d.]+)(px|em|rem)\s*\)")
_RANGE = re.compile(r"\(\s*(width|height)\s*([<>]=?)\s*([\d.]+)(px|em|rem)\s*\)")
_TRUE = re.compile(
    r"\(\s*(orientation\s*:\s*landscape|prefers-color-scheme\s*:\s*light|(any-)?hover\s*:\s*hover|color|grid\s*:\s*0|"
    r"(any-)?pointer\s*:\s*fine|prefers-reduced-motion\s*:\s*no-preference|scripting\s*:\s*enabled)\s*\)"
)
_FALSE = re.compile(
    r"\(\s*(orientation\s*:\s*portrait|prefers-color-scheme\s*:\s*dark|(any-)?hover\s*:\s*none|grid\s*:\s*1|"
    r"(any-)?pointer\s*:\s*(coarse|none)|prefers-reduced-motion\s*:\s*reduce|scripting\s*:\s*none|monochrome)\s*\)"
)
# names of properties before they were agreed on
_PREFIX = re.compile(
    "-(webkit|moz|ms|o)-(?=(animation|clip-path|filter|flex|mask|opacity|order|transform|writing-mode)(-|$))"
)
_START, _END = {"inline": "left", "block": "top"}, {"inline": "right", "block": "bottom"}
# properties that go by the direction of lines, and the sides that they mean in a text that runs from left to right
_LOGICAL: dict[str, tuple[str, ...]] = {
    f"{least}{axis}-size": (f"{least}{side}",)
    for axis, side in (("inline", "width"), ("block", "height"))
    for least in ("", "min-", "max-")
}
_LOGICAL |= {"overflow-inline": ("overflow-x",), "overflow-block": ("overflow-y",)}
for _axis in ("inline", "block"):
    for _kind, _before in (("inset", ""), ("margin", "margin-"), ("padding", "padding-")):
        _sides = f"{_before}{_START[_axis]}", f"{_before}{_END[_axis]}"
        _LOGICAL |= {f"{_kind}-{_axis}": _sides}
        _LOGICAL |= {f"{_kind}-{_axis}-start": _sides[:1], f"{_kind}-{_axis}-end": _sides[1:]}
_NESTED = 8  # rules within rules
_IMPORTS = 32  # sheets that one sheet imports
_LONGEST = 2_000_000  # characters of a sheet


@dataclass(frozen=True)
class Declaration:
    """A property and its value.

    Attributes:
        name: the property, in lower case unless it is a variable.
        value: the tokens of its value, as tinycss2 has them.
        important: whether it says `!important`.
        sure: whether it holds on every screen, or at least on the common ones.
    """

    name: str
    value: list[Any]
    important: bool = False
    sure: bool = True


@dataclass(frozen=True)
class Frame:
    """The last state of an animation.

    Attributes:
        declarations: what it declares.
        always: whether its first state is the same.
    """

    declarations: list[Declaration]
    always: bool


@dataclass
class Sheet:
    """What a style sheet says.

    Attributes:
        rules: the selectors of each rule, and its declarations.
        shown: strings that a page can show.
        attributes: the names of attributes whose values a page can show.
        frames: the last states of animations by their names.
        missing: the number of sheets that it imports and that are not at hand.
        unknown: the number of its parts that are not understood.
    """

    rules: list[tuple[str, list[Declaration]]] = field(default_factory=list)
    shown: list[str] = field(default_factory=list)
    attributes: set[str] = field(default_factory=set)
    frames: dict[str, Frame] = field(default_factory=dict)
    missing: int = 0
    unknown: int = 0


@lru_cache(maxsize=16)
def parse_sheet(text: str, media: str = "", open_file: Open | None = None) -> Sheet:
    """Take a style sheet apart.

    Args:
        text: the sheet.
        media: where it holds, as its element says.
        open_file: opens the sheets that it imports.
    """
    return _Parser(open_file).parse(text, media)


def parse_declarations(text: str) -> list[Declaration]:
    """The declarations of a style attribute."""
    import tinycss2

    found = tinycss2.parse_blocks_contents(text, skip_comments=True, skip_whitespace=True)
    return list(_declarations(found, sure=True))


def shown_strings(declarations: Iterable[Declaration]) -> list[str]:
    """The strings of declarations that a page can show."""
    return [
        token.value
        for one in declarations
        if one.name not in _NAMES
        for token in tokens_within(one.value)
        if token.type == "string"
    ]


def shown_attributes(declarations: Iterable[Declaration]) -> set[str]:
    """The names of the attributes that declarations show by `attr()`."""
    functions = [token for one in declarations for token in tokens_within(one.value) if token.type == "function"]
    return {attribute_name(one) for one in functions if one.lower_name == "attr"} - {""}


def attribute_name(function: Any) -> str:
    """The name in `attr()`, without its namespace, in lower case; empty if there is none."""
    return next((str(one.lower_value) for one in function.arguments if one.type == "ident"), "")


def tokens_within(tokens: Iterable[Any]) -> Iterator[Any]:
    """All tokens, also those in brackets and functions, in order."""
    waiting = [*tokens][::-1]
    while waiting:
        token = waiting.pop()
        yield token
        inner = getattr(token, "arguments", None) or (getattr(token, "content", None) if _is_block(token) else None)
        waiting += reversed(inner or [])


def first_ident(tokens: Iterable[Any]) -> str | None:
    """The first token of a value, if it is a name, in lower case."""
    first = next((token for token in tokens if token.type != "whitespace"), None)
    return str(first.lower_value) if first is not None and first.type == "ident" else None


def medium_applies(query: str) -> bool | None:
    """Whether the medium of a rule is a common screen; None if it is some of them, or not known."""
    texts = [one.strip() for one in query.lower().split(",")]
    each = [[_query_applies(one, screen) for one in texts] for screen in _SCREENS]
    screens = [True if True in found else None if None in found else False for found in each]
    return screens[0] if len(set(screens)) == 1 else None


def _query_applies(query: str, screen: tuple[int, int]) -> bool | None:
    negated = query.startswith("not ") and "(" not in query.split()[1]
    words = query.removeprefix("only ").removeprefix("not " if negated else "")
    medium = re.match(r"[\w-]*", words)
    kind = medium[0] if medium else ""
    features = re.split(r"\s+and\s+|^and\s+", words[len(kind) :].strip())
    found: list[bool | None] = [kind in ("", "all", "screen")]
    found += [_feature_applies(one, screen) for one in features if one]
    applies = False if False in found else None if None in found else True
    return None if applies is None else applies != negated


def _feature_applies(feature: str, screen: tuple[int, int]) -> bool | None:
    if _TRUE.fullmatch(feature):
        return True
    if _FALSE.fullmatch(feature):
        return False
    stated = _FEATURE.fullmatch(feature)
    if stated:
        side, wanted = screen[stated[2] == "height"], _pixels(stated[3], stated[4])
        return {"min": side >= wanted, "max": side <= wanted}.get(stated[1] or "", side == wanted)
    ranged = _RANGE.fullmatch(feature)
    if ranged:
        side, wanted = screen[ranged[1] == "height"], _pixels(ranged[3], ranged[4])
        return side >= wanted if ranged[2][0] == ">" else side <= wanted
    return None


def _pixels(number: str, unit: str) -> float:
    try:
        return float(number) * (1 if unit == "px" else 16)
    except ValueError:
        return 0.0


def _is_block(token: Any) -> bool:
    return str(token.type).endswith(" block")


def _declarations(found: Iterable[Any], *, sure: bool) -> Iterator[Declaration]:
    """The declarations of a block by the names that the readers know."""
    for one in found:
        if one.type != "declaration":
            continue
        if one.name.startswith("--"):
            yield Declaration(one.name, one.value, one.important, sure)
            continue
        name = _PREFIX.sub("", one.lower_name)
        sides = _LOGICAL.get(name, (name,))
        words = [token for token in one.value if token.type != "whitespace"]
        of_each = len(sides) == len(words) == 2  # a value for the start and one for the end
        for side, word in zip(sides, words if of_each else sides, strict=True):
            yield Declaration(side, [word] if of_each else one.value, one.important, sure)


class _Parser:
    def __init__(self, open_file: Open | None) -> None:
        self._open = open_file
        self._sheet = Sheet()
        self._imports = 0

    def parse(self, text: str, media: str) -> Sheet:
        applies = medium_applies(media)
        self._sheet_text(text, bool(applies), silent=applies is False)
        return self._sheet

    def _sheet_text(self, text: str, sure: bool, *, silent: bool = False) -> None:
        import tinycss2

        if len(text) > _LONGEST:
            self._sheet.unknown += 1
            return
        rules = tinycss2.parse_stylesheet(text, skip_comments=True, skip_whitespace=True)
        self._rules(rules, sure, silent=silent)

    def _rules(
        self, rules: Iterable[Any], sure: bool, *, parent: str = "", depth: int = 0, silent: bool = False
    ) -> None:
        for rule in rules:
            if rule.type == "qualified-rule":
                self._rule(rule, sure, parent, depth, silent)
            elif rule.type == "at-rule":
                self._at_rule(rule, sure, parent, depth, silent)

    def _rule(self, rule: Any, sure: bool, parent: str, depth: int, silent: bool) -> None:
        import tinycss2

        selector = tinycss2.serialize(rule.prelude).strip()
        if parent:
            within = f":is({parent})"
            selector = selector.replace("&", within) if "&" in selector else f"{within} {selector}"
        self._contents(rule.content, selector, sure, depth, silent)

    def _contents(self, content: list[Any], selector: str, sure: bool, depth: int, silent: bool) -> None:
        """The declarations of a block, and the rules within it."""
        import tinycss2

        found = tinycss2.parse_blocks_contents(content, skip_comments=True, skip_whitespace=True)
        declarations = list(_declarations(found, sure=sure))
        self._sheet.shown += shown_strings(declarations)
        self._sheet.attributes |= shown_attributes(declarations)
        if declarations and selector and not silent:
            self._sheet.rules.append((selector, declarations))
        inner = [one for one in found if one.type in ("qualified-rule", "at-rule")]
        if inner and depth >= _NESTED:
            self._sheet.unknown += 1
        elif inner:
            self._rules(inner, sure, parent=selector, depth=depth + 1, silent=silent)

    def _at_rule(self, rule: Any, sure: bool, parent: str, depth: int, silent: bool) -> None:
        import tinycss2

        name = rule.lower_at_keyword
        if name == "import":
            self._import(rule, sure, silent)
        elif name == "counter-style" and rule.content is not None:
            found = tinycss2.parse_blocks_contents(rule.content)
            values = [one.value for one in found if one.type == "declaration" and one.lower_name != "system"]
            # symbols may stand without quotation marks
            shown = [one for value in values for one in tokens_within(value) if one.type in ("string", "ident")]
            self._sheet.shown += [one.value for one in shown]
        elif name in ("media", "supports", "layer", "container", "scope", "starting-style", "document"):
            if rule.content is not None:
                applies = self._applies(name, tinycss2.serialize(rule.prelude).strip())
                silent = silent or applies is False
                sure = sure and bool(applies)
                if parent:
                    self._contents(rule.content, parent, sure, depth, silent)
                elif depth < _NESTED:
                    inner = tinycss2.parse_rule_list(rule.content, skip_comments=True, skip_whitespace=True)
                    self._rules(inner, sure, depth=depth + 1, silent=silent)
                else:
                    self._sheet.unknown += 1
        elif name not in ("font-face", "charset", "namespace") and rule.content is not None:
            if name.endswith("keyframes") and not silent:
                self._keyframes(rule)
            strings = [one.value for one in tokens_within(rule.content) if one.type == "string"]
            self._sheet.shown += strings  # of keyframes, margins of pages, and registered variables

    def _keyframes(self, rule: Any) -> None:
        import tinycss2

        name = next((one.value for one in rule.prelude if one.type in ("ident", "string")), "")
        first: set[str] = set()
        for state in tinycss2.parse_rule_list(rule.content, skip_comments=True, skip_whitespace=True):
            if state.type != "qualified-rule":
                continue
            places = set(tinycss2.serialize(state.prelude).lower().replace(",", " ").split())
            found = tinycss2.parse_blocks_contents(state.content, skip_comments=True, skip_whitespace=True)
            held = tinycss2.serialize(state.content).strip()
            first |= {held} if places & {"from", "0%"} else set()
            if places & {"to", "100%"}:
                self._sheet.frames[name] = Frame(list(_declarations(found, sure=True)), held in first)

    def _applies(self, name: str, prelude: str) -> bool | None:
        if name == "media":
            return medium_applies(prelude)
        if name == "supports":
            return None if "not" in prelude.lower() else True
        return True if name == "layer" else None

    def _import(self, rule: Any, sure: bool, silent: bool) -> None:
        import tinycss2

        self._imports += 1
        address = next((one for one in tokens_within(rule.prelude) if one.type in ("string", "url")), None)
        text = None
        if address is not None and self._imports <= _IMPORTS:
            text = sheet_text(address.value, self._open)
        if text is None:
            self._sheet.missing += 1
            return
        place = rule.prelude.index(address) + 1 if address in rule.prelude else len(rule.prelude)
        media = re.sub(r"^\s*layer(\([^)]*\))?", "", tinycss2.serialize(rule.prelude[place:]).strip())
        applies = medium_applies(media.strip())
        self._sheet_text(text, sure and bool(applies), silent=silent or applies is False)


def sheet_text(address: str, open_file: Open | None) -> str | None:
    """The text of a style sheet at an address; None if it is not at hand."""
    data = data_text(address)
    if data is not None:
        return data[1]
    return open_file(address) if open_file else None
