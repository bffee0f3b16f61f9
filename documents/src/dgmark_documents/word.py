"""Word documents to text with lxml: the body, then what stands apart from it, each once.

What Word hides is read behind the body, and what cannot be seen for its look is read and counted.
"""

import posixpath
import re
from typing import Any

from dgmark_documents.account import Account
from dgmark_documents.charsets import decode, decode_page
from dgmark_documents.drawings import add_chart, add_described, add_tip
from dgmark_documents.elements import attribute, child, children, local, number, points, texts, value
from dgmark_documents.html_text import add_html, page_pieces
from dgmark_documents.look import Look, has_signs, is_off_page, put
from dgmark_documents.office_parts import Link, OfficeParts, not_chosen
from dgmark_documents.reading import Reading
from dgmark_documents.story import Story
from dgmark_documents.text_builder import TextBuilder
from dgmark_documents.word_fields import Fields
from dgmark_documents.word_styles import (
    Numbering,
    Surroundings,
    WordStyles,
    paragraph_look,
    paragraph_properties,
    run_properties,
    shading,
)
from dgmark_documents.xml_pieces import xml_pieces
from dgmark_documents.zip_archive import ZipArchive, is_markup

_SIGNS = {"tab": " ", "ptab": " ", "noBreakHyphen": "-"}  # as a text that is typed anew has them
# where fonts of letters may have theirs, as fonts of signs do
_PRIVATE = {code: code - 0xF000 for code in range(0xF020, 0xF100)}
_CODE = re.compile("[0-9A-Fa-f]{4}")
_COLOUR = re.compile("#?([0-9A-Fa-f]{6})")
_PAGES = (".html", ".htm", ".xhtml")
# elements whose own text Word does not show: codes, deletions, and numbers and names of the layout
_PASSED = frozenset((
    "instrText", "delText", "delInstrText", "align", "posOffset", "formatCode", "f", "LinkType", "LockedField",
    "Anchor", "pctWidth", "pctHeight", "pctPosHOffset", "pctPosVOffset",
))  # fmt: skip
_FIELDS = 50  # fields in fields
_OFF = ("0", "false", "off")


def read_docx(archive: ZipArchive) -> Reading:
    """Read a Word document; headers, footers, notes, comments, text boxes and the like stand after the body.

    Tracked insertions are read, tracked deletions are not.

    Raises:
        Refusal: the document is damaged, or most of it is not read.
    """
    archive.check_xml()
    document = _Word(OfficeParts(archive))
    body = TextBuilder()
    document.read(document.parts.main, document.parts.tree(document.parts.main), body)
    document.read_apart()
    document.count_held(archive)
    return document.account.reading(body.text)


class _Word:
    """A document while it is read.

    Attributes:
        parts: its parts.
        account: what it holds beside the body.
        styles: its styles.
        fields: what its fields show.
        dropped: the elements that Word does not show beside others that stand for them.
        referred: the ids of the notes and comments that the text refers to, by their kind.
    """

    def __init__(self, parts: OfficeParts) -> None:
        self.parts = parts
        self.account = Account()
        self.styles = WordStyles(parts.tree(parts.named("styles")))
        self.fields = Fields(parts)
        self.dropped: set[Any] = set()
        self.referred: dict[str, set[str]] = {"footnote": set(), "endnote": set(), "comment": set()}
        self._numbering = Numbering(parts.tree(parts.named("numbering")))
        self._numbers: dict[str, None] = {}
        self._ends: dict[str, str] = {}  # the headers and footers that pages show: their parts, and what they are
        self._alternate_pages = child(parts.tree(parts.named("settings")), "evenAndOddHeaders") is not None

    def read(self, part: str, top: Any, builder: TextBuilder, around: Surroundings | None = None) -> None:
        """Add the text of a tree of this part to a builder."""
        _Story(self, part, builder, around or Surroundings()).add(top)

    def number(self, properties: dict[str, str]) -> None:
        """Keep the text of a paragraph's number, such as "Article"."""
        text = self._numbering.text(properties.get("numId", ""), properties.get("ilvl", "0"))
        if text:
            self._numbers[text] = None

    def show_ends(self, section: Any) -> None:
        """Keep which headers and footers the pages of a section show."""
        first = child(section, "titlePg")
        shown = {
            "default": True,
            "first": first is not None and attribute(first, "val") not in _OFF,
            "even": self._alternate_pages,
        }
        links = self.parts.links(self.parts.main)
        for reference in children(section, "headerReference", "footerReference"):
            link = links.get(attribute(reference, "id") or "")
            if link and shown.get(attribute(reference, "type") or "default"):
                self._ends[link.part] = "headers" if local(reference) == "headerReference" else "footers"

    def read_apart(self) -> None:
        """Read what the body refers to: headers, footers, notes, comments, texts of list numbers."""
        for part, place in self._ends.items():
            tree = self.parts.tree(part)
            if tree is not None:
                self.read(part, tree, self.account.at(place, part))
        for kind, ids in self.referred.items():
            part = self.parts.named(f"{kind}s") or ""
            for note in children(self.parts.tree(part), kind):
                if attribute(note, "id") in ids:
                    self.read(part, note, self.account.at(f"{kind}s"))
        self.account.put("numbers of lists", " ".join(self._numbers))

    def count_held(self, archive: ZipArchive) -> None:
        """Tell the account all that the document holds."""
        for part in self.parts.shown():
            content = archive.read(part)
            if part.endswith(_PAGES):
                self.account.held += page_pieces(decode_page(content)[0], part)
            elif is_markup(content):
                tree = self.parts.tree(part)
                self.account.held += xml_pieces(tree, part, passed=_PASSED, dropped=self.dropped)


class _Code:
    """The code of a field that is open, and whether its result has begun and holds a text."""

    def __init__(self, text: str = "") -> None:
        self.text = text
        self.in_result = self.has_result = False


class _Story(Story):
    """Adds a tree of one part to a builder."""

    def __init__(self, word: _Word, part: str, builder: TextBuilder, around: Surroundings) -> None:
        self._word = word
        self._links = word.parts.links(part)
        self._part = part
        self._builder = builder
        self._around = around
        self._look = word.styles.look({}, around)
        self._codes: list[_Code] = []
        self._runs_on = False  # whether the mark of the last paragraph is hidden, so that the next one goes on
        self._marks: list[bool] = []  # of the open paragraphs, whether the mark is hidden

    @property
    def state(self) -> tuple[Surroundings, Look]:
        """What holds at this place."""
        return self._around, self._look

    @state.setter
    def state(self, state: tuple[Surroundings, Look]) -> None:
        self._around, self._look = state

    def add(self, top: Any) -> None:
        """Add the text of a tree."""
        self._word.dropped.update(_codes_in(top))
        super().add(top)

    def end(self, name: str) -> None:
        """End a paragraph."""
        if name == "p":
            self._runs_on = self._marks.pop()
            if not self._runs_on:
                self._builder.block()

    # Each of the following takes an element that begins, and says whether its contents are passed over.

    def _hide(self) -> None:
        self._around = self._around.having(hidden=True)

    def _begin_paragraph(self, element: Any) -> bool:
        if not self._runs_on:
            self._builder.block()
        about = child(element, "pPr")
        own = paragraph_properties(about)
        style = own.get("pStyle")
        properties = {**self._word.styles.properties(style, "paragraph"), **own}
        self._around = self._around._replace(paragraph=style, look=paragraph_look(properties, self._around.look))
        self._look = self._word.styles.look({}, self._around)
        mark = self._word.styles.look(run_properties(child(about, "rPr")), self._around)
        self._marks.append(mark.hidden)
        if not mark.hidden:
            self._word.number(properties)
        for section in children(about, "sectPr"):
            self._word.show_ends(section)
        return False

    def _begin_run(self, element: Any) -> bool:
        properties: dict[str, str] = {}
        for one in children(element, "rPr"):
            properties |= run_properties(one)
        self._look = self._word.styles.look(properties, self._around)
        return False

    def _begin_table(self, element: Any) -> bool:
        about = child(element, "tblPr")
        style = value(about, "tblStyle")
        known = not self._word.styles.shades(style)
        background = self._around.look.background if known else None
        places = [attribute(one, "w") for one in children(about, "tblInd")]
        places += [attribute(one, side) for one in children(about, "tblpPr") for side in ("tblpX", "tblpY")]
        off = self._around.look.off_page or is_off_page((number(one) or 0.0) / 20 for one in places)
        self._around = self._around._replace(table=style).having(background=background, off_page=off)
        for name in ("tblCaption", "tblDescription"):
            self._word.account.put("alternative texts", value(about, name))
        return False

    def _begin_row(self, element: Any) -> bool:
        about = child(element, "trPr")
        if child(about, "del") is not None:
            return self._count_deletion(element)
        hidden = child(about, "hidden")
        if hidden is not None and attribute(hidden, "val") not in _OFF:
            self._hide()
        for height in children(about, "trHeight"):
            if attribute(height, "hRule") == "exact":
                self._around = self._around.having(size=(number(attribute(height, "val")) or 0.0) / 20)
        return False

    def _begin_cell(self, element: Any) -> bool:
        about = child(element, "tcPr")
        if child(about, "cellDel") is not None:
            return self._count_deletion(element)
        if any(attribute(one, "val") in (None, "continue") for one in children(about, "vMerge", "hMerge")):
            self._hide()  # another cell covers it
        fill = shading(about)
        if fill:
            self._around = self._around.having(background=fill)
        return False

    def _add_text(self, element: Any) -> bool:
        text = element.text or ""
        if element in self._word.dropped:
            return True
        self._put(text if has_signs(self._look.font) else text.translate(_PRIVATE))
        return False

    def _put(self, text: str) -> None:
        """Add a text of the look that holds here."""
        put(self._builder, self._word.account, text, self._look, exact=True)
        for code in self._codes:
            code.has_result = code.has_result or (code.in_result and bool(text.strip()))

    def _add_sign(self, element: Any) -> bool:
        self._builder.add(_SIGNS[local(element)], exact=True)
        return False

    def _add_break(self, element: Any) -> bool:
        if attribute(element, "type") in (None, "textWrapping"):
            self._builder.end_line()
        return False

    def _add_symbol(self, element: Any) -> bool:
        """Add a character that stands with its font: fonts of letters have theirs among the private ones, too."""
        code, font = attribute(element, "char") or "", attribute(element, "font") or ""
        if not _CODE.fullmatch(code):
            return False
        if not has_signs(font):
            self._put(chr(int(code, 16)).translate(_PRIVATE))
        elif self._word.parts.embeds(font):
            self._word.account.add_unknown("signs of fonts in the document")
        return False

    def _choose(self, element: Any) -> bool:
        """Drop what Word does not show of a place with markup for newer and for older programs."""
        self._word.dropped.update(not_chosen(element))
        return False

    def _pass_alternative(self, element: Any) -> bool:
        return element in self._word.dropped

    def _count_deletion(self, _: Any) -> bool:
        self._word.account.add("tracked deletions")
        return True

    def _count_object(self, _: Any) -> bool:
        self._word.account.add("embedded objects", weight=Account.UNKNOWN)
        return True

    def _begin_drawing(self, element: Any) -> bool:
        """Count the pictures of a drawing, and see whether it is shown."""
        if any(attribute(one, "hidden") in ("1", "true") for one in element.iter("{*}docPr")):
            self._hide()
        extent = next(element.iter("{*}extent"), element)
        size = [points(attribute(extent, side)) or 0.0 for side in ("cx", "cy")]
        pictures = [*element.iter("{*}pic")]
        for one in (*pictures, *element.iter("{*}custGeom")):
            own = next(one.iter("{*}ext"), extent) if len(pictures) == 1 else extent
            sides = [points(attribute(own, side)) or 0.0 for side in ("cx", "cy")]
            width, height = max(size, sides, key=lambda one: one[0] * one[1])
            self._word.account.add_picture(width / max(len(pictures), 1), height)
        if is_off_page(points(one.text) for one in element.iter("{*}posOffset")):
            self._around = self._around.having(off_page=True)
        return False

    def _begin_shape(self, element: Any) -> bool:
        """See whether a shape of older versions (VML) is shown."""
        style = _shape_style(element)
        if style.get("visibility") == "hidden" or style.get("display") == "none":
            self._hide()
        self._word.account.put("alternative texts", element.get("alt"))
        if is_off_page(points(style.get(side)) for side in ("margin-left", "margin-top", "left", "top")):
            self._around = self._around.having(off_page=True)
        return False

    def _add_text_box(self, element: Any) -> bool:
        shape = _shape_around(element)
        around = Surroundings(look=self._around.look._replace(background=_background_of(shape), size=None))
        self._word.read(self._part, element, self._word.account.at("text boxes"), around)
        return True

    def _add_ruby(self, element: Any) -> bool:
        self._word.read(self._part, element, self._word.account.at("readings beside words"), self._around)
        return True

    def _count_image(self, element: Any) -> bool:
        style = _shape_style(element.getparent())
        self._word.account.add_picture(points(style.get("width")), points(style.get("height")))
        return False

    def _count_fill(self, element: Any) -> bool:
        """Count pictures behind shapes and pages, and ink."""
        name = local(element)
        behind = attribute(element, "id") if name == "fill" else local(element.getparent()) != "pic"
        if behind:
            self._word.account.add_picture(None, None)
        return False

    def _add_described(self, element: Any) -> bool:
        add_described(self._word.account, element)
        return False

    def _add_tip(self, element: Any) -> bool:
        add_tip(self._word.account, element)
        return False

    def _add_word_art(self, element: Any) -> bool:
        self._word.account.put("drawn texts", attribute(element, "string"))
        return False

    def _add_chunk(self, element: Any) -> bool:
        """Add the part that stands for a place of the text: a document of another kind."""
        link = self._links.get(attribute(element, "id") or "", Link("", ""))
        content = self._word.parts.content(link.part)
        ending = posixpath.splitext(link.part)[1].lower()
        self._builder.block()
        if content is not None and ending in _PAGES:
            add_html(self._builder, decode_page(content)[0], self._word.account)
        elif content is not None and ending == ".txt":
            self._builder.add(decode(content)[0], exact=True)
        else:
            self._count_object(element)
        self._builder.block()
        return False

    def _add_diagram(self, element: Any) -> bool:
        link = self._links.get(attribute(element, "dm") or "", Link("", ""))
        tree = self._word.parts.tree(link.part)
        if tree is None:
            return self._count_object(element)
        self._word.read(link.part, tree, self._word.account.at("diagrams"))
        return False

    def _add_chart(self, element: Any) -> bool:
        if add_chart(self._word.account, self._word.parts, self._links.get(attribute(element, "id") or "")):
            return False
        return self._count_object(element)

    def _take_field_sign(self, element: Any) -> bool:
        kind = attribute(element, "fldCharType")
        if kind == "begin" and len(self._codes) < _FIELDS:
            self._codes.append(_Code())
        elif kind == "separate" and self._codes:
            self._codes[-1].in_result = True
        elif kind == "end" and self._codes:
            self._show_field(self._codes.pop())
        for data in children(element, "ffData"):
            self._add_form_field(data)
        return True

    def _take_code(self, element: Any) -> bool:
        if self._codes and not self._codes[-1].in_result:
            self._codes[-1].text += element.text or ""
        else:
            self._show_field(_Code(element.text or ""))
        return True

    def _take_simple_field(self, element: Any) -> bool:
        code = _Code(attribute(element, "instr") or "")
        code.has_result = bool(texts(element))
        self._show_field(code)
        return False

    def _show_field(self, code: _Code) -> None:
        shown = self._word.fields.shown(code.text, has_result=code.has_result)
        if shown:
            self._word.account.put(*shown)

    def _add_form_field(self, element: Any) -> None:
        for one in element.iter("{*}listEntry"):
            self._word.account.put("choices of lists", attribute(one, "val"))
        for one in element.iter("{*}default", "{*}helpText", "{*}statusText"):
            self._word.account.put("form fields", attribute(one, "val"))

    def _add_control(self, element: Any) -> bool:
        """Add what the properties of a content control show."""
        self._word.account.put("labels of fields", value(element, "alias"))
        for item in element.iter("{*}listItem"):
            self._word.account.put("choices of lists", attribute(item, "displayText") or attribute(item, "value"))
        for binding in children(element, "dataBinding"):
            self._word.account.put("bound values", self._word.fields.bound(binding))
        return True

    def _refer(self, element: Any) -> bool:
        self._word.referred[local(element).removesuffix("Reference")].add(attribute(element, "id") or "")
        return False

    def _end_section(self, element: Any) -> bool:
        self._word.show_ends(element)
        return True

    def _pass_over(self, _: Any) -> bool:
        return True


_Story.handlers = {
    "p": _Story._begin_paragraph,
    "r": _Story._begin_run,
    "tbl": _Story._begin_table,
    "tr": _Story._begin_row,
    "tc": _Story._begin_cell,
    "t": _Story._add_text,
    **dict.fromkeys(_SIGNS, _Story._add_sign),
    **dict.fromkeys(("br", "cr"), _Story._add_break),
    "sym": _Story._add_symbol,
    "AlternateContent": _Story._choose,
    **dict.fromkeys(("Choice", "Fallback"), _Story._pass_alternative),
    **dict.fromkeys(("del", "moveFrom"), _Story._count_deletion),
    **dict.fromkeys(("object", "subDoc"), _Story._count_object),
    "drawing": _Story._begin_drawing,
    **dict.fromkeys(("shape", "rect", "roundrect", "oval", "line", "group"), _Story._begin_shape),
    "txbxContent": _Story._add_text_box,
    "rt": _Story._add_ruby,
    "imagedata": _Story._count_image,
    **dict.fromkeys(("fill", "blipFill", "contentPart"), _Story._count_fill),
    **dict.fromkeys(("docPr", "cNvPr"), _Story._add_described),
    **dict.fromkeys(("hyperlink", "hlinkClick"), _Story._add_tip),
    "textpath": _Story._add_word_art,
    "altChunk": _Story._add_chunk,
    "relIds": _Story._add_diagram,
    "chart": _Story._add_chart,
    "fldChar": _Story._take_field_sign,
    "instrText": _Story._take_code,
    "fldSimple": _Story._take_simple_field,
    "sdtPr": _Story._add_control,
    **dict.fromkeys(("footnoteReference", "endnoteReference", "commentReference"), _Story._refer),
    "sectPr": _Story._end_section,
    **dict.fromkeys(("pPr", "rPr", "tblPr", "trPr", "tcPr", "delText"), _Story._pass_over),
}


def _codes_in(top: Any) -> list[Any]:
    """The texts in the codes of fields that end, which are not shown."""
    found: list[Any] = []
    open_fields: list[list[Any] | None] = []  # the texts in their codes; None once the result has begun
    for one in top.iter("{*}fldChar", "{*}t"):
        kind = attribute(one, "fldCharType")
        if local(one) == "t":
            held = next((codes for codes in open_fields if codes is not None), None)
            if held is not None:
                held.append(one)
        elif kind == "begin" and len(open_fields) < _FIELDS:
            open_fields.append([])
        elif kind == "separate" and open_fields:
            found += open_fields[-1] or ()
            open_fields[-1] = None
        elif kind == "end" and open_fields:
            found += open_fields.pop() or ()
    return found


def _shape_style(shape: Any) -> dict[str, str]:
    parts = (part.split(":", 1) for part in (shape.get("style") or "").split(";") if ":" in part)
    return {name.strip().lower(): one.strip().lower() for name, one in parts}


def _shape_around(element: Any) -> Any:
    """The shape that a text box stands in, or None."""
    above = (one for one in element.iterancestors() if local(one) not in ("textbox", "txbx"))
    return next(above, None)


def _background_of(shape: Any) -> str | None:
    """The colour of a shape; None if it is not known."""
    if shape is None:
        return "FFFFFF"
    about, colour = child(shape, "spPr"), shape.get("fillcolor")
    if colour and shape.get("filled") not in ("f", "false"):
        found = _COLOUR.match(colour)
        return found[1] if found else None
    if child(about, "noFill") is not None:
        return "FFFFFF"
    solid = child(child(about, "solidFill"), "srgbClr")
    if solid is not None:
        return attribute(solid, "val")
    fills = any(children(about, "solidFill", "gradFill", "blipFill", "pattFill", "grpFill"))
    fill = child(child(shape, "style"), "fillRef")
    return None if fills or (fill is not None and attribute(fill, "idx") != "0") else "FFFFFF"
