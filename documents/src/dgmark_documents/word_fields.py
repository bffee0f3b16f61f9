"""What fields and content controls of a Word document show from elsewhere: their codes, properties, data."""

import re
from typing import Any

from dgmark_documents.elements import attribute, children, local, texts
from dgmark_documents.office_parts import OfficeParts

_ARGUMENT = re.compile(r'\s*(?:"([^"]*)"|(\S+))')
_SWITCH = re.compile(r"\\\w+")
_CODE_SHOWN = {"MACROBUTTON": "buttons", "GOTOBUTTON": "buttons", "EQ": "equations", "QUOTE": "quotations"}
# fields by the names of the elements that hold the properties they show
_PROPERTIES = {
    "TITLE": "title", "SUBJECT": "subject", "AUTHOR": "creator", "KEYWORDS": "keywords", "COMMENTS": "description",
    "LASTSAVEDBY": "lastModifiedBy", "DOCVARIABLE": None, "DOCPROPERTY": None, "INFO": None,
}  # fmt: skip
_STORES = {
    "{6c3c8bc8-f283-45ae-878a-bab7291924a1}": "core-properties",
    "{6668398d-a668-4e3e-a5eb-62b293d839f1}": "extended-properties",
}
_LAST_STEP = re.compile(r"(@?)(?:[\w.-]+:)?([\w.-]+)(?:\[\d+\])?$")


def quoted(code: str, switches: tuple[str, ...]) -> list[str]:
    """The texts in quotation marks behind these switches of a field's code."""
    parts = code.split('"')
    behind = zip(parts[:-1:2], parts[1:-1:2], strict=False)
    return [text for before, text in behind if before.rstrip().endswith(switches) and before != before.rstrip()]


class Fields:
    """Looks up what fields and bound controls show."""

    def __init__(self, parts: OfficeParts) -> None:
        self._parts = parts

    def shown(self, code: str, *, has_result: bool) -> tuple[str, str] | None:
        r"""What a field shows beside its result: what that is, and the text.

        Args:
            code: its code, such as `TITLE \* Upper`.
            has_result: whether the document holds a text that stands for the field.
        """
        name, _, rest = code.strip().partition(" ")
        name = name.upper()
        if name in _CODE_SHOWN and (not has_result or name.endswith("BUTTON")):
            text = _SWITCH.sub(" ", rest)
            return _CODE_SHOWN[name], text.strip().partition(" ")[2] if name.endswith("BUTTON") else text
        if name in _PROPERTIES:
            found = _ARGUMENT.match(rest)
            return "document properties", self._property(_PROPERTIES[name] or (found and (found[1] or found[2])) or "")
        # how a number or date is written, with texts between apostrophes
        written = " ".join(text for one in quoted(rest, ("\\@", "\\#")) for text in one.split("'")[1:-1:2])
        if written:
            return "formats of fields", written
        tips = quoted(rest, ("\\o",)) if name == "HYPERLINK" else []
        return ("tool tips", tips[0]) if tips else None

    def _property(self, name: str) -> str:
        """The value of a property or variable of the document, by the name of its element or its own name."""
        kinds = ("core-properties", "extended-properties", "custom-properties")
        trees = [self._parts.tree(self._parts.named(kind, "")) for kind in kinds]
        settings = self._parts.tree(self._parts.named("settings"))
        trees += [] if settings is None else children(settings, "docVars")
        found = []
        for one in (one for tree in trees if tree is not None for one in tree):
            own = attribute(one, "name")
            if name.lower() in (local(one).lower(), (own or "").lower()):
                found.append(texts(one) or attribute(one, "val") or "")
        return " ".join(found)

    def bound(self, binding: Any) -> str:
        """What a content control shows by its `dataBinding`: the elements or attributes that its path ends with.

        The path is not run, as a path of an attacker may take any time. Of one that calls functions, all of the store's
        texts are taken.
        """
        path = (attribute(binding, "xpath") or "").removesuffix("/text()")
        step = _LAST_STEP.search(path)
        trees = [self._parts.tree(part) for part in self._stores((attribute(binding, "storeItemID") or "").lower())]
        if step is None or "(" in path:
            return " ".join(texts(tree) for tree in trees if tree is not None)
        elements = (one for tree in trees if tree is not None for one in tree.iter("*"))
        if step[1]:
            values = (attribute(one, step[2]) for one in elements)
            return " ".join(one for one in values if one)
        return " ".join(texts(one) for one in elements if local(one) == step[2])

    def _stores(self, name: str) -> list[str | None]:
        """The parts of this name; all parts of data, where none has it."""
        if name in _STORES:
            return [self._parts.named(_STORES[name], "")]
        items = [link.part for link in self._parts.links(self._parts.main).values() if link.kind == "customXml"]
        own: list[str | None] = [
            item for item in items if name == (self._item_name(self._parts.named("customXmlProps", item)) or "").lower()
        ]
        return own or [*items]

    def _item_name(self, part: str | None) -> str | None:
        tree = self._parts.tree(part)
        return None if tree is None else attribute(tree, "itemID")
