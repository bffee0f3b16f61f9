"""How the parts of a page stand to each other: which begin a line, which stand side by side, and in which order."""

from collections.abc import Iterable
from itertools import pairwise
from typing import Any, NamedTuple

from dgmark_documents.css_lengths import length
from dgmark_documents.page_styles import Declared, Look, PageStyles, keyword, length_of, moves, resolved
from dgmark_documents.style_sheets import first_ident

_BLOCKS = frozenset((
    "address", "article", "blockquote", "body", "caption", "center", "dd", "details", "div", "dl", "dt", "fieldset",
    "figcaption", "figure", "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "html", "li",
    "main", "ol", "p", "pre", "section", "summary", "table", "tbody", "tfoot", "thead", "tr", "ul", "nav", "aside",
    "menu", "search", "dialog", "legend", "listing", "xmp", "plaintext", "hgroup", "optgroup",
))  # fmt: skip
# what stands beside its neighbours with room between
_CELLS = frozenset(("td", "th", "text", "mtd", "option"))
_INLINE = frozenset((
    "inline", "inline-block", "inline-flex", "inline-grid", "inline-table", "contents", "ruby", "ruby-text", "run-in",
    "ruby-base", "inherit", "math",
))  # fmt: skip
_FLEX = frozenset(("flex", "inline-flex", "grid", "inline-grid", "-webkit-flex", "-webkit-box", "-ms-flexbox"))
_PLAIN = Look()
_SHIFT = 16  # pixels: words that are moved so far stand elsewhere
_EDGES, _ROOM = ("margin", "padding"), 2.5  # pixels: margins of that width look like a space
_AREAS = 8  # a grid with more named parts is no frame of a page
_FEW = 3  # parts in a row, from which on their order counts
# of the steps from a part to the next, those that may lead back, and those that may leave out a place
_BACKWARDS, _APART = 0.25, 0.5


class _Box(NamedTuple):
    """What is declared for an element's box.

    Attributes:
        display: the value of `display`, if it has one.
        apart: whether the element floats, or is placed by itself.
        row: whether the children stand beside each other.
        right: whether it floats at the right.
        reversed: whether the children stand from the last to the first.
        order: its number among its neighbours.
        cell: its row and column in a grid.
        area: whether it stands in a part of a grid that has a name.
        place: how far it is from the top and from the left, if it is placed by itself.
        room: whether its margins keep it apart from its neighbours in the line.
        shift: how far it is moved out of its line, if that is more than a little.
    """

    display: str | None = None
    apart: bool = False
    row: bool = False
    right: bool = False
    reversed: bool = False
    order: float = 0
    cell: tuple[float, float] | None = None
    area: bool = False
    place: tuple[float, float] | None = None
    room: bool = False
    shift: tuple[float, ...] | None = None


_BOX = _Box()


def _box_of(declared: Declared) -> _Box:
    display, side = _display(declared), keyword(declared, "float", _PLAIN)
    position = keyword(declared, "position", _PLAIN)
    absolute = position in ("absolute", "fixed")
    direction = _direction(declared)
    return _Box(
        display,
        apart=absolute or side in ("left", "right"),
        row=display in _FLEX and "column" not in direction,
        right=side == "right",
        reversed=display in _FLEX and "reverse" in direction,
        order=_first_number(declared, "order") or 0,
        cell=_grid_cell(declared),
        area=first_ident(declared.get("grid-area", [])) not in (None, "auto"),
        place=_place(declared) if absolute else None,
        room=_has_room(declared),
        shift=_shift(declared, relative=position in ("relative", "sticky")),
    )


def _has_room(declared: Declared) -> bool:
    widths = [length_of(declared, f"{name}-{side}", _PLAIN) for name in _EDGES for side in ("left", "right")]
    for name in _EDGES:
        sides = [length(one, _PLAIN.size) for one in resolved(declared.get(name, []), {}) if one.type != "whitespace"]
        widths += sides[:1] if len(sides) < 2 else [*sides[1:2], *sides[3:4]]
    return any(one is not None and one >= _ROOM for one in widths)


def _grid_cell(declared: Declared) -> tuple[float, float] | None:
    area = [one.value for one in resolved(declared.get("grid-area", []), {}) if one.type == "number"]
    row = _first_number(declared, "grid-row") or _first_number(declared, "grid-row-start")
    column = _first_number(declared, "grid-column") or _first_number(declared, "grid-column-start")
    row, column = row or next(iter(area), None), column or next(iter(area[1:]), None)
    return None if row is None and column is None else (row or 0, column or 0)


def _place(declared: Declared) -> tuple[float, float] | None:
    top, left, bottom, right = (length_of(declared, one, _PLAIN, 1000) for one in ("top", "left", "bottom", "right"))
    if top is None and left is None and bottom is None and right is None:
        return None
    return -(bottom or 0) if top is None else top, -(right or 0) if left is None else left


def _shift(declared: Declared, *, relative: bool) -> tuple[float, ...] | None:
    found = moves(declared, _PLAIN)
    if relative:
        found += [length_of(declared, side, _PLAIN, 20) for side in ("left", "top", "right", "bottom")]
    shift = tuple(one or 0.0 for one in found)
    return shift if any(abs(one) >= _SHIFT for one in shift) else None


class PageLayout:
    """The lines and rows of a page.

    Args:
        root: the root of the page. Parts that styles show in another order are put in that order.
        styles: what is declared for its elements.

    Attributes:
        misplaced: elements that are shown in another order than the page holds them, and were not put in order.
    """

    def __init__(self, root: Any, styles: PageStyles) -> None:
        self._styles = styles
        self._boxes: dict[int, _Box] = {}
        self.misplaced: set[Any] = set()
        elements = [one for one in root.iter() if isinstance(one.tag, str)]
        self._cells = {child for element in elements for child in self._row(element)}
        self._blocks = {one for one in elements if one not in self._cells and self._begins_line(one)}
        with_blocks = _holders(elements, self._blocks)
        rows = {cell.getparent() for cell in self._cells}
        # a row whose cells hold lines of their own is read cell by cell
        broken = {row for row in rows if any(one in with_blocks for one in row if one in self._cells)}
        self._blocks |= {cell for cell in self._cells if cell.getparent() in broken}
        self._cells -= self._blocks
        for element in elements:
            if styles.declares_order and len(element) >= _FEW - 1:
                self._put_in_order(element)

    def is_block(self, element: Any) -> bool:
        """Whether an element begins a line and ends it."""
        return element in self._blocks

    def has_room(self, element: Any) -> bool:
        """Whether an element that stands in a line keeps its neighbours away by its margins."""
        return element not in self._blocks and self._box(element).room

    def is_cell(self, element: Any) -> bool:
        """Whether an element stands in a line beside others, with room between."""
        return element in self._cells

    def _row(self, element: Any) -> list[Any]:
        """The children of an element that stand beside each other."""
        flex = self._box(element).row
        return [one for one in element if isinstance(one.tag, str) and (flex or self._is_beside(one))]

    def _is_beside(self, element: Any) -> bool:
        box = self._box(element)
        if box.display is not None:
            return box.display == "table-cell"
        return element.tag in (_BLOCKS if box.apart else _CELLS)

    def _begins_line(self, element: Any) -> bool:
        display = self._box(element).display
        if display is None:
            return element.tag in _BLOCKS
        return display not in _INLINE

    def _box(self, element: Any) -> _Box:
        declared = self._styles.of(element)
        if not declared:
            return _BOX
        if id(declared) not in self._boxes:
            self._boxes[id(declared)] = _box_of(declared)
        return self._boxes[id(declared)]

    def _put_in_order(self, element: Any) -> None:
        """Put the children of an element in the order in which styles show them, or note that they are not in it."""
        boxes = {one: self._box(one) for one in element if isinstance(one.tag, str)}
        own = self._box(element)
        if own.display in _FLEX:
            ordered = sorted(boxes, key=lambda one: boxes[one].order)
            if own.reversed:
                ordered.reverse()
            if ordered != list(boxes):
                self._sort(element, ordered)
            named = [one for one, box in boxes.items() if box.area]
            if len(named) > _AREAS:
                self.misplaced.update(named)
            self._check({one: box.cell for one, box in boxes.items() if box.cell is not None})
        self._check({one: box.place for one, box in boxes.items() if box.place is not None})
        shifts = {one: box.shift for one, box in boxes.items() if box.shift is not None and one not in self._blocks}
        if len(set(shifts.values())) >= _FEW:
            self.misplaced.update(shifts)
        floats = [one for one, box in boxes.items() if box.right]
        if len(floats) >= _FEW:
            self.misplaced.update(floats)

    def _sort(self, element: Any, ordered: list[Any]) -> None:
        texts = [element.text, *(one.tail for one in element)]
        if len(ordered) < len(element) or any(one and one.strip() for one in texts):
            self.misplaced.update(ordered)
        else:
            element[:] = ordered

    def _check(self, places: dict[Any, tuple[float, float]]) -> None:
        if len(places) >= _FEW and _is_shuffled(list(places.values())):
            self.misplaced.update(places)


def _is_shuffled(places: list[tuple[float, float]]) -> bool:
    """Whether parts at these places, from the top and from the left, are in no order of rows and in none of columns."""
    rows = {at: n for n, at in enumerate(sorted(set(places)))}
    columns = {at: n for n, at in enumerate(sorted(set(places), key=lambda at: (at[1], at[0])))}
    steps = [(one, other) for one, other in pairwise(places) if one != other]
    back = sum(rows[other] < rows[one] for one, other in steps)
    apart = sum(rows[other] != rows[one] + 1 and columns[other] != columns[one] + 1 for one, other in steps)
    return back > _BACKWARDS * len(steps) or apart > _APART * len(steps)


def _holders(elements: list[Any], blocks: set[Any]) -> set[Any]:
    """The elements that hold a block or a line end."""
    holders: set[Any] = set()
    for element in reversed(elements):
        if element in blocks or element in holders or element.tag == "br":
            parent = element.getparent()
            if parent is not None:
                holders.add(parent)
    return holders


def _display(declared: Declared) -> str | None:
    """What is declared for `display`; of two words the one that says how an element's children stand."""
    if "display" not in declared:
        return None
    words = [one.lower_value for one in resolved(declared["display"], {}) if one.type == "ident"]
    if not words or words[0] in ("revert", "revert-layer"):
        return None
    if words[0] in ("initial", "unset"):
        return "inline"
    if len(words) > 1 and words[0] == "inline":
        return f"inline-{words[1]}" if words[1] in ("flex", "grid", "table") else "inline-block"
    return str(words[1] if len(words) > 1 and words[1] in _FLEX else words[0])


def _direction(declared: Declared) -> str:
    tokens: Iterable[Any] = [*declared.get("flex-direction", []), *declared.get("flex-flow", [])]
    return " ".join(one.lower_value for one in tokens if one.type == "ident")


def _first_number(declared: Declared, name: str) -> float | None:
    numbers = [one for one in resolved(declared.get(name, []), {}) if one.type == "number"]
    return None if not numbers else float(numbers[0].value)
