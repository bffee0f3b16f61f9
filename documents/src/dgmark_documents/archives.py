"""`members`: the documents in an archive (.zip) or a mailbox (.mbox), each to be read by itself."""

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import PurePath, PurePosixPath
from typing import BinaryIO

from dgmark_documents.kinds import ARCHIVES, HEAD, OLD_OFFICE, SUFFIXES, ZIP, messages_of
from dgmark_documents.reading import Limits, Refusal
from dgmark_documents.zip_archive import ZipArchive

Members = Iterator[tuple[str, Callable[[], bytes] | None]]


def members(file: BinaryIO, name: str, limits: Limits | None = None) -> Members | None:
    """The documents in an open file, by name, with what unpacks them; None if it is one document, or is refused.

    What has the ending of no document has nothing that unpacks it. Archives in archives are members, which `read`
    refuses. What unpacks a member raises a Refusal if that is damaged.
    """
    limits = limits or Limits()
    head = file.read(HEAD)
    file.seek(0)
    if messages_of(name, head) and os.fstat(file.fileno()).st_size <= limits.file_bytes:
        messages = messages_of(name, file.read())
        file.seek(0)
        return ((f"{at}.eml", partial(bytes, one)) for at, one in enumerate(messages, 1)) if len(messages) > 1 else None
    if not head.startswith(ZIP) or PurePath(name).suffix.lower() in SUFFIXES:
        return None
    try:
        archive = ZipArchive(file, limits)
    except Refusal:
        return None
    return None if {"mimetype", "[Content_Types].xml"} & archive.names else _unpacked(archive)


def _unpacked(archive: ZipArchive) -> Members:
    known = (*SUFFIXES, *ARCHIVES, *OLD_OFFICE)
    for name in sorted(archive.names):
        # what systems and programs write beside the documents
        if not name.endswith("/") and not name.startswith("__MACOSX/") and PurePosixPath(name).name[:1] not in ".~":
            yield name, partial(archive.read, name) if name.lower().endswith(known) else None
