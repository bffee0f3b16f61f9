"""PowerPoint presentations to text with lxml: the slides in their order, then what stands apart from them, each once.

What the format hides on a slide is dropped; hidden slides, and what cannot be seen for its look, are read and counted.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from dgmark_documents.account import Account
from dgmark_documents.apart import Apart
from dgmark_documents.drawings import add_chart, add_described, add_tip
from dgmark_documents.elements import attribute, child, children, local, number, overflows
from dgmark_documents.office_parts import Link, OfficeParts, not_chosen
from dgmark_documents.reading import Limits, Reading, Refusal
from dgmark_documents.slide_styles import (
    UNITS,
    Box,
    Properties,
    Sheet,
    box_of,
    flat_lines,
    is_filled,
    level_looks,
    overlap,
    placeholder,
    run_looks,
    share,
    sheet_of,
    unseen,
)
from dgmark_documents.text_builder import TextBuilder
from dgmark_documents.xml_pieces import xml_pieces
from dgmark_documents.zip_archive import ZipArchive, is_markup

# elements whose own text is not shown: codes, names
_PASSED = frozenset(("formatCode", "f", "attrName", "tableStyleId"))
_ENDS = {"hdr": "headers", "ftr": "footers", "dt": "footers", "sldNum": "footers"}  # placeholders of each slide
_TEMPLATES = ("slideLayout", "slideMaster", "notesMaster", "handoutMaster")
_NOT_SHOWN = "hidden slides"
_NESTED = frozenset(("sp", "pic", "graphicFrame", "cxnSp", "grpSp", "tc", "p", "r", "fld"))


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
    deck.apart.tell(deck.account)
    return deck.account.reading(body.text, pages=len(deck.slides))


class _Presentation:
    """A presentation while it is read.

    Attributes:
        parts: its parts.
        account: what it holds beside the slides.
        apart: the texts that stand apart from the slides.
        hidden: the elements that are dropped because they are not shown.
        slides: the parts of the slides, in their order.
        defaults: the looks of texts that nothing else decides on.
        page: where things on a slide are seen.
    """

    def __init__(self, parts: OfficeParts) -> None:
        self.parts = parts
        self.account = Account()
        self.apart = Apart()
        self.hidden: set[Any] = set()
        main = parts.tree(parts.main)
        links = parts.links(parts.main)
        named = (links.get(_relation(one)) for one in children(child(main, "sldIdLst"), "sldId"))
        self.slides = [link.part for link in named if link and parts.tree(link.part) is not None]
        self.defaults = child(main, "defaultTextStyle")
        size = child(main, "sldSz")
        sides = [0.0 if size is None else number(attribute(size, side)) or 0.0 for side in ("cx", "cy")]
        self.page: Box = (0.0, 0.0, sides[0] or 9_144_000.0, sides[1] or 6_858_000.0)
        self._templates: dict[str, Sheet] = {}

    def read_slide(self, part: str, body: TextBuilder) -> None:
        """Read a slide, then its notes and comments apart from it."""
        tree, sheet = self.parts.tree(part), sheet_of(self.parts, part)
        shown = attribute(tree, "show") not in ("0", "false")
        self._use(sheet)
        builder = body if shown else self.apart.at(_NOT_SHOWN, part)
        builder.block()
        self.read(part, sheet, tree, builder, None if shown else _NOT_SHOWN)
        for link in self.parts.links(part).values():
            beside = self.parts.tree(link.part) if link.kind in ("notesSlide", "comments") else None
            if beside is not None:
                own = sheet_of(self.parts, link.part)
                self._use(own)
                place = "notes" if link.kind == "notesSlide" else "comments"
                self.read(link.part, own, beside, self.apart.at(place))

    def _use(self, sheet: Sheet) -> None:
        """Keep the layout and the master whose shapes this slide or page shows."""
        for part, tree in zip(sheet.parts[1:], sheet.trees, strict=False):
            if attribute(tree, "showMasterSp") in ("0", "false"):
                return
            self._templates.setdefault(part, sheet)

    def read(self, part: str, sheet: Sheet, top: Any, builder: TextBuilder, why: str | None = None) -> None:
        """Add the text of a tree of this part to a builder; `why` nothing of it is seen, if so."""
        _Story(self, part, sheet, _Here(builder, why, sheet.background())).add(top)

    def read_templates(self) -> None:
        """Read what layouts and masters show on slides and pages beside their placeholders."""
        handouts = self.parts.named("handoutMaster")
        if handouts:
            self._templates.setdefault(handouts, Sheet())
        for part, sheet in self._templates.items():
            self.read(part, sheet, self.parts.tree(part), self.apart.at("masters", part))

    def count_held(self, archive: ZipArchive) -> None:
        """Tell the account all that the presentation holds, without the prompts of placeholders."""
        shown = [*self.parts.shown()]
        kinds = {link.part: link.kind for part in ("", *shown) for link in self.parts.links(part).values()}
        for part in shown:
            if kinds.get(part) in _TEMPLATES and part not in self._templates:
                continue
            if is_markup(archive.read(part)):
                tree = self.parts.tree(part)
                self.account.held += xml_pieces(tree, part, passed=_PASSED, hidden=self.hidden)

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
        why: why nothing here is seen, if so.
        background: the colour behind them; None if it is not known.
        scale: the share to which their box shrinks them.
        styles: the lists of styles by level that hold, the most general one first.
        font: the look that the style of their shape gives them.
        in_table: whether the style of a table decides on their colours.
        look: the look of the paragraph or run.
    """

    builder: TextBuilder
    why: str | None
    background: str | None
    scale: float = 1.0
    styles: tuple[Any, ...] = ()
    font: Properties = {}  # noqa: RUF012 (never changed)
    in_table: bool = False
    look: Properties = {}  # noqa: RUF012


class _Story:
    """Adds a tree of one part to a builder."""

    def __init__(self, deck: _Presentation, part: str, sheet: Sheet, here: _Here) -> None:
        self._deck = deck
        self._part = part
        self._sheet = sheet
        self._here = here._replace(styles=() if deck.defaults is None else (deck.defaults,))
        self._links = deck.parts.links(part)
        self._outer: list[_Here] = []
        # what is drawn so far, which may stand behind a text: on a slide, what its layout and master show first
        behind = () if deck.is_template(part) else sheet.trees[1:]
        self._drawn = [box_of(one) for tree in behind for one in tree.iter("{*}sp", "{*}pic") if _draws(one)]

    def add(self, top: Any) -> None:
        """Add the text of a tree."""
        from lxml import etree

        skipped = None
        events = etree.iterwalk(top, events=("start", "end"))
        for event, element in events:
            name = local(element)
            if event == "start":
                if name in _NESTED:
                    self._outer.append(self._here)
                handle = _HANDLERS.get(name)
                if element in self._deck.hidden or (handle and handle(self, element)):
                    events.skip_subtree()
                    skipped = element
                continue
            if name == "p" and element is not skipped:
                self._here.builder.block()
            if name in _NESTED:
                self._here = self._outer.pop()

    def _set(self, **changes: Any) -> None:
        """Change what holds up to the end of the element."""
        self._here = self._here._replace(**changes)

    def _not_seen(self, why: str) -> None:
        self._set(why=self._here.why or why)

    # Each of the following takes an element that begins, and says whether its contents are passed over.

    def _hide(self, element: Any) -> bool:
        self._deck.hidden.add(element)
        return True

    def _begin_drawing(self, element: Any) -> bool:
        """See whether a shape, picture, table or group is shown, and where."""
        about = next((one for one in element if local(one).startswith("nv")), None)
        described = child(about, "cNvPr")
        if described is not None and attribute(described, "hidden") in ("1", "true"):
            return self._hide(element)
        if local(element) == "grpSp":
            return False
        box = self._place(element)
        on_slide = self._sheet.trees and local(self._sheet.trees[0]) == "sld"
        if on_slide and box is not None and not overlap(box, self._deck.page):
            self._not_seen("text off the slide")
        filled = next(filter(is_filled, self._sheet.alike(element)), None)
        if filled is not None:
            self._set(background=self._sheet.colour(child(child(filled, "spPr"), "solidFill")))
        elif any(overlap(box, one) for one in self._drawn):
            self._set(background=None)
        if _draws(element):
            self._drawn.append(box)
        return False

    def _place(self, element: Any) -> Box | None:
        """Where a shape stands, by itself or by the placeholder that it fills."""
        return next((box for one in self._sheet.alike(element) if (box := box_of(one)) is not None), None)

    def _begin_shape(self, element: Any) -> bool:
        own = placeholder(element)
        if own is not None and self._deck.is_template(self._part):
            self._deck.drop_prompt(element)
            return True
        kind = None if own is None else attribute(own, "type")
        if kind in _ENDS and self._here.why is None:
            self._set(builder=self._deck.apart.at(_ENDS[kind], f"{self._part} {kind}"))
        if self._begin_drawing(element):
            return True
        about, font = child(child(element, "txBody"), "bodyPr"), child(child(element, "style"), "fontRef")
        self._set(
            styles=self._sheet.looks(element, self._deck.defaults),
            scale=share(None if about is None else _font_scale(about), 1.0),
            font={} if font is None else {"color": self._sheet.colour(font) or ""},
        )
        box = self._place(element)
        if about is not None and attribute(about, "vertOverflow") in ("clip", "ellipsis") and box is not None:
            width, height = ((box[side + 2] - box[side]) / UNITS for side in (0, 1))
            if overflows(child(element, "txBody"), width * height):
                self._not_seen("text that its box cuts off")
        return False

    def _begin_picture(self, element: Any) -> bool:
        if self._begin_drawing(element):
            return True
        box = self._place(element)
        width, height = (None if box is None else (box[side + 2] - box[side]) / UNITS for side in (0, 1))
        self._deck.account.add_picture(width, height)
        return False

    def _begin_table(self, _: Any) -> bool:
        self._set(in_table=True)  # until the frame around it ends
        return False

    def _begin_cell(self, element: Any) -> bool:
        if "1" in (attribute(element, "hMerge"), attribute(element, "vMerge")):
            return self._hide(element)
        self._set(background=self._sheet.colour(child(child(element, "tcPr"), "solidFill")))
        return False

    def _begin_paragraph(self, element: Any) -> bool:
        self._here.builder.block()
        about = child(element, "pPr")
        general, own = self._here.styles[:2], self._here.styles[2:]
        look = level_looks(general, about, self._sheet) | self._here.font | level_looks(own, about, self._sheet)
        if self._here.in_table:
            look.pop("color", None)  # the style of the table may say another one
        self._set(look=look)
        why = flat_lines(about)
        if why:
            self._not_seen(why)
        return False

    def _begin_run(self, element: Any) -> bool:
        self._set(look=self._here.look | run_looks(child(element, "rPr"), self._sheet))
        return False

    def _add_text(self, element: Any) -> bool:
        text = (element.text or "").replace("\t", " ")
        why = self._here.why or unseen(self._here.look, self._here.scale, self._here.background)
        if why:
            self._deck.account.add_not_shown(why, text)
        self._here.builder.add(text, exact=True)
        return False

    def _add_comment(self, element: Any) -> bool:
        self._here.builder.block()
        self._here.builder.add(element.text, exact=True)
        return False

    def _end_line(self, _: Any) -> bool:
        self._here.builder.end_line()
        return False

    def _choose(self, element: Any) -> bool:
        self._deck.hidden.update(not_chosen(element))
        return False

    def _count_object(self, _: Any) -> bool:
        self._deck.account.add("embedded objects", weight=Account.UNKNOWN)
        return True

    def _count_fill(self, element: Any) -> bool:
        """Count pictures behind shapes and slides, and ink."""
        if local(element.getparent()) != "pic":
            self._deck.account.add_picture(None, None)
        return False

    def _add_described(self, element: Any) -> bool:
        add_described(self._deck.apart, element)
        return False

    def _add_tip(self, element: Any) -> bool:
        add_tip(self._deck.apart, element)
        return False

    def _add_diagram(self, element: Any) -> bool:
        link = self._links.get(attribute(element, "dm") or "", Link("", ""))
        tree = self._deck.parts.tree(link.part)
        if tree is None:
            return self._count_object(element)
        here = _Here(self._deck.apart.at("diagrams"), self._here.why, None)  # its shapes have colours of their own
        _Story(self._deck, link.part, self._sheet._replace(trees=()), here).add(tree)
        return False

    def _add_chart(self, element: Any) -> bool:
        if add_chart(self._deck.apart, self._deck.parts, self._links.get(_relation(element))):
            return False
        return self._count_object(element)

    def _pass_over(self, _: Any) -> bool:
        return True


_HANDLERS: dict[str, Callable[[_Story, Any], bool]] = {
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
