"""OpenDocument texts with lxml: the body, then what stands apart from it, each once.

What the format hides is read behind the body, and what cannot be seen for its look is read and counted.
"""

import posixpath
from typing import Any
from urllib.parse import unquote

from dgmark_documents.account import Account
from dgmark_documents.elements import attribute, child, children, local, points, texts
from dgmark_documents.look import Look, is_off_page, put
from dgmark_documents.opendocument_styles import OpenDocumentStyles, Properties, look_of, over, used_pages
from dgmark_documents.reading import Reading, Refusal
from dgmark_documents.story import Story
from dgmark_documents.text_builder import TextBuilder
from dgmark_documents.xml_pieces import xml_pieces
from dgmark_documents.zip_archive import LOCKED, ZipArchive, is_markup

# the parts of the format that hold no text of the document
_SETTINGS = ("META-INF/", "Configurations2/", "Thumbnails/", "Basic/", "Dialogs/")
_SETTINGS_NAMES = ("meta.xml", "settings.xml")
# elements whose own text is not shown: formats of numbers, who commented and when, data
_PASSED = frozenset(("text", "creator", "date", "creator-initials", "sender-initials", "date-string", "binary-data"))
_PROPERTIES = frozenset(("title", "subject", "keywords", "description", "initial-creator", "user-defined"))
_SHAPES = ("custom-shape", "rect", "ellipse", "circle", "line", "polyline", "polygon", "path", "caption", "connector")
_FORM_ATTRIBUTES = ("label", "value", "current-value", "title", "text", "string-value")
_FORM_PROPERTIES = frozenset(("HelpText", "Label", "Text", "DefaultText", "StringItemList", "Title"))


def read_odt(archive: ZipArchive) -> Reading:
    """Read an OpenDocument text; headers, footers, notes, comments, text boxes and the like stand after the body.

    Raises:
        Refusal: the document is damaged or encrypted, or most of it is not read.
    """
    manifest = "META-INF/manifest.xml"
    locked = manifest in archive.names and b"encryption-data" in archive.read(manifest)
    if locked or "encrypted-package" in archive.names:
        raise Refusal(LOCKED)
    archive.check_xml()
    document = _OpenDocument(archive)
    body = TextBuilder()
    document.read_body(body)
    document.read_ends()
    document.account.put("numbers of lists", " ".join(document.numbers))
    document.count_held()
    return document.account.reading(body.text)


class _OpenDocument:
    """A document while it is read.

    Attributes:
        archive: its parts.
        account: what it holds beside the body.
        numbers: the texts of list numbers, in their order.
        values: of fields whose value stands in a declaration, the value by the name.
    """

    def __init__(self, archive: ZipArchive) -> None:
        self.archive = archive
        self.account = Account()
        self.numbers: dict[str, None] = {}
        self._trees: dict[str, Any] = {}
        self._content = self.tree("content.xml")
        self._styles = self.tree("styles.xml") if "styles.xml" in archive.names else None
        self._meta = self.tree("meta.xml") if "meta.xml" in archive.names else None
        self.values = {
            attribute(one, "name"): attribute(one, "string-value") for one in self._content.iter("{*}user-field-decl")
        }

    def tree(self, part: str) -> Any:
        """The root of a part, the same each time."""
        if part not in self._trees:
            self._trees[part] = self.archive.xml(part)
        return self._trees[part]

    def read_body(self, builder: TextBuilder) -> None:
        """Read the body."""
        body = child(child(self._content, "body"), "text")
        if body is None:
            raise Refusal("is damaged: it has no body of text")
        own = [*children(self._content, "automatic-styles")]
        styles = OpenDocumentStyles([child(self._styles, "styles"), *own])
        _Story(self, styles, builder, {}).add(body)
        for tree in (self._content, self._styles):
            backgrounds = () if tree is None else tree.iter("{*}fill-image", "{*}background-image")
            for one in backgrounds:
                if attribute(one, "href"):
                    self.account.add("pictures", weight=Account.UNKNOWN)
        if any(name.startswith("Basic/") for name in self.archive.names):
            self.account.add("scripts")

    def read_ends(self) -> None:
        """Read the headers and footers of the pages that the document uses."""
        own = child(self._styles, "automatic-styles")
        common = child(self._styles, "styles")
        styles = OpenDocumentStyles([common, own])
        tops = [one for one in (common, *children(self._content, "automatic-styles")) if one is not None]
        for page in used_pages(self._styles, tops):
            for end in page:
                place = "headers" if local(end).startswith("header") else "footers"
                if local(end).startswith(("header", "footer")) and attribute(end, "display") != "false":
                    _Story(self, styles, self.account.at(place), {}).add(end)

    def property(self, name: str, own_name: str | None) -> str:
        """A property of the document that a field shows: by its element, or of users' own by its name."""
        kinds = {"keywords": "keyword"}
        found = () if self._meta is None else self._meta.iter("{*}" + kinds.get(name, name))
        return " ".join(texts(one) for one in found if attribute(one, "name") == own_name)

    def count_held(self) -> None:
        """Tell the account all that the document holds."""
        for part in sorted(self.archive.names):
            if part.startswith(_SETTINGS) or posixpath.basename(part) in _SETTINGS_NAMES or part.endswith(".rdf"):
                continue
            if is_markup(self.archive.read(part)):
                self.account.held += xml_pieces(self.tree(part), part, passed=_PASSED)


class _Story(Story):
    """Adds a tree to a builder."""

    def __init__(
        self, document: _OpenDocument, styles: OpenDocumentStyles, builder: TextBuilder, properties: Properties
    ) -> None:
        self._document = document
        self._styles = styles
        self._builder = builder
        self._properties = properties
        self._around = Look()  # what holds here beside the properties

    @property
    def state(self) -> tuple[Properties, Look]:
        """What holds at this place."""
        return self._properties, self._around

    @state.setter
    def state(self, state: tuple[Properties, Look]) -> None:
        self._properties, self._around = state

    def begin(self, element: Any) -> None:
        """See whether a field or a part says that it is not shown."""
        if attribute(element, "display") == "none":
            self._hide()

    def end(self, name: str) -> None:
        """End a paragraph."""
        if name in ("p", "h"):
            self._builder.block()

    def text(self, text: str | None) -> None:
        """Add a text of the look that holds here."""
        put(self._builder, self._document.account, text, look_of(self._properties, self._around))

    # Each of the following takes an element that begins, and says whether its contents are passed over.

    def _hide(self) -> None:
        self._around = self._around._replace(hidden=True)

    def _begin_paragraph(self, element: Any) -> bool:
        if any(attribute(one, "is-hidden") == "true" for one in element.iter("{*}hidden-paragraph")):
            self._hide()
        self._builder.block()
        name = attribute(element, "style-name")
        self._properties = over(self._properties, self._styles.properties("paragraph", name))
        self._add_numbers("" if local(element) == "h" else self._styles.list_of(name))
        return False

    def _begin_span(self, element: Any) -> bool:
        self._properties = over(self._properties, self._styles.properties("text", attribute(element, "style-name")))
        return False

    def _begin_section(self, element: Any) -> bool:
        if attribute(element, "display") == "condition" and attribute(element, "is-hidden") == "true":
            self._hide()
        return self._begin_block(element, "section")

    def _begin_cell(self, element: Any) -> bool:
        return self._begin_block(element, "table-cell")

    def _begin_table(self, element: Any) -> bool:
        return self._begin_block(element, "table")

    def _begin_block(self, element: Any, family: str) -> bool:
        own = self._styles.properties(family, attribute(element, "style-name"))
        self._properties = {**self._properties, **{key: one for key, one in own.items() if key == "behind"}}
        return False

    def _begin_row(self, element: Any) -> bool:
        if attribute(element, "visibility") in ("collapse", "filter"):
            self._hide()
        own = self._styles.properties("table-row", attribute(element, "style-name"))
        self._around = self._around._replace(size=points(own.get("row-height")))
        return False

    def _begin_list(self, element: Any) -> bool:
        self._add_numbers(attribute(element, "style-name"))
        return False

    def _add_numbers(self, style: str | None) -> None:
        """Keep the texts of the numbers of a list style; an empty name is that of headings, and None of no list."""
        if style is not None:
            self._document.numbers[self._styles.list_texts(style)] = None

    def _begin_drawing(self, element: Any) -> bool:
        """Count what a drawing shows beside text, and see whether it is shown."""
        if is_off_page(points(attribute(element, side)) for side in ("x", "y")):
            self._around = self._around._replace(off_page=True)
        own = self._styles.properties("graphic", attribute(element, "style-name"))
        self._properties = {"behind": _colour_of(own)}
        objects = [*children(element, "object", "object-ole", "plugin", "applet", "floating-frame")]
        unread = [one for one in objects if not self._add_object(one)]
        if unread:
            self._document.account.add_picture(*_size(element), "embedded objects")
        elif not objects and child(element, "image") is not None:
            self._document.account.add_picture(*_size(element))
        return bool(objects)

    def _add_object(self, element: Any) -> bool:
        """Add the texts of a formula or chart; whether there are any to be read."""
        folder = posixpath.normpath(unquote(attribute(element, "href") or "."))
        part = f"{folder}/content.xml"
        if len(element):
            tree = element
        elif part in self._document.archive.names:
            tree = self._document.tree(part)
        else:
            return False
        for text in (one for top in tree.iter("*") for one in (top.text, top.tail) if local(top) != "annotation"):
            self._document.account.put("formulas and charts", text)
        return True

    def _begin_shape(self, element: Any) -> bool:
        self._begin_drawing(element)
        return self._add_text_box(element)

    def _add_text_box(self, element: Any) -> bool:
        story = _Story(self._document, self._styles, self._document.account.at("text boxes"), self._properties)
        story._around = self._around._replace(size=None)
        story.add(element)
        return True

    def _add_note(self, element: Any) -> bool:
        place = "endnotes" if attribute(element, "note-class") == "endnote" else "footnotes"
        return self._add_apart(place, [*children(element, "note-body")])

    def _add_comment(self, element: Any) -> bool:
        return self._add_apart("comments", [one for one in element if local(one) not in _PASSED])

    def _add_ruby(self, element: Any) -> bool:
        return self._add_apart("readings beside words", [element])

    def _add_apart(self, place: str, tops: list[Any]) -> bool:
        for top in tops:
            _Story(self._document, self._styles, self._document.account.at(place), {}).add(top)
        return True

    def _add_description(self, element: Any) -> bool:
        """Add a property of the document that a field shows, or what a drawing is called."""
        in_drawing = local(element.getparent()) not in ("p", "h", "span", "a")
        if in_drawing and local(element) in ("title", "desc"):
            self._document.account.put("alternative texts", texts(element))
            return True
        name = attribute(element, "name")
        self._document.account.put("document properties", self._document.property(local(element), name))
        return False

    def _add_forms(self, element: Any) -> bool:
        for one in element.iter("*"):
            shown = local(one) != "property" or attribute(one, "property-name") in _FORM_PROPERTIES
            for name in _FORM_ATTRIBUTES if shown else ():
                self._document.account.put("form fields", attribute(one, name))
            self._document.account.put("form fields", one.text)
        return True

    def _add_choices(self, element: Any) -> bool:
        for one in children(element, "label"):
            self._document.account.put("choices of lists", attribute(one, "value"))
        return False

    def _add_user_field(self, element: Any) -> bool:
        if attribute(element, "display") != "none":
            self._document.account.put("fields", self._document.values.get(attribute(element, "name")))
        return False

    def _hide_text(self, element: Any) -> bool:
        hidden = attribute(element, "is-hidden") == "true"
        put(self._builder, self._document.account, texts(element), self._around._replace(hidden=hidden))
        return True

    def _begin_covered(self, _: Any) -> bool:
        self._hide()  # another cell covers it
        return False

    def _add_space(self, element: Any) -> bool:
        count = attribute(element, "c") or "1"
        self._builder.add(" " * min(int(count), 1000) if count.isdecimal() else " ", exact=True)
        return False

    def _add_tab(self, _: Any) -> bool:
        self._builder.add(" ", exact=True)
        return False

    def _end_line(self, _: Any) -> bool:
        self._builder.end_line()
        return False

    def _count_deletions(self, _: Any) -> bool:
        self._document.account.add("tracked deletions")
        return True

    def _count_section(self, element: Any) -> bool:
        if not texts(element.getparent()):
            self._document.account.add("linked sections", weight=Account.UNKNOWN)
        return False

    def _count_script(self, _: Any) -> bool:
        self._document.account.add("scripts")
        return True

    def _pass_over(self, _: Any) -> bool:
        return True


_Story.handlers = {
    **dict.fromkeys(("p", "h"), _Story._begin_paragraph),
    "span": _Story._begin_span,
    "section": _Story._begin_section,
    "table": _Story._begin_table,
    "table-row": _Story._begin_row,
    "table-cell": _Story._begin_cell,
    "covered-table-cell": _Story._begin_covered,
    "list": _Story._begin_list,
    "frame": _Story._begin_drawing,
    **dict.fromkeys(_SHAPES, _Story._begin_shape),
    "text-box": _Story._add_text_box,
    "note": _Story._add_note,
    "annotation": _Story._add_comment,
    "ruby-text": _Story._add_ruby,
    **dict.fromkeys((*_PROPERTIES, "desc"), _Story._add_description),
    "forms": _Story._add_forms,
    "drop-down": _Story._add_choices,
    "user-field-get": _Story._add_user_field,
    "hidden-text": _Story._hide_text,
    "s": _Story._add_space,
    "tab": _Story._add_tab,
    "line-break": _Story._end_line,
    "tracked-changes": _Story._count_deletions,
    "section-source": _Story._count_section,
    "script": _Story._count_script,
    **dict.fromkeys(("note-citation", "annotation-end", "sequence-decls", "binary-data"), _Story._pass_over),
}


def _colour_of(graphic: Properties) -> str:
    """The colour of a drawing, or one that no text has if it is not known."""
    if graphic.get("fill") == "solid":
        return graphic.get("fill-color", "unknown")
    if graphic.get("fill", "none") == "none":
        return graphic.get("behind", "transparent")
    return "unknown"


def _size(frame: Any) -> tuple[float | None, float | None]:
    return points(attribute(frame, "width")), points(attribute(frame, "height"))
