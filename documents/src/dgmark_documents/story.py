"""`Story`: walks a tree of a part of an office document, with a handler for each element that matters.

`DrawnStory` knows what Word documents and presentations have in common: drawings, charts, diagrams, and places with
markup for newer and for older programs.
"""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from dgmark_documents.account import Account
from dgmark_documents.elements import attribute, local
from dgmark_documents.office_parts import OfficeParts, not_chosen
from dgmark_documents.walk import Walk
from dgmark_documents.xml_pieces import xml_pieces
from dgmark_documents.zip_archive import ZipArchive, is_markup

# of drawings, the attributes that are shown, by their places
DRAWN = {
    "alternative texts": "docPr@title docPr@descr cNvPr@title cNvPr@descr",
    "tool tips": "hyperlink@tooltip hlinkClick@tooltip hlinkHover@tooltip hlinkMouseOver@tooltip",
}


class Story(Walk):
    """Walks a tree. Subclasses have a handler for each element that matters.

    A handler takes an element that begins, and says whether its contents are passed over; None is no.

    Attributes:
        account: takes what is read apart from the tree.
        handlers: the handlers, by the local names of elements.
        said: by the local names of elements, the attributes that are shown somewhere, with their places (`said_in`).
    """

    account: Account
    handlers: ClassVar[Mapping[str, Callable[[Any, Any], bool | None]]] = {}
    said: ClassVar[Mapping[str, list[tuple[str, str]]]] = {}
    deepest = 500  # handlers look at all that an element holds

    def begin(self, element: Any) -> bool:
        """Put what an element says where it belongs, then call its handler."""
        name = local(element)
        for key, place in self.said.get(name, ()):
            self.account.put(place, attribute(element, key))
        handle = None if element is self.top else self.handlers.get(name)
        return bool(handle and handle(self, element))

    def pass_over(self, _: Any) -> bool:
        """Pass over the contents of an element."""
        return True


def said_in(*tables: Mapping[str, str]) -> dict[str, list[tuple[str, str]]]:
    """By the local names of elements, their attributes that are shown, and the places of these.

    The tables have names by places, such as "docPr@title docPr@descr".
    """
    found: dict[str, list[tuple[str, str]]] = {}
    for place, names in (one for table in tables for one in table.items()):
        for name in names.split():
            element, _, key = name.partition("@")
            found.setdefault(element, []).append((key, place))
    return found


class Package:
    """A Word document or a presentation while it is read.

    Attributes:
        parts: its parts.
        account: what it holds beside the body.
        dropped: the elements that are not shown beside others that stand for them.
    """

    passed: ClassVar[frozenset[str]]  # the elements whose own text is none of the document

    def __init__(self, archive: ZipArchive) -> None:
        self.parts = OfficeParts(archive)
        self.account = Account()
        self.dropped: set[Any] = set()

    def read(self, part: str, top: Any, place: str) -> None:
        """Read a tree of this part apart from the body."""
        raise NotImplementedError

    def hold(self, part: str) -> None:
        """Tell the account what a part holds."""
        if is_markup(self.parts.archive.read(part)):
            self.account.held += xml_pieces(self.parts.tree(part), part, passed=self.passed, dropped=self.dropped)


class DrawnStory(Story):
    """Walks a tree of a part of a Word document or a presentation."""

    def __init__(self, package: Package, part: str) -> None:
        self.package, self.part, self.account = package, part, package.account
        self.links = package.parts.links(part)

    def linked(self, element: Any, name: str = "id") -> str:
        """The part that an element names."""
        link = self.links.get(relation(element, name))
        return link.part if link else ""

    def choose(self, element: Any) -> None:
        """Drop what is not shown of a place with markup for newer and for older programs."""
        self.package.dropped.update(not_chosen(element))

    def pass_alternative(self, element: Any) -> bool:
        """Pass over what is dropped."""
        return element in self.package.dropped

    def count_object(self, _: Any) -> bool:
        """Count a document in the document."""
        self.account.add("embedded objects", weight=Account.UNKNOWN)
        return True

    def count_fill(self, element: Any) -> None:
        """Count pictures behind shapes and pages, and ink."""
        if local(element.getparent()) != "pic":
            self.account.add_picture(None, None)

    def add_diagram(self, element: Any) -> bool | None:
        """Read a diagram."""
        part = self.linked(element, "dm")
        tree = self.package.parts.tree(part)
        if not len(tree):
            return self.count_object(element)
        self.package.read(part, tree, "diagrams")
        return None

    def add_chart(self, element: Any) -> bool | None:
        """Read the titles and labels of a chart, with what is drawn on it."""
        part = self.linked(element)
        drawn = [link.part for link in self.package.parts.links(part).values() if link.kind == "chartUserShapes"]
        trees = [*map(self.package.parts.tree, (part, *drawn))]
        for one in (one for tree in trees for one in tree.iter("{*}t", "{*}v", "{*}pt")):
            self.account.put("charts", one.text)
        return None if len(trees[0]) else self.count_object(element)


def relation(element: Any, name: str = "id") -> str:
    """The id of the relation that an element names; beside it may stand an id of its own, without a namespace."""
    return next((one for key, one in element.attrib.items() if key.endswith("}" + name)), "") or element.get(name, "")


DrawnStory.handlers = {
    "AlternateContent": DrawnStory.choose,
    **dict.fromkeys(("Choice", "Fallback"), DrawnStory.pass_alternative),
    **dict.fromkeys(("object", "subDoc", "oleObj", "control"), DrawnStory.count_object),
    **dict.fromkeys(("blipFill", "contentPart"), DrawnStory.count_fill),
    "relIds": DrawnStory.add_diagram,
    "chart": DrawnStory.add_chart,
}
