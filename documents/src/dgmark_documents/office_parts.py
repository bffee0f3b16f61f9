"""The parts of a Word document, workbook or presentation by the relations between them, which say what each is.

Their paths say nothing.
"""

import posixpath
from collections.abc import Iterator
from typing import Any, NamedTuple

from lxml import etree

from dgmark_documents.elements import attribute
from dgmark_documents.reading import Refusal
from dgmark_documents.zip_archive import ZipArchive

# kinds of relations to parts that are no text of the document, unless something in it shows them: settings, looks,
# properties, data for content controls, building blocks
_SETTINGS = frozenset((
    "core-properties", "extended-properties", "custom-properties", "thumbnail", "settings", "webSettings",
    "fontTable", "theme", "themeOverride", "styles", "stylesWithEffects", "numbering", "customXml", "customXmlProps",
    "glossaryDocument", "diagramLayout", "diagramQuickStyle", "diagramColors", "chartStyle", "chartColorStyle",
    "people", "commentsIds", "commentsExtended", "commentsExtensible", "keyMapCustomizations", "attachedToolbars",
    "wordVbaData", "vbaProject", "printerSettings", "origin", "signature", "recipientData", "mailMergeRecipientData",
    "calcChain", "connections", "person", "presProps", "viewProps", "tableStyles", "commentAuthors", "authors", "tags",
    "changesInfo", "revisionInfo",
))  # fmt: skip

# markup that the programs know
_KNOWN = ("http://schemas.microsoft.com/office/", "http://schemas.openxmlformats.org/")


class Link(NamedTuple):
    """A relation to another part: its kind, and the part's name."""

    kind: str
    part: str


class OfficeParts:
    """The parts of a Word document, a workbook or a presentation.

    Attributes:
        archive: the document as an archive.
        main: the part that holds the body, or names the sheets or slides.

    Raises:
        Refusal: the document does not say where its text stands.
    """

    def __init__(self, archive: ZipArchive) -> None:
        self.archive = archive
        self._links: dict[str, dict[str, Link]] = {}
        main = self.named("officeDocument", "")
        if main is None:
            raise Refusal("is damaged: it does not say where its text stands")
        self.main = main

    def links(self, part: str) -> dict[str, Link]:
        """Of the parts that a part names, by their ids: the kind of relation and the name."""
        if part not in self._links:
            folder, name = posixpath.split(part)
            names = posixpath.join(folder, "_rels", f"{name}.rels")
            found = self.archive.xml(names).iterfind("{*}Relationship") if names in self.archive.names else ()
            self._links[part] = {
                link.get("Id", ""): Link(
                    link.get("Type", "").rsplit("/", 1)[-1],
                    posixpath.normpath(posixpath.join("/", folder, link.get("Target", ""))).lstrip("/"),
                )
                for link in found
                if link.get("TargetMode") != "External"
            }
        return self._links[part]

    def named(self, kind: str, part: str | None = None) -> str | None:
        """The first part that the main part (or `part`) names by this kind of relation."""
        links = self.links(self.main if part is None else part).values()
        return next((link.part for link in links if link.kind == kind and link.part in self.archive.names), None)

    def tree(self, part: str | None) -> Any:
        """The root of a part, the same each time; an empty element if there is no such part."""
        return self.archive.xml(part) if part in self.archive.names else etree.Element("none")

    def shown(self) -> Iterator[str]:
        """The names of all parts but for those that are reached only as settings or from them."""
        shown = self._reached({""}, frozenset())
        settings = {link.part for part in {"", *shown} for link in self.links(part).values() if link.kind in _SETTINGS}
        unseen = {*settings, *self._reached(settings, shown)} - shown
        return (name for name in sorted(self.archive.names) if name not in unseen and not name.endswith(".rels"))

    def _reached(self, start: set[str], known: frozenset[str]) -> frozenset[str]:
        """The parts that these lead to by relations that are no settings."""
        reached: set[str] = set()
        waiting = list(start)
        while waiting:
            found = {link.part for link in self.links(waiting.pop()).values() if link.kind not in _SETTINGS}
            waiting += found - reached - known
            reached |= found
        return frozenset(reached)


def not_chosen(alternatives: Any) -> list[Any]:
    """Of a place with markup for newer and for older programs (`AlternateContent`), what is not shown."""
    choices = alternatives.findall("{*}Choice")
    known = [one for one in choices if _is_known(one)]
    shown = next(iter([*known, *alternatives.iterfind("{*}Fallback"), *choices]), None)
    return [one for one in alternatives if one is not shown]


def _is_known(choice: Any) -> bool:
    """Whether the programs know the markup that a choice requires."""
    required = (attribute(choice, "Requires") or "").split()
    return all((choice.nsmap.get(prefix) or "").startswith(_KNOWN) for prefix in required)
