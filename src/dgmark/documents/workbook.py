"""What a workbook (.xlsx) holds beside its cells: text boxes, comments, headers and footers, messages, and the like."""

import html
import re
from collections.abc import Callable

from dgmark.documents.account import Account, Piece
from dgmark.documents.markup import markup_pieces
from dgmark.documents.zip_archive import ZipArchive

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
    held: list[Piece] = []
    for name, source in archive.markup():
        account.add("formulas without a value", len(_WITHOUT_VALUE.findall(source)))
        held += [Piece("input messages", _unquoted(value)) for value in _MESSAGE.findall(source)]
        held += [Piece("number formats", _literals(_unquoted(value))) for value in _NUMBER_FORMAT.findall(source)]
        held += map(_shown, markup_pieces(_trimmed(source, is_known), f"{name}, "))
    account.held += (piece for piece in held if not is_known(piece.text) and _COPIED not in piece.text)
    folders = [name.split("/")[1] for name in archive.names if name.startswith("xl/")]
    account.add("pictures", folders.count("media"))
    account.add("embedded objects", folders.count("embeddings"), weight=Account.UNKNOWN * folders.count("embeddings"))


def _trimmed(source: str, is_known: Callable[[str], bool]) -> str:
    """A part without numbers, settings, strings that are known, and formulas but for the texts in them.

    Each string is in one piece. Little is left of most parts, so that long tables are read in time.
    """

    def string(found: re.Match[str]) -> str:
        text = _TAG.sub("", found[3])
        return "" if is_known(html.unescape(text)) else found[1] + text + found[4]

    def formula(found: re.Match[str]) -> str:
        return found[1] + html.escape(_literals(html.unescape(found[3]))) + found[4]

    source = _FORMULA.sub(formula, _VML.sub("", source))
    source = _STRINGS.sub(string, _PHONETIC.sub("", source))
    return _ROWS.sub("", _NUMBERS.sub("", source))


def _shown(piece: Piece) -> Piece:
    """A text without the codes that stand in headers and footers, such as those of fonts and page numbers."""
    if not piece.place.endswith(("header", "footer")):
        return piece
    return piece._replace(text=_CODES.sub(" ", piece.text))


def _unquoted(value: str) -> str:
    return html.unescape(value[1:-1])


def _literals(formula: str) -> str:
    """The texts of a formula or a number format."""
    return " ".join(_QUOTED.findall(formula))
