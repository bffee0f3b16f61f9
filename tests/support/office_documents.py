"""Small Word, OpenDocument and RTF documents, and other packed ones, of parts that a test gives."""

import io
import zipfile

_NAMES = " ".join(
    f'xmlns:{name}="urn:{name}"'
    for name in ("a", "c", "dc", "dgm", "draw", "fo", "form", "mc", "meta", "o", "office", "pic", "r", "style", "svg")
)
_NAMES += " " + " ".join(f'xmlns:{name}="urn:{name}"' for name in ("table", "text", "v", "w", "wp", "wps", "xlink"))


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
            **{name: root(content) for name, (_, content) in more.items()},
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
