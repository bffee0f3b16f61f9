"""Word, OpenDocument and RTF: what is seen is read wherever it stands, and decoys that nobody sees acquit no text."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dgmark import read_document
from dgmark.errors import InputError
from dgmark_documents.reading import Reading, Refusal
from support.cases import cases, data
from support.office_documents import opendocument, paragraph, root, rtf, with_part, word
from support.unread_documents import DECOY, HUMAN, left_out, pieces, read, verdict_on
from support.unread_documents import LETTERS as TEXT

BODY = HUMAN[:3000]
LETTERHEAD = (
    "Society of Letters, Harbour Street, Old Town, near the bridge of stone, open on all working days of the week"
)
FOOT = "Bank of the Harbour, account of the society, tax office of the county"


def w(inner: str) -> str:
    return paragraph(BODY) + inner


def p(inner: str) -> str:
    return f"<text:p>{BODY}</text:p>{inner}"


MAKERS: dict[str, tuple[dict[str, str], Callable[[str], bytes]]] = {
    ".docx": (data(__file__, "word"), lambda inner: word(w(inner))),
    ".odt": (data(__file__, "opendocument"), lambda inner: opendocument(p(inner))),
    ".rtf": (data(__file__, "rtf"), lambda inner: rtf(f"{BODY}\\par {inner}")),
}


@pytest.mark.parametrize("size", [0, 90, 10, 1])
@pytest.mark.parametrize("kind", MAKERS)
def test_what_is_seen_is_read_in_any_node_and_in_pieces(kind: str, size: int) -> None:
    places, make = MAKERS[kind]
    wrong = []
    for place, node in places.items():
        reading = read(kind, make("".join(node.format(piece) for piece in pieces(TEXT, size))))
        try:
            verdict = verdict_on(reading)
        except InputError:  # letters on lines of their own are no text
            assert size == 1
            continue
        found = verdict == "watermarked" and TEXT[:80] in reading.text
        if not (found if size == 0 else found or verdict in ("watermarked", "uncertain") or _letters_of(reading)):
            wrong.append((place, verdict))
    assert wrong == []


def _letters_of(reading: Reading) -> bool:
    """Whether all letters of the text were read in their order, though in pieces that hold no mark."""
    return re.sub("[^A-Za-z]", "", TEXT) in re.sub("[^A-Za-z]", "", reading.text)


def field_sign(kind: str) -> str:
    return f"<w:r><w:fldChar w:fldCharType='{kind}'/></w:r>"


def test_results_of_fields_within_results_are_read_and_codes_are_not() -> None:
    inner = f"{field_sign('begin')}<w:r><w:instrText>code</w:instrText></w:r>{field_sign('separate')}"
    inner += "<w:r><w:t>in</w:t></w:r>"
    outer = f"<w:p>{field_sign('begin')}{inner}{field_sign('end')}{field_sign('separate')}<w:r><w:t>out</w:t></w:r>"
    content = word(f"{paragraph('first')}{outer}{field_sign('end')}</w:p>")
    assert read(".docx", content).text.split() == ["first", "inout"]


def parts_of_word() -> Iterator[tuple[str, bytes]]:
    """Word documents in which the text stands in a part beside the body."""
    note = '<w:p><w:r><w:{}Reference w:id="1"/></w:r></w:p>'
    for kind in ("footnote", "endnote", "comment"):
        inner = f'<w:{kind} w:id="1">{paragraph(TEXT)}</w:{kind}>'
        yield kind, word(w(note.format(kind)), {"docProps/n.xml": (f"{kind}s", inner)})
    for end in ("header", "footer"):
        section = f'<w:sectPr><w:{end}Reference r:id="{end}"/></w:sectPr>'
        yield end, word(w(section), {"customXml/e.xml": (end, paragraph(TEXT))})
    chart = "<w:p><w:r><w:drawing><c:chart r:id='chart'/></w:drawing></w:r></w:p>"
    yield "chart", word(w(chart), {"word/c.xml": ("chart", f"<a:t>{TEXT}</a:t>")})
    level = (
        f'<w:abstractNum w:abstractNumId="2"><w:lvl w:ilvl="0"><w:lvlText w:val="{TEXT} %1."/></w:lvl></w:abstractNum>'
    )
    number = '<w:num w:numId="1"><w:abstractNumId w:val="2"/></w:num>'
    item = paragraph("x", about='<w:numPr><w:ilvl w:val="0"/><w:numId w:val="1"/></w:numPr>')
    yield "number of a list", word(w(item), {"word/n.xml": ("numbering", level + number)})
    title = {"p.xml": ("core-properties", f"<dc:title>{TEXT}</dc:title>")}
    yield "title", word(w("<w:p><w:fldSimple w:instr=' TITLE '/></w:p>"), title)
    binding = '<w:dataBinding w:xpath="/a:x[1]/dc:own[1]" w:storeItemID="{1}"/>'
    store = {"word/i.xml": ("customXml", f"<dc:own>{TEXT}</dc:own>")}
    yield "bound control", word(w(f"<w:sdt><w:sdtPr>{binding}</w:sdtPr></w:sdt>"), store)


def parts_of_opendocument() -> Iterator[tuple[str, bytes]]:
    """OpenDocument texts in which the text stands in a style, a declaration or another part."""
    page = "<office:master-styles><style:master-page style:name='S'>{}</style:master-page></office:master-styles>"
    for end in ("header", "footer"):
        yield end, opendocument(p(""), styles=page.format(f"<style:{end}><text:p>{TEXT}</text:p></style:{end}>"))
    level = f'<text:list-level-style-number style:num-prefix="{TEXT}"/>'
    listing = '<text:list text:style-name="L"><text:list-item><text:p>x</text:p></text:list-item></text:list>'
    style = f'<text:list-style style:name="L">{level}</text:list-style>'
    yield "number of a list", opendocument(p(listing), automatic=style)
    declared = f'<text:user-field-decl text:name="a" office:string-value="{TEXT}"/>'
    yield "field", opendocument(p(f'{declared}<text:p><text:user-field-get text:name="a"/></text:p>'))
    chart = "<text:p><draw:frame><draw:object xlink:href='./Object 1'/></draw:frame></text:p>"
    yield "chart", opendocument(p(chart), parts={"Object 1/content.xml": f"<text:p>{TEXT}</text:p>"})


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        *(pytest.param(".docx", content, id=f".docx {name}") for name, content in parts_of_word()),
        *(pytest.param(".odt", content, id=f".odt {name}") for name, content in parts_of_opendocument()),
    ],
)
def test_what_is_seen_of_other_parts_is_read(kind: str, content: bytes) -> None:
    reading = read(kind, content)
    assert verdict_on(reading) == "watermarked"
    assert TEXT in reading.text
    assert reading.uncertain_because is None


STYLE = "<w:style w:type='character' w:styleId='{}'>{}<w:rPr>{}</w:rPr></w:style>"
STYLES = {
    "s.xml": (
        "styles",
        STYLE.format("h", "", "<w:vanish/>") + STYLE.format("i", "<w:basedOn w:val='h'/>", "<w:b/>")
        + STYLE.format("t", "", "<w:sz w:val='2'/>"),
    )
}  # fmt: skip


def decoys() -> Iterator[tuple[str, str, bytes]]:
    """Documents of marked text among whose words stand others that nobody sees."""
    words = list(zip(re.findall("(?:[^ ]+ ?){4}", TEXT), re.findall("(?:[^ ]+ ?){12}", DECOY), strict=False))
    for look in data(__file__, "looks"):
        runs = "".join(f"<w:r><w:t>{a}</w:t></w:r><w:r><w:rPr>{look}</w:rPr><w:t>{b}</w:t></w:r>" for a, b in words)
        yield ".docx", look, word(f"<w:p>{runs}</w:p>", STYLES)
    for name, node in data(__file__, "hidden").items():
        yield ".docx", name, word(paragraph(TEXT) + node.format(DECOY))
    for look in data(__file__, "span_looks"):
        style = f"<style:style style:name='d' style:family='text'><style:text-properties {look}/></style:style>"
        style = style.replace("loext_", "style:")
        spans = "".join(f'{a}<text:span text:style-name="d">{b}</text:span>' for a, b in words)
        yield ".odt", look, opendocument(f"<text:p>{spans}</text:p>", automatic=style)
    for look in ("fo:text-indent='-60cm'", "fo:margin-right='60cm'", "fo:margin='-60cm'", "fo:line-height='1%'"):
        style = (
            f"<style:style style:name='d' style:family='paragraph'><style:paragraph-properties {look}/></style:style>"
        )
        flat = f"<text:p text:style-name='d'>{DECOY}</text:p>"
        yield ".odt", look, opendocument(f"<text:p>{TEXT}</text:p>{flat}", automatic=style)
    for name, around in data(__file__, "hidden_in_opendocument").items():
        yield ".odt", name, opendocument(f"<text:p>{TEXT}</text:p>{around.format(DECOY)}")
    for look in data(__file__, "rtf_looks"):
        yield ".rtf", look, rtf("".join(f"{a}{{{look} {b}}}" for a, b in words))
    yield ".rtf", "behind the end", rtf(f"{TEXT}}}{DECOY}{{")


@pytest.mark.parametrize(
    ("kind", "content"), [pytest.param(kind, content, id=f"{kind} {name}") for kind, name, content in decoys()]
)
def test_decoys_that_nobody_sees_acquit_no_text(kind: str, content: bytes) -> None:
    try:
        reading = read(kind, content)
    except Refusal:  # most of its letters are hidden
        return
    assert verdict_on(reading) in ("watermarked", "uncertain")
    assert reading.uncertain_because or left_out(reading)


def letter(kind: str, body: str) -> bytes:
    if kind == ".rtf":
        return rtf(f"{{\\header {LETTERHEAD}}}{{\\footer {FOOT}}}{body}")
    if kind == ".odt":
        ends = f"<style:header><text:p>{LETTERHEAD}</text:p></style:header>"
        ends += f"<style:footer><text:p>{FOOT}</text:p></style:footer>"
        pages = f"<office:master-styles><style:master-page>{ends}</style:master-page></office:master-styles>"
        return opendocument(f"<text:p>{body}</text:p>", styles=pages)
    section = '<w:sectPr><w:headerReference r:id="header"/><w:footerReference r:id="footer"/></w:sectPr>'
    ends_of = {"h.xml": ("header", paragraph(LETTERHEAD)), "f.xml": ("footer", paragraph(FOOT))}
    return word(paragraph(body) + section, ends_of)


@pytest.mark.parametrize("kind", MAKERS)
def test_a_letter_with_a_letterhead_and_a_foot_is_an_ordinary_document(kind: str) -> None:
    long = read(kind, letter(kind, " ".join(HUMAN.split()[:300])))
    assert (verdict_on(long), long.notes) == ("not_detected", ())
    assert long.text.endswith(f"\n\n{LETTERHEAD}\n\n{FOOT}")
    short = read(kind, letter(kind, " ".join(HUMAN.split()[:25])))
    assert short.uncertain_because is None
    assert verdict_on(read(kind, letter(kind, TEXT))) == "watermarked"


@pytest.mark.parametrize(("look", "about"), cases(__file__, "seen"))
def test_text_that_can_be_seen_is_not_taken_for_hidden(look: str, about: str) -> None:
    reading = read(".docx", word(paragraph(TEXT, look, about), STYLES))
    assert (reading.notes, verdict_on(reading)) == ((), "watermarked")


@pytest.mark.parametrize("gap", ["~", "tab ", "_"])
def test_spaces_and_hyphens_that_hold_words_together_read_as_plain_ones(gap: str) -> None:
    reading = read(".rtf", rtf(TEXT.replace(" ", f"\\{gap}") if gap != "_" else TEXT.replace("-", "\\_")))
    assert reading.text == TEXT


def test_a_rtf_file_of_brackets_is_read_in_time_that_grows_with_its_size() -> None:
    depth = 30_000
    assert read(".rtf", rtf("{" * depth + TEXT + "}" * depth)).text == TEXT
    with pytest.raises(Refusal, match="cut off"):
        read(".rtf", b"{\\rtf1 " + b"{" * depth)


@pytest.mark.parametrize("name", ["letter.docm", "letter.dotx", "letter.dotm", "letter.ott"])
def test_templates_and_documents_with_macros_are_read_under_their_names(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(opendocument(p("")) if name.endswith("t") else word(w("")))
    document = read_document(path)
    assert (document.text.split(), document.notes) == (BODY.split(), ())


def test_a_document_in_one_piece_is_read_as_a_packed_one(tmp_path: Path) -> None:
    ends = f"<office:master-styles><style:master-page><style:header><text:p>{LETTERHEAD}</text:p></style:header>"
    text = f"<office:body><office:text><text:p>{BODY}</text:p></office:text></office:body>"
    whole = root(f"{ends}</style:master-page></office:master-styles>{text}").replace("w:x", "office:document")
    (tmp_path / "letter.fodt").write_text(f"<?xml version='1.0'?>{whole}")
    document = read_document(tmp_path / "letter.fodt")
    assert (document.kind, document.text.split()) == ("OpenDocument text", f"{BODY} {LETTERHEAD}".split())
    assert document.uncertain_because is None


def test_parts_that_name_a_type_are_read_as_old_office_programs_write_them() -> None:
    manifest = '<!DOCTYPE manifest PUBLIC "-//OpenOffice.org//DTD Manifest 1.0//EN" "Manifest.dtd"><manifest/>'
    content = with_part(opendocument(p("")), "META-INF/manifest.xml", manifest)
    assert read(".odt", content).text.split() == BODY.split()


def test_ids_that_xml_does_not_allow_harm_nothing_and_other_faults_are_damage() -> None:
    odd = '<text:p xml:id="part#1">x</text:p>'
    assert read(".odt", opendocument(p(odd))).text.split() == [*BODY.split(), "x"]
    with pytest.raises(Refusal, match="is damaged"):
        read(".odt", opendocument(p(f"{odd}<text:p>")))
