"""Make the corpus of documents, with LibreOffice: `python make.py FOLDER` from this folder.

Needs soffice (Debian: libreoffice-writer-nogui libreoffice-calc-nogui hyphen-en-us fonts-liberation2) and, for the
encrypted Word file, msoffcrypto-tool. LibreOffice writes the date into its files, so no two runs give the same bytes.
`python make.py --texts` writes the marked texts again, with the storyteller and the key `known_key("documents")`.
"""

import base64
import json
import re
import struct
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from xml.sax.saxutils import escape

HERE = Path(__file__).parent
NOTE = "A note at the foot of the page."
HEADING = "Naïve Märchen: «Über die Brücke»"
PROMPTS = ("Once upon a time there was a miller", "In the summer of that year", "The captain looked out over the sea")
NAMESPACES = "office text style fo table draw svg xlink"
URN = "urn:oasis:names:tc:opendocument:xmlns:{}:1.0"
ELSEWHERE = {
    "fo": URN.format("xsl-fo-compatible"),
    "draw": URN.format("drawing"),
    "svg": URN.format("svg-compatible"),
    "xlink": "http://www.w3.org/1999/xlink",
}
PDF_LOCKED = {"EncryptFile": ("boolean", "true"), "DocumentOpenPassword": ("string", "secret")}


def write_texts() -> None:
    """Write story.txt (one marked text) and long.txt (three)."""
    import dgmark
    from support.known_keys import known_key

    model = dgmark.load_model("storyteller")
    key = known_key("documents", code_length=32)
    story, *more = (one.text.strip() for one in dgmark.generate(model, list(PROMPTS), key=key, seed=3))
    (HERE / "story.txt").write_text(f"{HEADING}\n{story}\n", encoding="utf-8")
    (HERE / "long.txt").write_text("\n".join([HEADING, story, *more]) + "\n", encoding="utf-8")


def flat(body: str, *, columns: int = 1, header: bool = False, hyphens: bool = False, height: int = 29) -> str:
    """A flat OpenDocument text: `body` is XML inside office:text."""
    names = " ".join(f'xmlns:{name}="{ELSEWHERE.get(name, URN.format(name))}"' for name in NAMESPACES.split())
    page = f'<style:page-layout-properties fo:page-width="21cm" fo:page-height="{height}cm" fo:margin="2cm"/>'
    ends = ""
    if header:
        page += "<style:header-style/><style:footer-style/>"
        ends = (
            "<style:header><text:p>The Collected Tales, a sample</text:p></style:header>"
            '<style:footer><text:p>Page <text:page-number text:select-page="current">1</text:page-number></text:p>'
            "</style:footer>"
        )
    return f"""<?xml version="1.0" encoding="UTF-8"?>
<office:document {names} office:version="1.2" office:mimetype="application/vnd.oasis.opendocument.text">
<office:styles><style:default-style style:family="paragraph">
<style:paragraph-properties fo:text-align="justify" fo:hyphenation-ladder-count="no-limit"/>
<style:text-properties fo:language="en" fo:country="US" style:font-name="Liberation Serif" fo:font-size="11pt"
 fo:hyphenate="{str(hyphens).lower()}" fo:hyphenation-remain-char-count="2" fo:hyphenation-push-char-count="2"/>
</style:default-style></office:styles>
<office:automatic-styles><style:page-layout style:name="page">{page}</style:page-layout>
<style:style style:name="parts" style:family="section"><style:section-properties>
<style:columns fo:column-count="{columns}" fo:column-gap="0.6cm"/></style:section-properties></style:style>
</office:automatic-styles>
<office:master-styles><style:master-page style:name="Standard" style:page-layout-name="page">{ends}</style:master-page>
</office:master-styles><office:body><office:text>
{f'<text:section text:style-name="parts" text:name="all">{body}</text:section>' if columns > 1 else body}
</office:text></office:body></office:document>"""


def paragraphs(text: str) -> list[str]:
    """The paragraphs of a text, escaped."""
    return [escape(line) for line in text.splitlines()]


def plain(text: str) -> str:
    """Each line as a paragraph."""
    return "".join(f"<text:p>{line}</text:p>" for line in paragraphs(text))


def layout(text: str) -> str:
    """The text as a heading, a table, a paragraph with a footnote in its middle, and a list."""
    heading, left, right, noted, *rest = paragraphs(text)
    middle = noted.index(" ", len(noted) // 2)
    note = (
        '<text:note text:note-class="footnote"><text:note-citation>1</text:note-citation><text:note-body>'
        f"<text:p>{NOTE}</text:p></text:note-body></text:note>"
    )
    cells = "".join(f"<table:table-cell><text:p>{cell}</text:p></table:table-cell>" for cell in (left, right))
    items = "".join(f"<text:list-item><text:p>{item}</text:p></text:list-item>" for item in rest)
    return (
        f'<text:h text:outline-level="1">{heading}</text:h>'
        f'<table:table><table:table-column table:number-columns-repeated="2"/><table:table-row>{cells}'
        f"</table:table-row></table:table><text:p>{noted[:middle]}{note}{noted[middle:]}</text:p>"
        f"<text:list>{items}</text:list>"
    )


def softened(text: str) -> str:
    """The text with a soft hyphen in each longer word."""
    return re.sub(r"([a-z]{3})([a-z]{3})", "\\1\u00ad\\2", text)


def png() -> bytes:
    """A grey picture of 8 by 8 pixels."""

    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    header = struct.pack(">IIBBBBB", 8, 8, 8, 0, 0, 0, 0)
    rows = b"".join(b"\0" + bytes(range(40, 240, 25)) for _ in range(8))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def picture() -> str:
    """A page that holds a picture and no text, as a scanner makes it."""
    data = base64.b64encode(png()).decode()
    frame = '<draw:frame text:anchor-type="paragraph" svg:width="16cm" svg:height="20cm">'
    image = f"<draw:image><office:binary-data>{data}</office:binary-data></draw:image>"
    return f"<text:p>{frame}{image}</draw:frame></text:p>"


def convert(source: Path, kind: str, out: Path, name: str, *options: str) -> None:
    """Convert a file with LibreOffice; `kind` is an ending, or ending:filter:options."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["soffice", f"-env:UserInstallation=file://{folder}/profile", "--headless", "--convert-to", kind]
        subprocess.run([*command, *options, "--outdir", folder, str(source)], check=True, capture_output=True)
        made = Path(folder) / f"{source.stem}.{kind.split(':')[0]}"
        made.rename(out / f"{name}.{made.suffix[1:]}")


def sources(story: str, long: str) -> Iterator[tuple[str, str, str]]:
    """Name, flat OpenDocument text, and the endings to make of it."""
    yield "story", flat(plain(story)), "odt docx pdf rtf epub html"
    yield "pages", flat(plain(long), header=True, height=14), "odt docx pdf rtf"
    yield "columns", flat(plain(long), columns=2, header=True, hyphens=True, height=20), "odt docx pdf"
    yield "layout", flat(layout(long)), "odt docx pdf rtf epub html"
    yield "soft", flat(plain(softened(story)), hyphens=True, height=14), "odt docx pdf rtf html"
    yield "scan", flat(picture()), "pdf odt"


def table(text: str) -> str:
    """The paragraphs as the column "text" of a table, with a number before each."""
    quoted = [line.replace('"', '""') for line in text.splitlines()]
    return "id,text,note\n" + "".join(f'row {n},"{line}",x\n' for n, line in enumerate(quoted, 1))


def main(out: Path) -> None:
    """Make every document of the corpus in the folder `out`."""
    story = (HERE / "story.txt").read_text(encoding="utf-8")
    long = (HERE / "long.txt").read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        for name, content, endings in sources(story, long):
            source = Path(folder) / f"{name}.fodt"
            source.write_text(content, encoding="utf-8")
            for ending in endings.split():
                convert(source, ending, out, name)
        locked = {name: {"type": kind, "value": value} for name, (kind, value) in PDF_LOCKED.items()}
        convert(Path(folder) / "story.fodt", f"pdf:writer_pdf_Export:{json.dumps(locked)}", out, "locked")
        (out / "table.csv").write_text(table(long), encoding="utf-8")
        convert(out / "table.csv", "xlsx", out, "table", "--infilter=Text - txt - csv (StarCalc):44,34,76")
    (out / "latin.txt").write_bytes(story.encode("latin-1"))
    (out / "utf16.txt").write_bytes(story.encode("utf-16"))
    (out / "windows.txt").write_bytes(story.replace("\n", "\r\n").encode("utf-8-sig"))
    (out / "picture.png").write_bytes(png())
    lock_word(out / "story.docx", out / "locked.docx")


def lock_word(source: Path, out: Path) -> None:
    """Encrypt a Word file with a password, as Office does."""
    from msoffcrypto.format.ooxml import OOXMLFile

    with source.open("rb") as plain_file, out.open("wb") as locked:
        OOXMLFile(plain_file).encrypt("secret", locked)


if __name__ == "__main__":
    if sys.argv[1:] == ["--texts"]:
        write_texts()
    else:
        main(Path(sys.argv[1]))
