"""Small Word, PowerPoint, OpenDocument, EPUB, RTF and PDF documents, of parts that a test gives."""

import io
import zipfile
from collections.abc import Iterable

_PREFIXES = "a c dc dgm draw fo form mc meta o office p pic r style svg table text v w wp wps xlink"
_NAMES = " ".join(f'xmlns:{name}="urn:{name}"' for name in _PREFIXES.split())


def packed(parts: dict[str, str]) -> bytes:
    """A ZIP archive of these parts."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, part in parts.items():
            archive.writestr(name, part)
    return content.getvalue()


def with_part(content: bytes, name: str, part: str) -> bytes:
    """The ZIP archive with one more part."""
    changed = io.BytesIO(content)
    with zipfile.ZipFile(changed, "a") as archive:
        archive.writestr(name, part)
    return changed.getvalue()


def root(inner: str) -> str:
    """A part with this content, in which the prefixes of both formats are declared."""
    return f"<w:x {_NAMES}>{inner}</w:x>"


def _relations(parts: dict[str, tuple[str, str]]) -> str:
    links = (f'<Relationship Id="{kind}" Type="urn:r/{kind}" Target="/{name}"/>' for name, (kind, _) in parts.items())
    return f"<Relationships>{''.join(links)}</Relationships>"


def word(inner: str, parts: dict[str, tuple[str, str]] | None = None) -> bytes:
    """A Word document.

    Args:
        inner: the content of its body.
        parts: further parts: the kind of the relation to them, which is its id too, and their content, by their names.
            Those of XML have a root that declares the prefixes.
    """
    more = parts or {}
    properties = {name: part for name, part in more.items() if part[0].endswith("-properties")}
    main = {"word/d.xml": ("officeDocument", root(f"<w:body>{inner}</w:body>"))}
    return packed(
        {
            "[Content_Types].xml": "",
            "_rels/.rels": _relations({**main, **properties}),
            "word/_rels/d.xml.rels": _relations({name: part for name, part in more.items() if name not in properties}),
            "word/d.xml": main["word/d.xml"][1],
            **{name: root(content) if name.endswith(".xml") else content for name, (_, content) in more.items()},
        }
    )


def paragraph(text: str, properties: str = "", about: str = "") -> str:
    """A paragraph of Word: its text, the properties of its run and its own."""
    return f"<w:p><w:pPr>{about}</w:pPr><w:r><w:rPr>{properties}</w:rPr><w:t>{text}</w:t></w:r></w:p>"


def opendocument(inner: str, *, automatic: str = "", styles: str = "", parts: dict[str, str] | None = None) -> bytes:
    """An OpenDocument text: the content of its body, its automatic styles, the content of its part of styles."""
    text = f"<office:automatic-styles>{automatic}</office:automatic-styles>"
    text += f"<office:body><office:text>{inner}</office:text></office:body>"
    more = {name: root(content) for name, content in (parts or {}).items()}
    kind = "application/vnd.oasis.opendocument.text"
    return packed({"mimetype": kind, "content.xml": root(text), "styles.xml": root(styles), **more})


def rtf(inner: str) -> bytes:
    """An RTF file."""
    return f"{{\\rtf1\\ansi{{\\colortbl;\\red255\\green255\\blue255;}}{inner}}}".encode()


def epub(items: str, spine: str, parts: dict[str, str], about: str = "") -> bytes:
    """A book: the items of its manifest, its order, its parts by their names, and its metadata."""
    package = f"<p><metadata>{about}</metadata><manifest>{items}</manifest><spine>{spine}</spine></p>"
    main = {"mimetype": "application/epub+zip", "META-INF/container.xml": '<c><rootfile full-path="o/p.opf"/></c>'}
    return packed({**main, "o/p.opf": package, **{f"o/{name}": part for name, part in parts.items()}})


def stream(content: str, fields: str = "") -> str:
    """A stream of a PDF, with these fields."""
    return f"<<{fields}/Length {len(content)}>>stream\n{content}\nendstream"


def pdf(*pages: str, objects: Iterable[str] = (), page: str = "", resources: str = "", catalog: str = "") -> bytes:
    """A PDF of pages of 600 by 800 points, whose font is F.

    Args:
        pages: the operators that draw each.
        objects: further objects; behind one page they have the numbers from 6 on.
        page: further fields of each page.
        resources: further resources of each page.
        catalog: further fields of the catalogue.
    """
    numbers = range(4, 4 + 2 * len(pages), 2)
    about = f"/MediaBox[0 0 600 800]/Resources<</Font<</F 3 0 R>>{resources}>>{page}"
    drawn: list[str] = []
    for number, shown in zip(numbers, pages, strict=True):
        drawn += [f"<</Type/Page/Parent 2 0 R/Contents {number + 1} 0 R{about}>>", stream(shown)]
    numbered = [
        f"<</Type/Catalog/Pages 2 0 R{catalog}>>",
        f"<</Type/Pages/Kids[{' '.join(f'{n} 0 R' for n in numbers)}]/Count {len(pages)}>>",
        "<</Type/Font/Subtype/Type1/BaseFont/Helvetica/Encoding/WinAnsiEncoding>>",
        *drawn,
        *objects,
    ]
    body = "".join(f"{number} 0 obj\n{one}\nendobj\n" for number, one in enumerate(numbered, 1))
    return f"%PDF-1.7\n{body}trailer<</Root 1 0 R>>\n%%EOF".encode("latin-1")


Slide = tuple[str, dict[str, tuple[str, str]]]


def deck(
    *slides: str | Slide, layout: str = "", master: str = "", theme: str = "", order: Iterable[int] | None = None
) -> bytes:
    """A PowerPoint presentation, 720 points wide and 540 high.

    Args:
        slides: of each slide, its whole content, or that and further parts: the kind of the relation to them, which is
            its id too, and their content, by their names.
        layout: the content of the layout of all slides.
        master: the content of the master.
        theme: the colours of the theme.
        order: the order in which the presentation names them, if not this one.
    """
    pairs = [(one, {}) if isinstance(one, str) else one for one in slides]
    names = {f"ppt/slides/{n}.xml": (f"s{n}", "") for n in range(len(pairs))}
    listed = "".join(f'<p:sldId id="{256 + n}" r:id="s{n}"/>' for n in order or range(len(pairs)))
    size = '<p:sldSz cx="9144000" cy="6858000"/>'
    parts = {
        "[Content_Types].xml": "",
        "_rels/.rels": _relations({"ppt/p.xml": ("officeDocument", "")}),
        "ppt/p.xml": root(f"<p:sldIdLst>{listed}</p:sldIdLst>{size}"),
        "ppt/_rels/p.xml.rels": _relations(names),
        "ppt/l.xml": root(layout),
        "ppt/_rels/l.xml.rels": _relations({"ppt/m.xml": ("slideMaster", "")}),
        "ppt/m.xml": root(master),
        "ppt/_rels/m.xml.rels": _relations({"ppt/l.xml": ("slideLayout", ""), "ppt/t.xml": ("theme", "")}),
        "ppt/t.xml": root(f"<a:clrScheme>{theme}</a:clrScheme>"),
    }
    for n, (content, more) in enumerate(pairs):
        linked = {**more, "ppt/l.xml": ("slideLayout", "")}
        parts[f"ppt/slides/{n}.xml"] = content if content.startswith("<p:sld") else root(content)
        parts[f"ppt/slides/_rels/{n}.xml.rels"] = _relations(linked)
        parts |= {name: root(inner) for name, (_, inner) in more.items()}
    return packed(parts)


def slide(inner: str, about: str = "", before: str = "") -> str:
    """A slide of these shapes; `about` are its attributes, `before` stands before the shapes."""
    return f"<p:sld {_NAMES} {about}><p:cSld>{before}<p:spTree>{inner}</p:spTree></p:cSld></p:sld>"


def shape(
    text: str, run: str = "", *, kind: str = "", about: str = "", box: str = "<a:bodyPr/>", named: str = ""
) -> str:
    """A shape of PowerPoint with one run of text.

    Args:
        text: the text.
        run: the properties of the run: its attributes, then `>`, then its children.
        kind: the attributes of the placeholder that it is, if it is one.
        about: the properties of the shape.
        box: the properties of the body of text and of its styles.
        named: attributes of the element that names the shape.
    """
    place = f"<p:ph {kind}/>" if kind else ""
    attributes, _, inner = run.partition(">")
    body = f"<a:p><a:r><a:rPr {attributes}>{inner}</a:rPr><a:t>{text}</a:t></a:r></a:p>"
    names = f"<p:nvSpPr><p:cNvPr {named}/><p:nvPr>{place}</p:nvPr></p:nvSpPr>"
    return f"<p:sp>{names}<p:spPr>{about}</p:spPr><p:txBody>{box}{body}</p:txBody></p:sp>"
