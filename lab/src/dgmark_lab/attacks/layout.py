"""What editors, mail programs and word processors do to a text that nobody means to attack: lines, and documents.

Documents are read as `dgmark detect` reads them; that needs the extra `documents` of dgmark.
"""

import re
import textwrap
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Literal
from xml.sax.saxutils import escape
from zipfile import ZipFile

import numpy as np
from markdown_it import MarkdownIt
from pydantic import Field
from pydantic.dataclasses import dataclass

from dgmark.arguments.contents import text_of
from dgmark.errors import InputError
from dgmark.rows.documents import read_document

_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # characters that XML cannot hold
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument"
_WORD = "application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"
_DOCX = {
    "[Content_Types].xml": f'<Types xmlns="{_PACKAGE}/content-types">'
    '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
    f'<Override PartName="/word/document.xml" ContentType="{_WORD}"/></Types>',
    "_rels/.rels": f'<Relationships xmlns="{_PACKAGE}/relationships">'
    f'<Relationship Id="r1" Type="{_OFFICE}" Target="word/document.xml"/></Relationships>',
}
_BODY = '<w:document xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"><w:body>{}</w:body></w:document>'


@dataclass(frozen=True)
class Wrap:
    """Break lines at a width, as mail programs do.

    Attributes:
        width: most characters of a line; a longer word has a line of its own.
    """

    width: Annotated[int, Field(ge=1)] = 72

    def __call__(self, text: str, rng: np.random.Generator) -> str:  # noqa: ARG002 (every attack has this signature)
        """Return the text in shorter lines; lines that it has already stay apart."""
        text = text_of(text)
        lines = text.split("\n")
        return "\n".join(
            textwrap.fill(line, self.width, break_long_words=False, break_on_hyphens=False) for line in lines
        )


@dataclass(frozen=True)
class RoundTrip:
    """Write a text into a document and read the document again.

    Attributes:
        format: "word" is a .docx with a paragraph for each line; "markdown" is the web page that the text, taken as
            Markdown, is shown as.
    """

    format: Literal["word", "markdown"] = "word"

    def __call__(self, text: str, rng: np.random.Generator) -> str:  # noqa: ARG002 (every attack has this signature)
        """Return the text as it is read from the document; nothing if it is full of signs that no reader takes."""
        text = text_of(text)
        if not text.strip():
            return text
        suffix, write = _WRITERS[self.format]
        with TemporaryDirectory() as folder:
            path = Path(folder) / f"text{suffix}"
            write(path, text)
            try:
                return read_document(path).text
            except InputError:
                return ""


def _write_docx(path: Path, text: str) -> None:
    lines = _NO_XML.sub("", text).split("\n")
    body = "".join(f'<w:p><w:r><w:t xml:space="preserve">{escape(line)}</w:t></w:r></w:p>' for line in lines)
    with ZipFile(path, "w") as archive:
        for name, part in {**_DOCX, "word/document.xml": _BODY.format(body)}.items():
            archive.writestr(name, f'<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n{part}')


def _write_page(path: Path, text: str) -> None:
    page = f'<!doctype html><meta charset="utf-8"><body>{MarkdownIt("js-default").render(text)}</body>'
    path.write_text(page, encoding="utf-8")


_WRITERS: dict[str, tuple[str, Callable[[Path, str], None]]] = {
    "word": (".docx", _write_docx),
    "markdown": (".html", _write_page),
}
