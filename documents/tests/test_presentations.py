"""PowerPoint: the slides in their order, and what is seen beside them; what nobody sees acquits no text."""

import re
from pathlib import Path

import pytest

from dgmark import read_document
from dgmark_documents.reading import Limits, Reading, Refusal
from support import unread_documents
from support.office_documents import Slide, deck, shape, slide, with_part
from support.unread_documents import DECOY, HUMAN, pieces, verdict_on
from support.unread_documents import LETTERS as TEXT

BODY = HUMAN[:3000]
PLAIN = slide(shape(BODY))


def read(content: bytes, limits: Limits | None = None) -> Reading:
    return unread_documents.read(".pptx", content, limits)


def with_shape(inner: str, more: dict[str, tuple[str, str]] | None = None) -> bytes:
    """A presentation of two slides, of which the second holds this beside a plain text."""
    return deck(PLAIN, (slide(inner), more or {}))


def test_slides_stand_in_the_order_of_the_presentation_and_notes_behind_them(tmp_path: Path) -> None:
    notes = {"ppt/n.xml": ("notesSlide", shape("A word to the speaker", kind='type="body"'))}
    first: Slide = (slide(shape("First title", kind='type="title"') + shape("First text")), notes)
    path = tmp_path / "talk.pptx"
    path.write_bytes(deck(first, slide(shape("Second"))))
    document = read_document(path)
    assert document.text == "First title\nFirst text\nSecond\n\nA word to the speaker"
    assert (document.kind, document.pages) == ("PowerPoint presentation", 2)
    assert document.notes == ("read behind the body: notes (17 letters)",)
    turned = read(deck(first, slide(shape("Second")), order=(1, 0)))
    assert turned.text == "Second\nFirst title\nFirst text\n\nA word to the speaker"


CELL = "<a:tc {}><a:txBody><a:p><a:r><a:t>{}</a:t></a:r></a:p></a:txBody><a:tcPr>{}</a:tcPr></a:tc>"
PICTURE = "<p:pic><p:spPr><a:xfrm><a:ext cx='{}' cy='{}'/></a:xfrm></p:spPr></p:pic>"
FRAME = "<p:graphicFrame><p:nvGraphicFramePr><p:cNvPr/></p:nvGraphicFramePr>{}</p:graphicFrame>"
SEEN = {
    "shape": shape("{}"),
    "placeholder": shape("{}", kind='type="body" idx="1"'),
    "group": f"<p:grpSp>{shape('{}')}</p:grpSp>",
    "table": FRAME.format(f"<a:tbl><a:tr>{CELL.format('', '{}', '')}</a:tr></a:tbl>"),
    "field": "<p:sp><p:txBody><a:p><a:fld><a:t>{}</a:t></a:fld></a:p></p:txBody></p:sp>",
    "footer": shape("{}", kind='type="ftr" idx="11"'),
    "alternative text": shape("", named="descr='{}'"),
    "tool tip": "<p:sp><p:nvSpPr><p:cNvPr><a:hlinkClick tooltip='{}'/></p:cNvPr></p:nvSpPr></p:sp>",
    "fallback": "<mc:AlternateContent><mc:Choice Requires='own'/><mc:Fallback>"
    + shape("{}") + "</mc:Fallback></mc:AlternateContent>",
}  # fmt: skip
BESIDE: dict[str, tuple[str, str, str]] = {
    "notes": ("", "notesSlide", shape("{}", kind='type="body"')),
    "comment": ("", "comments", "<p:cm><p:text>{}</p:text></p:cm>"),
    "comment with replies": ("", "comments", "<p:cm><p:txBody><a:p><a:r><a:t>{}</a:t></a:r></a:p></p:txBody></p:cm>"),
    "chart": (FRAME.format('<c:chart r:id="chart"/>'), "chart", "<a:t>{}</a:t>"),
    "diagram": (FRAME.format('<dgm:relIds r:dm="diagramData"/>'), "diagramData", "<a:p><a:r><a:t>{}</a:t></a:r></a:p>"),
}


@pytest.mark.parametrize("place", [*SEEN, *BESIDE])
@pytest.mark.parametrize("size", [0, 90, 10])
def test_what_is_seen_is_read_wherever_it_stands_and_in_pieces(place: str, size: int) -> None:
    if place in SEEN:
        content = with_shape("".join(SEEN[place].replace("{}", piece) for piece in pieces(TEXT, size)))
    else:
        on_slide, kind, inner = BESIDE[place]
        whole = "".join(inner.replace("{}", piece) for piece in pieces(TEXT, size))
        content = with_shape(on_slide, {"ppt/x.xml": (kind, whole)})
    reading = read(content)
    if size == 0:
        assert TEXT in reading.text
        assert (verdict_on(reading), reading.uncertain_because) == ("watermarked", None)
    assert re.sub("[^A-Za-z]", "", TEXT) in re.sub("[^A-Za-z]", "", reading.text)


WHITE = "><a:solidFill><a:srgbClr val='FFFFFF'/></a:solidFill>"
FAR = "<a:xfrm><a:off x='20000000' y='0'/><a:ext cx='9000' cy='9000'/></a:xfrm>"
DARK = "<a:solidFill><a:srgbClr val='102030'/></a:solidFill>"
UNSEEN = {
    "tiny": shape("{}", "sz='100'"),
    "shrunk": shape("{}", "sz='1200'", box="<a:bodyPr><a:normAutofit fontScale='1000'/></a:bodyPr>"),
    "white": shape("{}", WHITE),
    "white by the theme": shape("{}", "><a:solidFill><a:schemeClr val='bg1'/></a:solidFill>"),
    "dark on dark": shape("{}", f">{DARK}", about=DARK),
    "transparent": shape("{}", "><a:solidFill><a:srgbClr val='000000'><a:alpha val='0'/></a:srgbClr></a:solidFill>"),
    "without a fill": shape("{}", "><a:noFill/>"),
    "signs": shape("{}", "><a:latin typeface='Wingdings'/>"),
    "off the slide": shape("{}", about=FAR),
    "flat lines": shape("{}").replace("<a:p>", "<a:p><a:pPr><a:lnSpc><a:spcPts val='100'/></a:lnSpc></a:pPr>"),
    "hidden": shape("{}", named='hidden="1"'),
    "hidden group": f"<p:grpSp><p:nvGrpSpPr><p:cNvPr hidden='1'/></p:nvGrpSpPr>{shape('{}')}</p:grpSp>",
    "merged cell": FRAME.format(f"<a:tbl><a:tr>{CELL.format('hMerge=%1%', '{}', '')}</a:tr></a:tbl>").replace("%", '"'),
    "dark cell": FRAME.format("<a:tbl><a:tr>{}</a:tr></a:tbl>").replace(
        "{}", CELL.format("", "{}", DARK).replace("<a:r>", f"<a:r><a:rPr>{DARK}</a:rPr>")
    ),
    "choice": "<mc:AlternateContent><mc:Choice Requires='own'>" + shape("{}") + "</mc:Choice><mc:Fallback/>"
    "</mc:AlternateContent>",
}  # fmt: skip
LAYOUT = (
    "<p:cSld><p:spTree>"
    + shape("Click to edit", kind='type="body" idx="7"')
    + "</p:spTree></p:cSld>"
)  # fmt: skip
MASTER = "<p:clrMap bg1='lt1' tx1='dk1'/>"
THEME = "<a:lt1><a:sysClr lastClr='FFFFFF'/></a:lt1><a:dk1><a:srgbClr val='000000'/></a:dk1>"


@pytest.mark.parametrize("how", UNSEEN)
def test_decoys_that_nobody_sees_acquit_no_text(how: str) -> None:
    content = deck(slide(shape(TEXT) + UNSEEN[how].replace("{}", DECOY)), layout=LAYOUT, master=MASTER, theme=THEME)
    try:
        reading = read(content)
    except Refusal:  # most of its letters are hidden
        return
    assert verdict_on(reading) in ("watermarked", "uncertain")
    assert reading.uncertain_because
    assert reading.notes


def test_a_hidden_slide_is_read_behind_the_others_and_counts_as_not_shown() -> None:
    reading = read(deck(PLAIN, slide(shape(TEXT), 'show="0"'), slide(shape("The end"))))
    letters = sum(map(str.isalpha, TEXT))
    assert reading.text == f"{BODY}\nThe end\n\n{TEXT}"
    assert reading.notes == (
        f"{letters:,} letters in hidden slides were read, although the document does not show them",
    )
    assert (verdict_on(reading), reading.uncertain_because) == ("watermarked", "not_shown")
    assert verdict_on(read(deck(PLAIN, slide(shape(DECOY), 'show="0"')))) == "uncertain"


@pytest.mark.parametrize(
    "seen",
    [
        shape(TEXT, WHITE, about=DARK),  # white on a dark shape
        f"<p:pic/>{shape(TEXT, WHITE)}",  # on a picture
        shape("x", about=f"<a:xfrm/>{DARK}") + shape(TEXT, WHITE),  # on another shape, at a place that is not known
        shape(TEXT, "sz='1800'", kind='type="body" idx="7"'),
        shape(TEXT, "><a:highlight><a:srgbClr val='000000'/></a:highlight>" + WHITE[1:]),
        shape(TEXT, "><a:solidFill><a:schemeClr val='bg1'><a:lumMod val='50000'/></a:schemeClr></a:solidFill>"),
    ],
)
def test_text_that_can_be_seen_is_not_taken_for_hidden(seen: str) -> None:
    reading = read(deck(slide(seen), layout=LAYOUT, master=MASTER, theme=THEME))
    assert (reading.uncertain_because, verdict_on(reading)) == (None, "watermarked")


def test_the_background_is_that_of_the_slide_or_else_of_its_layout_or_master() -> None:
    dark = f"<p:bg><p:bgPr>{DARK}</p:bgPr></p:bg>"
    white = shape(TEXT, WHITE)
    assert read(deck(slide(white, before=dark))).uncertain_because is None
    assert read(deck(slide(white), layout=f"<p:cSld>{dark}</p:cSld>")).uncertain_because is None
    assert read(deck(slide(white), master=f"<p:cSld>{dark}</p:cSld>")).uncertain_because is None
    by_theme = "<p:cSld><p:bg><p:bgRef idx='1001'><a:schemeClr val='bg1'/></p:bgRef></p:bg></p:cSld>"
    assert read(deck(slide(white), master=by_theme + MASTER, theme=THEME)).uncertain_because == "not_shown"


def test_an_ordinary_presentation_has_prompts_and_footers_and_is_called_not_marked() -> None:
    prompts = "".join(
        shape(f"Click to edit Master text styles, level {n}", kind=f'type="body" idx="{n}"') for n in range(9)
    )
    letterhead = shape("The Society of Letters, Harbour Street")
    layout = f"<p:cSld><p:spTree>{prompts}{letterhead}</p:spTree></p:cSld>"
    foot = shape("Bank of the Harbour, account of the society", kind='type="ftr" idx="11"')
    number = shape("1", kind='type="sldNum" idx="12"')
    words = HUMAN.split()
    slides = [slide(shape(" ".join(words[at : at + 60])) + foot + number) for at in range(0, 300, 60)]
    reading = read(deck(*slides, layout=layout, master=prompts))
    assert (verdict_on(reading), reading.notes) == ("not_detected", ())
    behind = reading.text.split("\n\n")[1:]
    assert sorted(one.split("\n")[0] for one in behind) == [
        "Bank of the Harbour, account of the society",
        "The Society of Letters, Harbour Street",
    ]


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (deck(slide(shape(BODY) + PICTURE.format(6350000, 6350000))), "1 picture"),
        (deck(slide(shape(BODY), before="<p:bg><p:bgPr><a:blipFill/></p:bgPr></p:bg>")), "1 picture"),
        (with_shape("<p:graphicFrame><p:oleObj/></p:graphicFrame>"), "1 embedded object"),
        (with_shape(FRAME.format('<c:chart r:id="none"/>')), "1 embedded object"),
    ],
)
def test_what_is_no_text_is_counted(content: bytes, what: str) -> None:
    assert read(content).notes == (f"{what} is left out",)


def test_text_where_no_reader_looks_is_named() -> None:
    stray: Slide = (slide(shape(BODY)), {"ppt/x.xml": ("own", f"<a:t>{TEXT}</a:t>")})
    reading = read(deck(stray))
    assert reading.notes == (f"{sum(map(str.isalpha, TEXT)):,} letters in ppt/x.xml, element t were not read",)
    assert (verdict_on(reading), reading.uncertain_because) == ("uncertain", "unread")


def test_presentations_of_pictures_and_of_too_many_slides_are_refused() -> None:
    with pytest.raises(Refusal, match="4 pictures are left out"):
        read(deck(*[slide(PICTURE.format(9144000, 6858000))] * 4))
    with pytest.raises(Refusal, match="has 3 slides; the limit is 2"):
        read(deck(*[PLAIN] * 3), Limits(pages=2))
    with pytest.raises(Refusal, match="declares XML entities"):
        read(with_part(deck(PLAIN), "ppt/own.xml", "<!DOCTYPE a [<!ENTITY b 'c'>]><a/>"))


def test_of_several_parts_that_declare_entities_the_same_one_is_named_each_time() -> None:
    content = deck(PLAIN)
    for number in (5, 3, 1, 4, 2):
        content = with_part(content, f"ppt/own{number}.xml", "<!DOCTYPE a [<!ENTITY b 'c'>]><a/>")
    with pytest.raises(Refusal, match=r"its part ppt/own1\.xml declares"):
        read(content)


@pytest.mark.parametrize("ending", ["pptx", "pptm", "ppsx", "ppsm", "potx", "potm"])
def test_presentations_are_read_under_all_their_names(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"talk.{ending}"
    path.write_bytes(deck(PLAIN))
    assert (read_document(path).text, read_document(path).notes) == (BODY, ())
