"""Codes of fields of Word documents and RTF files: what they show beside the result that the file holds."""

import re

_BUTTON = re.compile(r"\s*(?:MACRO|GOTO)BUTTON\s+\S+\s(.*)", re.DOTALL | re.IGNORECASE)
_PROPERTY = re.compile(r"\s*(TITLE|SUBJECT|AUTHOR|KEYWORDS|COMMENTS|LASTSAVEDBY|DOC\w+|INFO)\b", re.IGNORECASE)


def button_of(code: str) -> str:
    """The text of a button, which stands in the field's code; empty for other fields."""
    found = _BUTTON.fullmatch(code)
    return found[1] if found else ""


def shows_property(code: str) -> bool:
    """Whether a field shows a property of the document."""
    return bool(_PROPERTY.match(code))
