"""What a document may cost.

Knows nothing of kinds and parsers; parent and child process share it.
"""

from dataclasses import dataclass

MB = 2**20


@dataclass(frozen=True)
class Limits:
    """The limits of one document; beyond any of them it is an error, and no part of it is scored.

    Attributes:
        file_bytes: size of the file.
        unpacked_bytes: size of all parts of a packed file (.docx, .odt, .epub, .xlsx) once unpacked.
        parts: number of parts of a packed file.
        pages: pages of a PDF, chapters of an EPUB.
        text_bytes: size of the text that is read, as UTF-8.
        seconds: time of the parser.
        memory_bytes: memory of the parser's process, where the system can limit it (not on macOS and Windows).
    """

    file_bytes: int = 128 * MB
    unpacked_bytes: int = 256 * MB
    parts: int = 20_000
    pages: int = 5_000
    text_bytes: int = 64 * MB
    seconds: float = 60
    memory_bytes: int = 2048 * MB
