"""How a presentation shows its texts: sizes and colours of runs, and colours by the theme."""

from typing import Any, NamedTuple

from dgmark_documents.elements import attribute, local, number, value
from dgmark_documents.look import CLEAR, Look
from dgmark_documents.office_parts import OfficeParts
from dgmark_documents.styles import Cascade, Properties

UNITS = 12_700.0  # in a point


class Sheet(NamedTuple):
    """A slide, or a page of notes, with its layout and its master, as far as there are any.

    Attributes:
        parts: the names of the three parts, the most particular one first.
        trees: their roots.
        theme: the colours of the theme by their names.
        placeholders: what those of the layout and the master state.
    """

    parts: tuple[str, ...] = ()
    trees: tuple[Any, ...] = ()
    theme: dict[str, str] = {}  # noqa: RUF012 (never changed)
    placeholders: Cascade = Cascade()

    def stated(self, shape: Any) -> Properties:
        """The box and the fill of a shape, by itself or by the placeholder that it takes the place of."""
        return self.placeholders.of(*_keys(shape, 1), *_keys(shape, 2)) | _stated(shape)

    def background(self) -> str | None:
        """The colour of the slide; None if it is not known."""
        for tree in self.trees:
            own, reference = tree.find("{*}cSld/{*}bg"), tree.find("{*}cSld/{*}bg/{*}bgRef")
            if reference is not None:
                return self.colour(reference) if attribute(reference, "idx") == "1001" else None
            if own is not None:
                return self.colour(own.find("{*}bgPr/{*}solidFill"))
        return "FFFFFF"

    def colour(self, fill: Any) -> str | None:
        """The colour that an element holds or names in the theme; None if that is changed, or stated otherwise."""
        one = next(iter(() if fill is None else fill), None)
        if one is None or any(local(change) != "alpha" for change in one):
            return None
        stated = attribute(one, "val") or ""
        found = {"sysClr": attribute(one, "lastClr"), "schemeClr": self.theme.get(stated), "srgbClr": stated}
        return found.get(local(one))


def sheet_of(parts: OfficeParts, part: str) -> Sheet:
    """A slide or page of notes with its layout and master, by the relations of its part."""
    chain = [part]
    for kind in ("slideLayout", "slideMaster", "notesMaster"):
        above = parts.named(kind, chain[-1])
        chain += [above] if above else []
    trees = tuple(map(parts.tree, chain))
    sheet = Sheet(tuple(chain), trees, placeholders=Cascade())
    for level, shape in ((level, one) for level, tree in enumerate(trees[1:], 1) for one in tree.iter("{*}sp")):
        for key in _keys(shape, level):
            sheet.placeholders.add(key, _stated(shape), *_keys(shape, level + 1))
    scheme = parts.tree(parts.named("theme", chain[-1]))
    named = {local(one): one for top in scheme.iter("{*}clrScheme") for one in top}
    colours = {name: colour for name, one in named.items() if (colour := sheet.colour(one))}
    mapped: dict[str, str] = {}
    for tree in reversed(trees):
        for names in (*tree.iterfind("{*}clrMap"), *tree.iterfind("{*}clrMapOvr/{*}overrideClrMapping")):
            mapped |= names.attrib
    return sheet._replace(theme={**colours, **{name: colours.get(one, "") for name, one in mapped.items()}})


def placeholder(shape: Any) -> Any:
    """The element that makes a shape a placeholder, or None."""
    about = next((one for one in shape if local(one).startswith("nv")), None)
    return None if about is None else about.find("{*}nvPr/{*}ph")


def _keys(shape: Any, level: int) -> list[tuple[int, str]]:
    """The keys of a placeholder, or of those of a layout (level 1) or master (2) that it is based on."""
    own = placeholder(shape)
    kind = (attribute(own, "type") or "body").replace("ctrTitle", "title")
    return [] if own is None else [(level, one) for one in (attribute(own, "idx"), kind) if one]


def _stated(shape: Any) -> Properties:
    fill: Properties = {"fill": shape.find("{*}spPr/{*}solidFill")} if is_filled(shape) else {}
    return fill | ({"box": box} if (box := box_of(shape)) else {})


def look_of(run: Any, scale: float, around: Look, sheet: Sheet) -> Look:
    """The look of a run by its properties (`rPr`); `scale` is the share to which its box shrinks its letters."""
    size = number(attribute(run, "sz"))
    look = around.within([None if size is None else size * scale / 100])
    for one in () if run is None else run:
        name = local(one)
        if name == "noFill" or any(share(attribute(alpha, "val"), 1.0) <= CLEAR for alpha in one.iter("{*}alpha")):
            look = look._replace(opacity=0.0)
        elif name == "solidFill":
            look = look._replace(colour=sheet.colour(one))
        elif name == "highlight":
            look = look._replace(background=sheet.colour(one))
        elif name in ("latin", "sym"):
            look = look._replace(font=attribute(one, "typeface") or "")
    return look


def line_height(paragraph: Any) -> float | None:
    """The height of lines that the properties of a paragraph (`pPr`) state, in points; None if they state none."""
    height, part = number(value(paragraph, "{*}lnSpc/{*}spcPts")), value(paragraph, "{*}lnSpc/{*}spcPct")
    return height / 100 if height is not None else None if part is None else 18.0 * share(part, 1.0)


def share(stated: str | None, otherwise: float) -> float:
    """A share, stated in percent or in thousandths of a percent, as a part of 1; `otherwise` if there is none."""
    percent = number((stated or "").removesuffix("%"))
    if percent is None:
        return otherwise
    return percent / (100 if (stated or "").endswith("%") else 100_000)


def is_filled(shape: Any) -> bool:
    """Whether a shape has anything drawn behind its text, by itself or by its style."""
    own = [local(one) for about in shape.iterfind("{*}spPr") for one in about if local(one).endswith("Fill")]
    by_style = attribute(shape.find("{*}style/{*}fillRef"), "idx")
    return "noFill" not in own and (bool(own) or by_style not in (None, "0"))


def box_of(shape: Any) -> tuple[float, ...] | None:
    """Left, top, width and height of a shape in points, as it says by itself; None if it does not."""
    frame = next((one for path in ("{*}spPr/{*}xfrm", "{*}xfrm") for one in shape.iterfind(path)), None)
    if frame is None or frame.find("{*}off") is None or frame.find("{*}ext") is None:
        return None
    stated = ("off", "x"), ("off", "y"), ("ext", "cx"), ("ext", "cy")
    return tuple((number(attribute(frame.find(f"{{*}}{name}"), side)) or 0.0) / UNITS for name, side in stated)
