"""PowerPoint presentations to text with lxml: the slides in their order, then what stands apart from them, each once.

What the format hides is read behind the slides, and what cannot be seen for its look is read and counted.
"""

from typing import Any, NamedTuple

from dgmark_documents.elements import attribute, local, number
from dgmark_documents.look import Look, put
from dgmark_documents.reading import Limits, Reading, Refusal
from dgmark_documents.slide_styles import (
    UNITS,
    Sheet,
    box_of,
    is_filled,
    line_height,
    look_of,
    placeholder,
    share,
    sheet_of,
)
from dgmark_documents.story import DRAWN, DrawnStory, Package, relation, said_in
from dgmark_documents.text_builder import TextBuilder
from dgmark_documents.zip_archive import ZipArchive

_ENDS = {"hdr": "headers", "ftr": "footers", "dt": "footers", "sldNum": "footers"}  # placeholders of each slide
_USUAL = (9_144_000.0, 6_858_000.0)  # width and height of a slide that states none
_TEMPLATES = ("slideLayout", "slideMaster", "notesMaster", "handoutMaster")


def read_pptx(archive: ZipArchive, limits: Limits) -> Reading:
    """Read a presentation; notes, comments, hidden slides and the like stand after the slides."""
    archive.check_xml()
    deck = _Presentation(archive)
    if len(deck.slides) > limits.pages:
        raise Refusal(f"has {len(deck.slides)} slides; the limit is {limits.pages}")
    body = TextBuilder()
    for part in deck.slides:
        deck.read_slide(part, body)
    deck.read_templates()
    deck.hold_all()
    return deck.account.reading(body.text, pages=len(deck.slides))


class _Presentation(Package):
    """A presentation while it is read.

    Attributes:
        slides: the parts of the slides, in their order.
        page: width and height of a slide in points.
        templates: the layouts and masters that slides show.
    """

    passed = frozenset(("formatCode", "f", "attrName", "tableStyleId"))  # codes, names

    def __init__(self, archive: ZipArchive) -> None:
        super().__init__(archive)
        parts = self.parts
        main, links = parts.tree(parts.main), parts.links(parts.main)
        named = (links.get(relation(one)) for one in main.iterfind("{*}sldIdLst/{*}sldId"))
        self.slides = [link.part for link in named if link and len(parts.tree(link.part))]
        size = main.find("{*}sldSz")
        stated = [number(attribute(size, side)) or 0.0 for side in ("cx", "cy")]
        self.page = [(one or usual) / UNITS for one, usual in zip(stated, _USUAL, strict=True)]
        self.templates: dict[str, Sheet] = {}

    def read_slide(self, part: str, body: TextBuilder) -> None:
        """Read a slide, then its notes and comments apart from it."""
        tree, sheet = self.parts.tree(part), sheet_of(self.parts, part)
        shown = attribute(tree, "show") not in ("0", "false")
        self._use(sheet)
        builder = body if shown else self.account.at("hidden slides", part)
        builder.block()
        _Story(self, part, sheet, _Here(builder, Look(background=sheet.background()))).walk(tree)
        if not shown:
            self.account.add_not_shown("hidden slides", builder.text)
        for link in self.parts.links(part).values():
            if link.kind in ("notesSlide", "comments"):
                self._use(sheet_of(self.parts, link.part))
                self.read(link.part, self.parts.tree(link.part), "notes" if link.kind == "notesSlide" else "comments")

    def _use(self, sheet: Sheet) -> None:
        """Keep the layout and the master of a slide or page."""
        for part in sheet.parts[1:]:
            self.templates.setdefault(part, sheet)

    def read(self, part: str, top: Any, place: str) -> None:
        """Read a tree of this part apart from the slides."""
        sheet = self.templates.get(part) or sheet_of(self.parts, part)
        # the shapes of a diagram have colours of their own
        background = None if place == "diagrams" else sheet.background()
        builder = self.account.at(place, part if place == "masters" else "")
        _Story(self, part, sheet, _Here(builder, Look(background=background))).walk(top)

    def read_templates(self) -> None:
        """Read what layouts and masters show on slides and pages beside their placeholders."""
        handouts = self.parts.named("handoutMaster")
        if handouts:
            self.templates.setdefault(handouts, Sheet())
        for part in self.templates:
            self.read(part, self.parts.tree(part), "masters")

    def hold_all(self) -> None:
        """Tell the account all that the presentation holds, without the prompts of placeholders."""
        shown = [*self.parts.shown()]
        kinds = {link.part: link.kind for part in ("", *shown) for link in self.parts.links(part).values()}
        for part in shown:
            if kinds.get(part) not in _TEMPLATES or part in self.templates:
                self.hold(part)


class _Here(NamedTuple):
    """What holds for the texts of a place.

    Attributes:
        builder: what they are added to.
        look: what is said of how they are shown.
        scale: the share to which their box shrinks them.
    """

    builder: TextBuilder
    look: Look
    scale: float = 1.0


class _Story(DrawnStory):
    """Adds a tree of one part to a builder."""

    said = said_in(DRAWN)

    def __init__(self, deck: _Presentation, part: str, sheet: Sheet, here: _Here) -> None:
        super().__init__(deck, part)
        self._deck = deck
        self._sheet = sheet
        self.state = here
        # whether anything is drawn so far, which may stand behind a text: on a slide, also by its layout and master
        behind = () if part in deck.templates else sheet.trees[1:]
        self._drawn = any(_draws(one) for tree in behind for one in tree.iter("{*}sp", "{*}pic"))

    def end(self, element: Any) -> None:
        """End a paragraph."""
        if local(element) == "p":
            self.state.builder.block()

    def _set(self, **changes: Any) -> None:
        """Change what holds up to the end of the element."""
        self.state = self.state._replace(**changes)

    def _look(self, **changes: Any) -> None:
        """Change how texts look up to the end of the element."""
        self._set(look=self.state.look._replace(**changes))

    # Each of the following takes an element that begins, and says whether its contents are passed over.

    def _begin_drawing(self, element: Any) -> None:
        """See whether a shape, picture, table or group is shown, and where."""
        about = next((one for one in element if local(one).startswith("nv")), None)
        if about is not None and attribute(about.find("{*}cNvPr"), "hidden") in ("1", "true"):
            self._look(hidden=True)
        if local(element) == "grpSp":
            return
        box = box_of(element)
        on_slide = self._sheet.trees and local(self._sheet.trees[0]) == "sld" and local(element.getparent()) == "spTree"
        sides = zip(box[:2], box[2:], self._deck.page, strict=True) if on_slide and box else ()
        if any(at > end or at + size < 0 for at, size, end in sides):
            self._look(off_page=True)
        stated = self._sheet.stated(element)
        if "fill" in stated:
            self._look(background=self._sheet.colour(stated["fill"]))
        elif self._drawn:
            self._look(background=None)
        self._drawn = self._drawn or _draws(element)

    def _begin_shape(self, element: Any) -> bool:
        own = placeholder(element)
        if own is not None and self.part in self._deck.templates:
            for one in element.iter("{*}t"):
                one.text = None  # a prompt, which authors alone see
            return True
        kind = attribute(own, "type")
        if kind in _ENDS:
            self._set(builder=self.account.at(_ENDS[kind], f"{self.part} {kind}"))
        self._begin_drawing(element)
        fit = element.find("{*}txBody/{*}bodyPr/{*}normAutofit")
        self._set(scale=share(attribute(fit, "fontScale"), 1.0))
        return False

    def _begin_picture(self, element: Any) -> None:
        self._begin_drawing(element)
        self.account.add_picture(*self._sheet.stated(element).get("box", (None,) * 4)[2:])

    def _begin_cell(self, element: Any) -> None:
        self._look(background=self._sheet.colour(element.find("{*}tcPr/{*}solidFill")))
        if "1" in (attribute(element, "hMerge"), attribute(element, "vMerge")):
            self._look(hidden=True)  # another cell covers it

    def _begin_paragraph(self, element: Any) -> None:
        self.state.builder.block()
        self._look(size=line_height(element.find("{*}pPr")))

    def _begin_run(self, element: Any) -> None:
        self._set(look=look_of(element.find("{*}rPr"), self.state.scale, self.state.look, self._sheet))

    def _add_text(self, element: Any) -> None:
        text = (element.text or "").replace("\t", " ")
        put(self.state.builder, self.account, text, self.state.look, exact=True)

    def _add_comment(self, element: Any) -> None:
        self.state.builder.block()
        self.state.builder.add(element.text, exact=True)

    def _end_line(self, _: Any) -> None:
        self.state.builder.end_line()


_Story.handlers = {
    **DrawnStory.handlers,
    "sp": _Story._begin_shape,
    "pic": _Story._begin_picture,
    **dict.fromkeys(("graphicFrame", "grpSp", "cxnSp"), _Story._begin_drawing),
    "tc": _Story._begin_cell,
    "p": _Story._begin_paragraph,
    **dict.fromkeys(("r", "fld"), _Story._begin_run),
    "t": _Story._add_text,
    "text": _Story._add_comment,
    "br": _Story._end_line,
    **dict.fromkeys(("timing", "transition", "txStyles", "lstStyle"), _Story.pass_over),
}


def _draws(element: Any) -> bool:
    """Whether an element of a slide may cover what is behind it."""
    return local(element) in ("pic", "graphicFrame") or (local(element) == "sp" and is_filled(element))
