"""What a workbook (.xlsx) holds beside its cells: text boxes, comments, headers and footers, messages, and the like."""

import codecs
import html
import re
from collections.abc import Callable, Iterator
from typing import Any

from lxml import etree

from dgmark_documents.account import Account, Piece
from dgmark_documents.elements import local
from dgmark_documents.office_parts import OfficeParts
from dgmark_documents.xml_pieces import xml_pieces
from dgmark_documents.zip_archive import ZipArchive

_P = r"(?:\w+:)?"  # the prefix of a name
_CELLS = re.compile(rf"<{_P}sheetData\b[^<>]*>.*</{_P}sheetData>", re.DOTALL)
_WITHOUT_VALUE = re.compile(
    rf"""<{_P}c\b(?![^<>]*\st="str")[^<>]*>\s*<{_P}f\b[^<>]*>([^<>]*)</{_P}f>\s*"""
    rf"""(?:<{_P}v\s*/>|<{_P}v></{_P}v>)?\s*</{_P}c>"""
)
_DECLARATION = re.compile(r"\s*(?:<\?xml[^>]*\?>\s*)?")
# names and places, formulas and references
_PASSED = frozenset(
    ("author", "Anchor", "f", "formula", "formula1", "formula2", "sqref", "ref", "definedName", "formatCode")
)
_SETTINGS = "{urn:schemas-microsoft-com:office:excel}*"  # of comments and controls
_QUOTED = re.compile('"((?:[^"]|"")*)"')
_NUMBER_FORMAT = re.compile(r"""\sformatCode=("[^"]*"|'[^']*')""")
_CODES = re.compile('&(?:"[^"]*"|K[0-9A-Fa-f]{6}|[0-9]+|[A-Za-z])')  # in headers and footers, such as those of fonts
# what stands in the old form of a comment, before a copy of its text, for programs that do not know the new form
_COPIED = "fwlink/?linkid=870924"


def hold_beside_cells(account: Account, archive: ZipArchive, is_known: Callable[[str], bool]) -> None:
    """Add to the account what a workbook holds beside the cells whose texts are known."""
    parts = OfficeParts(archive)
    shown = [*parts.shown()]
    kinds = {link.part: link.kind for part in shown for link in parts.links(part).values()}
    styles = parts.named("styles")
    formats = _NUMBER_FORMAT.findall(_decoded(archive.read(styles))) if styles else []
    held = [Piece("number formats", _literals(value[1:-1])) for value in formats]
    for part in shown:
        source = _decoded(archive.read(part))
        if not source.startswith("<"):
            account.add("pictures" if kinds.get(part) == "image" else "embedded objects", weight=Account.UNKNOWN)
            continue
        formulas = _WITHOUT_VALUE.findall(source)
        account.add("formulas without a value", len(formulas))
        held += (Piece("formulas", _literals(formula)) for formula in formulas)
        parser = etree.XMLParser(resolve_entities=False, no_network=True, huge_tree=True, recover=True)
        root = etree.fromstring(_CELLS.sub("", source).encode(), parser)
        held += _pieces(root, part) if root is not None else ()
    account.held += (piece for piece in held if not is_known(piece.text) and _COPIED not in piece.text)


def _pieces(root: Any, part: str) -> Iterator[Piece]:
    """The texts of a part; each shared string in one piece, without how it is read aloud."""
    if local(root) == "sst":
        for item in root:
            texts = item.iterfind("{*}t"), item.iterfind("{*}r/{*}t")
            yield Piece(f"{part}, element {local(item)}", "".join(one.text or "" for found in texts for one in found))
        return
    for one in root.iter(_SETTINGS):
        one.text = None
    for piece in xml_pieces(root, part, passed=_PASSED):
        in_end = piece.place.endswith(("Header", "Footer"))
        yield piece._replace(text=_CODES.sub(" ", piece.text)) if in_end else piece


def _decoded(content: bytes) -> str:
    """A part as text, without its declaration."""
    code = "utf-16" if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8-sig"
    return _DECLARATION.sub("", content.decode(code, "replace"), count=1)


def _literals(formula: str) -> str:
    """The texts of a formula or a number format, as they stand in markup."""
    return " ".join(_QUOTED.findall(html.unescape(formula)))
