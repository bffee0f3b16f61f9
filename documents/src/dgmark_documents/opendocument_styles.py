"""How an OpenDocument text shows its texts: by styles, and the texts of list numbers."""

import re
from collections.abc import Iterable
from typing import Any

from dgmark_documents.elements import attribute, children, local, number, points
from dgmark_documents.look import Look, is_off_page

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

Properties = dict[str, str]


class OpenDocumentStyles:
    """The styles that hold in one part of a document."""

    def __init__(self, groups: Iterable[Any]) -> None:
        """Take the elements that hold the styles, the more particular ones last; None is passed over."""
        self._own: dict[tuple[str, str], tuple[str | None, Properties]] = {}
        self._all: dict[tuple[str, str], Properties] = {}
        self._lists: dict[str, Any] = {}
        self._list_of: dict[str, str] = {}
        for style in (one for group in groups if group is not None for one in group):
            kind, name, family = local(style), attribute(style, "name") or "", attribute(style, "family") or ""
            if kind in ("style", "default-style"):
                self._own[family, name] = attribute(style, "parent-style-name"), _deciding(style)
                self._list_of[name] = attribute(style, "list-style-name") or self._list_of.get(name, "")
            elif kind in ("list-style", "outline-style"):
                self._lists[name if kind == "list-style" else ""] = style

    def properties(self, family: str, name: str | None) -> Properties:
        """The properties of a style with those of the styles that it is based on, without the defaults."""
        key = family, name or ""
        if key not in self._own and ("", key[1]) in self._own:
            key = "", key[1]  # a style that names no family
        if key not in self._all:
            chain: dict[tuple[str, str], None] = {}
            based: tuple[str, str] | None = key
            while based in self._own and based not in chain:
                chain[based] = None
                parent = self._own[based][0]
                based = (key[0], parent) if parent else None
            found = dict(self._own.get((family, ""), (None, {}))[1]) if family != "text" else {}
            for one in reversed(chain):
                found = over(found, self._own[one][1])
            self._all[key] = found
        return self._all[key]

    def list_texts(self, name: str | None) -> str:
        """The texts around the numbers of a list of this style; of headings where the name is empty."""
        style = self._lists.get(name or "")
        if style is None:
            return ""
        texts = []
        for level in style:
            stated = attribute(level, "num-list-format")
            around = (attribute(level, "num-prefix"), attribute(level, "num-suffix"))
            texts.append(_NUMBER.sub("", stated) if stated else " ".join(one for one in around if one))
            texts.append(attribute(level, "bullet-char") or "")
        return " ".join(one for one in texts if any(sign.isalpha() for sign in one))

    def list_of(self, paragraph_style: str | None) -> str | None:
        """The list style that a paragraph's style names; None if it names none."""
        return self._list_of.get(paragraph_style or "") or None


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
    heights = [around.size, size, line, *((size or 12.0) * one / 100 for one in (width, share) if one is not None)]
    background = properties.get("background-color", "transparent")
    if background == "transparent":
        background = properties.get("behind", "transparent")
    opacity = number(properties.get("opacity", "").removesuffix("%"))
    sides = [points(properties.get(name)) for name in ("margin-left", "margin-right", "margin", "text-indent")]
    return around._replace(
        hidden=around.hidden or properties.get("display") == "none",
        size=min((one for one in heights if one is not None), default=None),
        colour=properties.get("color"),
        background="ffffff" if background == "transparent" else background,
        opacity=1.0 if opacity is None else opacity / 100,
        off_page=around.off_page or is_off_page(sides),
        font=properties.get("font-name") or properties.get("font-family", ""),
    )


def used_pages(styles: Any, tops: Iterable[Any]) -> list[Any]:
    """The master pages that a document uses: the first, those that styles name, and those that follow them."""
    pages = [one for group in children(styles, "master-styles") for one in children(group, "master-page")]
    by_name = {attribute(one, "name"): one for one in pages}
    waiting = [attribute(one, "name") for one in pages[:1]]
    waiting += [name for top in tops for name in (attribute(one, "master-page-name") for one in top) if name]
    used: dict[Any, None] = {}
    while waiting:
        page = by_name.get(waiting.pop(0))
        if page is not None and page not in used:
            used[page] = None
            waiting.append(attribute(page, "next-style-name"))
    return [*used]
