"""What readers of a document see is read, or noted, or the document is refused: one table over kinds and constructs."""

import base64
from collections.abc import Callable, Iterator
from html import escape

import pytest

from dgmark.errors import InputError
from dgmark.rows.documents import Document
from dgmark_documents.reading import Reading, Refusal
from support import unread_documents
from support.cases import data
from support.documents import document_from
from support.office_documents import epub, opendocument, pdf, with_part, word
from support.unread_documents import BODY, TEXT, left_out, verdict_on

SHORT = BODY[:400]
SCRAMBLED = TEXT.translate(str.maketrans("abcdefghijklmnopqrstuvwxyz", "qwertyuiopasdfghjklzxcvbnm"))
READ, REFUSED = "read", "refused: is not read for the most part"


def html(inner: str, body: str = BODY) -> bytes:
    return f"<html><body><p>{body}</p>{inner}</body></html>".encode()


def docx(inner: str, body: str = BODY, kind: str = "none", part: str = "", ending: str = "xml") -> bytes:
    """A Word document; `part` is one more part of it, of this kind of relation."""
    return word(f"<w:p><w:t>{body}</w:t></w:p>{inner}", {f"word/x.{ending}": (kind, part)})


def picture(width: int, height: int) -> str:
    extent = f'<wp:extent cx="{width * 12700}" cy="{height * 12700}"/>'
    return f"<w:p><w:r><w:drawing>{extent}<pic:pic/></w:drawing></w:r></w:p>"


def odt(inner: str, body: str = BODY, styles: str = "") -> bytes:
    return opendocument(f"<text:p>{body}</text:p>{inner}", styles=styles)


def frame(inner: str) -> str:
    return f'<text:p><draw:frame svg:width="17cm" svg:height="25cm">{inner}</draw:frame></text:p>'


def book(*chapters: str, linear: str = "yes", kind: str = "text/html", ordered: bool = True, locked: str = "") -> bytes:
    """A book of BODY and these chapters, which stand in the reading order or outside of it."""
    numbers = range(1, len(chapters) + 1)
    items = "".join(f'<item id="c{n}" href="c%20{n}" media-type="{kind}"/>' for n in numbers)
    order = "".join(f'<itemref idref="c{n}" linear="{linear}"/>' for n in numbers if ordered)
    parts = {"b": f"<p>{BODY}</p>", **{f"c {n}": chapter for n, chapter in enumerate(chapters, 1)}}
    whole = epub(f'<item id="b" href="b" media-type="text/html"/>{items}', f'<itemref idref="b"/>{order}', parts)
    return with_part(whole, "META-INF/encryption.xml", f'<e><CipherReference URI="{locked}"/></e>')


def rtf(inner: str, body: str = BODY) -> bytes:
    return f"{{\\rtf1\\ansi {body}\\par {inner}}}".encode()


def lines(text: str, left: int = 40, top: int = 780, matrix: str = "1 0 0 1", width: int = 90) -> str:
    """The operators that draw a text in lines, from the top."""
    pieces = [text[at : at + width] for at in range(0, len(text), width)]
    return "".join(f"BT /F 9 Tf {matrix} {left} {top - 12 * n} Tm ({line}) Tj ET " for n, line in enumerate(pieces))


def columns(left: str, right: str) -> str:
    """Two columns of 40 letters a line, drawn line by line across both."""
    places = [(at, 780 - at // 4) for at in range(0, len(left), 40)]
    return "".join(lines(left[at : at + 40], 40, top) + lines(right[at : at + 40], 320, top) for at, top in places)


def image(width: int, height: int) -> str:
    return f"q {width} 0 0 {height} 20 60 cm BI /W 1 /H 1 /BPC 8 /CS /G ID x EI Q "


def scans(*feet: str) -> bytes:
    """Pages that are pictures, each with a foot."""
    return pdf(*[image(590, 780) + lines(foot, 40, 30) for foot in feet])


def note(kind: str, name: str = "Contents") -> str:
    """The fields of a page that has this note."""
    return f"/Annots[<</Type/Annot/Subtype/{kind}/FT/Tx/Rect[50 50 550 90]/{name}({TEXT})>>]"


def mail(kind: str, content: str, more: str = "") -> bytes:
    header = "From: a@example.org\nMIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=B\n\n--B\n"
    encoded = f"Content-Transfer-Encoding: base64\n\n{base64.encodebytes(content.encode()).decode()}"
    return f"{header}Content-Type: {kind}; charset=utf-8\n{encoded}\n{more}--B--\n".encode()


P, W, T = f"<p>{TEXT}</p>", f"<w:p><w:r><w:t>{TEXT}</w:t></w:r></w:p>", f"<text:p>{TEXT}</text:p>"
SVG = f"<svg><text>{TEXT}</text></svg>"
OUTLINE = ("20 20 m " + "30 30 40 40 50 50 c " * 12 + "f ") * 90
FOOT = "Downloaded from the library of the university on a day of the week, for the use of its members only, page"
SCAN = "{\\pict\\picwgoal9000\\pichgoal12000 00}"
ATTACHED = "/Names<</EmbeddedFiles<</Names[(a)<</Type/Filespec/F(a)>>]>>>>"
ATTACHMENT = "Content-Disposition: attachment"
MAKERS: dict[str, Callable[..., bytes]] = {".html": html, ".docx": docx, ".odt": odt, ".rtf": rtf}


def made(construct: str, inner: str, parts: dict[str, str] | None = None) -> bytes:
    """A document with this in it, and the marked text wherever it says TEXT."""
    texts = {name: part.replace("TEXT", TEXT) for name, part in (parts or {}).items()}
    return MAKERS[construct.split(" ")[0]](inner.replace("TEXT", TEXT), **texts)


CASES = {
    **{name: (made(name, *inner), expected) for name, (expected, *inner) in data(__file__, "constructs").items()},
    ".html pictures of pages": (html('<img src="page.png">' * 9, SHORT), REFUSED),
    ".html drawn letters": (html(f'<svg><path d="{"C 2 2 3 3 4 4 " * 300}"/></svg>'), "noted: 1 drawing is left out"),
    ".docx pictures of pages": (docx(picture(500, 700) * 3), REFUSED),
    ".odt pictures of pages": (odt(frame("<draw:image/>") * 3), REFUSED),
    ".epub linear no": (book(P, linear="no"), READ),
    ".epub most outside the spine": (book(P * 4, ordered=False), REFUSED),
    ".epub SVG chapter": (book(SVG, kind="image/svg+xml"), READ),
    ".epub picture chapter": (book("x", kind="image/png"), "noted: 1 chapter of pictures is left out"),
    ".epub picture chapters": (book(*"xxx", kind="image/png"), REFUSED),
    ".epub chapter of a picture": (book('<img src="page.png"/>'), "noted: 1 picture is left out"),
    ".epub DRM": (book(P, locked="o/c%201"), "refused: is protected against reading (DRM)"),
    ".rtf pictures of pages": (rtf(SCAN * 9), REFUSED),
    ".pdf scans with a foot line": (pdf(*[image(560, 720) + lines(f"{FOOT} {n}", 40, 30) for n in range(3)]), REFUSED),
    ".pdf scans with captions": (pdf(*[image(560, 600) + lines(BODY[n:][:360], 40, 720) for n in (0, 400)]), REFUSED),
    ".pdf scans with two foot lines": (scans(*[f"{FOOT} {n}" for n in range(10)]), REFUSED),
    ".pdf scans with a foot of their own": (scans(*[BODY[n:][:180] for n in range(10)]), REFUSED),
    ".pdf scan of a page": (pdf(lines(BODY), image(560, 720) + lines(FOOT)), "noted: 1 page of pictures (page 2) is"),
    ".pdf picture": (pdf(lines(BODY) + image(200, 200)), "noted: 1 picture (page 1) is left out"),
    ".pdf outlined text": (pdf(lines(BODY), OUTLINE), "noted: 1 page of drawings (page 2) is left out"),
    ".pdf outlined pages": (pdf(lines(SHORT), OUTLINE), REFUSED),
    ".pdf FreeText": (pdf(lines(BODY), page=note("FreeText")), READ),
    ".pdf form": (pdf(lines(BODY), page=note("Widget", "V")), READ),
    ".pdf stamp": (pdf(lines(BODY), page=note("Stamp", "Name")), "noted: 1 stamp is left out"),
    ".pdf attachment": (pdf(lines(BODY), catalog=ATTACHED), "noted: 1 attachment is left out"),
    ".pdf scrambled page": (pdf(lines(BODY), lines(SCRAMBLED)), "uncertain"),
    ".pdf scrambled pages": (pdf(lines(SCRAMBLED)), "refused: does not look like text"),
    ".pdf columns line by line": (pdf(columns(TEXT, BODY[:1000])), "watermarked"),
    ".pdf upside down": (pdf(lines(BODY), lines(TEXT, 560, 700, "-1 0 0 -1")), READ),
    ".csv unquoted commas": (f"text,note\n{TEXT},x\n".encode(), "refused: is damaged: row 2 has more cells"),
    ".csv two columns": (f"text,text\nx,{TEXT}\n".encode(), 'refused: has 2 columns "text"'),
    ".eml base64": (mail("text/plain", TEXT), READ),
    ".eml HTML": (mail("text/html", P), READ),
    ".eml most attached": (mail("text/plain", "See there.", f"\n--B\n{ATTACHMENT}\n\n{TEXT}\n"), READ),
    ".eml further text": (mail("text/plain", "See there.", f"\n--B\n\n{TEXT}\n"), READ),
    ".eml picture": (mail("text/html", f'{BODY}<img src="cid:1">'), "noted: 1 picture is left out"),
}  # fmt: skip


def read(kind: str, content: bytes) -> Reading | Document:
    return document_from(content, "table.csv") if kind == ".csv" else unread_documents.read(kind, content)


def outcome(kind: str, content: bytes) -> str:
    """What became of a document; "read" if the text in the construct was, and the note that it was not."""
    try:
        reading = read(kind, content)
        verdict = verdict_on(reading)
    except (Refusal, InputError) as error:
        return f"refused: {str(error).removeprefix('table.csv ')}"
    notes = left_out(reading)
    if notes:
        return f"noted: {'; '.join(notes)}"
    found = "".join(TEXT[:80].split()) in "".join(reading.text.split())
    return "read" if found and verdict == "watermarked" else verdict


@pytest.mark.parametrize("construct", CASES)
def test_what_is_seen_is_read_or_noted_or_refused(construct: str) -> None:
    content, expected = CASES[construct]
    assert outcome(construct.split(" ")[0], content).startswith(expected)


def test_stamps_and_signs_are_no_part_of_the_text() -> None:
    sign = '<img src="s.png" width="40" height="40"/>'
    small = {".html": html(sign), ".docx": docx(picture(60, 60)), ".pdf": pdf(lines(BODY) + image(60, 60))}
    for kind, content in small.items():
        assert outcome(kind, content) == "not_detected"  # and no note


NODES: dict[str, str] = data(__file__, "nodes")


def pages() -> Iterator[tuple[str, str]]:
    """Pages of HTML with marked text in each kind of node."""
    for element in NODES["elements"].split():
        yield f"in {element}", f"<{element}>{TEXT}</{element}>"
    for attribute in NODES["attributes"].split():
        yield f"{attribute} of p", f'<p {attribute}="{TEXT}">x</p>'
        yield f"{attribute} of input", f'<input type="TEXT" {attribute}="{TEXT}">'
    for style in ("display:none", "visibility:hidden"):
        yield style, f'<div style="{style}"><p>{TEXT}</p></div>'
    yield "behind the page", f"</body></html><p>{TEXT}</p>"
    yield "a second page", f"</body></html><!DOCTYPE html><html><body><p>{TEXT}</p></body></html>"
    yield "CDATA", f"<svg><text><![CDATA[{TEXT}]]></text></svg>"
    yield "a raised link", f'<sup><a href="#n">{TEXT}</a></sup>'
    yield "a style", f"<style>p::before {{content: '{TEXT}'}}</style><p>x</p>"


def nodes() -> Iterator[tuple[str, str, bytes]]:
    """Documents with marked text in each kind of node of each format: the kind, the node and the document."""
    for node, page in pages():
        yield ".html", node, html(page)
        yield ".eml", node, mail("text/html", html(page).decode())
        yield ".epub", node, book(html(page, "").decode())
        yield ".docx", node, docx('<w:altChunk r:id="aFChunk"/>', kind="aFChunk", part=page, ending="html")
    for node in NODES["word"].split():
        yield ".docx", node, docx(f"<w:p><w:{node}><w:t>{TEXT}</w:t></w:{node}></w:p>")
        yield ".docx", f"plain {node}", docx(f"<w:p><w:{node}>{TEXT}</w:{node}></w:p>")
        yield ".docx", f"attribute of {node}", docx(f'<w:p><w:{node} string="{TEXT}"/></w:p>')
    symbols = "".join(f'<w:sym w:font="Arial" w:char="F0{ord(one):02X}"/>' for one in TEXT)
    yield ".docx", "symbols", docx(f"<w:p><w:r>{symbols}</w:r></w:p>")
    yield ".docx", "button", docx(f"<w:p><w:instrText> MACROBUTTON x {TEXT}</w:instrText><w:fldChar/></w:p>")
    for kind in NODES["parts"].split():
        yield ".docx", kind, docx("", kind=kind, part=W)
    for node in NODES["opendocument"].split():
        yield ".odt", node, odt(f"<text:p><text:{node}>{TEXT}</text:{node}></text:p>")
        yield ".odt", f"attribute of {node}", odt(f'<text:p><text:{node} text:own="{TEXT}"/></text:p>')
        yield (
            ".odt",
            f"styles, {node}",
            odt("", styles=f"<style:header><text:{node}>{TEXT}</text:{node}></style:header>"),
        )
    for ordered in (True, False):
        for kind in ("text/html", "application/xhtml+xml", "image/svg+xml", "text/plain"):
            yield ".epub", f"{kind}, in order: {ordered}", book(P, kind=kind, ordered=ordered)
    codes = "".join(f"\\u{ord(one)}?" for one in TEXT)
    for node in NODES["rtf"].split():
        yield ".rtf", node, rtf(f"{{\\{node} {TEXT}}}")
        yield ".rtf", f"ignorable {node}", rtf(f"{{\\*\\{node} {TEXT}}}")
        yield ".rtf", f"codes in {node}", rtf(f"{{\\{node} {codes}}}")
    for kind in ("plain", "html", "markdown", "own"):
        yield ".eml", f"attached {kind}", mail("text/plain", BODY, f"\n--B\nContent-Type: text/{kind}\n\n{TEXT}\n")
        forwarded = (
            f"Content-Type: multipart/alternative; boundary=C\n\n--C\nContent-Type: text/{kind}\n\n{TEXT}\n--C--"
        )
        more = f"\n--B\nContent-Type: message/rfc822\n\nMIME-Version: 1.0\n{forwarded}\n"
        yield ".eml", f"forwarded {kind}", mail("text/plain", BODY, more)
    for kind in ("Text", "FreeText", "Highlight", "Popup", "Widget", "Link", "Square", "Own"):
        yield ".pdf", kind, pdf(lines(BODY), page=note(kind, "V" if kind == "Widget" else "Contents"))


@pytest.mark.parametrize("kind", [".html", ".docx", ".odt", ".epub", ".rtf", ".pdf", ".eml"])
def test_marked_text_in_any_node_is_never_called_not_marked(kind: str) -> None:
    missed = []
    for node, content in ((node, content) for one, node, content in nodes() if one == kind):
        try:
            verdict = verdict_on(read(kind, content))
        except Refusal:
            continue
        if verdict == "not_detected":
            missed.append(node)
    assert missed == []


def test_what_is_not_read_is_named_with_its_place() -> None:
    letters = f"{sum(one.isalpha() for one in TEXT):,} letters in"
    named = {
        "element p": read(".html", html(f'<template class="x"><p>{TEXT}</p></template>')),
        "word/x.xml, element t": read(".docx", docx("", kind="own", part=W)),
        "styles.xml, element p": read(".odt", odt("", styles=f"<style:header>{T}</style:header>")),
        "o/c 1, element p": read(".epub", book(P, ordered=False)),
        "group own": read(".rtf", rtf(f"{{\\*\\own {TEXT}}}")),
    }
    for place, reading in named.items():
        assert reading.notes == (f"{letters} {place} were not read",)
        assert reading.uncertain_because == "unread"


@pytest.mark.parametrize(
    ("inner", "much"),
    [
        (f"<template><p>{TEXT[:90]}</p></template>", False),
        (f"<template><p>{TEXT[:450]}</p></template>", True),  # more than a tenth
        ("<template>Tales of the sea</template>" * 90, True),  # of which each is short
        (f"<script>{TEXT}</script>", False),
    ],
)
def test_a_tenth_that_is_not_read_makes_a_text_uncertain(inner: str, much: bool) -> None:
    reading = read(".html", html(inner))
    assert reading.uncertain_because == ("unread" if much else None)
    assert verdict_on(reading) == ("uncertain" if much else "not_detected")


NAME = escape(TEXT[:600])
FLAT = (
    '<office:document xmlns:office="urn:oasis:names:tc:opendocument:xmlns:office:1.0">'
    f"<office:meta><generator>{NAME}</generator></office:meta><office:settings><item>{NAME}</item></office:settings>"
    f"<office:body><office:text><p>{escape(BODY)}</p></office:text></office:body></office:document>"
)
FRAME = f"<p class='MsoNormal and others' style='mso-style: x'>{escape(BODY)}</p>" * 20
STORY = f'<Document><Style Self="{NAME}"/><Content AppliedParagraphStyle="{NAME}">{escape(BODY)}</Content></Document>'


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("x.fodt", FLAT),
        ("x.html", f'<html><body><iframe srcdoc="{escape(FRAME)}"></iframe></body></html>'),
        ("x.icml", STORY),
    ],
)
def test_what_no_reader_sees_does_not_count(name: str, content: str) -> None:
    document = document_from(content.encode(), name)
    assert (document.incomplete, document.uncertain_because) == (False, None)
