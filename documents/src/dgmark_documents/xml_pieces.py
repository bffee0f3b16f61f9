"""All texts of a part of an Office document, taken in the plainest way: by them, the account sees what a reading lacks.

Knows no reader: each text counts, whatever its element, and each attribute whose values read like prose.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from lxml import etree

from dgmark_documents.account import Piece
from dgmark_documents.elements import local

_LETTERS = 0.7  # of the signs of a text, letters are more than this share
# attributes of words that no reader sees: names of fonts, styles, people and files, shapes, conditions
_TECHNICAL = re.compile(
    r"(?i:.*(name|style|family|author|initials|font|path|points|formula|href|condition|class|self)(-asian|-complex)?)"
    r"|ascii|hAnsi|cs|eastAsia|typeface|panose|d|Ignorable|Requires|Target|ProcessContents|instr|creator|eqn|adj|id"
)

_ELEMENT = re.compile("<[A-Za-z]")
_ENTITY = re.compile(r"""<!ENTITY\s+(?:%\s+)?[^\s<>]{1,100}\s+["']""")


def declares_texts(source: str) -> bool:
    """Whether markup declares texts as entities before its first element; those of other files are no texts of it."""
    first = _ELEMENT.search(source)
    return bool(_ENTITY.search(source, 0, first.start() if first else len(source)))


def xml_pieces(
    root: Any,
    part: str,
    *,
    passed: Collection[str] = (),
    groups: Mapping[str, str] = {},
    dropped: Collection[Any] = (),
    technical: re.Pattern[str] = _TECHNICAL,
    bare: Collection[str] = (),
) -> Iterator[Piece]:
    """The texts of a part, in its order, then its attributes that read like prose, each value once.

    Args:
        root: the root of the part.
        part: its name.
        passed: the local names of elements whose own text is not one of the document, such as code.
        groups: by the local names of elements, the groups of the texts in them.
        dropped: elements that are not shown; their texts are one group.
        technical: the names of attributes that do not count.
        bare: the local names of elements whose attributes do not count.
    """
    before = f"{part}, " if part else ""
    values: dict[tuple[str, str, str], None] = {}
    within: list[str | None] = [None]
    for event, element in etree.iterwalk(root, events=("start", "end", "comment", "pi")):
        name = local(element)
        if event == "start":
            within.append("hidden parts" if element in dropped else groups.get(name, within[-1]))
            if name not in bare:
                values.update(dict.fromkeys((name, key.rpartition("}")[2], one) for key, one in element.attrib.items()))
            text = "" if name in passed else element.text
        else:
            if event == "end":
                within.pop()
            parent = element.getparent()
            text = element.tail if parent is not None and element is not root and local(parent) not in passed else ""
            name = local(parent) if parent is not None else name
        if text and text.strip():
            yield Piece(f"{before}element {name}", text, within[-1])
    for name, key, one in values:
        if not technical.fullmatch(key) and _is_prose(one):
            yield Piece(f"{before}attribute {key} of {name}", one, f"attribute {key} of {name}")


def _is_prose(text: str) -> bool:
    words = text.split()
    signs = "".join(words)
    return len(words) > 1 and sum(one.isalpha() for one in signs) > _LETTERS * len(signs)
