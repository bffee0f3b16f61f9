"""How an OpenDocument text shows its texts: by styles, and the texts of list numbers."""

import re
from collections.abc import Iterable, Iterator
from typing import Any

from dgmark_documents.elements import attribute, local, number, points
from dgmark_documents.look import Look, is_off_page
from dgmark_documents.styles import Cascade, Properties

_NUMBER = re.compile(r"%\d+%")
# attributes of styles that decide whether a text is seen, by the element that has them
_DECIDING = {
    "text-properties": (
        "use-window-font-color", "display", "font-size", "color", "opacity", "text-scale", "background-color",
        "font-name", "font-family",
    ),
    "paragraph-properties": (
        "background-color", "line-height", "margin-left", "margin-right", "margin", "text-indent",
    ),
    "table-cell-properties": ("background-color",),
    "table-row-properties": ("row-height",),
    "graphic-properties": ("fill", "fill-color", "background-color"),
    "section-properties": ("background-color",),
    "table-properties": ("background-color",),
}  # fmt: skip


class OpenDocumentStyles:
    """The styles that hold in one part of a document."""

    def __init__(self, groups: Iterable[Any]) -> None:
        """Take the elements that hold the styles, the more particular ones last."""
        self._styles = Cascade(over)
        for style in (one for group in groups for one in group if local(one) in ("style", "default-style")):
            family, parent = attribute(style, "family") or "", attribute(style, "parent-style-name")
            bases = [(family, parent), _default(family)]
            self._styles.add((family, attribute(style, "name") or ""), _deciding(style), *bases)

    def properties(self, family: str, name: str | None) -> Properties:
        """The properties of a style with those of the styles that it is based on, without the defaults."""
        return self._styles.of((family, name or ""), ("", name), _default(family))  # a style may name no family


def _default(family: str) -> tuple[str, str] | None:
    """The key of the default style of a family; texts have that of their paragraphs."""
    return None if family == "text" else (family, "")


def list_labels(tree: Any) -> Iterator[str]:
    """The texts around the numbers of lists and headings, and the bullets that are words, of all styles."""
    for level in tree.iter("{*}list-level-style-number", "{*}list-level-style-bullet", "{*}outline-level-style"):
        stated = _NUMBER.sub("", attribute(level, "num-list-format") or "")
        ends = [] if stated else [attribute(level, name) or "" for name in ("num-prefix", "num-suffix")]
        for label in (stated, *ends, attribute(level, "bullet-char") or ""):
            if any(map(str.isalpha, label)):
                yield label.strip()


def _deciding(style: Any) -> Properties:
    found: Properties = {}
    for group in style:
        kind = local(group)
        for name in _DECIDING.get(kind, ()):
            stated = attribute(group, name)
            if stated is not None:
                found["behind" if name == "background-color" and kind != "text-properties" else name] = stated
    return found


def over(outer: Properties, inner: Properties) -> Properties:
    """Properties that hold inside of others; sizes in percent are shares of the outer one."""
    merged = {**outer, **inner}
    if inner.get("use-window-font-color") == "true":  # the colour that suits the background
        merged |= {"color": inner.get("color", ""), "opacity": ""}
    share, outer_size = inner.get("font-size", ""), points(outer.get("font-size", "12pt"))
    if share.endswith("%") and outer_size is not None:
        merged["font-size"] = f"{outer_size * (number(share[:-1]) or 0.0) / 100:.3f}pt"
    return merged


def look_of(properties: Properties, around: Look) -> Look:
    """The look of a text of these properties, where this look holds around it."""
    size, width = points(properties.get("font-size")), number(properties.get("text-scale", "").removesuffix("%"))
    line, stated = points(properties.get("line-height")), properties.get("line-height", "")
    share = number(stated.removesuffix("%")) if stated.endswith("%") else None
    heights = [size, line, *((size or 12.0) * one / 100 for one in (width, share) if one is not None)]
    background = properties.get("background-color", "transparent")
    if background == "transparent":
        background = properties.get("behind", "transparent")
    opacity = number(properties.get("opacity", "").removesuffix("%"))
    sides = [points(properties.get(name)) for name in ("margin-left", "margin-right", "margin", "text-indent")]
    return around.within(
        heights,
        hidden=properties.get("display") == "none",
        off_page=is_off_page(sides),
        colour=properties.get("color"),
        background="ffffff" if background == "transparent" else background,
        opacity=1.0 if opacity is None else opacity / 100,
        font=properties.get("font-name") or properties.get("font-family", ""),
    )
