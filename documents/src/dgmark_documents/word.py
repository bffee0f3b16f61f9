"""Word documents to text with lxml: the body, then what stands apart from it, each once.

What Word hides is read behind the body, and what cannot be seen for its look is read and counted.
"""

import posixpath
import re
from typing import Any

from dgmark_documents.charsets import decode, decode_page
from dgmark_documents.elements import attribute, local, number, points, value
from dgmark_documents.fields import button_of, shows_property
from dgmark_documents.html_text import add_html, page_pieces
from dgmark_documents.look import has_signs, is_off_page, put
from dgmark_documents.reading import Reading
from dgmark_documents.story import DRAWN, DrawnStory, Package, said_in
from dgmark_documents.text_builder import TextBuilder
from dgmark_documents.word_styles import (
    OFF,
    Surroundings,
    WordStyles,
    background_of,
    paragraph_properties,
    run_properties,
    shading,
)
from dgmark_documents.zip_archive import ZipArchive

_SIGNS = {"tab": " ", "ptab": " ", "noBreakHyphen": "-"}  # as a text that is typed anew has them
_CODE = re.compile("[0-9A-Fa-f]{4}")
_PAGES = (".html", ".htm", ".xhtml")
# the parts that are read behind the body
_BESIDE = {
    "header": "headers", "footer": "footers", "footnotes": "footnotes", "endnotes": "endnotes", "comments": "comments",
}  # fmt: skip
_PROPERTIES = ("core-properties", "extended-properties", "custom-properties")
_NUMBER = re.compile(r"%\d")  # in the text of a list's level
# the attributes that are shown, by their places
_SAID = {
    "form fields": "default@val helpText@val statusText@val",
    "alternative texts": "tblCaption@val tblDescription@val shape@alt rect@alt roundrect@alt oval@alt group@alt",
    "labels of fields": "alias@val",
    "choices of lists": "listEntry@val listItem@displayText",
    "drawn texts": "textpath@string",
}
_SHAPES = ("shape", "rect", "roundrect", "oval", "line", "group")


def read_docx(archive: ZipArchive) -> Reading:
    """Read a Word document; headers, footers, notes, comments, text boxes and the like stand after the body.

    Tracked insertions are read, tracked deletions are not.
    """
    archive.check_xml()
    document = _Word(archive)
    body, main = TextBuilder(), document.parts.main
    _Story(document, main, body, Surroundings()).walk(document.parts.tree(main))
    document.read_apart()
    for part in document.parts.shown():
        if part.endswith(_PAGES):
            document.account.held += page_pieces(decode_page(archive.read(part))[0], part)
        else:
            document.hold(part)
    return document.account.reading(body.text)


class _Word(Package):
    """A document while it is read.

    Attributes:
        styles: its styles.
        shows_properties: whether a field or a control shows a property of the document.
    """

    # codes, deletions, and numbers and names of the layout
    passed = frozenset((
        "instrText", "delText", "delInstrText", "align", "posOffset", "formatCode", "f", "LinkType", "LockedField",
        "Anchor", "pctWidth", "pctHeight", "pctPosHOffset", "pctPosVOffset",
    ))  # fmt: skip

    def __init__(self, archive: ZipArchive) -> None:
        super().__init__(archive)
        self.styles = WordStyles(self.parts.tree(self.parts.named("styles")))
        self.shows_properties = False

    def read(self, part: str, top: Any, place: str, around: Surroundings | None = None) -> None:
        """Read a tree of this part apart from the body."""
        _Story(self, part, self.account.at(place), around or Surroundings()).walk(top)

    def read_apart(self) -> None:
        """Read what the body refers to: headers, footers, notes, comments, texts of list numbers, properties."""
        links = [*self.parts.links(self.parts.main).values()]
        for kind, place in _BESIDE.items():
            for part in dict.fromkeys(link.part for link in links if link.kind == kind):
                self.read(part, self.parts.tree(part), place)
        levels = self.parts.tree(self.parts.named("numbering")).iter("{*}lvlText")
        labels = (_NUMBER.sub("", attribute(one, "val") or "").strip() for one in levels)
        self.account.put("numbers of lists", " ".join(dict.fromkeys(one for one in labels if len(one) > 1)))
        if self.shows_properties:
            named = [self.parts.named(kind, "") for kind in _PROPERTIES]
            stores = [link.part for link in links if link.kind == "customXml"]
            for text in (text for part in (*named, *stores) for text in self.parts.tree(part).itertext()):
                self.account.put("document properties", text)


class _Story(DrawnStory):
    """Adds a tree of one part to a builder."""

    said = said_in(DRAWN, _SAID)

    def __init__(self, word: _Word, part: str, builder: TextBuilder, around: Surroundings) -> None:
        super().__init__(word, part)
        self._word = word
        self._builder = builder
        self.state = around
        self._begin_run(None)
        self._code = ""  # of the field that is open

    def _set(self, **changes: Any) -> None:
        """Change what is said of the look of what follows, up to the end of the element."""
        self.state = self.state._replace(look=self.state.look._replace(**changes))

    def end(self, element: Any) -> None:
        """End a paragraph."""
        if local(element) == "p":
            self._builder.block()

    # Each of the following takes an element that begins, and says whether its contents are passed over.

    def _begin_paragraph(self, element: Any) -> None:
        self._builder.block()
        own = paragraph_properties(element.find("{*}pPr"))
        stated = {**self._word.styles.paragraph(own.get("style")), **own, "style": own.get("style")}
        paragraph, size = stated.pop("style"), stated.pop("size", None)
        self.state = self.state._replace(paragraph=paragraph, look=self.state.look.within([size], **stated))
        self._begin_run(None)

    def _begin_run(self, element: Any) -> None:
        own = run_properties(None if element is None else element.find("{*}rPr"))
        self.state = self.state._replace(run=self._word.styles.look(own, self.state))

    def _begin_table(self, element: Any) -> None:
        style = value(element, "{*}tblPr/{*}tblStyle")
        places = [attribute(one, "w") for one in element.iterfind("{*}tblPr/{*}tblInd")]
        off = is_off_page((number(one) or 0.0) / 20 for one in places)
        self.state = self.state._replace(table=style)
        if off:
            self._set(off_page=True)
        if self._word.styles.shades(style):
            self._set(background=None)  # which of its colours is not known

    def _begin_row(self, element: Any) -> bool:
        for one in element.iterfind("{*}trPr/{*}hidden"):
            self._set(hidden=attribute(one, "val") not in OFF)
        for one in element.iterfind("{*}trPr/{*}trHeight"):
            if attribute(one, "hRule") == "exact":
                self._set(size=(number(attribute(one, "val")) or 0.0) / 20)
        return element.find("{*}trPr/{*}del") is not None and self._count_deletion(element)

    def _begin_cell(self, element: Any) -> bool:
        fill = shading(element.find("{*}tcPr/{*}shd"))
        if fill:
            self._set(background=fill)
        return element.find("{*}tcPr/{*}cellDel") is not None and self._count_deletion(element)

    def _add_text(self, element: Any) -> None:
        put(self._builder, self.account, element.text, self.state.run, exact=True)

    def _add_sign(self, element: Any) -> None:
        self._builder.add(_SIGNS[local(element)], exact=True)

    def _add_break(self, element: Any) -> None:
        if attribute(element, "type") in (None, "textWrapping"):
            self._builder.end_line()

    def _add_symbol(self, element: Any) -> None:
        """Add a character that stands with its font."""
        code = attribute(element, "char") or ""
        if has_signs(attribute(element, "font") or ""):
            self.account.add("signs")
        elif _CODE.fullmatch(code):
            put(self._builder, self.account, chr(int(code, 16)), self.state.run, exact=True)

    def _count_deletion(self, _: Any) -> bool:
        self.account.add("tracked deletions")
        return True

    def _begin_drawing(self, element: Any) -> None:
        """Count the pictures of a drawing, and see whether it is shown."""
        extent = next(element.iter("{*}extent"), None)
        for one in element.iter("{*}pic", "{*}custGeom"):
            sizes = [_size(side) for side in (extent, next(one.iter("{*}ext"), None)) if side is not None]
            self.account.add_picture(*max(sizes, default=(None, None)))
        if any(attribute(one, "hidden") in ("1", "true") for one in element.iter("{*}docPr")):
            self._set(hidden=True)
        if is_off_page(points(one.text) for one in element.iter("{*}posOffset")):
            self._set(off_page=True)

    def _begin_shape(self, element: Any) -> None:
        """See whether a shape of older versions (VML) is shown."""
        style = _shape_style(element)
        if style.get("visibility") == "hidden" or style.get("display") == "none":
            self._set(hidden=True)

    def _count_image(self, element: Any) -> None:
        style = _shape_style(element.getparent())
        self.account.add_picture(points(style.get("width")), points(style.get("height")))

    def _count_pattern(self, element: Any) -> None:
        if attribute(element, "id"):
            self.account.add_picture(None, None)

    def _add_text_box(self, element: Any) -> bool:
        shape = next((one for one in element.iterancestors() if local(one) not in ("textbox", "txbx")), None)
        around = Surroundings(look=self.state.look._replace(background=background_of(shape), size=None))
        self._word.read(self.part, element, "text boxes", around)
        return True

    def _add_ruby(self, element: Any) -> bool:
        self._word.read(self.part, element, "readings beside words", self.state)
        return True

    def _add_chunk(self, element: Any) -> None:
        """Add the part that stands for a place of the text: a document of another kind."""
        part = self.linked(element)
        archive = self._word.parts.archive
        ending = posixpath.splitext(part)[1].lower() if part in archive.names else ""
        self._builder.block()
        if ending in _PAGES:
            add_html(self._builder, decode_page(archive.read(part))[0], self.account)
        elif ending == ".txt":
            self._builder.add(decode(archive.read(part))[0], exact=True)
        else:
            self.count_object(element)
        self._builder.block()

    def _take_field_sign(self, element: Any) -> None:
        if attribute(element, "fldCharType") != "begin":
            self._show_field(self._code)
        self._code = ""

    def _take_code(self, element: Any) -> None:
        self._code += element.text or ""

    def _take_simple_field(self, element: Any) -> None:
        self._show_field(attribute(element, "instr") or "")

    def _show_field(self, code: str) -> None:
        """Read what a field shows that stands elsewhere; its result is read where it stands."""
        self.account.put("buttons", button_of(code))
        self._word.shows_properties |= shows_property(code)

    def _show_property(self, _: Any) -> None:
        self._word.shows_properties = True


_Story.handlers = {
    **DrawnStory.handlers,
    "p": _Story._begin_paragraph,
    "r": _Story._begin_run,
    "tbl": _Story._begin_table,
    "tr": _Story._begin_row,
    "tc": _Story._begin_cell,
    "t": _Story._add_text,
    **dict.fromkeys(_SIGNS, _Story._add_sign),
    **dict.fromkeys(("br", "cr"), _Story._add_break),
    "sym": _Story._add_symbol,
    **dict.fromkeys(("del", "moveFrom"), _Story._count_deletion),
    "drawing": _Story._begin_drawing,
    **dict.fromkeys(_SHAPES, _Story._begin_shape),
    "txbxContent": _Story._add_text_box,
    "rt": _Story._add_ruby,
    "imagedata": _Story._count_image,
    "fill": _Story._count_pattern,
    "altChunk": _Story._add_chunk,
    "fldChar": _Story._take_field_sign,
    "instrText": _Story._take_code,
    "fldSimple": _Story._take_simple_field,
    "dataBinding": _Story._show_property,
    **dict.fromkeys(("pPr", "rPr", "trPr", "tcPr", "delText"), _Story.pass_over),
}


def _size(extent: Any) -> tuple[float, float]:
    width, height = (points(attribute(extent, side)) or 0.0 for side in ("cx", "cy"))
    return width, height


def _shape_style(shape: Any) -> dict[str, str]:
    parts = (part.split(":", 1) for part in (shape.get("style") or "").split(";") if ":" in part)
    return {name.strip().lower(): one.strip().lower() for name, one in parts}
