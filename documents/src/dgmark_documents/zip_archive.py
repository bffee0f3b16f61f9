"""ZIP archives that are documents (.docx, .pptx, .odt, .epub, .xlsx): which one it is, and its parts within limits.

Knows nothing of what the parts mean.
"""

import re
import zipfile
import zlib
from pathlib import PurePosixPath
from typing import Any, BinaryIO

from lxml import etree

from dgmark_documents.kinds import Kind
from dgmark_documents.reading import LOCKED, MB, Limits, Refusal

_MIMETYPES = {
    b"application/epub+zip": Kind.EPUB,
    b"application/vnd.oasis.opendocument.text": Kind.ODT,
    b"application/vnd.oasis.opendocument.text-template": Kind.ODT,
}
_FOLDERS = {"word": Kind.DOCX, "xl": Kind.XLSX, "ppt": Kind.PPTX}
# no XML of these documents declares entities, or in UTF-16 a type; old office programs name a type in some parts
_DECLARATIONS = re.compile(
    rb"<!ENTITY|<!DOCTYPE[^<>\[]*\[|"
    + b"|".join(name.encode(code) for name in ("<!DOCTYPE", "<!ENTITY") for code in ("utf-16-le", "utf-16-be"))
)


def is_markup(content: bytes) -> bool:
    """Whether a part begins as XML and HTML do: with a tag, behind a byte order mark and white space in any code."""
    return content.lstrip(b"\xef\xbb\xbf\xff\xfe\0 \t\r\n").startswith(b"<")


class ZipArchive:
    """An opened ZIP archive; a Refusal if it, or a part that is read, is damaged, encrypted, or beyond the limits."""

    def __init__(self, file: BinaryIO, limits: Limits) -> None:
        try:
            self._zip = zipfile.ZipFile(file)
        except (zipfile.BadZipFile, ValueError, OSError, EOFError, NotImplementedError) as error:
            raise Refusal(f"is damaged or cut off: {error}") from error
        parts = self._zip.infolist()
        size = sum(part.file_size for part in parts)
        if len(parts) > limits.parts:
            raise Refusal(f"holds {len(parts)} parts; the limit is {limits.parts}")
        if size > limits.unpacked_bytes:
            raise Refusal(f"unpacks to {size // MB} MB; the limit is {limits.unpacked_bytes // MB} MB")
        if any(part.flag_bits & 1 for part in parts):
            raise Refusal(LOCKED)
        self.names = frozenset(part.filename for part in parts)
        self._trees: dict[str, Any] = {}

    def read(self, name: str) -> bytes:
        """The bytes of a part."""
        try:
            return self._zip.read(name)
        except KeyError as error:
            raise Refusal(f"is damaged: its part {name} is missing") from error
        except (zipfile.BadZipFile, zlib.error, ValueError, OSError, EOFError, NotImplementedError) as error:
            raise Refusal(f"is damaged: its part {name} cannot be unpacked ({error})") from error

    def xml(self, name: str) -> Any:
        """The root of a part that is XML, the same each time."""
        if name not in self._trees:
            self._trees[name] = self._parsed(name)
        return self._trees[name]

    def _parsed(self, name: str) -> Any:
        settings = {"resolve_entities": False, "no_network": True, "huge_tree": True}
        parser = etree.XMLParser(**settings)
        try:
            return etree.fromstring(self.read(name), parser)
        except etree.XMLSyntaxError as error:
            if error.msg.startswith("unknown error"):  # how libxml2 says that its memory is used up
                raise MemoryError from error
            # old office programs write ids with signs that XML does not allow there, which harms nothing
            if any(one.type != etree.ErrorTypes.DTD_XMLID_VALUE for one in parser.error_log):
                raise Refusal(f"is damaged: {error}") from error
        return etree.fromstring(self.read(name), etree.XMLParser(**settings, recover=True))

    def kind(self) -> Kind:
        """Which kind of document it is."""
        if "mimetype" in self.names:
            kind = _MIMETYPES.get(self.read("mimetype").strip())
            if kind:
                return kind
            raise Refusal("is a packed document of a kind that is not read: save it as .docx, .pptx, .pdf or .txt")
        tops = {PurePosixPath(name).parts[0] for name in self.names if name.strip("/.")}
        for top, kind in _FOLDERS.items():
            if top in tops and "[Content_Types].xml" in tops:
                return kind
        raise Refusal("is a packed archive: unpack it, and give the files in it")

    def check_xml(self) -> None:
        """Refuse XML that declares entities, which no writer of these documents does."""
        for name in sorted(self.names):
            if name.endswith((".xml", ".rels")) and _DECLARATIONS.search(self.read(name)):
                raise Refusal(f"is refused: its part {name} declares XML entities, as attacks on readers do")
