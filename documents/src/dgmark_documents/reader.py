"""`read`: the text of an open file, or the cells of its tables, and how they were read.

Plain text is decoded here. Every other kind is parsed in a process of its own (`sandbox.py`).
"""

import os
from dataclasses import replace
from typing import BinaryIO

from dgmark_documents.archives import members
from dgmark_documents.charsets import decode
from dgmark_documents.kinds import (
    ARCHIVES,
    AS_THEY_STAND,
    HEAD,
    OLD_OFFICE,
    SUFFIXES,
    TABLES,
    Kind,
    begins_as,
    is_plain,
    mismatch,
    recognise,
)
from dgmark_documents.reading import MB, Limits, Reading, Refusal
from dgmark_documents.sandbox import parse_in_process

__all__ = ["FOLDER_SUFFIXES", "TEXT_SUFFIXES", "Limits", "Refusal", "members", "read"]

# endings of files that are looked at in folders: most drawings hold no text, and old Office files are refused
FOLDER_SUFFIXES = (*(suffix for suffix, kind in SUFFIXES.items() if kind is not Kind.SVG), *ARCHIVES, *OLD_OFFICE)
# those of documents that hold one text
TEXT_SUFFIXES = tuple(suffix for suffix, kind in SUFFIXES.items() if kind not in (*TABLES, Kind.SVG))


def read(file: BinaryIO, name: str, *, column: str = "text", limits: Limits | None = None) -> tuple[str, Reading]:
    """Read an open file of the system.

    Args:
        file: the file, at its beginning.
        name: its name, whose ending says something of its kind.
        column: of a table, the column that holds the texts.
        limits: what the document may cost.

    Returns:
        What the file is, such as "PDF", and its text or tables (`Reading.form`).

    Raises:
        Refusal: it is of a kind that is not read, damaged, encrypted, holds no text that can be read, or is beyond a
            limit; the message continues a sentence that begins with its name.
        ModuleNotFoundError: a library is not installed.
    """
    limits = limits or Limits()
    size = os.fstat(file.fileno()).st_size
    if size > limits.file_bytes:
        raise Refusal(f"has {size // MB} MB; the limit is {limits.file_bytes // MB} MB: cut it into parts")
    head = file.read(HEAD)
    kind = recognise(name, head)
    if kind in AS_THEY_STAND or kind is Kind.CSV:
        reading = _decoded(kind, name, head, head + file.read())
    else:
        kind, reading = parse_in_process(file, kind, column, limits)
    note = mismatch(name, kind)
    return str(kind), replace(reading, how=(note, *reading.how)) if note else reading


def _decoded(kind: Kind, name: str, head: bytes, content: bytes) -> Reading:
    """The text of a file that needs no parser."""
    text, how = decode(content)
    if kind is Kind.CSV:
        return Reading(text, form="delimited", how=tuple(how))
    begins = begins_as(head) if kind in (Kind.TEXT, Kind.MARKDOWN) else None
    if begins is not None:
        how.append(
            f"its content looks like {begins}, and is scored as it stands, with its signs of markup: name it as such a "
            "file to have its text scored"
        )
    # programs, logs and other data hold signs that are no markup
    is_data = kind is Kind.TEXT and begins is None and not is_plain(name)
    return Reading(text, form="text" if is_data else "as it stands", how=tuple(how))
