"""What the styles of a page make of its elements: what is declared for each, by cssselect2, and how its text looks.

Holds what decides whether, where and in which order a text is shown, and nothing of how it is drawn otherwise.
"""

import re
import time
from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from dgmark_documents.css_colors import BLACK, Color, color_of, first_color, gradient_color, near
from dgmark_documents.css_lengths import first_number, length
from dgmark_documents.style_sheets import (
    Declaration,
    Sheet,
    attribute_name,
    first_ident,
    parse_declarations,
    tokens_within,
)

Declared = Mapping[str, list[Any]]  # the tokens of each property

_BOXES = ("width", "height", "max-width", "max-height")
_SIDES = ("left", "top", "right", "bottom")
_READ = frozenset((
    *_BOXES, *_SIDES, "display", "visibility", "opacity", "font-size", "font", "color", "-webkit-text-fill-color",
    "background", "background-color", "background-image", "position", "text-indent", "margin", "margin-left",
    "margin-right", "padding", "padding-left", "padding-right", "margin-top",
    "clip", "clip-path", "overflow", "overflow-x", "overflow-y", "transform", "scale", "translate",
    "order", "flex-direction", "flex-flow", "direction", "unicode-bidi", "float", "grid-row", "grid-column",
    "grid-row-start", "grid-column-start", "grid-area", "content", "list-style", "list-style-type", "white-space",
    "all", "content-visibility", "shown-on-demand", "filter", "inset", "zoom", "min-width", "min-height",
    "letter-spacing", "z-index", "border-image", "border-image-source", "list-style-image", "mask", "mask-image",
    "-webkit-text-security", "fill", "fill-opacity", "stroke", "rotate", "contain", "line-height", "font-size-adjust",
    "animation", "animation-name", "animation-fill-mode",
))  # fmt: skip
# attributes of drawings that are styles too
_HINTS = (
    "display", "visibility", "opacity", "font-size", "fill", "fill-opacity", "stroke", "transform", "clip-path", "mask",
    "letter-spacing",
)  # fmt: skip
DRAWING = frozenset(("svg", "g", "text", "tspan", "textpath", "tref", "symbol", "defs", "use", "marker", "pattern"))
_SHAPES = ("rect", "circle", "ellipse", "path", "polygon", "polyline", "image", "use")
_UNITLESS = re.compile(r"(-?[\d.]+)(?=[\s,)]|$)")
# of what `transform` and `filter` do, that which leaves a text as it is seen
_HARMLESS = frozenset((
    "translate", "translatex", "translatey", "translatez", "translate3d", "rotate", "rotatez", "perspective",
    "drop-shadow", "grayscale", "sepia", "saturate", "hue-rotate", "contrast", "brightness",
))  # fmt: skip
_ORDER = frozenset((
    "order", "flex-direction", "flex-flow", "position", "float", "grid-row", "grid-column", "grid-area",
    "grid-row-start", "grid-column-start", "transform", "translate",
))  # fmt: skip
_INITIAL = {"display": "inline", "visibility": "visible", "opacity": "1", "position": "static", "float": "none"}
_SECONDS = 5.0  # of the processor, for matching rules
_SIBLINGS = 1000  # elements of one parent, up to which rules on siblings before an element are matched
_WITHIN = 4  # functions within functions
_VARIABLES = 2000  # tokens of a value once its variables are put in
_SIZES = {"xx-small": 9, "x-small": 10, "small": 13, "medium": 16, "large": 18, "x-large": 24, "xx-large": 32}
_ON_DEMAND = re.compile(r":(hover|focus-within|focus-visible|focus|active|target|checked|popover-open)\b")
_HIDING = ("none", "hidden", "collapse")  # values of `display` and `visibility`
_TINY = 2.5  # pixels: smaller letters are not seen
_FAINT = 0.1  # opacity below which a text is not seen
_FAR = 500  # pixels: what is moved so far out is off the page
_LINK = (0.0, 0.0, 0.93)


@dataclass(frozen=True)
class Look:
    """How the text of an element looks; most of it is inherited.

    Attributes:
        visible: whether the text is shown at all.
        reasons: why the text is not seen, although the page holds it as shown.
        opacity: of this element and of those around it.
        size: of letters, in pixels.
        color: of letters, as red, green and blue from 0 to 1; None if it is not known.
        background: the colour behind them.
        link: the colour of links.
        exact: whether white space is kept.
        right_to_left: whether what stands in a line runs from right to left.
        marker: the text before items of lists.
        variables: the values of variables.
    """

    visible: bool = True
    reasons: frozenset[str] = frozenset()
    opacity: float = 1.0
    size: float = 16.0
    color: Color | None = BLACK
    background: Color | None = (1.0, 1.0, 1.0)
    link: Color | None = _LINK
    exact: bool = False
    right_to_left: bool = False
    marker: str = ""
    variables: Mapping[str, list[Any]] = field(default_factory=dict)

    @property
    def unseen(self) -> str | None:
        """Why the text is not seen; None if it is."""
        if self.size < _TINY:
            return "text of size 0"
        if self.opacity < _FAINT:
            return "transparent text"
        if self.color and self.background and near(self.color, self.background):
            return "text in the colour of its background"
        return min(self.reasons, default=None)

    def because(self, reason: str) -> "Look":
        """The same look, with one more reason why the text is not seen."""
        return replace(self, reasons=self.reasons | {reason})


class PageStyles:
    """What style sheets and style attributes declare for the elements of a page.

    Args:
        root: the root of the page, or of a part of it.
        sheets: the sheets, in order.

    Attributes:
        unknown: the number of rules that may decide what is shown and were not understood.
        declares_order: whether anything is declared that may show parts in another order.
    """

    def __init__(self, root: Any, sheets: Iterable[Sheet]) -> None:
        self.unknown = sum(sheet.unknown for sheet in sheets)
        self._declared: dict[Any, dict[str, list[Any]]] = {}
        self._generated: dict[tuple[Any, str], dict[str, list[Any]]] = {}
        self._cascades: dict[tuple[object, ...], dict[str, list[Any]]] = {}
        self._matched: list[list[Declaration]] = []  # which the keys of the cascades name
        self._frames = {name: one for sheet in sheets for name, one in sheet.frames.items()}
        rules = [rule for sheet in sheets for rule in sheet.rules]
        matcher = self._matcher(root, rules)
        if matcher is not None:
            self._match(root, matcher)
        for element in root.iter():
            style = (element.get("style") or "") if isinstance(element.tag, str) else ""
            hints = _hints(element)
            if (style or hints) and element not in self._declared:
                self._declared[element] = self._cascaded([], style, hints)
        self.declares_order = any(not _ORDER.isdisjoint(one) for one in self._declared.values())

    def of(self, element: Any) -> Declared:
        """What is declared for an element."""
        return self._declared.get(element, {})

    def beside(self, element: Any, where: str, look: Look) -> tuple[str, Declared]:
        """The text that styles put "before" or "after" an element, and what is declared for it."""
        declared = self._generated.get((element, where), {})
        if "content" not in declared or first_ident(declared.get("display", [])) == "none":
            return "", declared
        return _content(resolved(declared["content"], look.variables), element), declared

    def _matcher(self, root: Any, rules: list[tuple[str, list[Declaration]]]) -> Any:
        """The rules that are understood and say something that is read here; None if there are none."""
        from cssselect2 import Matcher

        matcher = Matcher()
        wide: bool | None = None
        rules = list(rules)
        for selector, declarations in rules:  # which grow by those on what is shown on demand
            read = [one for one in declarations if one.name in _READ or one.name.startswith("--")]
            if not read:
                continue
            if _ON_DEMAND.search(selector) and _shows(read):
                on_demand = [Declaration("shown-on-demand", read[0].value)]
                rules.append((_ON_DEMAND.sub("", selector), on_demand))
            compiled = _compiled(selector)
            understood = compiled is not None
            if understood and re.search(r"[~]\s*[^=\s]|:nth-|:last-|:only-", selector):
                wide = _most_children(root) > _SIBLINGS if wide is None else wide
                understood = not wide
            if not understood:
                self.unknown += _decides(read) and "::-" not in selector and ":-" not in selector
                continue
            for one in compiled or ():
                if not one.never_matches:
                    matcher.add_selector(one, read)
                    self._matched.append(read)
        return matcher if self._matched else None

    def _match(self, root: Any, matcher: Any) -> None:
        from cssselect2 import ElementWrapper

        start = time.process_time()
        for number, wrapper in enumerate(ElementWrapper.from_html_root(root).iter_subtree()):
            if number % 64 == 0 and time.process_time() - start > _SECONDS:
                self.unknown += 1
                return
            element = wrapper.etree_element
            by_place: dict[str | None, list[list[Declaration]]] = {}
            for _, _, place, declarations in matcher.match(wrapper):
                by_place.setdefault(place, []).append(declarations)
            style = element.get("style") or ""
            if style or None in by_place:
                self._declared[element] = self._cascaded(by_place.pop(None, []), style, _hints(element))
            for place, matched in by_place.items():
                if place in ("before", "after"):
                    self._generated[element, place] = self._cascaded(matched, "")

    def _cascaded(self, matched: list[list[Declaration]], style: str, hints: str = "") -> dict[str, list[Any]]:
        """The values that hold of these rules, this style attribute and other attributes that are styles.

        The same object for the same ones.
        """
        key = (*map(id, matched), style, hints)
        if key not in self._cascades:
            rules = [*parse_declarations(hints), *(one for rule in matched for one in rule)]
            declared = _cascade(rules, parse_declarations(style))
            self._cascades[key] = declared | self._animated(declared)
        return self._cascades[key]

    def _animated(self, declared: Declared) -> dict[str, list[Any]]:
        """What an animation leaves in place of what is declared, once it is over or all the time."""
        named = [*declared.get("animation", ()), *declared.get("animation-name", ())]
        words = {
            one.value for one in (*named, *declared.get("animation-fill-mode", ())) if one.type in ("ident", "string")
        }
        stays = bool(words & {"forwards", "both"})
        left: dict[str, list[Any]] = {}
        for name in words & self._frames.keys():
            last = self._frames[name]
            left |= {one.name: one.value for one in last.declarations if one.name in _READ and (stays or last.always)}
        return left


@lru_cache(maxsize=20_000)
def _compiled(selector: str) -> list[Any] | None:
    """The parts of a selector; None if it is not understood."""
    from cssselect2 import SelectorError, compile_selector_list

    try:
        return list(compile_selector_list(selector))
    except (SelectorError, RecursionError, SyntaxError):
        return None


def _most_children(root: Any) -> int:
    return max((len(one) for one in root.iter() if isinstance(one.tag, str)), default=0)


def _shows(declarations: list[Declaration]) -> bool:
    """Whether declarations show what is hidden otherwise."""
    values = [(one.name, first_ident(one.value)) for one in declarations]
    return any(name in ("display", "visibility") and value not in _HIDING for name, value in values)


def _hints(element: Any) -> str:
    """The attributes of a part of a drawing that are styles, as a style attribute. Their lengths have no units."""
    if not isinstance(element.tag, str) or element.tag not in DRAWING:
        return ""
    stated = ((name, element.get(name)) for name in _HINTS)
    lengths = ("font-size", "transform", "letter-spacing")
    return ";".join(
        f"{name}:{_UNITLESS.sub(_in_pixels, value) if name in lengths else value}" for name, value in stated if value
    )


def _in_pixels(number: re.Match[str]) -> str:
    before = number.string[: number.start()].rpartition(")")[2]
    return number[0] if re.match(r"[\s,]*(scale|rotate|matrix|skew)", before, re.IGNORECASE) else f"{number[0]}px"


def _decides(declarations: list[Declaration]) -> bool:
    """Whether declarations may hide a text or show one of their own."""
    names = {one.name for one in declarations}
    return bool(names & {"content", "visibility", "opacity", "font-size", "clip", "clip-path", "order"}) or any(
        one.name == "display" and first_ident(one.value) == "none" for one in declarations
    )


def _cascade(matched: list[Declaration], own: list[Declaration]) -> dict[str, list[Any]]:
    """The values that hold, of declarations in rising order, and of those of the element's own style.

    What holds only on some screens is marked by "unsure", if it hides something there or shows it.
    """
    ordered = [one for one in matched if not one.important] + [one for one in own if not one.important]
    ordered += [one for one in matched if one.important] + [one for one in own if one.important]
    declared: dict[str, list[Any]] = {}
    for one in ordered:
        name = one.name
        if name not in _READ and not name.startswith("--"):
            continue
        if name == "all":
            declared = {key: value for key, value in declared.items() if key.startswith("--")}
            declared["display"] = declared["visibility"] = one.value
            continue
        if not one.sure and name in ("display", "visibility"):
            hides, was_hidden = first_ident(one.value) in _HIDING, first_ident(declared.get(name, [])) in _HIDING
            if hides or was_hidden:
                declared["unsure"] = one.value
            if hides:
                continue
        declared[name] = one.value
    return declared


def keyword(declared: Declared, name: str, look: Look) -> str | None:
    """The value of a property, if it is a name, in lower case."""
    value = first_ident(resolved(declared.get(name, []), look.variables))
    return _INITIAL.get(name, value) if value == "initial" else value


def resolved(value: list[Any], variables: Mapping[str, list[Any]]) -> list[Any]:
    """A value with its variables put in, also within functions; empty if it grows too long."""
    return _resolved(value, variables, 0)


def _resolved(value: list[Any], variables: Mapping[str, list[Any]], depth: int) -> list[Any]:
    found: list[Any] = []
    waiting = [iter(value)]
    while waiting:
        token = next(waiting[-1], None)
        if token is None:
            waiting.pop()
        elif token.type == "function" and token.lower_name == "var":
            arguments = [one for one in token.arguments if one.type != "whitespace"]
            name = arguments[0].value if arguments and arguments[0].type == "ident" else ""
            waiting.append(iter(variables[name] if name in variables else _fallback(token.arguments)))
        elif token.type == "function" and depth < _WITHIN and any(map(_is_variable, tokens_within(token.arguments))):
            token = copy(token)
            token.arguments = _resolved(token.arguments, variables, depth + 1)
            found.append(token)
        else:
            found.append(token)
        if len(waiting) > 50 or len(found) > _VARIABLES:
            return []
    return found


def _is_variable(token: Any) -> bool:
    return bool(token.type == "function" and token.lower_name == "var")


def _fallback(arguments: list[Any]) -> list[Any]:
    comma = next((n for n, one in enumerate(arguments) if one.type == "literal" and one.value == ","), None)
    return [] if comma is None else arguments[comma + 1 :]


def _content(value: list[Any], element: Any) -> str:
    """The text of a value of `content`: its strings and attributes."""
    parts = []
    for token in value:
        if token.type == "string":
            parts.append(token.value)
        elif token.type == "function" and token.lower_name == "attr":
            parts.append(dict(element.items()).get(attribute_name(token), ""))
        elif token.type == "literal" and token.value == "/":
            break  # what follows is read aloud
    return "".join(parts)


def look_of(element: Any, declared: Declared, above: Look) -> Look:
    """How the text of an element looks, by what is declared for it and by the element around it."""
    changes: dict[str, Any] = {}
    variables = {name: value for name, value in declared.items() if name.startswith("--")}
    if variables:
        changes["variables"] = {**above.variables, **variables}
        above = replace(above, variables=changes["variables"])
    visibility = keyword(declared, "visibility", above)
    if visibility in ("hidden", "collapse", "visible"):
        changes["visible"] = visibility == "visible"
    space = keyword(declared, "white-space", above)
    if space:
        changes["exact"] = space.startswith(("pre", "break-spaces")) and space != "pre-line"
    elif element.tag in ("pre", "listing"):
        changes["exact"] = True
    direction = keyword(declared, "direction", above) or (element.get("dir") or "").lower()
    if direction in ("rtl", "ltr"):
        changes["right_to_left"] = direction == "rtl"
    names = ("opacity", "fill-opacity") if element.tag in DRAWING else ("opacity",)
    for opacity in (first_number(resolved(declared.get(name, []), above.variables)) for name in names):
        if opacity is not None:
            changes["opacity"] = changes.get("opacity", above.opacity) * min(max(opacity, 0.0), 1.0)
    changes["size"] = 0.0 if _is_zero(declared, "font-size-adjust", above) else _font_size(declared, above)
    changes.update(_colors(element, declared, above))
    if "list-style" in declared or "list-style-type" in declared:
        tokens = resolved([*declared.get("list-style", []), *declared.get("list-style-type", [])], above.variables)
        changes["marker"] = "".join(one.value for one in tokens if one.type == "string")
    reasons = set(_reasons(declared, replace(above, size=changes["size"])))
    if element.tag == "bdo" and changes.get("right_to_left"):
        reasons.add("text in another order")
    reasons |= _not_computed(declared, replace(above, **changes))
    if reasons:
        changes["reasons"] = above.reasons | reasons
    return replace(above, **changes)


def _is_zero(declared: Declared, name: str, look: Look) -> bool:
    return first_number(resolved(declared.get(name, []), look.variables)) == 0


def _not_computed(declared: Declared, look: Look) -> set[str]:
    """Whether a value that decides on whether a text is seen is a function that is not known here."""
    for name, known in (("color", first_color), ("-webkit-text-fill-color", first_color), ("opacity", first_number)):
        tokens = resolved(declared.get(name, []), look.variables)
        if any(one.type == "function" for one in tokens) and known(tokens) in (None, (None, 1.0)):
            return {"text whose look is not computed"}
    sizes = [one for one in resolved(declared.get("font-size", []), look.variables) if one.type == "function"]
    unknown = any(length(one, look.size, look.size) is None for one in sizes)
    return {"text whose look is not computed"} if unknown else set()


def _font_size(declared: Declared, above: Look) -> float:
    tokens = resolved(declared.get("font-size", []), above.variables)
    if not tokens and "font" in declared:
        tokens = resolved(declared["font"], above.variables)
        slash = next((n for n, one in enumerate(tokens) if one.type == "literal" and one.value == "/"), len(tokens))
        tokens = [
            one
            for one in tokens[:slash]
            if one.type in ("dimension", "percentage")
            or (one.type == "ident" and one.lower_value in _SIZES)
            or (one.type == "number" and one.value == 0)
        ]
    for token in tokens:
        if token.type == "ident":
            return float(_SIZES.get(token.lower_value, above.size))
        size = length(token, above.size, whole=above.size)
        if size is not None:
            return size
    return above.size


def length_of(declared: Declared, name: str, look: Look, whole: float | None = None) -> float | None:
    """The value of a property in pixels, if it is a length; percentages are of `whole`."""
    for token in resolved(declared.get(name, []), look.variables):
        if token.type != "whitespace":
            return length(token, look.size, whole)
    return None


def _colors(element: Any, declared: Declared, above: Look) -> dict[str, Any]:
    """The colours of letters and of what is behind them."""
    changes = _hinted_colors(element, above)
    names = ("fill",) if element.tag in DRAWING else ("color", "-webkit-text-fill-color")
    for name in names:
        tokens = resolved(declared.get(name, []), above.variables)
        if tokens and first_ident(tokens) in ("inherit", "currentcolor", "unset"):
            changes["color"] = above.color
        elif tokens:
            changes["color"], alpha = first_color(tokens)
            if alpha < _FAINT or (first_ident(tokens) == "none" and "stroke" not in declared):
                changes["opacity"] = 0.0
    own = changes.get("color", above.color)
    for name in ("background", "background-color", "background-image"):
        tokens = resolved(declared.get(name, []), above.variables)
        if any(one.type in ("url", "function") and _paints(one) for one in tokens):
            changes["background"] = gradient_color(tokens, own)
        elif tokens and name != "background-image":
            color, alpha = first_color(tokens)
            if any(one.type == "ident" and one.lower_value == "currentcolor" for one in tokens):
                changes["background"] = own
            elif color and alpha > 1 - _FAINT:
                changes["background"] = color
            elif color and alpha > _FAINT:
                changes["background"] = None
    return changes


def _hinted_colors(element: Any, above: Look) -> dict[str, Any]:
    """The colours that elements have by themselves or by their attributes."""
    changes: dict[str, Any] = {}
    if element.tag == "a" and element.get("href") is not None:
        changes["color"] = above.link
    elif element.tag == "svg":
        drawn = any(True for _ in element.iter(*_SHAPES))
        changes |= {"color": BLACK, **({"background": None} if drawn else {})}
    hints = {"background": element.get("bgcolor")}
    if element.tag == "font":
        hints["color"] = element.get("color")
    elif element.tag == "body":
        hints |= {"color": element.get("text"), "link": element.get("link")}
    return changes | {name: color_of(hint)[0] for name, hint in hints.items() if hint}


def _paints(token: Any) -> bool:
    return token.type == "url" or "gradient" in token.lower_name or token.lower_name in ("url", "image", "image-set")


def _reasons(declared: Declared, look: Look) -> Iterable[str]:
    """Why styles keep the text of an element, and of all in it, from being seen at its place."""
    if "unsure" in declared:
        yield "parts that only some screens show"
    position = keyword(declared, "position", look)
    placed = position in ("absolute", "fixed", "relative", "sticky")
    shifts = [length_of(declared, side, look, 1000) for side in _SIDES] if placed else []
    if "inset" in declared and placed:
        shifts += [length(one, look.size, 1000) for one in resolved(declared["inset"], look.variables)]
    inner = [length_of(declared, name, look, 1000) for name in ("text-indent", "margin-left", "margin-top")]
    inner += [length(one, look.size, 1000) for one in resolved(declared.get("margin", []), look.variables)]
    moved = [*shifts, *moves(declared, look), *inner]
    beyond = position == "fixed" and (length_of(declared, "bottom", look, 1000) or 0.0) >= 2 * _FAR
    if beyond or any(one is not None and (one <= -_FAR or one >= 10 * _FAR) for one in moved):
        yield "text off the page"
    if _is_clipped(declared, look, position in ("absolute", "fixed")):
        yield "text that is cut off"
    if placed and (first_number(resolved(declared.get("z-index", []), look.variables)) or 0) < 0:
        yield "text behind other parts"
    if _is_distorted(declared, look):
        yield "text that is drawn over or masked"
    if keyword(declared, "unicode-bidi", look) in ("bidi-override", "isolate-override"):
        yield "text in another order"


def _functions(declared: Declared, name: str, look: Look) -> list[Any]:
    return [one for one in resolved(declared.get(name, []), look.variables) if one.type == "function"]


def moves(declared: Declared, look: Look) -> list[float | None]:
    """How far an element is moved by `transform` and `translate`, in pixels, to the right and down."""
    found: list[float | None] = []
    for function in _functions(declared, "transform", look):
        if function.lower_name.startswith("translate"):
            found += [length(one, look.size, 20) for one in function.arguments]
    return found + [length(one, look.size, 20) for one in resolved(declared.get("translate", []), look.variables)]


def cuts_off(declared: Declared, look: Look) -> bool:
    """Whether what does not fit into the box of an element is not shown, and cannot be reached either."""
    overflow = [keyword(declared, name, look) for name in ("overflow", "overflow-x", "overflow-y")]
    contained = keyword(declared, "contain", look) in ("strict", "content", "paint", "size")
    return contained or any(one in ("hidden", "clip") for one in overflow)


def _is_clipped(declared: Declared, look: Look, apart: bool) -> bool:
    overflow = [keyword(declared, name, look) for name in ("overflow", "overflow-x", "overflow-y")]
    if cuts_off(declared, look) or any(one in ("scroll", "auto") for one in overflow):
        sizes = [length_of(declared, name, look) for name in (*_BOXES, "line-height")]
        if any(one is not None and one <= 2 for one in sizes):
            return True
        if (length_of(declared, "text-indent", look, 1000) or 0.0) >= 2 * _FAR:
            return True
    if apart and _functions(declared, "clip", look):
        return True
    path = resolved(declared.get("clip-path", []), look.variables)
    if not path or first_ident(path) in ("none", "initial", "unset", "inherit"):
        return False
    insets = [one for one in _functions(declared, "clip-path", look) if one.lower_name == "inset"]
    lengths = [length(one, look.size, 1000) for function in insets for one in function.arguments]
    return not insets or any(one is not None and one >= 400 for one in lengths)


def _is_distorted(declared: Declared, look: Look) -> bool:
    for function in [*_functions(declared, "transform", look), *_functions(declared, "filter", look)]:
        name = function.lower_name
        numbers = [one for token in function.arguments if (one := first_number([token])) is not None]
        if name.startswith(("scale", "opacity", "matrix")):
            if numbers and abs(numbers[0]) < _FAINT:
                return True
        elif name not in _HARMLESS:
            return True
    if any(one.type == "url" for one in resolved(declared.get("filter", []), look.variables)):
        return True
    turned = [one for one in resolved(declared.get("rotate", []), look.variables) if one.type != "whitespace"]
    if len(turned) > 1 and first_ident(turned) != "z":
        return True
    masks = [*_functions(declared, "mask", look), *_functions(declared, "mask-image", look)]
    urls = [one for name in ("mask", "mask-image") for one in declared.get(name, ()) if one.type == "url"]
    if urls or any("gradient" in one.lower_name or one.lower_name in ("url", "image-set") for one in masks):
        return True
    scale = first_number(resolved(declared.get("scale", []), look.variables))
    zoom = first_number(resolved(declared.get("zoom", []), look.variables))
    spacing = length_of(declared, "letter-spacing", look)
    if any(one is not None and abs(one) < _FAINT for one in (scale, zoom)):
        return True
    if spacing is not None and spacing < -look.size / 2:
        return True
    return keyword(declared, "-webkit-text-security", look) not in (None, "none")
