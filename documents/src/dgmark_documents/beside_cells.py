"""What a workbook (.xlsx) holds beside its cells: text boxes, comments, headers and footers, messages, and the like."""

import codecs
import html
import re
from collections.abc import Callable

from dgmark_documents.account import Account, Piece
from dgmark_documents.office_parts import OfficeParts
from dgmark_documents.xml_pieces import xml_pieces
from dgmark_documents.zip_archive import ZipArchive

_P = r"(?:\w+:)?"  # the prefix of a name
# cells without a text in them, and rows of such cells
_NUMBERS = re.compile(rf"<{_P}c\b[^<>]*(?:/>|>\s*(?:<{_P}v>[\d.eE+-]*</{_P}v>\s*)?</{_P}c>)")
_ROWS = re.compile(rf"<{_P}row\b[^<>]*>\s*</{_P}row>")
_STRINGS = re.compile(rf"(<{_P}(si|is)>)(.*?)(</{_P}\2>)", re.DOTALL)
_PHONETIC = re.compile(rf"<({_P}rPh)\b.*?</\1>", re.DOTALL)  # how Japanese is read aloud, beside most of its texts
_TAG = re.compile("<[^<>]*>")
# formulas and references, of which only texts in quotation marks can be shown
_FORMULA = re.compile(rf"(<({_P}(?:f|formula\d?|sqref|ref|definedName|formatCode))\b[^<>]*>)([^<>]*)(</\2>)", re.DOTALL)
_WITHOUT_VALUE = re.compile(
    rf"""<{_P}c\b(?![^<>]*\st="str")[^<>]*>\s*<{_P}f\b[^<>]*>[^<>]*</{_P}f>\s*(?:<{_P}v\s*/>|<{_P}v></{_P}v>)?\s*</{_P}c>"""
)
_DECLARATION = re.compile(r"\s*(?:<\?xml[^>]*\?>\s*)?")
_PASSED = ("author", "Anchor")
_QUOTED = re.compile('"((?:[^"]|"")*)"')
_MESSAGE = re.compile(r"""\s(?:prompt|promptTitle|error|errorTitle)=("[^"]*"|'[^']*')""")
_NUMBER_FORMAT = re.compile(r"""\sformatCode=("[^"]*"|'[^']*')""")
_VML = re.compile(r"<x:(\w+)>[^<>]*</x:\1>")  # settings of comments and controls
_CODES = re.compile('&(?:"[^"]*"|K[0-9A-Fa-f]{6}|[0-9]+|[A-Za-z])')
# what stands in the old form of a comment, before a copy of its text, for programs that do not know the new form
_COPIED = "fwlink/?linkid=870924"


def hold_beside_cells(account: Account, archive: ZipArchive, is_known: Callable[[str], bool]) -> None:
    """Add to the account what a workbook holds beside the cells that are known.

    Args:
        account: the account.
        archive: the workbook.
        is_known: whether a text is that of a cell which is read, or left out on purpose.
    """
    from lxml import etree

    parts = OfficeParts(archive)
    shown = [*parts.shown()]
    kinds = {link.part: link.kind for part in shown for link in parts.links(part).values()}
    held = [Piece("number formats", _literals(value)) for value in _values(_NUMBER_FORMAT, _styles(parts))]
    for part in shown:
        source = _decoded(archive.read(part))
        if not source.startswith("<"):
            account.add("pictures" if kinds.get(part) == "image" else "embedded objects", weight=Account.UNKNOWN)
            continue
        account.add("formulas without a value", len(_WITHOUT_VALUE.findall(source)))
        held += (Piece("input messages", value) for value in _values(_MESSAGE, source))
        held += (Piece("number formats", _literals(value)) for value in _values(_NUMBER_FORMAT, source))
        parser = etree.XMLParser(resolve_entities=False, no_network=True, huge_tree=True, recover=True)
        root = etree.fromstring(_trimmed(source, is_known).encode(), parser)
        held += map(_shown, xml_pieces(root, part, passed=_PASSED) if root is not None else ())
    account.held += (piece for piece in held if not is_known(piece.text) and _COPIED not in piece.text)


def _styles(parts: OfficeParts) -> str:
    content = parts.content(parts.named("styles") or "")
    return "" if content is None else _decoded(content)


def _decoded(content: bytes) -> str:
    """A part as text, without its declaration."""
    code = "utf-16" if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8-sig"
    return _DECLARATION.sub("", content.decode(code, "replace"), count=1)


def _trimmed(source: str, is_known: Callable[[str], bool]) -> str:
    """A part without numbers, settings, strings that are known, and formulas but for the texts in them.

    Each string is in one piece. Little is left of most parts, so that long tables are read in time.
    """

    def string(found: re.Match[str]) -> str:
        text = _TAG.sub("", found[3])
        return "" if is_known(html.unescape(text)) else found[1] + text + found[4]

    def formula(found: re.Match[str]) -> str:
        return found[1] + html.escape(_literals(html.unescape(found[3]))) + found[4]

    source = _FORMULA.sub(formula, _VML.sub("", _MESSAGE.sub("", source)))
    source = _STRINGS.sub(string, _PHONETIC.sub("", source))
    return _ROWS.sub("", _NUMBERS.sub("", source))


def _shown(piece: Piece) -> Piece:
    """A text without the codes that stand in headers and footers, such as those of fonts and page numbers."""
    if not piece.place.endswith(("Header", "Footer")):
        return piece
    return piece._replace(text=_CODES.sub(" ", piece.text))


def _values(pattern: re.Pattern[str], source: str) -> list[str]:
    """The values of attributes."""
    return [html.unescape(value[1:-1]) for value in pattern.findall(source)]


def _literals(formula: str) -> str:
    """The texts of a formula or a number format."""
    return " ".join(_QUOTED.findall(formula))
