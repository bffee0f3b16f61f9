"""The process that parses one document: `run(request)` reads it from standard input and writes the reply to stdout.

It is started without the package's own start (no keys, no numpy), without an environment, and takes limits upon
itself before it looks at the document: memory, processor time, size of its reply, no network, no files to write, no
programs to start.
"""

import io
import json
import os
import sys
from dataclasses import replace
from inspect import signature
from pkgutil import resolve_name
from typing import Any, BinaryIO, NoReturn

from dgmark_documents.charsets import check_legible, unify_line_ends
from dgmark_documents.kinds import PACKED, Kind
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
    """Parse the document on standard input and exit; `request` is JSON with `kind`, `column` and `limits`."""
    fields = json.loads(request)
    limits = Limits(**fields["limits"])
    reply: dict[str, Any]
    try:
        readers = _readers(fields["kind"])  # before it is confined: Python may still keep what it compiles
        confine(limits)
        kind, reading = _read(sys.stdin.buffer, fields, limits, readers)
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


def _readers(kind: str | None) -> dict[Kind, Any]:
    """The reader of a kind, or those of all packed kinds for None: others are not imported, which would take longer."""
    kinds = PACKED if kind is None else (Kind(kind),)
    return {one: resolve_name(f"dgmark_documents.{one.reader}") for one in kinds}


def _read(file: BinaryIO, request: dict[str, Any], limits: Limits, readers: dict[Kind, Any]) -> tuple[Kind, Reading]:
    given: dict[str, Any] = {"file": file, "column": request["column"], "limits": limits}
    if request["kind"] is None:
        from dgmark_documents.zip_archive import ZipArchive

        given["archive"] = ZipArchive(file, limits)
        kind = given["archive"].kind()
    else:
        kind, content = Kind(request["kind"]), file.read()
        given |= {"file": io.BytesIO(content), "content": content}
    names = signature(readers[kind]).parameters
    reading: Reading = readers[kind](**{name: one for name, one in given.items() if name in names})
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
