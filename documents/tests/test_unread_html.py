"""Pages, books and e-mails: marked text that a reader sees is found, or the verdict says what was not read."""

import base64
from collections.abc import Iterator
from html import escape
from urllib.parse import quote

from dgmark_documents.reading import Reading, Refusal
from support import unread_documents
from support.cases import data
from support.office_documents import epub
from support.unread_documents import BODY, TEXT, pieces

DECOYS = (BODY * 3).lower().split()[:1000]
SIZES = (1, 10, 90)


def page(inner: str, head: str = "") -> str:
    return f"<!doctype html><html><head>{head}</head><body><p>{BODY}</p>{inner}</body></html>"


def book(parts: dict[str, str], items: str, spine: str = "", about: str = "") -> bytes:
    """A book of a chapter of BODY and these parts."""
    chapter = '<item id="b" href="b.xhtml" media-type="application/xhtml+xml"/>'
    first = {"b.xhtml": f"<html><body><p>{BODY}</p></body></html>"}
    return epub(chapter + items, f'<itemref idref="b"/>{spine}', {**first, **parts}, about)


def mail(kind: str, *parts: tuple[str, str], header: str = "") -> bytes:
    """An e-mail of these parts, each a header and a text."""
    joined = "".join(f"--B\n{head}\n\n{text}\n" for head, text in parts)
    return (
        f"From: a@b\nMIME-Version: 1.0\n{header}Content-Type: multipart/{kind}; boundary=B\n\n{joined}--B--\n".encode()
    )


def read(content: bytes) -> Reading:
    kind = ".eml" if content.startswith(b"From") else ".epub" if content.startswith(b"PK") else ".html"
    return unread_documents.read(kind, content)


def outcome(content: bytes) -> str:
    """The verdict, "noted" for one that is not detected with a note, or "refused"."""
    try:
        return unread_documents.outcome(read(content))
    except Refusal:
        return "refused"


def string(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def attributes() -> Iterator[tuple[str, str]]:
    """Pages with the text in attributes: whole, and in pieces."""
    for name, element in data(__file__, "attributes").items():
        for size in (90, len(TEXT)):
            held = "".join(element.format(f'{name}="{escape(one)}"') for one in pieces(TEXT, size))
            yield f"{name} in pieces of {size}", page(f"<select>{held}</select>" if name == "label" else held)
    for size in (*SIZES, len(TEXT)):
        held = "".join(f'<x-w t="{escape(one)}"></x-w>' for one in pieces(TEXT, size))
        yield f"own attribute, shown, {size}", page(held, "<style>x-w::before{content:attr(t)}</style>")
        yield f"own attribute, shown behind, {size}", page(held, "<style>x-w:after{content:'' attr(t)}</style>")


def inline() -> Iterator[tuple[str, str]]:
    """Pages with the text in pieces of elements that stand in a line."""
    elements = "b span i a em u font x-own button label tt bdi mark"
    around = "div p nav aside header footer td dialog-open li blockquote pre figcaption details section"
    for size in SIZES:
        for element in elements.split():
            yield f"{element} of {size}", page("".join(f"<{element}>{one}</{element}>" for one in pieces(TEXT, size)))
        held = "".join(f"<b>{one}</b>" for one in pieces(TEXT, size))
        for element in around.split():
            yield f"b of {size} in {element}", page(f"<{element.replace('-', ' ')}>{held}</{element.split('-')[0]}>")
        yield (
            f"inline blocks of {size}",
            page("".join(f"<s style='display:inline'>{one}</s>" for one in pieces(TEXT, size))),
        )


def words() -> Iterator[tuple[str, str]]:
    """Pages that show the text word by word."""
    found = TEXT.split()
    order = sorted(range(len(found)), key=lambda n: (n * 7919) % len(found))

    def each(element: str, around: str = "{}", style: str = "") -> str:
        return page(around.format("".join(element.format(one) for one in found)), f"<style>{style}</style>")

    for name, row in data(__file__, "words").items():
        yield name, each(*row)
    yield "no-break spaces", page(TEXT.replace(" ", "&nbsp;"))
    yield "thin spaces", page(TEXT.replace(" ", "\u2009"))
    items = "".join(f'<i style="order:{n}">{found[n]}&nbsp;</i>' for n in order)
    yield "order", page(f'<div style="display:flex">{items}</div>')
    backwards = "".join(f"<i>{one} </i>" for one in reversed(found))
    yield "reversed", page(f'<div style="display:flex;flex-direction:row-reverse">{backwards}</div>')
    yield "letters from behind", page(f'<bdo dir="rtl">{TEXT[::-1]}</bdo>')
    yield "letters from behind by style", page(f'<p style="direction:rtl;unicode-bidi:bidi-override">{TEXT[::-1]}</p>')
    grid = "".join(f'<i style="grid-row:{n // 9 + 1};grid-column:{n % 9 + 1}">{found[n]} </i>' for n in order)
    yield "a grid in another order", page(f'<div style="display:grid">{grid}</div>')
    moved = "".join(f'<i style="position:relative;left:{n * 9}px">{found[n]} </i>' for n in order)
    yield "moved", page(moved)


def styles() -> Iterator[tuple[str, str]]:
    """Pages whose styles show the text."""
    text, mark = string(TEXT), '<ul><li id="a">x</li></ul>'
    for name, rule in data(__file__, "rules").items():
        sheet = rule % text
        yield name, page(mark, f"<style>{sheet}</style>")
        yield f"{name}, data", page(mark, f'<link rel=stylesheet href="data:text/css,{quote(sheet)}">')
        yield f"{name}, imported", page(mark, f"<style>@import url('data:text/css,{quote(sheet)}');</style>")
    escaped = "".join(f"\\{ord(one):06x}" for one in TEXT)
    yield "escapes", page(mark, f"<style>#a::before{{content:'{escaped}'}}</style>")
    yield (
        "a style attribute",
        page(f'<p id=b style="--t:{escape(text)}"></p>', "<style>#b::before{content:var(--t)}</style>"),
    )
    yield "hidden and shown again", page(f"<p hidden>{TEXT}</p>", "<style>[hidden]{display:block}</style>")
    yield (
        "hidden and shown on the screen",
        page(f"<p class=h>{TEXT}</p>", "<style>@media print{.h{display:none}}</style>"),
    )
    yield "a template", page(f"<template>{TEXT}</template>", "<style>template{display:block}</style>")
    name = "<style>#b::before{content:attr(|data-t)}</style>"
    yield "an attribute without a namespace", page(f'<p id=b data-t="{TEXT}"></p>', name)
    hover = "<style>.h{display:none}p:hover .h{display:block}</style>"
    yield "shown under the pointer", page(f"<p>x<span class=h>{TEXT}</span></p>", hover)


def frames() -> Iterator[tuple[str, str]]:
    """Pages that hold another page, or are followed by one."""
    inner = f"<p>{TEXT}</p>"
    coded = base64.b64encode(inner.encode()).decode()
    addresses = {"plain": f"data:text/html,{quote(inner)}", "base64": f"data:text/html;charset=utf-8;base64,{coded}"}
    addresses["text"] = f"data:,{quote(TEXT)}"
    addresses["drawing"] = f"data:image/svg+xml,{quote(f'<svg><text>{TEXT}</text></svg>')}"
    for name, address in addresses.items():
        yield f"frame, {name}", page(f'<iframe src="{address}"></iframe>')
        yield f"object, {name}", page(f'<object data="{address}"></object>')
        yield f"embed, {name}", page(f'<embed src="{address}">')
        yield f"refresh, {name}", page("", f'<meta http-equiv="Refresh" content="0; URL={address}">')
    yield "script", page(f'<script>document.write("{TEXT}")</script>')
    yield "handler", page(f"<svg onload='document.write(\"{TEXT}\")'></svg>")
    yield "address of a script", page(f"<a href=' JavaScript:document.write(\"{TEXT}\")'>x</a>")
    for name, element in {
        "style": '<img width=9 height=9 style="width:900px;height:1200px">',
        "input": '<input type="IMAGE" src=x width=900 height=1200>',
        "background": '<p style="background:url(x.png)">x</p>',
        "background attribute": '<table background="x.png"></table>',
        "lines": "<svg>" + '<polyline points="0,1 0,9 3,5"/>' * 900 + "</svg>",
        "symbols": "<svg>" + '<use href="g.svg#a"/>' * 400 + "</svg>",
        "many drawings": ("<svg>" + '<path d="M 0 1 L 0 9 L 3 5"/>' * 9 + "</svg>") * 90,
    }.items():
        yield f"picture, {name}", page(element)
    yield "background by sheet", page("<p id=a>x</p>", "<style>#a{background:url('x.png')}</style>")
    yield "external sheet", page("<p id=a>x</p>", "<link rel=stylesheet href=x.css>")


def books() -> Iterator[tuple[str, bytes]]:
    chapter = '<item id="c" href="c.xhtml" media-type="application/xhtml+xml" {}/>'
    order = '<itemref idref="c"/>'
    for size in SIZES:
        held = "".join(f"<b>{one}</b>" for one in pieces(TEXT, size))
        for element in ("p", "aside", "nav", "header", "footer", "div role='note'"):
            name = element.split()[0]
            part = f"<html><body><{element}>{held}</{name}></body></html>"
            yield f"{element}, {size}", book({"c.xhtml": part}, chapter.format(""), order)
    lines = "".join(f"<li><a href='x'>{one}</a></li>" for one in pieces(TEXT, 90))
    contents = f"<html><body><nav><ol>{lines}</ol></nav></body></html>"
    yield "contents", book({"c.xhtml": contents}, chapter.format('properties="nav"'))
    points = "".join(f"<navPoint><navLabel><text>{one}</text></navLabel></navPoint>" for one in pieces(TEXT, 90))
    ncx = '<item id="n" href="n.ncx" media-type="application/x-dtbncx+xml"/>'
    yield "old contents", book({"n.ncx": f"<ncx><navMap>{points}</navMap></ncx>"}, ncx)
    for name in ("title", "description", "rights", "subject"):
        yield f"package, {name}", book({}, "", about=f"<{name}>{TEXT}</{name}>")
    entity = f'<!DOCTYPE html [<!ENTITY s "x"><!ENTITY t "{TEXT}">]><html><body><p>&t;</p></body></html>'
    yield "entity", book({"c.xhtml": entity}, chapter.format(""), order)
    sheet = '<item id="s" href="s.css" media-type="text/css"/>'
    styled = '<html><head><link rel="stylesheet" href="s.css"/></head><body><p id="a">x</p></body></html>'
    parts = {"c.xhtml": styled, "s.css": f"#a::before{{content:{string(TEXT)}}}"}
    yield "style sheet", book(parts, chapter.format("") + sheet, order)
    shown = styled.replace('id="a"', f'id="a" t="{TEXT}"')
    yield (
        "attribute",
        book({"c.xhtml": shown, "s.css": "#a::before{content:attr(t)}"}, chapter.format("") + sheet, order),
    )
    yield "outside of the order", book({"META-INF/c.xhtml": f"<p>{TEXT}</p>"}, "")


def mails() -> Iterator[tuple[str, bytes]]:
    plain = ("Content-Type: text/plain", BODY)
    markup = f"<html><body><p>{TEXT}</p></body></html>"
    texts = {
        "text/plain": TEXT,
        "text/html": markup,
        "application/xhtml+xml": markup,
        "text/enriched": f"<b>{TEXT}</b>",
    }
    texts |= {"text/calendar": f"DESCRIPTION:{TEXT}", "application/pdf": TEXT, "text/x-own": TEXT, "image/png": TEXT}
    texts |= {"image/svg+xml": f"<svg><text>{TEXT}</text></svg>", "application/rtf": TEXT}
    for outer in ("mixed", "alternative", "related", "signed", "own"):
        for kind, text in texts.items():
            part = (f"Content-Type: {kind}", text)
            if (outer, kind) != ("related", "image/png"):
                yield f"{outer}, {kind}", mail(outer, plain, part)
                yield f"{outer}, {kind} first", mail(outer, part, plain)
    for kind in ("rfc822", "external-body", "partial", "own"):
        forwarded = f"Subject: x\nContent-Type: text/plain\n\n{TEXT}"
        yield f"message/{kind}", mail("mixed", plain, (f"Content-Type: message/{kind}", forwarded))
    for name in ("Subject", "From", "To", "Comments"):
        yield f"header {name}", mail("mixed", plain, header=f"{name}: {TEXT}\n")
    yield "no parts", f"From: a\nContent-Type: multipart/mixed\n\n{TEXT}\n".encode()
    sheet = ("Content-Type: text/css\nContent-Location: x/s.css", f"#a::before{{content:{string(TEXT)}}}")
    styled = ("Content-Type: text/html", page("<p id=a>x</p>", '<link rel=stylesheet href="x/s.css">'))
    yield "style sheet", mail("related", styled, sheet)


HIDING = data(__file__, "hiding")
FRAMES = "@keyframes gone{from{opacity:1}to{opacity:0}}@keyframes never{from,to{visibility:hidden}}"
# of a part of a drawing
HIDING_ATTRIBUTES = (
    'display="none"', 'visibility="hidden"', 'font-size="0"', 'opacity="0"', 'clip-path="url(#c)"', 'mask="url(#m)"',
)  # fmt: skip
# elements whose text a browser does not show, or not before it is asked to
HIDING_ELEMENTS = ("div popover", "details", "noframes", "noembed", "dialog", "template", "noscript")
PATTERNS = ("defs", "symbol", "clipPath", "mask", "pattern", "marker", "metadata", "linearGradient")


def decoys() -> Iterator[tuple[str, str]]:
    """Pages with a word that no one sees behind each word of the text."""
    found = TEXT.split()

    def mixed(attribute: str) -> str:
        per = len(DECOYS) // len(found) + 1
        groups = [" ".join(DECOYS[n * per : (n + 1) * per]) for n in range(len(found))]
        return "".join(f"{one} <i {attribute}>{group}</i> " for one, group in zip(found, groups, strict=True))

    for style in HIDING:
        yield style, f"<style>{FRAMES}</style><body>{mixed(f'style={chr(34)}{style}{chr(34)}')}</body>"
        yield f"{style}, by class", f"<style>{FRAMES}.d{{{style}}}</style><body>{mixed('class=d')}</body>"
    for hint in HIDING_ATTRIBUTES:
        yield (
            f"drawing, {hint}",
            f"<svg><text>{mixed(hint).replace('<i', '<tspan').replace('</i', '</tspan')}</text></svg>",
        )
    for element in HIDING_ELEMENTS:
        name = element.split()[0]
        yield element, f"<body>{mixed('').replace('<i ', f'<{element}').replace('</i', f'</{name}')}</body>"
    for element in PATTERNS:
        yield (
            f"drawing, {element}",
            f"<svg>{mixed('').replace('<i ', f'<{element}><text').replace('</i', f'</text></{element}')}</svg>",
        )
    seen = mixed("").replace("<i >", "</font><i>").replace("</i>", "</i><font color=black>")
    yield "text of the body", f"<body text=white><font color=black>{seen}</body>"
    yield "hidden", f"<body>{mixed('hidden')}</body>"
    yield "inherited", f"<style>i{{font-size:inherit;color:white}}</style><body>{mixed('')}</body>"
    yield "important", f"<style>i{{display:none!important}}i.d{{display:inline}}</style><body>{mixed('class=d')}</body>"
    yield "font element", f"<body>{mixed('').replace('<i', '<font color=white').replace('</i>', '</font>')}</body>"
    yield "siblings", f"<style>body>i{{display:none}}</style><body>{mixed('')}</body>"


def test_marked_text_that_a_page_shows_is_never_called_not_marked() -> None:
    made = [*attributes(), *inline(), *words(), *styles(), *frames()]
    assert [name for name, content in made if outcome(content.encode()) == "not_detected"] == []


def test_marked_text_in_books_and_e_mails_is_never_called_not_marked() -> None:
    assert [name for name, content in [*books(), *mails()] if outcome(content) == "not_detected"] == []


def test_words_that_no_one_sees_never_hide_a_mark() -> None:
    assert [name for name, content in decoys() if outcome(content.encode()) == "not_detected"] == []


def test_what_ordinary_styles_show_is_not_taken_for_hidden() -> None:
    looks = (
        "background:linear-gradient(#eee, #fff)", "margin-inline:1em 2em", "padding-block:9px", "color:#333",
        "height:20px;overflow:hidden", "line-height:1.2;overflow:hidden", "mask:none", "opacity:.9", "font-size:85%",
        "z-index:9", "transform:none", "color:var(--ink)", "font-size:var(--size)", "margin:var(--space) 0",
    )  # fmt: skip
    for look in looks:
        reading = read(f"<p>{BODY}</p><p style='{look}'>{BODY[:600]}</p>".encode())
        assert (look, reading.notes) == (look, ())
    drawing = "<svg><rect fill='black'/><text fill='white'>{}</text><text font-size='12' x='9'>{}</text></svg>"
    assert read(f"<p>{BODY}</p>{drawing.format(BODY[:600], BODY[600:1200])}".encode()).notes == ()


def test_a_script_that_holds_an_entity_declares_none() -> None:
    assert read(page("<script>'<!ENTITY a \"b\">'</script>").encode()).uncertain_because is None


def test_texts_of_style_sheets_are_read_once_behind_the_page_and_names_of_fonts_are_not() -> None:
    sheet = "p::before{content:'Note: '}ul{list-style:'Item'}p::after{content:'Note: '}:root{--a-font:'Sans One'}"
    reading = read(f"<style>{sheet}p{{font-family:'Serif Two'}}</style><p>{BODY}</p>".encode())
    assert reading.text.endswith("\n\nNote: Item")


def test_closed_details_are_read_behind_the_page() -> None:
    reading = read(
        b"<p>First</p><details><summary>More</summary>of it</details><details open>Open</details><p>Last</p>"
    )
    assert reading.text.split() == ["First", "Open", "Last", "More", "of", "it"]


def test_attributes_that_all_chapters_share_count_once() -> None:
    names = [f"c{n}.xhtml" for n in range(40)]
    items = "".join(f'<item id="{name}" href="{name}" media-type="text/html"/>' for name in names)
    spine = "".join(f'<itemref idref="{name}"/>' for name in names)
    chapter = '<p aria-label="related pages of this book">Words {}</p>'
    reading = read(book({name: chapter.format(name) for name in names}, items, spine))
    assert reading.notes == ()
