"""All texts of a part of an Office document, taken in the plainest way: by them, the account sees what a reading lacks.

Knows no reader: each text counts, whatever its element, and each attribute whose values read like prose.
"""

import re
from collections.abc import Collection, Iterator
from typing import Any

from dgmark_documents.account import Piece
from dgmark_documents.elements import local

HIDDEN = "hidden parts"
_LETTERS = 0.7  # of the signs of a text, letters are more than this share
# attributes of words that no reader sees: names of fonts, styles, people and files, shapes, conditions
_TECHNICAL = re.compile(
    r".*(name|style|family|author|initials|font|path|points|formula|href|condition|class)(-asian|-complex)?"
    r"|ascii|hAnsi|cs|eastAsia|typeface|panose|d|Ignorable|Requires|Target|ProcessContents|instr|creator|eqn|adj|id"
)


def xml_pieces(root: Any, part: str, *, passed: Collection[str] = (), hidden: Collection[Any] = ()) -> Iterator[Piece]:
    """The texts of a part, in its order, then its attributes that read like prose, each value once.

    Args:
        root: the root of the part.
        part: its name.
        passed: the local names of elements whose own text is not one of the document, such as code.
        hidden: elements that the format hides; their texts are one group.
    """
    from lxml import etree

    values: dict[tuple[str, str, str], None] = {}
    depth = 0
    for event, element in etree.iterwalk(root, events=("start", "end")):
        name = local(element)
        if event == "start":
            depth += element in hidden
            values.update(dict.fromkeys((name, key.rpartition("}")[2], one) for key, one in element.attrib.items()))
            text = "" if name in passed else element.text
        else:
            depth -= element in hidden
            parent = element.getparent()
            text = element.tail if parent is not None and element is not root and local(parent) not in passed else ""
        if text and text.strip():
            yield Piece(f"{part}, element {name}", text, HIDDEN if depth else None)
    for name, key, one in values:
        if not _TECHNICAL.fullmatch(key) and _is_prose(one):
            yield Piece(f"{part}, attribute {key} of {name}", one, f"attribute {key} of {name}")


def _is_prose(text: str) -> bool:
    words = text.split()
    signs = "".join(words)
    return len(words) > 1 and sum(one.isalpha() for one in signs) > _LETTERS * len(signs)
