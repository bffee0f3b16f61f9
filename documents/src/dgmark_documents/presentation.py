"""PowerPoint presentations to text with lxml: the slides in their order, then what stands apart from them, each once.

What the format hides is read behind the slides, and what cannot be seen for its look is read and counted.
"""

from typing import Any, NamedTuple

from dgmark_documents.account import Account
from dgmark_documents.drawings import add_chart, add_described, add_tip
from dgmark_documents.elements import attribute, child, children, local, number
from dgmark_documents.look import Look, put
from dgmark_documents.office_parts import Link, OfficeParts, not_chosen
from dgmark_documents.reading import Limits, Reading, Refusal
from dgmark_documents.slide_styles import (
    UNITS,
    Properties,
    Sheet,
    box_of,
    is_filled,
    level_looks,
    line_height,
    look_of,
    placeholder,
    run_looks,
    share,
    sheet_of,
)
from dgmark_documents.story import Story
from dgmark_documents.text_builder import TextBuilder
from dgmark_documents.xml_pieces import xml_pieces
from dgmark_documents.zip_archive import ZipArchive, is_markup

# elements whose own text is not shown: codes, names
_PASSED = frozenset(("formatCode", "f", "attrName", "tableStyleId"))
_ENDS = {"hdr": "headers", "ftr": "footers", "dt": "footers", "sldNum": "footers"}  # placeholders of each slide
_USUAL = (9_144_000.0, 6_858_000.0)  # width and height of a slide that states none
_TEMPLATES = ("slideLayout", "slideMaster", "notesMaster", "handoutMaster")


def read_pptx(archive: ZipArchive, limits: Limits) -> Reading:
    """Read a presentation; notes, comments, hidden slides and the like stand after the slides.

    Raises:
        Refusal: the presentation is damaged, has too many slides, or most of it is not read.
    """
    archive.check_xml()
    deck = _Presentation(OfficeParts(archive))
    if len(deck.slides) > limits.pages:
        raise Refusal(f"has {len(deck.slides)} slides; the limit is {limits.pages}")
    body = TextBuilder()
    for part in deck.slides:
        deck.read_slide(part, body)
    deck.read_templates()
    deck.count_held(archive)
    return deck.account.reading(body.text, pages=len(deck.slides))


class _Presentation:
    """A presentation while it is read.

    Attributes:
        parts: its parts.
        account: what it holds beside the slides.
        dropped: the elements that are not shown beside others that stand for them.
        slides: the parts of the slides, in their order.
        defaults: the looks of texts that nothing else decides on.
        page: width and height of a slide in points.
    """

    def __init__(self, parts: OfficeParts) -> None:
        self.parts = parts
        self.account = Account()
        self.dropped: set[Any] = set()
        main = parts.tree(parts.main)
        links = parts.links(parts.main)
        named = (links.get(_relation(one)) for one in children(child(main, "sldIdLst"), "sldId"))
        self.slides = [link.part for link in named if link and parts.tree(link.part) is not None]
        self.defaults = child(main, "defaultTextStyle")
        size = child(main, "sldSz")
        stated = [0.0 if size is None else number(attribute(size, side)) or 0.0 for side in ("cx", "cy")]
        self.page = [(one or usual) / UNITS for one, usual in zip(stated, _USUAL, strict=True)]
        self._templates: dict[str, Sheet] = {}

    def read_slide(self, part: str, body: TextBuilder) -> None:
        """Read a slide, then its notes and comments apart from it."""
        tree, sheet = self.parts.tree(part), sheet_of(self.parts, part)
        shown = attribute(tree, "show") not in ("0", "false")
        self._use(sheet)
        builder = body if shown else self.account.at("hidden slides", part)
        builder.block()
        self.read(part, sheet, tree, builder)
        if not shown:
            self.account.add_not_shown("hidden slides", builder.text)
        for link in self.parts.links(part).values():
            beside = self.parts.tree(link.part) if link.kind in ("notesSlide", "comments") else None
            if beside is not None:
                own = sheet_of(self.parts, link.part)
                self._use(own)
                place = "notes" if link.kind == "notesSlide" else "comments"
                self.read(link.part, own, beside, self.account.at(place))

    def _use(self, sheet: Sheet) -> None:
        """Keep the layout and the master whose shapes this slide or page shows."""
        for part, tree in zip(sheet.parts[1:], sheet.trees, strict=False):
            if attribute(tree, "showMasterSp") in ("0", "false"):
                return
            self._templates.setdefault(part, sheet)

    def read(self, part: str, sheet: Sheet, top: Any, builder: TextBuilder) -> None:
        """Add the text of a tree of this part to a builder."""
        _Story(self, part, sheet, _Here(builder, Look(background=sheet.background()))).add(top)

    def read_templates(self) -> None:
        """Read what layouts and masters show on slides and pages beside their placeholders."""
        handouts = self.parts.named("handoutMaster")
        if handouts:
            self._templates.setdefault(handouts, Sheet())
        for part, sheet in self._templates.items():
            self.read(part, sheet, self.parts.tree(part), self.account.at("masters", part))

    def count_held(self, archive: ZipArchive) -> None:
        """Tell the account all that the presentation holds, without the prompts of placeholders."""
        shown = [*self.parts.shown()]
        kinds = {link.part: link.kind for part in ("", *shown) for link in self.parts.links(part).values()}
        for part in shown:
            if kinds.get(part) in _TEMPLATES and part not in self._templates:
                continue
            if is_markup(archive.read(part)):
                tree = self.parts.tree(part)
                self.account.held += xml_pieces(tree, part, passed=_PASSED, dropped=self.dropped)

    def drop_prompt(self, shape: Any) -> None:
        """Take the text of a placeholder out of a layout or master, which shows it to authors alone."""
        for one in shape.iter("{*}t"):
            one.text = None

    def is_template(self, part: str) -> bool:
        """Whether a part is a layout or a master."""
        return part in self._templates


class _Here(NamedTuple):
    """What holds for the texts of a place.

    Attributes:
        builder: what they are added to.
        around: what their shape and paragraph say of how they are shown.
        scale: the share to which their box shrinks them.
        styles: the lists of styles by level that hold, the most general one first.
        font: the look that the style of their shape gives them.
        in_table: whether the style of a table decides on their colours.
        look: what the paragraph or run says of it.
    """

    builder: TextBuilder
    around: Look
    scale: float = 1.0
    styles: tuple[Any, ...] = ()
    font: Properties = {}  # noqa: RUF012 (never changed)
    in_table: bool = False
    look: Properties = {}  # noqa: RUF012


class _Story(Story):
    """Adds a tree of one part to a builder."""

    def __init__(self, deck: _Presentation, part: str, sheet: Sheet, here: _Here) -> None:
        self._deck = deck
        self._part = part
        self._sheet = sheet
        self.state = here._replace(styles=() if deck.defaults is None else (deck.defaults,))
        self._links = deck.parts.links(part)
        # whether anything is drawn so far, which may stand behind a text: on a slide, also by its layout and master
        behind = () if deck.is_template(part) else sheet.trees[1:]
        self._drawn = any(_draws(one) for tree in behind for one in tree.iter("{*}sp", "{*}pic"))

    def end(self, name: str) -> None:
        """End a paragraph."""
        if name == "p":
            self.state.builder.block()

    def _set(self, **changes: Any) -> None:
        """Change what holds up to the end of the element."""
        self.state = self.state._replace(**changes)

    def _look(self, **changes: Any) -> None:
        """Change how texts look up to the end of the element."""
        self._set(around=self.state.around._replace(**changes))

    # Each of the following takes an element that begins, and says whether its contents are passed over.

    def _begin_drawing(self, element: Any) -> bool:
        """See whether a shape, picture, table or group is shown, and where."""
        about = next((one for one in element if local(one).startswith("nv")), None)
        described = child(about, "cNvPr")
        if described is not None and attribute(described, "hidden") in ("1", "true"):
            self._look(hidden=True)
        if local(element) == "grpSp":
            return False
        box = box_of(element)
        on_slide = self._sheet.trees and local(self._sheet.trees[0]) == "sld" and local(element.getparent()) == "spTree"
        sides = zip(box[:2], box[2:], self._deck.page, strict=True) if on_slide and box else ()
        if any(at > end or at + size < 0 for at, size, end in sides):
            self._look(off_page=True)
        filled = next(filter(is_filled, self._sheet.alike(element)), None)
        if filled is not None:
            self._look(background=self._sheet.colour(child(child(filled, "spPr"), "solidFill")))
        elif self._drawn:
            self._look(background=None)
        self._drawn = self._drawn or _draws(element)
        return False

    def _begin_shape(self, element: Any) -> bool:
        own = placeholder(element)
        if own is not None and self._deck.is_template(self._part):
            self._deck.drop_prompt(element)
            return True
        kind = None if own is None else attribute(own, "type")
        if kind in _ENDS:
            self._set(builder=self._deck.account.at(_ENDS[kind], f"{self._part} {kind}"))
        self._begin_drawing(element)
        about, font = child(child(element, "txBody"), "bodyPr"), child(child(element, "style"), "fontRef")
        self._set(
            styles=self._sheet.looks(element, self._deck.defaults),
            scale=share(None if about is None else _font_scale(about), 1.0),
            font={} if font is None else {"color": self._sheet.colour(font) or ""},
        )
        return False

    def _begin_picture(self, element: Any) -> bool:
        self._begin_drawing(element)
        box = next((one for one in map(box_of, self._sheet.alike(element)) if one), None)
        self._deck.account.add_picture(*(box[2:] if box else (None, None)))
        return False

    def _begin_table(self, _: Any) -> bool:
        self._set(in_table=True)
        return False

    def _begin_cell(self, element: Any) -> bool:
        if "1" in (attribute(element, "hMerge"), attribute(element, "vMerge")):
            self._look(hidden=True)  # another cell covers it
        self._look(background=self._sheet.colour(child(child(element, "tcPr"), "solidFill")))
        return False

    def _begin_paragraph(self, element: Any) -> bool:
        self.state.builder.block()
        about = child(element, "pPr")
        general, own = self.state.styles[:2], self.state.styles[2:]
        look = level_looks(general, about, self._sheet) | self.state.font | level_looks(own, about, self._sheet)
        if self.state.in_table:
            look.pop("color", None)  # the style of the table may say another one
        self._set(look=look)
        self._look(size=line_height(about))
        return False

    def _begin_run(self, element: Any) -> bool:
        self._set(look=self.state.look | run_looks(child(element, "rPr"), self._sheet))
        return False

    def _add_text(self, element: Any) -> bool:
        text = (element.text or "").replace("\t", " ")
        look = look_of(self.state.look, self.state.scale, self.state.around)
        put(self.state.builder, self._deck.account, text, look, exact=True)
        return False

    def _add_comment(self, element: Any) -> bool:
        self.state.builder.block()
        self.state.builder.add(element.text, exact=True)
        return False

    def _end_line(self, _: Any) -> bool:
        self.state.builder.end_line()
        return False

    def _choose(self, element: Any) -> bool:
        self._deck.dropped.update(not_chosen(element))
        return False

    def _pass_alternative(self, element: Any) -> bool:
        return element in self._deck.dropped

    def _count_object(self, _: Any) -> bool:
        self._deck.account.add("embedded objects", weight=Account.UNKNOWN)
        return True

    def _count_fill(self, element: Any) -> bool:
        """Count pictures behind shapes and slides, and ink."""
        if local(element.getparent()) != "pic":
            self._deck.account.add_picture(None, None)
        return False

    def _add_described(self, element: Any) -> bool:
        add_described(self._deck.account, element)
        return False

    def _add_tip(self, element: Any) -> bool:
        add_tip(self._deck.account, element)
        return False

    def _add_diagram(self, element: Any) -> bool:
        link = self._links.get(attribute(element, "dm") or "", Link("", ""))
        tree = self._deck.parts.tree(link.part)
        if tree is None:
            return self._count_object(element)
        around = self.state.around._replace(background=None)  # its shapes have colours of their own
        here = _Here(self._deck.account.at("diagrams"), around)
        _Story(self._deck, link.part, self._sheet._replace(trees=()), here).add(tree)
        return False

    def _add_chart(self, element: Any) -> bool:
        if add_chart(self._deck.account, self._deck.parts, self._links.get(_relation(element))):
            return False
        return self._count_object(element)

    def _pass_over(self, _: Any) -> bool:
        return True


_Story.handlers = {
    "sp": _Story._begin_shape,
    "pic": _Story._begin_picture,
    **dict.fromkeys(("graphicFrame", "grpSp", "cxnSp"), _Story._begin_drawing),
    "tbl": _Story._begin_table,
    "tc": _Story._begin_cell,
    "p": _Story._begin_paragraph,
    **dict.fromkeys(("r", "fld"), _Story._begin_run),
    "t": _Story._add_text,
    "text": _Story._add_comment,
    "br": _Story._end_line,
    "AlternateContent": _Story._choose,
    **dict.fromkeys(("Choice", "Fallback"), _Story._pass_alternative),
    **dict.fromkeys(("oleObj", "control"), _Story._count_object),
    **dict.fromkeys(("blipFill", "contentPart"), _Story._count_fill),
    "cNvPr": _Story._add_described,
    **dict.fromkeys(("hlinkClick", "hlinkHover", "hlinkMouseOver"), _Story._add_tip),
    "relIds": _Story._add_diagram,
    "chart": _Story._add_chart,
    **dict.fromkeys(("timing", "transition", "txStyles", "lstStyle"), _Story._pass_over),
}


def _draws(element: Any) -> bool:
    """Whether an element of a slide may cover what is behind it."""
    return local(element) in ("pic", "graphicFrame") or (local(element) == "sp" and is_filled(element))


def _font_scale(about: Any) -> str | None:
    """The share to which a box shrinks its letters, as its properties state it."""
    shrunk = child(about, "normAutofit")
    return None if shrunk is None else attribute(shrunk, "fontScale")


def _relation(element: Any) -> str:
    """The id of the relation that an element names; a slide has a number of its own that is called so too."""
    return next((one for key, one in element.attrib.items() if key.endswith("}id")), "")
