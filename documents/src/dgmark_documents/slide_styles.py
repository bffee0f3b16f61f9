"""How a presentation shows its texts: sizes and colours by the theme, the masters, the placeholders and the runs."""

import colorsys
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from dgmark_documents.elements import attribute, child, children, local, look_alike, number, value
from dgmark_documents.office_parts import OfficeParts
from dgmark_documents.word_styles import SIGN_FONTS

_TINY = 300.0  # hundredths of points; letters of at most this size cannot be read
_OPAQUE = 0.1  # the opacity up to which a text cannot be seen
_TINY_LINE, _TINY_SHARE = 300.0, 0.2  # of the space between lines: hundredths of points, or a share of the usual one
_FAR, _SQUEEZED = 5.0, -0.5  # times their size: where raised letters are off their line, and lie on each other
_NAMED = {"white": "FFFFFF", "black": "000000", "snow": "FFFAFA", "ivory": "FFFFF0", "ghostWhite": "F8F8FF"}
_NAMED |= {"floralWhite": "FFFAF0", "mintCream": "F5FFFA", "azure": "F0FFFF", "whiteSmoke": "F5F5F5"}
_FILLS = ("solidFill", "gradFill", "blipFill", "pattFill", "grpFill")
# the style of a master that holds in a placeholder
_STYLE_OF = {"title": "titleStyle", "ctrTitle": "titleStyle", "dt": "otherStyle", "ftr": "otherStyle"}
_STYLE_OF |= {"sldNum": "otherStyle", "hdr": "otherStyle", "none": "otherStyle"}

Properties = dict[str, str]
UNITS = 12_700.0  # in a point
Box = tuple[float, float, float, float]  # left, top, right, bottom, in the units of the format


class Sheet(NamedTuple):
    """A slide, or a page of notes, with its layout and its master, as far as there are any.

    Attributes:
        parts: the names of the three parts, the most particular one first.
        trees: their roots.
        master: the root of the master, or None.
        theme: the colours of the theme by their names.
    """

    parts: tuple[str, ...] = ()
    trees: tuple[Any, ...] = ()
    master: Any = None
    theme: Properties = {}  # noqa: RUF012 (never changed)

    def alike(self, shape: Any) -> Iterator[Any]:
        """A shape, and the placeholders of the layout and the master that it takes its looks from."""
        yield shape
        own = placeholder(shape)
        for tree in self.trees[1:] if own is not None else ():
            found = [one for one in tree.iter("{*}sp") if _same_place(placeholder(one), own)]
            yield from found[:1]

    def background(self) -> str | None:
        """The colour of the slide; None if it is not known."""
        for tree in self.trees:
            own = child(child(tree, "cSld"), "bg")
            if own is None:
                continue
            fill = child(own, "bgPr")
            if fill is not None:
                return self.colour(child(fill, "solidFill"))
            reference = child(own, "bgRef")
            plain = reference is not None and attribute(reference, "idx") == "1001"
            return self.colour(reference) if plain else None
        return "FFFFFF"

    def colour(self, fill: Any) -> str | None:
        """The colour that an element holds; None if it is not known."""
        for one in () if fill is None else fill:
            return _shade(self._plain(one), one)
        return None

    def _plain(self, one: Any) -> str | None:
        """The colour that an element names, before its changes; None if it is not known."""
        stated = attribute(one, "val") or ""
        if local(one) == "sysClr":
            return attribute(one, "lastClr")
        if local(one) == "schemeClr":
            return self.theme.get(stated)
        if local(one) == "scrgbClr":
            parts = [share(attribute(one, part), 0.0) for part in ("r", "g", "b")]
            return _hexadecimal([part ** (1 / 2.2) if part > 0 else 0.0 for part in parts])
        if local(one) == "hslClr":
            hue = (number(attribute(one, "hue")) or 0.0) / 21_600_000
            lightness, saturation = share(attribute(one, "lum"), 0.0), share(attribute(one, "sat"), 0.0)
            return _hexadecimal(colorsys.hls_to_rgb(hue % 1, lightness, saturation))
        return _NAMED.get(stated) if local(one) == "prstClr" else stated

    def looks(self, shape: Any, defaults: Any) -> tuple[Any, ...]:
        """The lists of styles by level that hold in a shape: the two general ones, then those of its own kind."""
        own = placeholder(shape)
        kind = "none" if own is None else attribute(own, "type") or "obj"
        general = child(child(self.master, "txStyles"), _STYLE_OF.get(kind, "bodyStyle"))
        above = [child(child(one, "txBody"), "lstStyle") for one in self.alike(shape)]
        return defaults, general, *reversed(above)


def _hexadecimal(parts: Iterable[float]) -> str:
    return "".join(f"{round(255 * min(max(part, 0.0), 1.0)):02X}" for part in parts)


def _shade(colour: str | None, element: Any) -> str | None:
    """A colour with the changes of lightness that its element states; None if it states others."""
    for change in element:
        if local(change) == "alpha":
            continue
        by = share(attribute(change, "val"), 0.0)
        try:
            hue, lightness, saturation = colorsys.rgb_to_hls(*(one / 255 for one in bytes.fromhex(colour or "")))
        except (ValueError, TypeError):
            return None
        changed = {"lumMod": lightness * by, "lumOff": lightness + by, "lum": by}.get(local(change))
        if changed is None:
            return None
        colour = _hexadecimal(colorsys.hls_to_rgb(hue, min(max(changed, 0.0), 1.0), saturation))
    return colour


def sheet_of(parts: OfficeParts, part: str) -> Sheet:
    """A slide or page of notes with its layout and master, by the relations of its part."""
    chain = [part]
    for kind in ("slideLayout", "slideMaster", "notesMaster"):
        above = parts.named(kind, chain[-1])
        chain += [above] if above else []
    trees = tuple(map(parts.tree, chain))
    sheet = Sheet(tuple(chain), trees, trees[-1] if len(trees) > 1 else None)
    scheme = parts.tree(parts.named("theme", chain[-1]))
    named = {} if scheme is None else {local(one): one for top in scheme.iter("{*}clrScheme") for one in top}
    colours = {name: colour for name, one in named.items() if (colour := sheet.colour(one))}
    mapped: Properties = {}
    for tree in reversed(trees):
        for names in (*children(tree, "clrMap"), *children(child(tree, "clrMapOvr"), "overrideClrMapping")):
            mapped |= names.attrib
    return sheet._replace(theme={**colours, **{name: colours.get(one, "") for name, one in mapped.items()}})


def placeholder(shape: Any) -> Any:
    """The element that makes a shape a placeholder, or None."""
    about = next((one for one in shape if local(one).startswith("nv")), None)
    return child(child(about, "nvPr"), "ph")


def _same_place(one: Any, other: Any) -> bool:
    """Whether a placeholder of a layout or master is that of a slide: by its number, or else by its type."""
    if one is None:
        return False
    if attribute(one, "idx") is not None and attribute(one, "idx") == attribute(other, "idx"):
        return True
    kinds = [(attribute(two, "type") or "body").replace("ctrTitle", "title") for two in (one, other)]
    return kinds[0] == kinds[1]


def run_looks(element: Any, sheet: Sheet) -> Properties:
    """What the properties of a run (`rPr`, `defRPr`) say of its look; nothing of None."""
    found: Properties = {}
    if element is None:
        return found
    size = attribute(element, "sz")
    if size is not None:
        found["sz"] = size
    for name in ("spc", "baseline"):
        if attribute(element, name) is not None:
            found[name] = attribute(element, name) or ""
    for one in element:
        name = local(one)
        if name in _FILLS:
            clear = any(share(attribute(alpha, "val"), 1.0) <= _OPAQUE for alpha in one.iter("{*}alpha"))
            colour = sheet.colour(one) if name == "solidFill" else None
            found |= {"color": colour or "", "transparent": "on" if clear else ""}
        elif name == "noFill":
            found["transparent"] = "on"
        elif name == "highlight":
            found["fill"] = sheet.colour(one) or "unknown"
        elif name in ("latin", "sym"):
            found["font"] = attribute(one, "typeface") or ""
    return found


def level_looks(styles: Iterable[Any], paragraph: Any, sheet: Sheet) -> Properties:
    """What lists of styles say of the runs of a paragraph, by its level."""
    level = attribute(paragraph, "lvl") if paragraph is not None else None
    found: Properties = {}
    for style in styles:
        for name in ("defPPr", f"lvl{int(level) + 1 if level and level.isdecimal() else 1}pPr"):
            found |= run_looks(child(child(style, name), "defRPr"), sheet)
    return found


def unseen(looks: Properties, scale: float, background: str | None) -> str | None:
    """Why a run of these looks cannot be seen, or None.

    Args:
        looks: what holds for the run.
        scale: the share to which its box shrinks its letters.
        background: the colour behind it; None if it is not known.
    """
    size = number(looks.get("sz"))
    if size is not None and size * scale <= _TINY:
        return "tiny text"
    if abs(share(looks.get("baseline"), 0.0)) > _FAR:
        return "text off the slide"
    if (number(looks.get("spc")) or 0.0) < _SQUEEZED * (size or 1800.0):
        return "letters that lie on each other"
    if looks.get("transparent"):
        return "transparent text"
    if look_alike(looks.get("color"), looks.get("fill", background)):
        return "text in the colour of what is behind it"
    return "letters in fonts of signs" if SIGN_FONTS.fullmatch(looks.get("font", "")) else None


def flat_lines(paragraph: Any) -> str | None:
    """Why the lines of a paragraph of these properties (`pPr`) cannot be seen, or None."""
    between = child(paragraph, "lnSpc")
    height = number(value(between, "spcPts"))
    flat = height is not None and height <= _TINY_LINE
    return "lines of no height" if flat or share(value(between, "spcPct"), 1.0) <= _TINY_SHARE else None


def share(stated: str | None, otherwise: float) -> float:
    """A share, stated in percent or in thousandths of a percent, as a part of 1; `otherwise` if there is none."""
    percent = number((stated or "").removesuffix("%"))
    if percent is None:
        return otherwise
    return percent / (100 if (stated or "").endswith("%") else 100_000)


def is_filled(shape: Any) -> bool:
    """Whether a shape has anything drawn behind its text, by itself or by its style."""
    about = child(shape, "spPr")
    if child(about, "noFill") is not None:
        return False
    fill = child(child(shape, "style"), "fillRef")
    return any(True for _ in children(about, *_FILLS)) or (fill is not None and attribute(fill, "idx") != "0")


def box_of(shape: Any) -> Box | None:
    """Where a shape stands on its slide, by itself; None if it does not say so."""
    frame = next((one for one in (child(child(shape, "spPr"), "xfrm"), child(shape, "xfrm")) if one is not None), None)
    if frame is None:
        return None
    box = _corners(frame, "off", "ext")
    for above in shape.iterancestors("{*}grpSp"):
        outer = child(child(above, "grpSpPr"), "xfrm")
        if outer is None or child(outer, "chExt") is None:
            continue
        inside, outside = _corners(outer, "chOff", "chExt"), _corners(outer, "off", "ext")
        for side in (0, 1):
            share = (outside[side + 2] - outside[side]) / ((inside[side + 2] - inside[side]) or 1.0)
            moved = [outside[side] + (box[at] - inside[side]) * share for at in (side, side + 2)]
            box = (moved[0], box[1], moved[1], box[3]) if side == 0 else (box[0], moved[0], box[2], moved[1])
    return box


def _corners(frame: Any, offset: str, extent: str) -> Box:
    at, size = child(frame, offset), child(frame, extent)
    x, y = ((0.0 if at is None else number(attribute(at, side)) or 0.0) for side in ("x", "y"))
    width, height = ((0.0 if size is None else number(attribute(size, side)) or 0.0) for side in ("cx", "cy"))
    return x, y, x + width, y + height


def overlap(one: Box | None, other: Box | None) -> bool:
    """Whether two places share a point, or one of them is not known."""
    if one is None or other is None:
        return True
    return one[0] <= other[2] and other[0] <= one[2] and one[1] <= other[3] and other[1] <= one[3]
