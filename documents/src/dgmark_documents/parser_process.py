"""The process that parses one document: `run(request)` reads it from standard input and writes the reply to stdout.

It is started without the package's own start (no keys, no numpy), without an environment, and takes limits upon
itself before it looks at the document: memory, processor time, size of its reply, no network, no files to write, no
programs to start.
"""

import io
import json
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from typing import Any, BinaryIO, NoReturn

from dgmark_documents.charsets import check_legible, unify_line_ends
from dgmark_documents.kinds import Kind
from dgmark_documents.reading import MB, Limits, Reading, Refusal

try:
    import resource
except ModuleNotFoundError:  # Windows
    resource = None  # type: ignore[assignment]

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_FORBIDDEN = (
    "socket.", "subprocess.", "os.exec", "os.fork", "os.posix_spawn", "os.spawn", "os.system", "os.startfile",
    "os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.kill", "shutil.",
    "webbrowser.",
)  # fmt: skip


def run(request: str) -> NoReturn:
    """Parse the document on standard input and exit.

    Args:
        request: JSON with `kind` (null for a ZIP archive), `column` and `limits`.
    """
    fields = json.loads(request)
    limits = Limits(**fields["limits"])
    confine(limits)
    reply: dict[str, Any]
    try:
        kind, reading = _read(sys.stdin.buffer, fields, limits)
        reply = {"kind": kind, **vars(reading)}
    except Refusal as error:
        reply = {"refusal": str(error)}
    except ModuleNotFoundError as error:
        reply = {"missing": error.name}
    except MemoryError:
        reply = {"refusal": f"needs more than {limits.memory_bytes // MB} MB of memory to be read"}
    except RecursionError:
        reply = {"refusal": "is nested too deeply to be read"}
    # a text may hold halves of characters, which UTF-8 has no form for
    content = json.dumps(reply, ensure_ascii=False).encode("utf-8", "replace")
    if len(content) > 2 * limits.text_bytes:
        content = json.dumps({"refusal": f"holds more than {limits.text_bytes // MB} MB of text"}).encode()
    sys.stdout.buffer.write(content)
    sys.stdout.buffer.flush()
    os._exit(0)  # without the clean-up of parsers, which a damaged document may crash


def _of(name: str) -> Any:
    """A module of readers: one is imported, as the libraries of all take longer to load than most documents."""
    return import_module(f"dgmark_documents.{name}")


def _read(file: BinaryIO, request: dict[str, Any], limits: Limits) -> tuple[Kind, Reading]:
    column = request["column"]
    if request["kind"] is None:
        archive = _of("zip_archive").ZipArchive(file, limits)
        kind = archive.kind()
        readers: dict[Kind, Callable[[], Reading]] = {
            Kind.XLSX: lambda: _of("workbook").read_workbook(file, archive, column),
            Kind.DOCX: lambda: _of("word").read_docx(archive),
            Kind.PPTX: lambda: _of("presentation").read_pptx(archive, limits),
            Kind.ODT: lambda: _of("opendocument").read_odt(archive),
            Kind.EPUB: lambda: _of("epub").read_epub(archive, limits),
        }
    else:
        kind = Kind(request["kind"])
        content = file.read()
        readers = {
            Kind.PDF: lambda: _of("pdf").read_pdf(io.BytesIO(content), limits),
            Kind.RTF: lambda: _of("rtf").read_rtf(content),
            Kind.ODT: lambda: _of("opendocument").read_flat_odt(content),
            Kind.MAIL: lambda: _of("mail").read_mail(content),
            Kind.HTML: lambda: _of("html_text").read_html(content),
            Kind.SVG: lambda: _of("html_text").read_html(content),
            Kind.XML: lambda: _of("xml_text").read_xml(content),
            Kind.NOTEBOOK: lambda: _of("notebooks").read_notebook(content),
            Kind.SUBTITLES: lambda: _of("subtitles").read_subtitles(content),
            Kind.CATALOGUE: lambda: _of("catalogues").read_catalogue(content),
            Kind.JSON: lambda: _of("json_text").read_json(content, column),
        }
    reading = readers[kind]()
    check_legible(reading.text)  # empty where the document is a table
    return kind, replace(reading, text=unify_line_ends(reading.text))


def confine(limits: Limits) -> None:
    """Give up what a parser does not need."""
    sys.setrecursionlimit(3000)
    if resource is not None:
        # the parent stops the process in time; this holds where the parent is gone
        seconds = int(limits.seconds) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (2 * limits.text_bytes, 2 * limits.text_bytes))
        if sys.platform == "linux":
            resource.setrlimit(resource.RLIMIT_AS, (limits.memory_bytes, limits.memory_bytes))
    sys.addaudithook(_refuse)


def _refuse(event: str, arguments: tuple[Any, ...]) -> None:
    """Refuse the network, other programs, and changes to files."""
    writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & _WRITING
    if writes or event.startswith(_FORBIDDEN):
        raise PermissionError(f"a parser may not use {event}")
