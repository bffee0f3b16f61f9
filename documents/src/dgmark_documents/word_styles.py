"""How a Word document shows its texts: by styles, by what stands at a run, and the texts of list numbers."""

import re
from typing import Any, NamedTuple

from dgmark_documents.elements import attribute, child, children, local, look_alike, number, value

_TINY = 6.0  # half-points; letters of at most this size cannot be read
_TINY_LINE = 60.0  # twips between lines of which each covers the one above
_TINY_SHARE = 0.25  # of the usual space between lines
_RAISED = 0.65  # the size of raised and lowered letters
_FAR = 400.0  # half-points: letters that are raised or lowered by so much stand off their line
_OFF = {"0", "false", "off", "none"}
_HIGHLIGHTS = {
    "black": "000000", "white": "FFFFFF", "yellow": "FFFF00", "green": "00FF00", "cyan": "00FFFF", "magenta": "FF00FF",
    "blue": "0000FF", "red": "FF0000", "darkBlue": "000080", "darkCyan": "008080", "darkGreen": "008000",
    "darkMagenta": "800080", "darkRed": "800000", "darkYellow": "808000", "darkGray": "808080", "lightGray": "C0C0C0",
}  # fmt: skip
# the colours of a theme by the names that texts have for them
_THEME = {
    "background1": "lt1", "background2": "lt2", "text1": "dk1", "text2": "dk2", "light1": "lt1", "light2": "lt2",
    "dark1": "dk1", "dark2": "dk2", "hyperlink": "hlink", "followedHyperlink": "folHlink",
}  # fmt: skip
_OPAQUE = 90_000.0  # thousandths of a percent of transparency from which on a text cannot be seen
SIGN_FONTS = re.compile(r"symbol|webdings|wingdings( [23])?|zapf ?dingbats|marlett|mt extra", re.IGNORECASE)
_PLACE = re.compile(r"%\d")  # of a number in the text of a list's level


class Look(NamedTuple):
    """How a run of text is shown.

    Attributes:
        hidden: Word hides it.
        unseen: why it cannot be seen although it is not hidden, such as "tiny text"; None if it can be.
        signs: its font shows signs in place of letters.
    """

    hidden: bool = False
    unseen: str | None = None
    signs: bool = False


class Surroundings(NamedTuple):
    """What decides on the look of a run beside its own properties.

    Attributes:
        table: the style of the table that it stands in.
        paragraph: the style of its paragraph.
        background: the colour behind it; None if it is not known.
        unseen: why nothing of its paragraph or cell can be seen.
    """

    table: str | None = None
    paragraph: str | None = None
    background: str | None = "FFFFFF"
    unseen: str | None = None


class WordStyles:
    """The styles of a document."""

    def __init__(self, root: Any, theme: Any = None) -> None:
        """Take the roots of the parts of styles and of the theme, or None."""
        schemes = () if theme is None else theme.iter("{*}clrScheme")
        named = {local(one): shown for scheme in schemes for one in scheme for shown in one}
        stated = {name: attribute(one, "lastClr") or attribute(one, "val") or "" for name, one in named.items()}
        self._theme = {"lt1": "FFFFFF", "dk1": "000000", **stated}
        self._own: dict[str, tuple[str | None, dict[str, str], Any]] = {}
        self._all: dict[str, dict[str, str]] = {}
        self._standard: dict[str, str] = {}
        self._defaults = run_properties(child(child(child(root, "docDefaults"), "rPrDefault"), "rPr"))
        for style in children(root, "style"):
            name, kind = attribute(style, "styleId") or "", attribute(style, "type") or ""
            properties = {**paragraph_properties(child(style, "pPr")), **run_properties(child(style, "rPr"))}
            self._own[name] = (value(style, "basedOn"), properties, style)
            if attribute(style, "default") not in (None, *_OFF):
                self._standard[kind] = name

    def properties(self, name: str | None, kind: str) -> dict[str, str]:
        """The properties of a style with those of the styles that it is based on; the default style for None."""
        name = name if name in self._own else self._standard.get(kind)
        if name is None:
            return {}
        if name not in self._all:
            chain = self._chain(name)
            self._all[name] = {key: one for style in reversed(chain) for key, one in self._own[style][1].items()}
        return self._all[name]

    def shades(self, table: str | None) -> bool:
        """Whether the style of a table, or one that it is based on, has colours behind its cells."""
        return any(_fill(one) for name in self._chain(table) for one in self._own[name][2].iter("{*}shd"))

    def _chain(self, name: str | None) -> list[str]:
        """A style and those that it is based on, each before the one that it is based on."""
        chain: dict[str, None] = {}
        while name in self._own and name not in chain:
            chain[name] = None
            name = self._own[name][0]
        return [*chain]

    def look(self, own: dict[str, str], around: Surroundings) -> Look:
        """How a run with these properties of its own is shown."""
        chains = [
            self.properties(around.table, "table") if around.table else {},
            self.properties(around.paragraph, "paragraph"),
            self.properties(own.get("rStyle"), "character"),
        ]
        hidden = own.get("vanish")
        if hidden is None:  # styles of each kind turn it on and off again
            on = sum(chain.get("vanish") == "on" for chain in chains) % 2 == 1
            hidden = "on" if on or self._defaults.get("vanish") == "on" else "off"
        seen = {**self._defaults, **{key: one for chain in chains for key, one in chain.items()}, **own}
        themed = seen.get("theme", "")
        if themed:
            seen["color"] = self._theme.get(_THEME.get(themed, themed), seen.get("color", ""))
        signs = bool(SIGN_FONTS.fullmatch(seen.get("font", "")))
        unseen = around.unseen or _unseen(seen, around.background)
        return Look(hidden == "on", unseen or ("letters in fonts of signs" if signs else None), signs)


def _unseen(seen: dict[str, str], background: str | None) -> str | None:
    """Why a text of these properties cannot be seen, or None."""
    complex_script = "on" in (seen.get("rtl"), seen.get("cs"))
    size = number(seen.get("szCs" if complex_script else "sz"))
    if size is not None and seen.get("vertAlign") in ("superscript", "subscript"):
        size *= _RAISED
    width = number(seen.get("w", "").removesuffix("%"))
    if (size is not None and size <= _TINY) or (width is not None and width <= _TINY):
        return "tiny text"
    if "transparent" in seen:
        return "transparent text"
    if abs(number(seen.get("position")) or 0.0) > _FAR:
        return "text off the page"
    if (number(seen.get("spacing")) or 0.0) < -max(5 * (size or 20.0), _TINY_LINE):  # twips; half of the size
        return "letters that lie on each other"
    if look_alike(seen.get("color"), seen.get("fill", background)):
        return "text in the colour of what is behind it"
    return None


def run_properties(element: Any) -> dict[str, str]:
    """The properties of a run (`rPr`, of Word or of a drawing) that decide whether it is seen; none of None."""
    found: dict[str, str] = {}
    if element is None:
        return found
    size = number(attribute(element, "sz"))  # of a drawing, in hundredths of points
    if size is not None:
        found["sz"] = str(size / 50)
    for one in element:
        name, stated = local(one), attribute(one, "val") or ""
        if name in ("vanish", "specVanish"):
            found["vanish"] = "off" if stated in _OFF else "on"
        elif name == "color":  # a shade of a theme's colour is stated beside it
            shade = attribute(one, "themeShade") or attribute(one, "themeTint")
            found |= {"color": stated, "theme": "" if shade else attribute(one, "themeColor") or ""}
        elif name in ("sz", "szCs", "rStyle", "w", "position", "spacing", "vertAlign"):
            found[name] = stated
        elif name in ("rtl", "cs"):
            found[name] = "off" if stated in _OFF else "on"
        elif name == "highlight" and stated != "none":
            found["fill"] = _HIGHLIGHTS.get(stated, stated)
        elif name == "shd" and "fill" not in found:
            found |= {"fill": fill} if (fill := _shade(one)) else {}
        elif name == "rFonts":
            found["font"] = attribute(one, "ascii") or attribute(one, "hAnsi") or found.get("font", "")
        elif name == "textFill" and _is_transparent(one):
            found["transparent"] = "on"
    return found


def _is_transparent(fill: Any) -> bool:
    if child(fill, "noFill") is not None:
        return True
    return any((number(attribute(alpha, "val")) or 0) >= _OPAQUE for alpha in fill.iter("{*}alpha"))


def paragraph_properties(element: Any) -> dict[str, str]:
    """The properties of a paragraph (`pPr`) that decide on the look of its text and its number; none of None."""
    found: dict[str, str] = {}
    for one in () if element is None else element:
        name = local(one)
        if name == "pStyle":
            found["pStyle"] = attribute(one, "val") or ""
        elif name == "shd" and (fill := _shade(one)):
            found["behind"] = fill
        elif name == "spacing" and attribute(one, "line"):
            found |= {"line": attribute(one, "line") or "", "rule": attribute(one, "lineRule") or "auto"}
        elif name == "numPr":
            found["numId"] = value(one, "numId") or found.get("numId", "")
            found["ilvl"] = value(one, "ilvl") or "0"
        elif name in ("ind", "framePr"):
            found |= {f"{name} {side}": attribute(one, side) or "" for side in _SIDES[name] if attribute(one, side)}
            if name == "framePr" and attribute(one, "hRule") == "exact":
                found["high"] = attribute(one, "h") or ""
    return found


_SIDES = {
    "ind": (
        "left",
        "start",
        "right",
        "end",
        "firstLine",
        "hanging",
        "leftChars",
        "startChars",
        "rightChars",
        "endChars",
    ),
    "framePr": ("x", "y"),
}
_WIDEST = 31_680.0  # twips: 22 inches, the longest side of a page


def unseen_paragraph(properties: dict[str, str]) -> str | None:
    """Why a paragraph of these properties cannot be seen, or None."""
    line, high, rule = number(properties.get("line")), number(properties.get("high")), properties.get("rule")
    flat = {"exact": _TINY_LINE, "auto": _TINY_SHARE * 240}.get(rule or "", -1.0)
    if (line is not None and line <= flat) or (high is not None and high <= _TINY_LINE):
        return "lines of no height"
    places = [number(one) for key, one in properties.items() if key.startswith(("ind ", "framePr "))]
    if any(place is not None and abs(place) > _WIDEST / 2 for place in places):
        return "text off the page"
    return None


def _shade(element: Any) -> str:
    """The colour of a shading (`shd`): its pattern's, if that covers all; empty if it has none."""
    name = "color" if attribute(element, "val") == "solid" else "fill"
    stated = attribute(element, name) or "auto"
    return "" if stated == "auto" else stated


def shading(element: Any) -> str | None:
    """The colour behind a cell or paragraph, by its properties."""
    return _fill(child(element, "shd"))


def _fill(element: Any) -> str | None:
    fill = None if element is None else attribute(element, "fill")
    return None if fill in (None, "auto", "FFFFFF") else fill


class Numbering:
    """The texts of list numbers."""

    def __init__(self, root: Any) -> None:
        """Take the root of the part of numbering, or None."""
        abstract = {attribute(one, "abstractNumId"): one for one in children(root, "abstractNum")}
        linked = {value(one, "styleLink"): one for one in abstract.values()}
        self._levels: dict[tuple[str, str], str] = {}
        self._defined = {"", "0"}
        # of a number that is not defined
        self._any = " ".join(map(_level_text, (level for one in abstract.values() for level in children(one, "lvl"))))
        for num in children(root, "num"):
            base = abstract.get(value(num, "abstractNumId"))
            base = linked.get(value(base, "numStyleLink") or "", base)
            overrides = [one for override in children(num, "lvlOverride") for one in children(override, "lvl")]
            for level in (*children(base, "lvl"), *overrides):
                if run_properties(child(level, "rPr")).get("vanish") != "on":
                    place = attribute(num, "numId") or "", attribute(level, "ilvl") or "0"
                    self._levels[place] = _level_text(level)
            self._defined.add(attribute(num, "numId") or "")

    def text(self, list_number: str, level: str) -> str:
        """The text around the numbers of a list's level, of all levels if the list is not defined."""
        return self._levels.get((list_number, level), "") if list_number in self._defined else self._any.strip()


def _level_text(level: Any) -> str:
    return _PLACE.sub("", value(level, "lvlText") or "").strip()
