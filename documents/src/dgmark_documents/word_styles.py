"""How a Word document shows its texts: by styles, and by what stands at a run."""

import re
from typing import Any, NamedTuple

from dgmark_documents.elements import attribute, local, number, value
from dgmark_documents.look import Look, is_off_page
from dgmark_documents.styles import Cascade, Properties

OFF = {"0", "false", "off", "none"}
_HIGHLIGHTS = {
    "black": "000000", "white": "FFFFFF", "yellow": "FFFF00", "green": "00FF00", "cyan": "00FFFF", "magenta": "FF00FF",
    "blue": "0000FF", "red": "FF0000", "darkBlue": "000080", "darkCyan": "008080", "darkGreen": "008000",
    "darkMagenta": "800080", "darkRed": "800000", "darkYellow": "808000", "darkGray": "808080", "lightGray": "C0C0C0",
}  # fmt: skip
_OPAQUE = 90_000.0  # thousandths of a percent of transparency from which on a text cannot be seen
_SIDES = {"ind": ("left", "start", "right", "end", "firstLine", "hanging"), "framePr": ("x", "y")}
_COLOUR = re.compile("#?([0-9A-Fa-f]{6})")


class Surroundings(NamedTuple):
    """What decides on the look of a run beside its own properties, and that look.

    Attributes:
        table: the style of the table that it stands in.
        paragraph: the style of its paragraph.
        look: what its paragraph, cell and drawing say of its look; of sizes the height of lines.
        run: the look of the run.
    """

    table: str | None = None
    paragraph: str | None = None
    look: Look = Look()
    run: Look = Look()


class WordStyles:
    """The styles of a document: fields of looks, beside "style" and the "scale" of letters."""

    def __init__(self, root: Any) -> None:
        """Take the root of the part of styles."""
        self._defaults = run_properties(root.find("{*}docDefaults/{*}rPrDefault/{*}rPr"))
        self._standard: dict[str, str] = {}
        self._runs, self._paragraphs, self._shades = Cascade(), Cascade(), Cascade()
        for style in root.iterfind("{*}style"):
            name, base = attribute(style, "styleId") or "", value(style, "{*}basedOn")
            self._runs.add(name, run_properties(style.find("{*}rPr")), base)
            self._paragraphs.add(name, paragraph_properties(style.find("{*}pPr")), base)
            self._shades.add(name, {"shades": True} if any(map(shading, style.iter("{*}shd"))) else {}, base)
            if attribute(style, "default") not in (None, *OFF):
                self._standard[attribute(style, "type") or ""] = name

    def paragraph(self, name: str | None) -> Properties:
        """What the style of a paragraph says of it; the default style for None."""
        return self._paragraphs.of(name, self._standard.get("paragraph"))

    def shades(self, table: str | None) -> bool:
        """Whether the style of a table, or one that it is based on, has colours behind its cells."""
        return bool(self._shades.of(table))

    def look(self, own: Properties, around: Surroundings) -> Look:
        """How a run with these properties of its own is shown."""
        stated = self._defaults | (self._of(around.table, "table") if around.table else {})
        stated |= self._of(around.paragraph, "paragraph") | self._of(own.get("style"), "character") | own
        stated.pop("style", None)
        return around.look.within([stated.pop("size", 10.0) * stated.pop("scale", 1.0)], **stated)

    def _of(self, name: str | None, kind: str) -> Properties:
        return self._runs.of(name, self._standard.get(kind))


def run_properties(element: Any) -> Properties:
    """What the properties of a run (`rPr`) state of its look; nothing of None."""
    found: Properties = {}
    for one in () if element is None else element:
        name, stated = local(one), attribute(one, "val") or ""
        if name in ("vanish", "specVanish"):
            found["hidden"] = stated not in OFF
        elif name in ("sz", "w", "position"):
            size = number(stated.removesuffix("%"))
            if size is not None:
                one_of = {"sz": ("size", size / 2), "w": ("scale", size / 100)}
                key, found_size = one_of.get(name, ("off_page", is_off_page([size / 2])))
                found[key] = found_size
        elif name == "color":
            found["colour"] = stated
        elif name == "rStyle":
            found["style"] = stated
        elif name == "highlight" and stated != "none":
            found["background"] = _HIGHLIGHTS.get(stated, stated)
        elif name == "shd" and "background" not in found and _shade(one):
            found["background"] = _shade(one)
        elif name == "rFonts":
            found["font"] = attribute(one, "ascii") or attribute(one, "hAnsi") or ""
        elif name == "textFill" and _is_transparent(one):
            found["opacity"] = 0.0
    return found


def _is_transparent(fill: Any) -> bool:
    alphas = (number(attribute(alpha, "val")) or 0 for alpha in fill.iter("{*}alpha"))
    return fill.find("{*}noFill") is not None or any(alpha >= _OPAQUE for alpha in alphas)


def paragraph_properties(element: Any) -> Properties:
    """What the properties of a paragraph (`pPr`) state of the look of its text, and its style; nothing of None."""
    found: Properties = {}
    for one in () if element is None else element:
        name = local(one)
        if name == "pStyle":
            found["style"] = attribute(one, "val")
        elif name == "shd" and _shade(one):
            found["background"] = _shade(one)
        elif name == "spacing" and attribute(one, "lineRule") in (None, "auto", "exact"):
            line = number(attribute(one, "line"))  # in twips, or in 240ths of the usual height
            found |= {} if line is None else {"size": line / 20}
        elif name in _SIDES and is_off_page((number(attribute(one, side)) or 0.0) / 20 for side in _SIDES[name]):
            found["off_page"] = True
    return found


def _shade(element: Any) -> str:
    """The colour of a shading (`shd`): its pattern's, if that covers all; empty if it has none."""
    name = "color" if attribute(element, "val") == "solid" else "fill"
    stated = attribute(element, name) or "auto"
    return "" if stated == "auto" else stated


def shading(element: Any) -> str | None:
    """The colour of a shading (`shd`) behind cells; None if it has none, or no element."""
    fill = attribute(element, "fill")
    return None if fill in (None, "auto", "FFFFFF") else fill


def background_of(shape: Any) -> str | None:
    """The colour of a shape; None if it is not known."""
    if shape is None:
        return "FFFFFF"
    colour, about = shape.get("fillcolor"), shape.find("{*}spPr")
    if colour and shape.get("filled") not in ("f", "false"):
        found = _COLOUR.match(colour)
        return found[1] if found else None
    own = [] if about is None else [one for one in about if local(one).endswith("Fill")]
    if own:
        stated = attribute(own[0].find("{*}srgbClr"), "val")
        return "FFFFFF" if local(own[0]) == "noFill" else stated
    by_style = attribute(shape.find("{*}style/{*}fillRef"), "idx")
    return "FFFFFF" if by_style in (None, "0") else None
