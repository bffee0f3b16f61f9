"""OpenDocument texts with lxml: the body, then what stands apart from it, each once.

What the format hides is read behind the body, and what cannot be seen for its look is read and counted.
"""

import posixpath
from collections.abc import Iterable
from io import BytesIO
from typing import Any
from urllib.parse import unquote
from zipfile import ZipFile

from lxml import etree

from dgmark_documents.account import Account
from dgmark_documents.elements import attribute, local, points, texts
from dgmark_documents.look import Look, is_off_page, put
from dgmark_documents.opendocument_styles import OpenDocumentStyles, list_labels, look_of, over
from dgmark_documents.reading import LOCKED, Limits, Reading, Refusal
from dgmark_documents.story import Story, said_in
from dgmark_documents.styles import Properties
from dgmark_documents.text_builder import TextBuilder
from dgmark_documents.xml_pieces import xml_pieces
from dgmark_documents.zip_archive import ZipArchive, is_markup

# the parts of the format that hold no text of the document
_SETTINGS = ("META-INF/", "Configurations2/", "Thumbnails/", "Basic/", "Dialogs/")
_OFFICE = "{urn:oasis:names:tc:opendocument:xmlns:office:1.0}"
_UNSEEN = (f"{_OFFICE}meta", f"{_OFFICE}settings", f"{_OFFICE}scripts", "{*}tracked-changes")
# elements whose own text is not shown: formats of numbers, who commented and when, data
_PASSED = frozenset(("text", "creator", "date", "creator-initials", "sender-initials", "date-string", "binary-data"))
_SHAPES = ("custom-shape", "rect", "ellipse", "circle", "line", "polyline", "polygon", "path", "caption", "connector")
_OBJECTS = ("object", "object-ole", "plugin", "applet", "floating-frame")
_HIDING = {("display", "none"), ("is-hidden", "true"), ("visibility", "collapse"), ("visibility", "filter")}
_FORM_ATTRIBUTES = ("label", "value", "current-value", "title", "text", "string-value")
_FORM_PROPERTIES = frozenset(("HelpText", "Label", "Text", "DefaultText", "StringItemList", "Title"))


def read_odt(archive: ZipArchive | None = None, content: bytes = b"") -> Reading:
    """Read an OpenDocument text, which is an archive or one file of XML.

    Headers, footers, notes, comments, text boxes and the like stand after the body.
    """
    if archive is None:
        with ZipFile(packed := BytesIO(), "w") as written:
            written.writestr("content.xml", content)
        archive = ZipArchive(packed, Limits())
    manifest = "META-INF/manifest.xml"
    locked = manifest in archive.names and b"encryption-data" in archive.read(manifest)
    if locked or "encrypted-package" in archive.names:
        raise Refusal(LOCKED)
    archive.check_xml()
    document = _OpenDocument(archive)
    body = TextBuilder()
    document.read_body(body)
    document.read_ends()
    document.count_held()
    return document.account.reading(body.text)


class _OpenDocument:
    """A document while it is read.

    Attributes:
        archive: its parts.
        account: what it holds beside the body.
    """

    def __init__(self, archive: ZipArchive) -> None:
        self.archive = archive
        self.account = Account()
        self._content = archive.xml("content.xml")
        # a document in one piece has its styles beside its text
        self._styles = archive.xml("styles.xml") if "styles.xml" in archive.names else self._content

    def read_body(self, builder: TextBuilder) -> None:
        """Read the body."""
        body = self._content.find("{*}body/{*}text")
        if body is None:
            raise Refusal("is damaged: it has no body of text")
        own = self._content.iterfind("{*}automatic-styles")
        _Story(self, OpenDocumentStyles([*self._styles.iterfind("{*}styles"), *own]), builder).walk(body)
        labels = dict.fromkeys(label for tree in (self._styles, self._content) for label in list_labels(tree))
        self.account.put("numbers of lists", " ".join(labels))
        for one in (*self._content.iter("{*}fill-image"), *self._styles.iter("{*}fill-image", "{*}background-image")):
            if attribute(one, "href"):
                self.account.add("pictures", weight=Account.UNKNOWN)
        if any(name.startswith("Basic/") for name in self.archive.names):
            self.account.add("scripts")

    def read_ends(self) -> None:
        """Read the headers and footers of the pages."""
        styles = OpenDocumentStyles(
            [one for name in ("styles", "automatic-styles") for one in self._styles.iterfind(f"{{*}}{name}")]
        )
        for end in (one for page in self._styles.iterfind("{*}master-styles/{*}master-page") for one in page):
            place = "headers" if local(end).startswith("header") else "footers"
            if local(end).startswith(("header", "footer")) and attribute(end, "display") != "false":
                _Story(self, styles, self.account.at(place)).walk(end)

    def count_held(self) -> None:
        """Tell the account all that the document holds."""
        for part in sorted(self.archive.names):
            if part.startswith(_SETTINGS) or part.endswith(".rdf") or not is_markup(self.archive.read(part)):
                continue
            etree.strip_elements(self.archive.xml(part), *_UNSEEN, with_tail=False)
            self.account.held += xml_pieces(self.archive.xml(part), part, passed=_PASSED)


class _Story(Story):
    """Adds a tree to a builder."""

    said = said_in({"fields": "user-field-decl@string-value", "choices of lists": "label@value"})

    def __init__(self, document: _OpenDocument, styles: OpenDocumentStyles, builder: TextBuilder) -> None:
        self.account = document.account
        self._document = document
        self._styles = styles
        self._builder = builder
        self.state = {}, Look()

    @property
    def _properties(self) -> Properties:
        return self.state[0]  # type: ignore[no-any-return]

    def _set(self, properties: Properties | None = None, **look: Any) -> None:
        """Change what holds up to the end of the element: the properties, or what is known of the look beside these."""
        self.state = self._properties if properties is None else properties, self.state[1]._replace(**look)

    def begin(self, element: Any) -> bool:
        """See whether an element says that it is not shown."""
        for key, stated in element.attrib.items():
            name = key.rpartition("}")[2]
            if (name, stated) in _HIDING:
                self._set(hidden=True)
        return super().begin(element)

    def end(self, element: Any) -> None:
        """End a paragraph."""
        if local(element) in ("p", "h"):
            self._builder.block()

    def text(self, text: str | None) -> None:
        """Add a text of the look that holds here."""
        put(self._builder, self.account, text, look_of(*self.state))

    # Each of the following takes an element that begins, and says whether its contents are passed over.

    def _begin_paragraph(self, element: Any) -> None:
        if any(attribute(one, "is-hidden") == "true" for one in element.iter("{*}hidden-paragraph")):
            self._set(hidden=True)
        self._builder.block()
        self._begin_text(element, "paragraph")

    def _begin_text(self, element: Any, family: str = "text") -> None:
        self._set(over(self._properties, self._styles.properties(family, attribute(element, "style-name"))))

    def _begin_block(self, element: Any) -> None:
        own = self._styles.properties(local(element), attribute(element, "style-name"))
        self._set({**self._properties, **{key: one for key, one in own.items() if key == "behind"}})

    def _begin_row(self, element: Any) -> None:
        own = self._styles.properties("table-row", attribute(element, "style-name"))
        self._set(size=points(own.get("row-height")))

    def _begin_drawing(self, element: Any) -> bool:
        """Count what a drawing shows beside text, and see whether it is shown."""
        off = is_off_page(points(attribute(element, side)) for side in ("x", "y"))
        own = self._styles.properties("graphic", attribute(element, "style-name"))
        self._set({"behind": _colour_of(own)}, off_page=self.state[1].off_page or off)
        width, height = (points(attribute(element, side)) for side in ("width", "height"))
        objects = [one for one in element if local(one) in _OBJECTS]
        read = [self._add_object(one) for one in objects]
        if not all(read):
            self.account.add_picture(width, height, "embedded objects")
        elif not objects and element.find("{*}image") is not None:
            self.account.add_picture(width, height)
        return bool(objects)

    def _add_object(self, element: Any) -> bool:
        """Add the texts of a formula or chart; whether there are any to be read."""
        part = f"{posixpath.normpath(unquote(attribute(element, 'href') or '.'))}/content.xml"
        if not len(element) and part not in self._document.archive.names:
            return False
        tree = element if len(element) else self._document.archive.xml(part)
        for text in (one for top in tree.iter("*") for one in (top.text, top.tail) if local(top) != "annotation"):
            self.account.put("formulas and charts", text)
        return True

    def _begin_shape(self, element: Any) -> bool:
        self._begin_drawing(element)
        return self._add_text_box(element)

    def _add_text_box(self, element: Any) -> bool:
        self._set(size=None)
        story = _Story(self._document, self._styles, self.account.at("text boxes"))
        story.state = self.state
        story.walk(element)
        return True

    def _add_note(self, element: Any) -> bool:
        place = "endnotes" if attribute(element, "note-class") == "endnote" else "footnotes"
        return self._add_apart(place, element.iterfind("{*}note-body"))

    def _add_comment(self, element: Any) -> bool:
        return self._add_apart("comments", (one for one in element if local(one) not in _PASSED))

    def _add_ruby(self, element: Any) -> bool:
        return self._add_apart("readings beside words", [element])

    def _add_apart(self, place: str, tops: Iterable[Any]) -> bool:
        for top in tops:
            _Story(self._document, self._styles, self.account.at(place)).walk(top)
        return True

    def _add_description(self, element: Any) -> bool:
        """Add what a drawing is called; fields that show a property of the document have the same names."""
        in_drawing = local(element.getparent()) not in ("p", "h", "span", "a")
        if in_drawing:
            self.account.put("alternative texts", texts(element))
        return in_drawing

    def _add_forms(self, element: Any) -> bool:
        for one in element.iter("*"):
            shown = local(one) != "property" or attribute(one, "property-name") in _FORM_PROPERTIES
            for name in _FORM_ATTRIBUTES if shown else ():
                self.account.put("form fields", attribute(one, name))
            self.account.put("form fields", one.text)
        return True

    def _add_space(self, element: Any) -> None:
        count = attribute(element, "c") or "1"
        self._builder.add(" " * min(int(count), 1000) if count.isdecimal() else " ", exact=True)

    def _add_tab(self, _: Any) -> None:
        self._builder.add(" ", exact=True)

    def _end_line(self, _: Any) -> None:
        self._builder.end_line()

    def _count_deletions(self, _: Any) -> bool:
        self.account.add("tracked deletions")
        return True

    def _count_section(self, element: Any) -> None:
        if not texts(element.getparent()):
            self.account.add("linked sections", weight=Account.UNKNOWN)

    def _count_script(self, _: Any) -> bool:
        self.account.add("scripts")
        return True


_Story.handlers = {
    **dict.fromkeys(("p", "h"), _Story._begin_paragraph),
    "span": _Story._begin_text,
    **dict.fromkeys(("section", "table", "table-cell"), _Story._begin_block),
    "table-row": _Story._begin_row,
    "frame": _Story._begin_drawing,
    **dict.fromkeys(_SHAPES, _Story._begin_shape),
    "text-box": _Story._add_text_box,
    "note": _Story._add_note,
    "annotation": _Story._add_comment,
    "ruby-text": _Story._add_ruby,
    **dict.fromkeys(("title", "desc"), _Story._add_description),
    "forms": _Story._add_forms,
    "s": _Story._add_space,
    "tab": _Story._add_tab,
    "line-break": _Story._end_line,
    "tracked-changes": _Story._count_deletions,
    "section-source": _Story._count_section,
    "script": _Story._count_script,
    **dict.fromkeys(("note-citation", "annotation-end", "sequence-decls", "binary-data"), _Story.pass_over),
}


def _colour_of(graphic: Properties) -> Any:
    """The colour of a drawing, or one that no text has if it is not known."""
    if graphic.get("fill") == "solid":
        return graphic.get("fill-color", "unknown")
    return graphic.get("behind", "transparent") if graphic.get("fill", "none") == "none" else "unknown"
