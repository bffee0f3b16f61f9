"""Documents that are damaged, locked or hostile: a clear error within the limits, and nothing scored."""

import subprocess
import sys
import textwrap
import zipfile
from pathlib import Path

import pytest

from dgmark.errors import InputError, MissingExtra, NoTexts, SettingsError
from dgmark.rows.documents import read_document
from dgmark_documents import parser_process, sandbox
from dgmark_documents.kinds import Kind
from dgmark_documents.reading import MB, Limits
from support.documents import CORPUS
from support.unchecked import unchecked

BOMB = '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">]>'
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="the system's limits are those of Linux")
ENDLESS = b"{\\rtf1 " + b"{}" * 4_000_000 + b"}"  # each bracket takes a microsecond


def repacked(name: str, path: Path, changes: dict[str, bytes]) -> Path:
    """A packed document of the corpus with other contents in some of its parts."""
    with zipfile.ZipFile(CORPUS / name) as old, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new:
        for part in old.namelist():
            new.writestr(part, changes.get(part, old.read(part)))
        for part in changes.keys() - set(old.namelist()):
            new.writestr(part, changes[part])
    return path


def written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def refusal(path: Path, limits: Limits | None = None) -> str:
    with pytest.raises(InputError) as caught:
        read_document(path, limits=limits)
    assert str(caught.value).startswith(str(path))
    return str(caught.value)


@pytest.mark.parametrize("name", ["story.docx", "story.odt", "story.epub", "story.pdf", "story.rtf", "table.xlsx"])
def test_a_file_that_is_cut_off_is_damaged(name: str, tmp_path: Path) -> None:
    content = (CORPUS / name).read_bytes()
    reason = refusal(written(tmp_path / name, content[: len(content) // 2]))
    assert "is damaged" in reason or "is cut off" in reason


def test_a_damaged_beginning_is_not_scored_as_text(tmp_path: Path) -> None:
    for name in ("story.docx", "story.pdf", "story.rtf"):
        content = b"\1\2\3" + (CORPUS / name).read_bytes()[5:]
        refusal(written(tmp_path / name, content))
    assert "is no PDF, although its name says so" in refusal(written(tmp_path / "note.pdf", b"only a text"))


def test_another_kind_than_the_name_says_is_read_and_noted(tmp_path: Path) -> None:
    document = read_document(written(tmp_path / "story.docx", (CORPUS / "story.pdf").read_bytes()))
    assert document.notes == ("its name ends in .docx, but its content is PDF, and was read as such",)
    assert read_document(written(tmp_path / "letter", (CORPUS / "story.odt").read_bytes())).notes == ()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"\x89PNG\r\n\x1a\n rest", "is a picture"),
        (b"\xff\xd8\xff\xe0 rest", "is a picture"),
        (b"RIFF\0\0\0\0WEBPVP8 ", "is a picture"),
        (b"\0\0\0\x18ftypmp42\xff", "holds binary data"),
        (b"\x1f\x8b\x08rest", "is a packed archive"),
        (b"\x7fELF\2\1\1\0\xff", "holds binary data"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600), "of the form before 2007"),
        (bytes(range(256)) * 40, "holds"),
        (b"text with \0 and \xff in it", "holds binary data"),
        (b"ab\1\2\3\4", "holds no readable text"),
    ],
)
def test_binary_files_are_named_for_what_they_are(content: bytes, reason: str, tmp_path: Path) -> None:
    for name in ("file", "file.txt"):
        assert reason in refusal(written(tmp_path / name, content))


def test_a_file_without_text_is_empty(tmp_path: Path) -> None:
    for path in (written(tmp_path / "a.txt", b" \n"), written(tmp_path / "a.html", b"<p> </p>"), CORPUS / "scan.odt"):
        with pytest.raises(InputError, match="holds no text"):
            read_document(path)
    with pytest.raises(NoTexts, match="cannot be read: No such file"):
        read_document(tmp_path / "none.pdf")
    with unchecked(), pytest.raises(SettingsError, match="a document is a str or a Path, not a bytes"):
        read_document(b"none.pdf")  # type: ignore[arg-type]


def test_bombs_of_zip_are_refused_by_their_size(tmp_path: Path) -> None:
    zeros = bytes(300 * MB)
    bomb = repacked("story.docx", tmp_path / "bomb.docx", {"word/document.xml": zeros})
    assert bomb.stat().st_size < MB
    assert "unpacks to 300 MB; the limit is 256 MB" in refusal(bomb)
    parts = repacked("story.odt", tmp_path / "parts.odt", {f"Pictures/{n}": b"" for n in range(50)})
    assert "parts; the limit is 20" in refusal(parts, Limits(parts=20))


def test_a_zip_that_lies_about_its_size_is_refused(tmp_path: Path) -> None:
    bomb = repacked("story.odt", tmp_path / "lie.odt", {"content.xml": bytes(40 * MB)})
    content = bytearray(bomb.read_bytes())
    size = (40 * MB).to_bytes(4, "little")
    while (at := content.find(size)) >= 0:
        content[at : at + 4] = (2000).to_bytes(4, "little")
    assert "is damaged" in refusal(written(bomb, bytes(content)))


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
@pytest.mark.parametrize(
    ("name", "part"),
    [("story.docx", "word/document.xml"), ("story.odt", "content.xml"), ("table.xlsx", "xl/worksheets/sheet1.xml")],
)
def test_bombs_of_xml_are_refused(name: str, part: str, encoding: str, tmp_path: Path) -> None:
    with zipfile.ZipFile(CORPUS / name) as package:
        content = package.read(part).decode()
    body = content.split("?>", 1)[1]
    bomb = f'<?xml version="1.0" encoding="{encoding}"?>{BOMB}{body}'
    assert "declares XML entities" in refusal(repacked(name, tmp_path / name, {part: bomb.encode(encoding)}))


def test_files_of_the_machine_are_not_read_through_entities(tmp_path: Path) -> None:
    secret = written(tmp_path / "secret.txt", b"SECRET")
    entity = f'<!DOCTYPE p [<!ENTITY e SYSTEM "{secret.as_uri()}">]>'
    page = f"<?xml version='1.0'?>{entity}<html><body><p>a page &e;</p></body></html>".encode()
    assert "SECRET" not in read_document(written(tmp_path / "page.xhtml", page)).text
    book = repacked("story.epub", tmp_path / "book.epub", {"OEBPS/sections/section0001.xhtml": page})
    assert "SECRET" not in read_document(book).text


def test_deep_nesting_is_refused(tmp_path: Path) -> None:
    page = b"<div>" * 5000 + b"text" + b"</div>" * 5000
    assert "is nested too deeply" in refusal(written(tmp_path / "deep.html", page))
    with zipfile.ZipFile(CORPUS / "story.odt") as package:
        content = package.read("content.xml")
    deep = content.replace(b"<text:p ", b"<text:span>" * 5000 + b"</text:span>" * 5000 + b"<text:p ", 1)
    assert "is damaged" in refusal(repacked("story.odt", tmp_path / "deep.odt", {"content.xml": deep}))


def test_pages_are_limited() -> None:
    assert "has 2 pages; the limit is 1" in refusal(CORPUS / "pages.pdf", Limits(pages=1))


def test_size_and_length_are_limited(tmp_path: Path) -> None:
    assert "has 2 MB; the limit is 1 MB" in refusal(
        written(tmp_path / "large.txt", b"word " * (2 * MB // 5 + 1)), Limits(file_bytes=MB)
    )
    page = written(tmp_path / "page.html", b"<p>" + b"word " * 1000)
    assert "MB of text" in refusal(page, Limits(text_bytes=1000))


def test_an_endless_document_is_given_up(tmp_path: Path) -> None:
    path = written(tmp_path / "endless.rtf", ENDLESS)
    assert "takes more than 1 seconds to read" in refusal(path, Limits(seconds=1))


@LINUX
def test_memory_is_limited(tmp_path: Path) -> None:
    page = written(tmp_path / "page.html", b"<p>word</p>" * 200_000)
    assert "of memory" in refusal(page, Limits(memory_bytes=100 * MB))
    assert read_document(page).text.startswith("word\n\nword")


@LINUX
def test_a_crash_of_the_parser_is_an_error_of_its_document(tmp_path: Path) -> None:
    far = b'<c r="XFD1048576" t="inlineStr"><is><t>far</t></is></c></row>'
    with zipfile.ZipFile(CORPUS / "table.xlsx") as package:
        sheet = package.read("xl/worksheets/sheet1.xml")
    last = sheet.rindex(b"</row>")
    bomb = repacked(
        "table.xlsx", tmp_path / "far.xlsx", {"xl/worksheets/sheet1.xml": sheet[:last] + far + sheet[last + 6 :]}
    )
    reason = refusal(bomb)
    assert "crashed its parser" in reason or "of memory" in reason or "takes more than" in reason


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    without = [place for place in sys.path if "site-packages" not in place]
    monkeypatch.setattr(sys, "path", without)
    with pytest.raises(MissingExtra, match=r"reading .* needs pypdfium2: run `pip install ./documents`"):
        read_document(CORPUS / "story.pdf")


def test_an_answer_of_another_form_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for reply in ("no json", '{"kind": "PDF", "text": 5}', '{"kind": "secret"}', '{"code": 1}', ""):
        monkeypatch.setattr(sandbox, "_START", f"print({reply!r})")
        with pytest.raises(InputError, match="gave no answer that can be used"):
            read_document(CORPUS / "story.pdf")


def confined(script: str, **environment: str) -> str:
    """What a script prints that runs in a process as parsers do."""
    start = sandbox._START.replace(
        "from dgmark_documents.parser_process import run; run(sys.argv[1])", textwrap.dedent(script)
    )
    command = [sys.executable, "-I", "-S", "-c", start, "", *sys.path]
    return subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout


def test_a_parser_has_no_keys_network_programs_or_files_to_write(tmp_path: Path) -> None:
    printed = confined(
        f"""
import os, socket, subprocess
from dgmark_documents.parser_process import confine
from dgmark_documents.reading import Limits
confine(Limits())
tries = [
    lambda: socket.create_connection(("127.0.0.1", 9)),
    lambda: socket.getaddrinfo("localhost", 80),
    lambda: subprocess.run(["true"]),
    lambda: os.system("true"),
    lambda: open({str(tmp_path / "file")!r}, "w"),
    lambda: os.remove({str(tmp_path)!r}),
    lambda: os.fork(),
]
for one in tries:
    try:
        one()
    except PermissionError as error:
        print(error)
print([name for name in sys.modules if name.startswith(("dgmark.", "numpy"))])
"""
    )
    assert printed.count("a parser may not use") == 7
    assert printed.endswith("[]\n")


def test_a_parser_gets_none_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DGMARK_SECRET", "secret")
    monkeypatch.setattr(
        sandbox, "_START", "import os, json; print(json.dumps({'kind': 'PDF', 'text': str(sorted(os.environ))}))"
    )
    assert "SECRET" not in read_document(CORPUS / "story.pdf").text


def test_every_kind_that_a_parser_reads_has_its_reader() -> None:
    for kind in (None, *(one for one in Kind if one.reader)):
        assert all(map(callable, parser_process._readers(kind).values()))
