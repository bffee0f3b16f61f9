"""What readers of Office documents ask of an element of lxml: names without namespaces, attributes, lengths.

Writers differ in their namespaces (there are two sets for Word alone), so that elements go by their local names.
"""

import re
from collections.abc import Iterator
from typing import Any

_LENGTH = re.compile(r"(-?(?:\d+\.?\d*|\.\d+))(pt|in|cm|mm|px)?")
_POINTS = {"pt": 1.0, "in": 72.0, "cm": 72 / 2.54, "mm": 7.2 / 2.54, "px": 0.75, None: 1 / 12700}  # by default Word's


def local(element: Any) -> str:
    """The name of an element without its namespace; empty for comments and the like."""
    return element.tag.rpartition("}")[2] if isinstance(element.tag, str) else ""


def attribute(element: Any, name: str) -> str | None:
    """An attribute by its local name."""
    return next((value for key, value in element.attrib.items() if key.rpartition("}")[2] == name), None)


def children(element: Any, *names: str) -> Iterator[Any]:
    """The children of these local names; none of None."""
    return (child for child in (() if element is None else element) if local(child) in names)


def child(element: Any, name: str) -> Any:
    """The first child of this local name, or None; also of None."""
    return next(children(element, name), None)


def value(element: Any, name: str) -> str | None:
    """The attribute `val` of a child, or None."""
    found = child(element, name)
    return None if found is None else attribute(found, "val")


def texts(top: Any) -> str:
    """All texts under an element, without those that are white space alone."""
    return "".join(piece for piece in top.itertext() if piece.strip())


def points(length: str | None) -> float | None:
    """A length in points, or None."""
    found = _LENGTH.fullmatch((length or "").strip())
    return float(found[1]) * _POINTS[found[2]] if found else None


def number(text: str | None) -> float | None:
    """A number, or None."""
    try:
        return float(text or "")
    except ValueError:
        return None
