"""How a Word document shows its texts: by styles, and by what stands at a run."""

import re
from typing import Any, NamedTuple

from dgmark_documents.elements import attribute, local, number, value
from dgmark_documents.look import Look, is_off_page

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
    """What decides on the look of a run beside its own properties.

    Attributes:
        table: the style of the table that it stands in.
        paragraph: the style of its paragraph.
        look: what its paragraph, cell and drawing say of its look; of sizes the height of lines.
    """

    table: str | None = None
    paragraph: str | None = None
    look: Look = Look()

    def having(self, **changes: Any) -> "Surroundings":
        """The same with another look."""
        return self._replace(look=self.look._replace(**changes))


class WordStyles:
    """The styles of a document."""

    def __init__(self, root: Any) -> None:
        """Take the root of the part of styles."""
        self._own: dict[str, tuple[str | None, dict[str, str], Any]] = {}
        self._all: dict[str, dict[str, str]] = {}
        self._standard: dict[str, str] = {}
        self._defaults = run_properties(root.find("{*}docDefaults/{*}rPrDefault/{*}rPr"))
        for style in root.iterfind("{*}style"):
            name, kind = attribute(style, "styleId") or "", attribute(style, "type") or ""
            properties = {**paragraph_properties(style.find("{*}pPr")), **run_properties(style.find("{*}rPr"))}
            self._own[name] = (value(style, "{*}basedOn"), properties, style)
            if attribute(style, "default") not in (None, *OFF):
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
        size, scale = number(seen.get("sz")), number(seen.get("w", "").removesuffix("%"))
        heights = [(20.0 if size is None else size) / 2 * (1.0 if scale is None else scale / 100)]
        return around.look._replace(
            hidden=around.look.hidden or hidden == "on",
            size=min([*heights, *([] if around.look.size is None else [around.look.size])], default=None),
            colour=seen.get("color"),
            background=seen.get("fill", around.look.background),
            opacity=0.0 if "transparent" in seen else 1.0,
            off_page=around.look.off_page or is_off_page([(number(seen.get("position")) or 0.0) / 2]),
            font=seen.get("font", ""),
        )


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
            found["vanish"] = "off" if stated in OFF else "on"
        elif name in ("color", "sz", "rStyle", "w", "position"):
            found[name] = stated
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
    if fill.find("{*}noFill") is not None:
        return True
    return any((number(attribute(alpha, "val")) or 0) >= _OPAQUE for alpha in fill.iter("{*}alpha"))


def paragraph_properties(element: Any) -> dict[str, str]:
    """The properties of a paragraph (`pPr`) that decide on the look of its text; none of None."""
    found: dict[str, str] = {}
    for one in () if element is None else element:
        name = local(one)
        if name == "pStyle":
            found["pStyle"] = attribute(one, "val") or ""
        elif name == "shd" and (fill := _shade(one)):
            found["behind"] = fill
        elif name == "spacing" and attribute(one, "line") and attribute(one, "lineRule") in (None, "auto", "exact"):
            found["line"] = attribute(one, "line") or ""
        elif name in ("ind", "framePr"):
            found |= {f"{name} {side}": attribute(one, side) or "" for side in _SIDES[name] if attribute(one, side)}
    return found


def paragraph_look(properties: dict[str, str], around: Look) -> Look:
    """What a paragraph of these properties says of the look of its text."""
    line = number(properties.get("line"))  # in twips, or in 240ths of the usual height
    heights = [one for one in (around.size, None if line is None else line / 20) if one is not None]
    places = [number(one) for key, one in properties.items() if key.startswith(("ind ", "framePr "))]
    return around._replace(
        size=min(heights, default=None),
        background=properties.get("behind", around.background),
        off_page=around.off_page or is_off_page(None if place is None else place / 20 for place in places),
    )


def _shade(element: Any) -> str:
    """The colour of a shading (`shd`): its pattern's, if that covers all; empty if it has none."""
    name = "color" if attribute(element, "val") == "solid" else "fill"
    stated = attribute(element, name) or "auto"
    return "" if stated == "auto" else stated


def shading(element: Any) -> str | None:
    """The colour behind a cell or paragraph, by its properties."""
    return None if element is None else _fill(element.find("{*}shd"))


def _fill(element: Any) -> str | None:
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
