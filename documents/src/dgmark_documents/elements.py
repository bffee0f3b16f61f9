"""What readers of Office documents ask of an element of lxml beside its methods: local names, lengths, numbers.

Writers differ in their namespaces (there are two sets for Word alone), so that elements and attributes go by their
local names.
"""

import re
from typing import Any

_LENGTH = re.compile(r"(-?(?:\d+\.?\d*|\.\d+))(pt|in|cm|mm|px)?")
_POINTS = {"pt": 1.0, "in": 72.0, "cm": 72 / 2.54, "mm": 7.2 / 2.54, "px": 0.75, None: 1 / 12700}  # by default Word's


def local(element: Any) -> str:
    """The name of an element without its namespace; empty for comments and the like."""
    return element.tag.rpartition("}")[2] if isinstance(element.tag, str) else ""


def attribute(element: Any, name: str) -> str | None:
    """An attribute by its local name; None if there is none, or no element."""
    items = () if element is None else element.attrib.items()
    return next((value for key, value in items if key.rpartition("}")[2] == name), None)


def value(element: Any, path: str) -> str | None:
    """The attribute `val` of the first element at this path, or None; also of None."""
    return None if element is None else attribute(element.find(path), "val")


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
