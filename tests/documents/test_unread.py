"""What readers of a document see is read, or noted, or the document is refused: one table over kinds and constructs."""

import base64
import io
import re
import zipfile
from pathlib import Path

import pytest

from dgmark import Detector, read_document
from dgmark.errors import InputError
from support.known_keys import known_key
from support.marked_texts import marked_text

KEY = known_key("unread", rule="bigram")
DETECTOR = Detector(KEY)
# stands in the construct; with commas, as text has
TEXT = ", ".join(re.findall(r"(?:\S+ ){40}\S+", marked_text(KEY, 330)))
BODY = re.sub(r'[()"]', "", " ".join((Path(__file__).parents[2] / "LICENSE").read_text("utf-8").split()))[:3000]
SHORT = BODY[:400]
SCRAMBLED = TEXT.translate(str.maketrans("abcdefghijklmnopqrstuvwxyz", "qwertyuiopasdfghjklzxcvbnm"))
READ, REFUSED = "read", "refused: is not read for the most part"
PREFIXES = ("a", "dgm", "draw", "mc", "office", "pic", "r", "style", "svg", "text", "w", "wp", "wps")
NAMES = " ".join(f'xmlns:{name}="urn:{name}"' for name in PREFIXES)


def packed(parts: dict[str, str]) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, part in parts.items():
            archive.writestr(name, part)
    return content.getvalue()


def html(inner: str, body: str = BODY) -> bytes:
    return f"<html><body><p>{body}</p>{inner}</body></html>".encode()


def root(inner: str) -> str:
    return f"<w:x {NAMES}>{inner}</w:x>"


def related(kind: str, target: str) -> str:
    return f'<x><Relationship xmlns="urn:x" Id="x" Type="urn:r/{kind}" Target="{target}"/></x>'


def docx(inner: str, body: str = BODY, kind: str = "none", part: str = "", ending: str = "xml") -> bytes:
    """A Word document; `part` is one more part of it, of this kind of relation."""
    main = {"[Content_Types].xml": "", "_rels/.rels": related("officeDocument", "word/d.xml")}
    more = {"word/_rels/d.xml.rels": related(kind, f"x.{ending}"), f"word/x.{ending}": root(part)}
    return packed({**main, "word/d.xml": root(f"<w:body><w:p><w:t>{body}</w:t></w:p>{inner}</w:body>"), **more})


def picture(width: int, height: int) -> str:
    extent = f'<wp:extent cx="{width * 12700}" cy="{height * 12700}"/>'
    return f"<w:p><w:r><w:drawing>{extent}<pic:pic/></w:drawing></w:r></w:p>"


def odt(inner: str, body: str = BODY, styles: str = "") -> bytes:
    text = root(f"<office:body><office:text><text:p>{body}</text:p>{inner}</office:text></office:body>")
    kind = "application/vnd.oasis.opendocument.text"
    return packed({"mimetype": kind, "content.xml": text, "styles.xml": root(styles)})


def frame(inner: str) -> str:
    return f'<text:p><draw:frame svg:width="17cm" svg:height="25cm">{inner}</draw:frame></text:p>'


def epub(*chapters: str, linear: str = "yes", kind: str = "text/html", ordered: bool = True, locked: str = "") -> bytes:
    """A book of BODY and these chapters, which stand in the reading order or outside of it."""
    numbers = range(1, len(chapters) + 1)
    items = "".join(f'<item id="c{n}" href="c%20{n}" media-type="{kind}"/>' for n in numbers)
    order = "".join(f'<itemref idref="c{n}" linear="{linear}"/>' for n in numbers if ordered)
    manifest = f'<manifest><item id="b" href="b" media-type="text/html"/>{items}</manifest>'
    return packed(
        {
            "mimetype": "application/epub+zip",
            "META-INF/container.xml": '<c><rootfile full-path="o/p.opf"/></c>',
            "META-INF/encryption.xml": f'<e><CipherReference URI="{locked}"/></e>',
            "o/p.opf": f'<p>{manifest}<spine><itemref idref="b"/>{order}</spine></p>',
            "o/b": f"<p>{BODY}</p>",
            **{f"o/c {n}": chapter for n, chapter in enumerate(chapters, 1)},
        }
    )


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


def pdf(*pages: str, notes: str = "", names: str = "") -> bytes:
    """A PDF of pages of 600 by 800 points; `notes` are the annotations on each."""
    numbers = range(4, 4 + 2 * len(pages), 2)
    about = f"/Parent 2 0 R/MediaBox[0 0 600 800]/Resources<</Font<</F 3 0 R>>>>/Annots[{notes}]"
    objects = [
        f"<</Type/Catalog/Pages 2 0 R{names}>>",
        f"<</Type/Pages/Kids[{' '.join(f'{n} 0 R' for n in numbers)}]/Count {len(pages)}>>",
        "<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
    ]
    for n, page in zip(numbers, pages, strict=True):
        objects += [f"<</Type/Page/Contents {n + 1} 0 R{about}>>", f"<</Length {len(page)}>>stream\n{page}\nendstream"]
    body = "".join(f"{n} 0 obj {one} endobj\n" for n, one in enumerate(objects, 1))
    return f"%PDF-1.7\n{body}trailer<</Root 1 0 R>>\n%%EOF".encode()


def note(kind: str, name: str = "Contents") -> str:
    return f"<</Type/Annot/Subtype/{kind}/FT/Tx/Rect[50 50 550 90]/{name}({TEXT})>>"


def mail(kind: str, content: str, more: str = "") -> bytes:
    header = "From: a@example.org\nMIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=B\n\n--B\n"
    encoded = f"Content-Transfer-Encoding: base64\n\n{base64.encodebytes(content.encode()).decode()}"
    return f"{header}Content-Type: {kind}; charset=utf-8\n{encoded}\n{more}--B--\n".encode()


CHARACTERS = f"noted: {len(TEXT)} characters"
P, W, T = f"<p>{TEXT}</p>", f"<w:p><w:r><w:t>{TEXT}</w:t></w:r></w:p>", f"<text:p>{TEXT}</text:p>"
SVG = f"<svg><text>{TEXT}</text></svg>"
OUTLINE = ("20 20 m " + "30 30 40 40 50 50 c " * 12 + "f ") * 90
FOOT = "Downloaded from the library of the university on a day of the week, for the use of its members only, page"
SCAN = "{\\pict\\picwgoal9000\\pichgoal12000 00}"
ATTACHED = "/Names<</EmbeddedFiles<</Names[(a)<</Type/Filespec/F(a)>>]>>>>"
CASES = {
    ".html aria-hidden": (html(f'<p aria-hidden="true">{TEXT}</p>'), READ),
    ".html textarea": (html(f"<textarea>{TEXT}</textarea>"), READ),
    ".html button": (html(f"<button>{TEXT}</button>"), READ),
    ".html dialog open": (html(f"<dialog open>{P}</dialog>"), READ),
    ".html dialog closed": (html(f"<dialog>{P}</dialog>"), f"{CHARACTERS} of hidden parts are left out"),
    ".html select": (html(f"<select><option>{TEXT}</select>"), f"{CHARACTERS} of lists of choices are left out"),
    ".html SVG text": (html(SVG), READ),
    ".html MathML text": (html(f"<math><mtext>{TEXT}</mtext></math>"), READ),
    ".html srcdoc": (html(f'<iframe srcdoc="&lt;p&gt;{TEXT}&lt;/p&gt;"></iframe>'), READ),
    ".html frame": (html('<iframe src="other.html"></iframe>'), "noted: 1 embedded object is left out"),
    ".html shadow root": (html(f'<div><template shadowrootmode="open">{P}</template></div>'), READ),
    ".html visible in hidden": (html(f'<p style="visibility:hidden"><b style="visibility: visible">{TEXT}</b>'), READ),
    ".html hidden": (html(f'<div style="visibility:hidden">{P}</div>'), f"{CHARACTERS} of hidden parts are left out"),
    ".html script": (html(f'<script>document.write("{TEXT}")</script>'), "noted: 1 script is left out"),
    ".html picture": (html('<img src="page.png">'), "noted: 1 picture is left out"),
    ".html pictures of pages": (html('<img src="page.png">' * 9, SHORT), REFUSED),
    ".html drawn letters": (html(f'<svg><path d="{"C 2 2 3 3 4 4 " * 300}"/></svg>'), "noted: 1 picture is left out"),
    ".html picture aside": (html('<aside><img src="page.png"></aside>'), "noted: 1 picture is left out"),
    ".docx picture of a page": (docx(picture(500, 700)), "noted: 1 picture is left out"),
    ".docx pictures of pages": (docx(picture(500, 700) * 3), REFUSED),
    ".docx picture in VML": (docx("<w:pict><w:imagedata/></w:pict>"), "noted: 1 picture is left out"),
    ".docx text box without VML": (docx(f"<mc:Choice><w:drawing>{W}</w:drawing></mc:Choice>"), READ),
    ".docx altChunk of HTML": (docx('<w:altChunk r:id="x"/>', kind="aFChunk", part=P, ending="html"), READ),
    ".docx altChunk": (docx('<w:altChunk r:id="x"/>', part=P, ending="rtf"), "noted: 1 embedded object is left out"),
    ".docx SmartArt": (docx('<dgm:relIds r:dm="x"/>', kind="diagramData", part=f"<a:p><a:t>{TEXT}</a:t></a:p>"), READ),
    ".docx header": (docx("", kind="header", part=W), f"{CHARACTERS} of headers and footers are left out"),
    ".docx most in header": (docx("", SHORT, kind="header", part=W), REFUSED),
    ".docx footnote": (docx("", kind="footnotes", part=W), READ),
    ".docx comment": (docx("", kind="comments", part=W), f"{CHARACTERS} of comments are left out"),
    ".docx deletion": (docx(f"<w:del><w:delText>{TEXT}</w:delText></w:del>"), f"{CHARACTERS} of tracked deletions"),
    ".docx fldSimple": (docx(f"<w:p><w:fldSimple><w:t>{TEXT}</w:t></w:fldSimple></w:p>"), READ),
    ".docx ruby": (docx(f"<w:ruby><w:rt><w:t>x</w:t></w:rt><w:rubyBase><w:t>{TEXT}</w:t></w:rubyBase></w:ruby>"), READ),
    ".docx object": (docx("<w:p><w:object/></w:p>"), "noted: 1 embedded object is left out"),
    ".odt picture of a page": (odt(frame("<draw:image/>")), "noted: 1 picture is left out"),
    ".odt pictures of pages": (odt(frame("<draw:image/>") * 3), REFUSED),
    ".odt embedded object": (odt(frame("<draw:object/>")), "noted: 1 embedded object is left out"),
    ".odt linked section": (odt("<text:s><text:section-source/></text:s>"), "noted: 1 linked section is left out"),
    ".odt annotation": (odt(f"<text:annotation>{T}</text:annotation>"), f"{CHARACTERS} of comments are left out"),
    ".odt deletion": (odt(f"<text:tracked-changes>{T}</text:tracked-changes>"), f"{CHARACTERS} of tracked deletions"),
    ".odt header": (odt("", styles=f"<style:header>{T}</style:header>"), f"{CHARACTERS} of headers and footers"),
    ".odt text box": (odt(frame(f"<draw:text-box>{T}</draw:text-box>")), READ),
    ".epub linear no": (epub(P, linear="no"), READ),
    ".epub outside the spine": (epub(P, ordered=False), f"{CHARACTERS} of chapters outside the reading order are left"),
    ".epub most outside the spine": (epub(P * 4, ordered=False), REFUSED),
    ".epub SVG chapter": (epub(SVG, kind="image/svg+xml"), READ),
    ".epub picture chapter": (epub("x", kind="image/png"), "noted: 1 chapter of pictures is left out"),
    ".epub picture chapters": (epub(*"xxx", kind="image/png"), REFUSED),
    ".epub chapter of a picture": (epub('<img src="page.png"/>'), "noted: 1 picture is left out"),
    ".epub DRM": (epub(P, locked="o/c%201"), "refused: is protected against reading (DRM)"),
    ".rtf shape": (rtf(f"{{\\shp{{\\*\\shpinst{{\\sp{{\\sn x}}{{\\sv 1}}}}{{\\shptxt {TEXT}}}}}}}"), READ),
    ".rtf old text box": (rtf(f"{{\\*\\do\\dobxcolumn{{\\dptxbxtext {TEXT}}}}}"), READ),
    ".rtf header": (rtf(f"{{\\header {TEXT}}}"), f"{CHARACTERS} of headers and footers are left out"),
    ".rtf most in header": (rtf(f"{{\\header {TEXT}}}", SHORT), REFUSED),
    ".rtf footnote": (rtf(f"x{{\\footnote {TEXT}}}"), READ),
    ".rtf picture": (rtf(f"{{\\*\\shppict{SCAN}}}{{\\nonshppict{SCAN}}}"), "noted: 1 picture is left out"),
    ".rtf pictures of pages": (rtf(SCAN * 9), REFUSED),
    ".pdf scans with a foot line": (pdf(*[image(560, 720) + lines(f"{FOOT} {n}", 40, 30) for n in range(3)]), REFUSED),
    ".pdf scans with captions": (pdf(*[image(560, 600) + lines(BODY[n:][:360], 40, 720) for n in (0, 400)]), REFUSED),
    ".pdf scan of a page": (pdf(lines(BODY), image(560, 720) + lines(FOOT)), "noted: 1 page of pictures (page 2) is"),
    ".pdf picture": (pdf(lines(BODY) + image(200, 200)), "noted: 1 picture (page 1) is left out"),
    ".pdf outlined text": (pdf(lines(BODY), OUTLINE), "noted: 1 page of drawn letters (page 2) is left out"),
    ".pdf outlined pages": (pdf(lines(SHORT), OUTLINE), REFUSED),
    ".pdf FreeText": (pdf(lines(BODY), notes=note("FreeText")), READ),
    ".pdf form": (pdf(lines(BODY), notes=note("Widget", "V")), READ),
    ".pdf comment": (pdf(lines(BODY), notes=note("Text")), f"{CHARACTERS} of comments are left out"),
    ".pdf stamp": (pdf(lines(BODY), notes=note("Stamp", "Name")), "noted: 1 stamp is left out"),
    ".pdf attachment": (pdf(lines(BODY), names=ATTACHED), "noted: 1 attachment is left out"),
    ".pdf scrambled page": (pdf(lines(BODY), lines(SCRAMBLED)), "noted: 1 page of letters that make no words (page 2)"),
    ".pdf scrambled pages": (pdf(lines(SCRAMBLED)), REFUSED),
    ".pdf columns line by line": (pdf(columns(TEXT, BODY[:1000])), READ),
    ".pdf upside down": (pdf(lines(BODY), lines(TEXT, 560, 700, "-1 0 0 -1")), READ),
    ".csv unquoted commas": (f"text,note\n{TEXT},x\n".encode(), "refused: is damaged: row 2 has more cells"),
    ".csv two columns": (f"text,text\nx,{TEXT}\n".encode(), 'refused: has 2 columns "text"'),
    ".eml base64": (mail("text/plain", TEXT), READ),
    ".eml HTML": (mail("text/html", P), READ),
    ".eml attachment": (mail("text/plain", BODY, f"\n--B\n\n{TEXT}\n"), "noted: 1 attachment is left out"),
    ".eml most attached": (mail("text/plain", "See there.", f"\n--B\n\n{TEXT}\n"), REFUSED),
    ".eml picture": (mail("text/html", f'{BODY}<img src="cid:1">'), "noted: 1 picture is left out"),
    ".mht base64": (mail("text/html", P), READ),
    " e-mail without a name": (mail("text/plain", TEXT), READ),
}  # fmt: skip


def outcome(path: Path) -> str:
    """What became of a document; "read" if the text in the construct was, and the note that it was not."""
    try:
        document = read_document(path)
    except InputError as error:
        return str(error).replace(str(path), "refused:")
    verdict = DETECTOR.detect(document.text).verdict
    if document.incomplete:
        return f"noted: {'; '.join(document.notes)}"
    return (
        "read" if verdict == "watermarked" and "".join(TEXT[:80].split()) in "".join(document.text.split()) else verdict
    )


@pytest.mark.parametrize("construct", CASES)
def test_what_is_seen_is_read_or_noted_or_refused(construct: str, tmp_path: Path) -> None:
    content, expected = CASES[construct]
    path = tmp_path / f"document{construct.split(' ')[0]}"
    path.write_bytes(content)
    assert outcome(path).startswith(expected)


def test_stamps_and_signs_are_no_part_of_the_text(tmp_path: Path) -> None:
    sign = '<img src="s.png" width="40" height="40"/>'
    small = {"a.html": html(sign), "a.docx": docx(picture(60, 60)), "a.pdf": pdf(lines(BODY) + image(60, 60))}
    for name, content in small.items():
        (tmp_path / name).write_bytes(content)
        assert outcome(tmp_path / name) == "not_detected"  # and no note
