"""What a PDF shows is read, or noted, or makes the verdict uncertain; what it does not show never acquits a text."""

import random
from collections.abc import Iterator

import pytest

from dgmark_documents.pdf import damaged_streams
from support.office_documents import pdf, stream
from support.unread_documents import BODY, TEXT, outcome, read

DECOYS = (BODY * 4).split()[:1000]
FONTS = "/Font<</F 3 0 R>>"


def drawn(text: str, top: int = 780, size: float = 9, piece: int = 0) -> str:
    """The operators that draw a text in lines; each piece of so many letters is a text object of its own."""
    shown = []
    for number, at in enumerate(range(0, len(text), 100)):
        line = text[at : at + 100]
        pieces = [line[start : start + piece] for start in range(0, len(line), piece)] if piece else [line]
        shown.append(f"BT /F {size} Tf 20 {top - 12 * number} Td {' '.join(f'({one}) Tj' for one in pieces)} ET")
    return "\n".join(shown)


def words(text: str) -> list[tuple[int, int, str]]:
    """The words of a text at their places: left, bottom, word."""
    return [(20 + 56 * (at % 10), 780 - 9 * (at // 10), word) for at, word in enumerate(text.split())]


def placed(found: list[tuple[int, int, str]], size: float = 7) -> str:
    return "\n".join(f"BT /F {size} Tf {left} {bottom} Td ({word}) Tj ET" for left, bottom, word in found)


def mixed_with(before: str, after: str) -> str:
    """The words of the marked text, and a decoy between operators behind each."""
    places = words(TEXT)
    decoys = zip(places, DECOYS, strict=False)
    hidden = [
        f"{before} BT /F 7 Tf {left} {bottom - 4} Td ({word}) Tj ET {after}" for (left, bottom, _), word in decoys
    ]
    return "\n".join(f"{placed([seen])}\n{one}" for seen, one in zip(places, hidden, strict=False))


def form(content: str, fields: str = "") -> str:
    return stream(content, f"/Type/XObject/Subtype/Form/BBox[0 0 600 800]/Resources<<{FONTS}>>{fields}")


ANNOTATIONS = (
    "Text Link FreeText Line Square Circle Polygon PolyLine Highlight Underline Squiggly StrikeOut Stamp Caret Ink "
    "FileAttachment Sound Movie Widget Screen PrinterMark TrapNet Watermark 3D Redact RichMedia Projection Own"
)


def annotation(kind: str, inner: str, *objects: str, catalog: str = "") -> bytes:
    one = f"<</Type/Annot/Subtype/{kind}/Rect[0 0 600 300]/F 4{inner}>>"
    return pdf(drawn(BODY), objects=[one, *objects], page="/Annots[6 0 R]", catalog=catalog)


def read_constructs() -> Iterator[tuple[str, bytes]]:
    for kind in ANNOTATIONS.split():
        yield f"appearance of {kind}", annotation(kind, "/AP<</N 7 0 R>>", form(drawn(TEXT, 290)))
    for piece in (1, 10, 90):
        appearance = form(drawn(TEXT, 290, piece=piece))
        yield f"appearance in pieces of {piece}", annotation("Square", "/AP<</N 7 0 R>>", appearance)
        yield f"page in pieces of {piece}", pdf(drawn(TEXT, piece=piece))
    for key in ("Contents", "OverlayText", "V", "TU", "RC", "Alt"):
        yield f"string {key}", annotation("Widget", f"/{key}({TEXT})")
        yield f"string {key} in an object", annotation("Widget", f"/{key} 7 0 R", f"({TEXT})")
        as_hex = "FEFF" + TEXT.encode("utf-16-be").hex()
        yield f"string {key} as hex", annotation("Widget", f"/{key}<{as_hex}>")
    options = "".join(f"({TEXT[at : at + 40]})" for at in range(0, len(TEXT), 40))
    fields = "/AcroForm<</Fields[6 0 R]>>"
    yield "choices", annotation("Widget", f"/FT/Ch/T(a)/Opt[{options}]", catalog=fields)
    figure = f"<</Type/StructElem/S/Figure/P 6 0 R/Pg 4 0 R/K 0/Alt({TEXT})>>"
    tree = "<</Type/StructTreeRoot/K 7 0 R/ParentTree<</Nums[0[7 0 R]]>>>>"
    marks, number = "/StructTreeRoot 6 0 R/MarkInfo<</Marked true>>", "/StructParents 0"
    yield "alternative text of a figure", pdf(drawn(BODY), objects=[tree, figure], catalog=marks, page=number)
    acro = "/AcroForm<</Fields[7 0 R]>>"
    parent = f"<</FT/Tx/T(a)/Kids[6 0 R]/V({TEXT})>>"
    yield "value in the field above", annotation("Widget", "/Parent 7 0 R", parent, catalog=acro)
    packet = f"<xdp><template><draw><text>{TEXT}</text></draw></template></xdp>"
    yield "XFA", pdf(drawn(BODY), objects=[stream(packet)], catalog="/AcroForm<</Fields[]/XFA 6 0 R>>")
    parts = [stream(part) for part in ("<xdp>", f"<template>{TEXT}</template>", "</xdp>")]
    catalog = "/AcroForm<</Fields[]/XFA[(a)6 0 R(template)7 0 R(b)8 0 R]>>"
    yield "XFA in packets", pdf(drawn(BODY), objects=parts, catalog=catalog)
    titles = [TEXT[at : at + 90] for at in range(0, len(TEXT), 90)]
    outline = [
        f"<</Title({title})/Parent 6 0 R{f'/Next {8 + n} 0 R' if n + 1 < len(titles) else ''}>>"
        for n, title in enumerate(titles)
    ]
    root = f"<</First 7 0 R/Last {6 + len(titles)} 0 R/Count {len(titles)}>>"
    yield "outline", pdf(drawn(BODY), objects=[root, *outline], catalog="/Outlines 6 0 R")
    inner = form(drawn(TEXT, 290))
    yield "form", pdf(f"{drawn(BODY)} /X Do", objects=[inner], resources="/XObject<</X 6 0 R>>")
    yield "invisible decoys", pdf(mixed_with("3 Tr", "0 Tr"))


@pytest.mark.parametrize(("construct", "content"), [pytest.param(*one, id=one[0]) for one in read_constructs()])
def test_what_a_page_shows_is_read(construct: str, content: bytes) -> None:
    assert outcome(read(".pdf", content)) == "watermarked", construct


def noted_constructs() -> Iterator[tuple[str, bytes]]:
    body = drawn(BODY)
    places = [(20 + 6 * (at % 90), 280 - 9 * (at // 90)) for at in range(len(TEXT))]
    shapes = "\n".join(f"{x} {y} m {x + 4} {y} l {x + 2} {y + 6} l h f" for x, y in places)
    yield "letters as shapes", pdf(f"{body}\n{shapes}")
    sign = "cm BI /W 1 /H 1 /IM true /BPC 1 ID x EI Q"
    yield "letters as pictures", pdf(body + "\n".join(f"q 5 0 0 8 {x} {y} {sign}" for x, y in places))
    yield "strips", pdf(body + "\n".join(f"q 450 0 0 9 40 {300 - 6 * at} {sign}" for at in range(40)))
    place = "q 600 0 0 300 0 0 cm BI /W 1 /H 1 /BPC 8 /CS /G ID x EI Q"
    yield "picture in an annotation", annotation("Square", "/AP<</N 7 0 R>>", form(place))
    yield "script", pdf(body, catalog=f"/OpenAction<</S/JavaScript/JS(app.alert\\('{TEXT}'\\))>>")
    popup = annotation("Popup", "/AP<</N 7 0 R>>", form(drawn(TEXT, 290)))
    yield "drawing of a pop-up", popup
    layer = "/Properties<</L 6 0 R>>"
    off = "/OCProperties<</OCGs[6 0 R]/D<</OFF[6 0 R]>>>>"
    group, decoys = ["<</Type/OCG/Name(x)>>"], mixed_with("/OC /L BDC", "EMC")
    yield "decoys in a layer that is off", pdf(decoys, objects=group, resources=layer, catalog=off)
    shuffled = words(TEXT)
    random.Random(1).shuffle(shuffled)
    yield "words in any order", pdf(placed(shuffled))
    yield "white decoys", pdf(mixed_with("1 g", "0 g"))
    yield "transparent decoys", pdf(mixed_with("q /T gs", "Q"), resources="/ExtGState<</T<</ca 0>>>>")
    yield "tiny decoys", pdf(mixed_with("q .01 0 0 .01 5 5 cm", "Q"))
    yield "squeezed decoys", pdf(mixed_with("1 Tz", "100 Tz"))
    yield "decoys in the colour of a box", pdf(f"1 0 0 rg 0 0 600 800 re f 0 g {mixed_with('1 0 0 rg', '0 g')}")
    yield "decoys outside of the page", pdf(mixed_with("q 1 0 0 1 700 0 cm", "Q"))
    yield "decoys outside of the crop box", pdf(mixed_with("q 1 0 0 1 0 800 cm", "Q"), page="/CropBox[0 0 600 800]")
    yield "decoys that stand for what is drawn", pdf(f"/Span<</ActualText({BODY[: len(TEXT)]})>>BDC {drawn(TEXT)} EMC")


@pytest.mark.parametrize(("construct", "content"), [pytest.param(*one, id=one[0]) for one in noted_constructs()])
def test_what_is_not_read_or_not_shown_is_never_passed_over(construct: str, content: bytes) -> None:
    assert outcome(read(".pdf", content)) in ("noted", "uncertain", "watermarked"), construct
    if "decoys" in construct:
        assert outcome(read(".pdf", content)) != "noted"


SCAN = "/W 300 /H 400 /BPC 1 /IM true"


def ordinary() -> Iterator[tuple[str, bytes]]:
    yield "plain", pdf(drawn(BODY))
    yield "white on black", pdf(f"0 g 0 0 600 800 re f 1 g {drawn(BODY)}")
    bits = "x" * (38 * 400)
    yield "scan with its text", pdf(f"q 600 0 0 800 0 0 cm BI {SCAN} ID {bits} EI Q BT 3 Tr ET {drawn(BODY)}")
    yield "ligatures", pdf(drawn(BODY) + "".join(f"/Span<</ActualText(fi)>>BDC {drawn('f', 9)} EMC" for _ in range(5)))
    yield "a stamp across the page", pdf(drawn(BODY) + " .8 g BT /F 90 Tf .7 .7 -.7 .7 100 200 Tm (DRAFT) Tj ET")
    yield "a ruled table", pdf(drawn(BODY) + "".join(f" {x} 20 m {x} 400 l S" for x in range(20, 600, 40)))
    columns = sorted(words(BODY), key=lambda one: one[0])
    yield "a table by columns", pdf(placed(columns))
    yield "turned page", pdf(drawn(BODY), page="/Rotate 90")
    yield "a link", annotation("Link", "/A<</S/URI/URI(https://example.org)>>")


@pytest.mark.parametrize(("construct", "content"), [pytest.param(*one, id=one[0]) for one in ordinary()])
def test_ordinary_pages_are_not_uncertain(construct: str, content: bytes) -> None:
    reading = read(".pdf", content)
    assert reading.uncertain_because is None, (construct, reading.notes)
    shown = "".join(filter(str.isalpha, BODY[:300] if "columns" not in construct else ""))
    assert shown in "".join(filter(str.isalpha, reading.text))


@pytest.mark.parametrize("piece", [b"stream\n", b"/Filter/FlateDecode stream\n", b"endstream"])
def test_streams_without_an_end_are_looked_through_once(piece: bytes) -> None:
    damaged_streams(b"%PDF-1.7\n" + piece * 200_000)
