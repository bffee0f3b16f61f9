"""Documents from JSON Lines files, plain or compressed: {"id": ..., "paragraphs": [...]}, one a line."""

import bz2
import gzip
import hashlib
import json
import lzma
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from dgmark.errors import InputError, NoTexts

Compressed = bz2.BZ2File | gzip.GzipFile | lzma.LZMAFile
_OPENERS: dict[str, Callable[..., Any]] = {".xz": lzma.open, ".gz": gzip.open, ".bz2": bz2.open}


@dataclass(frozen=True)
class Document:
    """One document, such as a book or a tale."""

    doc_id: str
    paragraphs: list[str]

    @property
    def text(self) -> str:
        """Its paragraphs, one a line."""
        return "\n".join(self.paragraphs)


def read_documents(path: Path) -> Iterator[Document]:
    """Read the documents of a file that contain text.

    Raises:
        NoTexts: the file is unreadable, or holds no document.
        InputError: a line is not a document, or the file is damaged.
    """
    empty = True
    with _open(path) as file:
        try:
            for number, line in enumerate(file, 1):
                document = _document(line, f"{path}:{number}")
                if document.paragraphs:
                    empty = False
                    yield document
        except (lzma.LZMAError, EOFError, OSError) as error:
            raise InputError(f"{path} is damaged ({error}); fetch it again") from error
    if empty:
        raise NoTexts(f"{path} holds no document")


def file_hash(path: Path) -> str:
    """Hash a file's bytes with SHA-256, in hex.

    Raises:
        NoTexts: the file is unreadable.
    """
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise NoTexts(f"{path} cannot be read: {error.strerror}; give a .jsonl or .jsonl.xz file") from error


def _open(path: Path) -> IO[bytes] | Compressed:
    try:
        file: IO[bytes] | Compressed = _OPENERS.get(path.suffix, open)(path, "rb")
    except OSError as error:
        raise NoTexts(f"{path} cannot be read: {error.strerror}; give a .jsonl or .jsonl.xz file") from error
    return file


def _document(line: bytes, source: str) -> Document:
    try:
        row = json.loads(line)
        paragraphs = row["paragraphs"]
        if not all(isinstance(paragraph, str) for paragraph in paragraphs):
            raise TypeError("a paragraph is not a text")
        return Document(str(row["id"]), [one for one in paragraphs if one.strip()])
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f'{source} is not a document {{"id": ..., "paragraphs": [texts]}}: {error!r}') from error
