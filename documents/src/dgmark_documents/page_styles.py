"""What the style sheets of a page declare for its elements, and the `Look` that follows.

css-inline writes the rules of style sheets into style attributes, and tinycss2 takes these apart. Of a sheet only the
properties are kept that say whether, how large, in which colour and where a text is shown; conditions other than the
medium are not looked at.
"""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import tinycss2
from tinycss2.color3 import RGBA, parse_color

from dgmark_documents.look import Look, is_off_page

Open = Callable[[str], str | None]  # the text of a file beside the page, by its address; None if it is not at hand
Declared = Mapping[str, list[Any]]  # the tokens of each property

_SIDES = ("left", "top", "right", "bottom")
_BOXES = tuple(f"{bound}{side}" for bound in ("", "max-") for side in ("width", "height", "inline-size", "block-size"))
_LOGICAL = ("inline", "block", "inline-start", "inline-end", "block-start", "block-end")
# distances from where a text would stand otherwise
_PLACES = (
    "text-indent", *_SIDES, "inset", *(f"inset-{side}" for side in _LOGICAL), "margin",
    *(f"margin-{side}" for side in (*_SIDES, *_LOGICAL)),
)  # fmt: skip
# what may hide a text or show it elsewhere, unless its value is one of these
_MOVES = {
    "clip": "auto", "order": "0", "filter": "none", "zoom": "normal 1", "z-index": "auto",
    "content-visibility": "visible", "letter-spacing": "normal", "grid-row": "auto", "grid-column": "auto",
    **dict.fromkeys((
        "clip-path", "mask", "mask-image", "scale", "translate", "transform", "rotate", "contain", "font-size-adjust",
        "text-fill-color", "text-security", "animation", "animation-name",
    ), "none"),
}  # fmt: skip
_READ = frozenset((
    *_PLACES, *_BOXES, *_MOVES, "display", "visibility", "opacity", "font-size", "font", "font-family", "color",
    "background", "background-color", "background-image", "position", "overflow", "overflow-x", "overflow-y",
    "white-space", "unicode-bidi", "flex-direction", "flex-flow", "line-height", "min-width", "min-height",
))  # fmt: skip
_PREFIX = re.compile("^-(webkit|moz|ms|o)-")  # of names of properties before they were agreed on
_INHERITS = ("inherit", "initial", "unset", "revert", "currentcolor")
# properties that show strings, beside variables; those of fonts name fonts
_TEXTUAL = re.compile(
    r"content|quotes|symbols|prefix|suffix|list-style(-type)?|text-overflow|initial-value|--(?!.*font).*"
)
_GROUPS = ("supports", "layer")  # whose rules hold
_ELSEWHERE = ("attr", "var")  # functions whose texts stand elsewhere
_GENERATED = re.compile(r"::?(before|after)\s*$", re.IGNORECASE)
_LENGTHS = {"px": 0.75, "pt": 1.0, "pc": 12.0, "in": 72.0, "cm": 28.35, "mm": 2.835, "em": 0.0, "rem": 0.0}
_SIZES = {"xx-small": 7.0, "x-small": 7.5, "small": 10.0, "medium": 12.0, "large": 13.5, "x-large": 18.0}
_IMPORTS = 32  # sheets that one sheet imports
_LONGEST = 2_000_000  # characters of a sheet
_LARGEST = 50_000_000  # elements of a page times rules of its sheets
_SLIVER = 1.5  # points: a box of at most this height or width that cuts off its text hides it


class Styles:
    """The style sheets of a page.

    Attributes:
        rules: what they say, without what is not read here.
        missing: the number of sheets that are not at hand.
        texts: the strings that they show.
        unknown: the number of sheets and texts that may be shown and are not looked at.
    """

    def __init__(self, open_file: Open | None) -> None:
        self.rules: list[str] = []
        self.texts: dict[str, None] = {}
        self.missing = self.unknown = 0
        self._open = open_file
        self._imports = 0

    def add(self, text: str, media: str = "") -> None:
        """Take the text of a sheet."""
        if _applies(media):
            rules, imports = _rules_of(text)
            texts, unknown = _texts_of(text)
            self.texts |= dict.fromkeys(texts)
            self.unknown += unknown
            for address, its_media in imports:
                self._imports += 1
                self.open(address if self._imports <= _IMPORTS else "", its_media)
            self.rules += rules
            self.unknown += len(text) > _LONGEST

    def open(self, address: str, media: str = "") -> None:
        """Take the sheet at an address."""
        text = self._open(address) if self._open and address else None
        if text is None:
            self.missing += 1
        else:
            self.add(text, media)

    def inlined(self, page: str, elements: int) -> str:
        """The page with all that holds for an element in its style attribute."""
        from css_inline import CSSInliner, InlineError

        if not self.rules or elements * len(self.rules) > _LARGEST:
            self.unknown += bool(self.rules)
            return page
        inliner = CSSInliner(inline_style_tags=False, load_remote_stylesheets=False, extra_css="\n".join(self.rules))
        try:
            return inliner.inline(page)
        except InlineError:
            self.unknown += 1
            return page


@lru_cache(maxsize=64)
def _rules_of(text: str) -> tuple[list[str], list[tuple[str, str]]]:
    """The rules of a sheet as far as they are read here, and the addresses and media of imported ones."""
    rules, imports = list[str](), list[tuple[str, str]]()
    waiting = [iter(tinycss2.parse_stylesheet(text[:_LONGEST], skip_comments=True, skip_whitespace=True))]
    while waiting:
        rule = next(waiting[-1], None)
        if rule is None:
            waiting.pop()
        elif rule.type == "qualified-rule":
            found = tinycss2.parse_blocks_contents(rule.content, skip_comments=True, skip_whitespace=True)
            read = [one for one in found if one.type == "declaration" and _PREFIX.sub("", one.lower_name) in _READ]
            selector = tinycss2.serialize(rule.prelude)
            if read and not _GENERATED.search(selector):
                rules.append(f"{selector}{{{';'.join(one.serialize() for one in read)}}}")
        elif rule.type == "at-rule" and rule.lower_at_keyword == "import":
            words = [one for one in rule.prelude if one.type not in ("whitespace", "comment")]
            imports.append((getattr(words[0], "value", "") if words else "", tinycss2.serialize(words[1:])))
        elif rule.type == "at-rule" and rule.content is not None:
            name, condition = rule.lower_at_keyword, tinycss2.serialize(rule.prelude)
            if name in _GROUPS or (name == "media" and _applies(condition)):
                waiting.append(iter(tinycss2.parse_rule_list(rule.content, skip_comments=True, skip_whitespace=True)))
    return rules, imports


@lru_cache(maxsize=64)
def _texts_of(text: str) -> tuple[list[str], int]:
    """The strings that a sheet shows wherever it does, and the number of texts that it takes from elsewhere."""
    texts, unknown = list[str](), 0
    name = before = ""  # of the property, and the name that may be one
    waiting = tinycss2.parse_component_value_list(text[:_LONGEST])[::-1]
    while waiting:
        token = waiting.pop()
        if token.type == "ident":
            before = token.lower_value
        elif token.type == "literal":
            name = before if token.value == ":" else name if token.value != ";" else ""
        elif token.type.endswith("block"):
            name, inner = "", token.content
            waiting += inner[::-1]
        elif _TEXTUAL.fullmatch(name):
            if token.type == "string" and any(map(str.isalpha, token.value)):
                texts.append(token.value)
            elif token.type == "function":
                unknown += name == "content" and token.lower_name in _ELSEWHERE
                waiting += token.arguments[::-1]
    return texts, unknown


def _applies(media: str) -> bool:
    """Whether a medium is a screen of any kind."""
    return any(re.fullmatch(r"\s*(only\s+)?(all|screen)?\s*", one) for one in media.lower().split(","))


@lru_cache(maxsize=20_000)
def declared(style: str) -> Declared:
    """What a style attribute declares."""
    found = tinycss2.parse_blocks_contents(style, skip_comments=True, skip_whitespace=True)
    kept = sorted((one for one in found if one.type == "declaration"), key=lambda one: bool(one.important))
    return {_PREFIX.sub("", one.lower_name): one.value for one in kept}


def word(values: Declared, name: str) -> str:
    """The first token of a value if it is a name, in lower case; empty if it is not."""
    first = next((one for one in values.get(name, ()) if one.type != "whitespace"), None)
    return str(first.lower_value) if first is not None and first.type == "ident" else ""


def look_of(values: Declared, above: Look) -> Look:
    """The look of an element's text, by what is declared for it and by the look around it; not whether it is hidden."""
    size = _font_size(values, above.size or 12.0)
    colour, alpha = _colour(values.get("color", []))
    opacity = above.opacity * _number(values.get("opacity", [])) * alpha
    fonts = [one.value for one in values.get("font-family", ()) if one.type in ("ident", "string")]
    inherits = "color" not in values or word(values, "color") in _INHERITS
    animated = any(name in values and word(values, name) != "none" for name in ("animation", "animation-name"))
    return Look(
        size=size,
        colour=above.colour if inherits else colour,
        background=_background(values, above.background),
        opacity=1.0 if animated else opacity,  # which an animation changes
        off_page=above.off_page or _is_off_page(values, size),
        moved=above.moved or _is_moved(values, size),
        font=fonts[0] if fonts else above.font,
    )


def is_cut_off(values: Declared) -> bool:
    """Whether a box of no height or width hides all that does not fit into it."""
    if not any(word(values, name) in ("hidden", "clip") for name in ("overflow", "overflow-x", "overflow-y")):
        return False
    sides = [length(values, name, 12.0) for name in (*_BOXES, "line-height")]
    return any(side is not None and side <= _SLIVER for side in sides)


def length(values: Declared, name: str, size: float) -> float | None:
    """The value of a property in points, if it states a length; `size` is that of letters."""
    first = next((one for one in values.get(name, ()) if one.type != "whitespace"), None)
    return None if first is None else _length(first, size)


def colour_of(stated: str | None) -> str | None:
    """The colour that an attribute states; None if it states none."""
    return _colour(tinycss2.parse_component_value_list(stated or ""))[0]


def _length(token: Any, size: float) -> float | None:
    if token.type == "number":
        return 0.0 if token.value == 0 else None
    if token.type != "dimension" or token.lower_unit not in _LENGTHS:
        return None
    unit = {"em": size, "rem": 12.0}.get(token.lower_unit, _LENGTHS[token.lower_unit])
    return float(token.value) * unit


def _font_size(values: Declared, above: float) -> float:
    tokens = values.get("font-size") or _of_font(values.get("font", []))
    for token in tokens:
        if token.type == "percentage":
            return above * float(token.value) / 100
        if token.type == "ident":
            return _SIZES.get(token.lower_value, above)
        size = _length(token, above)
        if size is not None:
            return size
    return above


def _of_font(tokens: list[Any]) -> list[Any]:
    """The size in a value of `font`: its first length."""
    sizes = ("dimension", "percentage")
    return [one for one in tokens if one.type in sizes or (one.type == "number" and one.value == 0)][:1]


def _number(tokens: list[Any]) -> float:
    """An opacity; 1 if it is not known."""
    found = next((one for one in tokens if one.type in ("number", "percentage")), None)
    return 1.0 if found is None else float(found.value) / (100 if found.type == "percentage" else 1)


def _colour(tokens: list[Any]) -> tuple[str | None, float]:
    """The first colour that a value states, and its opacity; None if it states none."""
    for token in tokens:
        colour = parse_color(token)
        if isinstance(colour, RGBA):
            return bytes(round(255 * min(max(part, 0.0), 1.0)) for part in colour[:3]).hex(), float(colour.alpha)
    return None, 1.0


def _background(values: Declared, above: str | None) -> str | None:
    """The colour behind the text; None if it is not known."""
    background = above
    for name in ("background", "background-color", "background-image"):
        tokens = values.get(name, [])
        colour, alpha = _colour(tokens)
        if colour is not None and alpha > 0:
            background = colour if alpha == 1 else None
        if any(one.type == "url" or (one.type == "function" and _colour([one])[0] is None) for one in tokens):
            background = None
    return background


def _is_off_page(values: Declared, size: float) -> bool:
    if any(one.type == "percentage" and one.value >= 100 for one in values.get("text-indent", ())):
        return True
    return is_off_page(_length(one, size) for name in _PLACES for one in values.get(name, ()))


def _is_moved(values: Declared, size: float) -> bool:
    """Whether a value that is not computed may hide a text or show it elsewhere."""
    for name, harmless in _MOVES.items():
        tokens = [one for one in values.get(name, ()) if one.type != "whitespace"]
        stated = tokens[0].serialize().lower() if tokens else "initial"
        near = name in ("letter-spacing", "z-index") and (_near(tokens, size) if tokens else True)
        if stated not in (*harmless.split(), *_INHERITS) and not near:
            return True
    hiding = (values.get(name, ()) for name in ("display", "visibility", "opacity"))
    # sizes and places that variables hold are those of a whole design
    moving = (one for name in ("font-size", *_PLACES) for one in values.get(name, ()) if _function(one) != "var")
    words = (values.get(name, ()) for name in ("unicode-bidi", "flex-direction", "flex-flow"))
    return any(map(_function, (*moving, *(one for tokens in hiding for one in tokens)))) or any(
        "override" in one.lower_value or "reverse" in one.lower_value
        for tokens in words
        for one in tokens
        if one.type == "ident"
    )


def _function(token: Any) -> str:
    """The name of a function; empty for all other tokens."""
    return str(token.lower_name) if token.type == "function" else ""


def _near(tokens: list[Any], size: float) -> bool:
    """Whether a number or length is not negative by more than half of the size of letters."""
    value = tokens[0].value if tokens[0].type == "number" else _length(tokens[0], size)
    return value is None or value >= (0 if tokens[0].type == "number" else -size / 2)
