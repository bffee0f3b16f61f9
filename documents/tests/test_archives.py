"""Archives, mailboxes and saved answers: the documents in them are read, each by itself, and bombs are refused."""

import base64
import json
import plistlib
import zipfile
from pathlib import Path

import pytest

from dgmark import read_document
from dgmark.errors import InputError
from dgmark.rows.sources import read_texts
from dgmark_documents.reader import Limits, Refusal, members, read

TEXT = "The keeper of the lighthouse wrote a letter to his sister every evening."
HEADER = "From: ann@example.org\nSubject: a story\nMIME-Version: 1.0\n"
PIECES = [f"{word} " for word in TEXT.split()]


def found(path: Path) -> dict[str, str]:
    """The texts and errors of a file, by their ids without the name of the file."""
    rows = read_texts(str(path))
    return {one.row_id.removeprefix(f"{path}:"): str(one.error or one.content) for one in rows}


def packed(path: Path, **parts: bytes) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return path


def test_each_document_in_an_archive_is_a_row(tmp_path: Path) -> None:
    page = f"<html><body><p>{TEXT}</p></body></html>".encode()
    inner = packed(tmp_path / "inner.zip", **{"a.txt": b"a"}).read_bytes()
    parts = {"ann/essay.txt": TEXT.encode(), "bob/essay.html": page, "cy/inner.zip": inner, "cy/cut.docx": inner[:9]}
    skipped: list[str] = []
    path = packed(tmp_path / "class.zip", **parts, **{"__MACOSX/._a.txt": b"x", "dan/.DS_Store": b"x", "a.png": b"x"})
    rows = {one.row_id.removeprefix(f"{path}:"): one for one in read_texts(str(path), on_skip=skipped.append)}
    assert list(rows) == ["ann/essay.txt", "bob/essay.html", "cy/cut.docx", "cy/inner.zip"]
    assert [one.content for one in rows.values() if one.error is None] == [TEXT, TEXT]
    assert skipped == [f"{path}:a.png"]
    assert str(rows["cy/inner.zip"].error).startswith("is a packed archive")


def test_archives_that_are_refused(tmp_path: Path) -> None:
    path = packed(tmp_path / "class.zip", **{"a.png": b"x" * 100})
    with pytest.raises(InputError, match="holds no document"):
        found(path)
    limits = Limits(unpacked_bytes=99)
    with path.open("rb") as file:
        assert members(file, path.name, limits) is None
        with pytest.raises(Refusal, match="unpacks to 0 MB; the limit is 0 MB"):
            read(file, path.name, limits=limits)


def test_each_message_of_a_mailbox_is_a_row(tmp_path: Path) -> None:
    encoded = base64.encodebytes(TEXT.encode()).decode()
    first = f"{HEADER}Content-Type: text/plain\nContent-Transfer-Encoding: base64\n\n{encoded}"
    second = f"{HEADER}\nFrom the beginning it was cold.\n\nFrom 10:00 on it rained.\n"
    line = "From - Mon Nov  3 10:00:00 2026\n"
    path = tmp_path / "Inbox"
    path.write_text(f"{line}{first}\n{line}{second}")
    rows = found(path)
    assert list(rows) == ["1.eml", "2.eml"]
    assert rows["1.eml"].startswith(TEXT)
    assert "From 10:00 on it rained." in rows["2.eml"]
    with pytest.raises(InputError, match="mailbox of 2 messages"):
        read_document(path)
    path.write_text(f"{line}{first}")
    assert read_document(path).text.startswith(TEXT)
    whole = tmp_path / "one.eml"  # which may hold a mailbox as a text
    whole.write_text(f"{line}{HEADER}\n{TEXT}\n\n{line}{second}")
    assert list(found(whole)) == [str(whole)]


def test_texts_that_are_attached_are_read(tmp_path: Path) -> None:
    path = tmp_path / "mail.eml"
    path.write_text(
        f"{HEADER}Content-Type: multipart/mixed; boundary=X\n\n--X\n\nSee below.\n--X\nContent-Type: text/plain\n"
        f'Content-Disposition: attachment; filename="essay.txt"\n\n{TEXT}\n--X--\n'
    )
    document = read_document(path)
    assert document.text.startswith("See below.")
    assert TEXT in document.text
    assert any("essay.txt (59 letters)" in note for note in document.notes), document.notes


def test_messages_of_apple_mail_and_archives_of_safari(tmp_path: Path) -> None:
    message = f"{HEADER}\n{TEXT}\n"
    (tmp_path / "1.emlx").write_text(f"{len(message)}\n{message}<?xml version='1.0'?><plist><dict/></plist>\n")
    assert read_document(tmp_path / "1.emlx").text.splitlines()[0] == TEXT
    page = {
        "WebResourceData": f"<p>{TEXT}</p>".encode(),
        "WebResourceMIMEType": "text/html",
        "WebResourceTextEncodingName": "UTF-8",
        "WebResourceURL": "https://example.org/",
    }
    picture = {**page, "WebResourceData": b"\x89PNG", "WebResourceMIMEType": "image/png"}
    archive = {"WebMainResource": page, "WebSubresources": [picture]}
    (tmp_path / "a.webarchive").write_bytes(plistlib.dumps(archive, fmt=plistlib.FMT_BINARY))
    assert read_document(tmp_path / "a.webarchive").text == TEXT
    (tmp_path / "b.webarchive").write_bytes(plistlib.dumps({"a": 1}, fmt=plistlib.FMT_BINARY))
    with pytest.raises(InputError, match="no web archive"):
        read_document(tmp_path / "b.webarchive")


def _lines(*events: object, before: str = "data: ", after: str = "\n\n") -> str:
    return "".join(f"{before}{json.dumps(event)}{after}" for event in events)


STREAMS = {
    "chat completions": _lines(*({"choices": [{"index": 0, "delta": {"content": one}}]} for one in PIECES))
    + "data: [DONE]\n\n",
    "completions": _lines(*({"choices": [{"index": 0, "text": one}]} for one in PIECES)),
    "responses": _lines(
        *({"type": "response.output_text.delta", "output_index": 0, "delta": one} for one in PIECES),
        {"type": "response.output_text.done", "output_index": 0, "text": "".join(PIECES)},
    ),
    "messages": 'event: message_start\ndata: {"type": "message_start", "message": {"content": []}}\n\n'
    + _lines(
        *({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": one}} for one in PIECES),
        before="event: content_block_delta\ndata: ",
    ),
    "Ollama's chat": _lines(
        *({"model": "a", "message": {"role": "assistant", "content": one}, "done": False} for one in PIECES),
        before="",
        after="\n",
    ),
    "Ollama's generate": _lines(
        *({"model": "a", "response": one, "done": False} for one in PIECES), before="", after="\n"
    ),
}


@pytest.mark.parametrize("stream", STREAMS.values(), ids=STREAMS)
def test_an_answer_that_was_saved_as_it_was_streamed_is_its_text(stream: str, tmp_path: Path) -> None:
    path = tmp_path / "answer.txt"
    path.write_text(stream)
    document = read_document(path)
    assert document.text.strip() == TEXT
    assert document.uncertain_because is None


def test_several_answers_of_one_stream_are_told_apart_and_a_cut_off_one_is_uncertain(tmp_path: Path) -> None:
    told = [(0, PIECES), (1, PIECES[::-1])]
    both = [
        {"choices": [{"index": at, "delta": {"content": ones[n]}}]} for n in range(len(PIECES)) for at, ones in told
    ]
    path = tmp_path / "answer.sse"
    path.write_text(_lines(*both, {"choices": [{"index": 1, "delta": {"content": "The end."}}]})[:-9])
    document = read_document(path)
    assert document.text == f"{''.join(PIECES)}\n\n{''.join(PIECES[::-1])}"
    assert document.uncertain_because == "unread"
    assert "1 damaged event is left out" in document.notes
