"""Marked text in each kind of file that is text: whole and word by word, it is found, or the verdict says why not."""

import json
import random
from collections.abc import Callable
from contextlib import suppress
from html import escape
from pathlib import Path
from typing import Any

import pytest

from dgmark import Detector, read_document
from dgmark.detection.results.detection import Detection
from dgmark.errors import InputError
from dgmark.rows.item import Item
from dgmark.rows.scoring import ScoringOptions, score
from dgmark.rows.sources import read_sources
from dgmark_documents.catalogues import read_catalogue
from dgmark_documents.json_text import read_json
from dgmark_documents.kinds import Kind, recognise
from dgmark_documents.notebooks import read_notebook
from dgmark_documents.reading import Refusal
from dgmark_documents.subtitles import read_subtitles
from dgmark_documents.xml_text import read_xml
from support.cases import cases, data
from support.documents import document_of_reading
from support.known_keys import known_key
from support.marked_texts import marked_text

KEY = known_key("kinds", rule="bigram")
DETECTOR = Detector(KEY)
MARKED = marked_text(KEY, 240).strip()
WORDS = MARKED.split()
LINES = [" ".join(WORDS[at : at + 8]) for at in range(0, len(WORDS), 8)]
PLAIN = " ".join((Path(__file__).parents[2] / "LICENSE").read_text("utf-8").split())[:2000]


def notebook(*cells: dict[str, Any]) -> str:
    return json.dumps({"cells": list(cells), "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


def cell(source: str | list[str], kind: str = "markdown", *outputs: dict[str, Any]) -> dict[str, Any]:
    return {"cell_type": kind, "metadata": {}, "source": source, "outputs": list(outputs)}


def shown(**data: object) -> dict[str, Any]:
    return {"output_type": "display_data", "data": {f"text/{name}": value for name, value in data.items()}}


WIDGET = {"data": {"application/vnd.jupyter.widget-view+json": {"model_id": "1"}}}
STATE = json.dumps(
    {
        "widgets": {
            "application/vnd.jupyter.widget-state+json": {
                "state": {
                    "1": {
                        "model_name": "TextareaModel",
                        "state": {"_view_name": "x", "value": "bcd", "layout": "IPY_MODEL_2"},
                    },
                    "2": {"model_name": "LayoutModel", "state": {"width": "auto"}},
                }
            }
        }
    }
)


def time_of(number: int, point: str = ",") -> str:
    return f"{number // 3600:02}:{number // 60 % 60:02}:{number % 60:02}{point}000"


def cues(parts: list[str], point: str = ",", head: str = "", arrow: str = " --> ") -> str:
    """Subtitles of these parts, in blocks with a number and times."""
    times = [time_of(number, point) + arrow + time_of(number + 1, point) for number in range(len(parts))]
    return head + "".join(f"{number}\n{times[number]}\n{part}\n\n" for number, part in enumerate(parts))


def script(parts: list[str]) -> str:
    events = "".join(f"Dialogue: 0,0:00:01.00,0:00:02.00,Default,,0,0,0,,{{\\i1}}{part}\n" for part in parts)
    fields = "Format: Layer, Start, End, Style, Name, MarginL, MarginR, MarginV, Effect, Text\n"
    return f"[Script Info]\nTitle: x\n\n[Events]\n{fields}{events}Comment: 0,0,0,,,0,0,0,,not shown\n"


def quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def catalogue(parts: list[str]) -> str:
    entries = "".join(f'#: a.c:{n}\nmsgid "{n}"\nmsgstr {quoted(part)}\n\n' for n, part in enumerate(parts))
    return f'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=UTF-8\\n"\n\n{entries}'


def elements(name: str, parts: list[str], between: str = "", attributes: str = "") -> str:
    return between.join(f"<{name}{attributes}>{escape(part)}</{name}>" for part in parts)


def xml(inner: str, name: str = "text") -> str:
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<{name}>{inner}</{name}>'


# each holds all of the marked text and nothing else: whole, in lines of 8 words, and word by word
FILES = {
    "whole.ipynb": notebook(cell(MARKED)),
    "lines.ipynb": notebook(cell([f"{line} \n" for line in LINES])),
    "code.ipynb": notebook(cell(MARKED, "code")),
    "cells.ipynb": notebook(*map(cell, WORDS)),
    "stream.ipynb": notebook(cell("x", "code", {"output_type": "stream", "name": "stdout", "text": [MARKED]})),
    "plain.ipynb": notebook(cell("x", "code", shown(plain=[MARKED]))),
    "markdown.ipynb": notebook(cell("x", "code", shown(plain="<x>", markdown=MARKED))),
    "html.ipynb": notebook(cell("x", "code", shown(plain="<x>", html=["<p>", escape(MARKED), "</p>"]))),
    "error.ipynb": notebook(cell("x", "code", {"output_type": "error", "traceback": [f"\x1b[31m{MARKED}\x1b[0m"]})),
    "drawing.ipynb": notebook(
        cell("x", "code", {"data": {"image/svg+xml": f"<svg><text>{MARKED}</text></svg>", "text/plain": "<x>"}})
    ),
    "version 3.ipynb": json.dumps(
        {"worksheets": [{"cells": [{"cell_type": "code", "input": MARKED, "outputs": []}]}], "nbformat": 3}
    ),
    "whole.srt": cues([MARKED]),
    "lines.srt": cues(LINES),
    "two lines.srt": cues(["\n".join(LINES[at : at + 2]) for at in range(0, len(LINES), 2)]),
    "styles.srt": cues([f"{{\\an8}}<i><font color='red'>{line}</font></i>" for line in LINES]),
    "words.srt": cues(WORDS),
    "no numbers.srt": "\n".join(f"{time_of(n)} --> {time_of(n + 1)}\n{line}\n" for n, line in enumerate(LINES)),
    "no blank lines.srt": cues(LINES).replace("\n\n", "\n"),
    "windows.srt": cues(LINES).replace("\n", "\r\n"),
    "words.vtt": cues(WORDS, ".", "WEBVTT - a title\nKind: captions\n\nNOTE never\nshown\n\nSTYLE\n::cue {}\n\n"),
    "times.vtt": cues(
        ["".join(f"<{time_of(n, '.')}><c.x>{word}</c> " for n, word in enumerate(WORDS))], ".", "WEBVTT\n\n"
    ),
    "speakers.vtt": cues([f"<v Ada>{line}</v>" for line in LINES], ".", "WEBVTT\n\n"),
    "rolling.vtt": cues(
        [f"{before}\n{line}" for before, line in zip(["", *LINES], LINES, strict=False)], ".", "WEBVTT\n\n"
    ),
    "without times.vtt": f"WEBVTT\n\n{MARKED}\n",
    "lines.sbv": cues(LINES, ".", arrow=","),
    "lines.ass": script(LINES),
    "breaks.ass": script([r"\N".join(LINES)]),
    "words.ass": script(["".join(f"{{\\k20}}{word} " for word in WORDS)]),
    "lines.sub": "".join(f"{{{n}}}{{{n + 9}}}{{y:i}}{line}\n" for n, line in enumerate(LINES)),
    "bars.sub": f"{{0}}{{90}}{'|'.join(LINES)}\n",
    "words.smi": "<SAMI><BODY>\n" + "".join(f"<SYNC Start={n}><P Class=EN>{word}\n" for n, word in enumerate(WORDS)),
    "lines.lrc": "[ti:x]\n" + "".join(f"[00:{n:02}.00]{line}\n" for n, line in enumerate(LINES)),
    "words.lrc": "".join(f"[00:{n % 60:02}.00] <00:01.00> {word}\n" for n, word in enumerate(WORDS)),
    "whole.po": catalogue([MARKED]),
    "lines.po": catalogue(LINES),
    "words.po": catalogue(WORDS),
    "strings.po": 'msgid "0"\nmsgstr ""\n' + "".join(f"{quoted(line + ' ')}\n" for line in LINES),
    "plural.po": "".join(f'msgid "a"\nmsgid_plural "b"\nmsgstr[0] ""\nmsgstr[1] "{line}"\n' for line in LINES),
    "template.pot": "".join(f'msgctxt "x{n}"\nmsgid "{line}"\nmsgstr ""\n' for n, line in enumerate(LINES)),
    "whole.xml": xml(f"<p>{MARKED}</p>"),
    "lines.xml": xml("<p>\n    " + "\n    ".join(LINES) + "\n</p>"),
    "TEI.xml": xml("<p>" + elements("w", WORDS, " ", " lemma='x'") + "</p>"),
    "TEI in lines.xml": xml("<p>\n" + elements("w", WORDS, "\n  ") + "\n</p>"),
    "TEI without spaces.xml": xml("<s>" + elements("w", WORDS) + "</s>"),
    "sentences.xml": xml("<p>" + "".join("<s>" + elements("w", line.split()) + "</s>" for line in LINES) + "</p>"),
    "letters.xml": xml("<p>" + elements("c", list(MARKED)) + "</p>"),
    "letters in words.xml": xml("<p>" + " ".join("<w>" + elements("c", list(w)) + "</w>" for w in WORDS) + "</p>"),
    "runs.xml": xml("<p>" + elements("r", [f"{word} " for word in WORDS]) + "</p>"),
    "inline.xml": xml("<p>" + " ".join(f"{word[:1]}<hi>{word[1:]}</hi>" for word in WORDS) + "</p>"),
    "records.xml": xml("".join(f"<r><id>{n}</id><v>{line}</v></r>" for n, line in enumerate(LINES))),
    "CDATA.xml": xml(f"<p><![CDATA[{MARKED}]]></p>"),
    "feed.rss": xml(f"<channel><item><description>{escape(f'<p>{MARKED}</p>')}</description></item></channel>", "rss"),
    "page.xml": xml(f"<body><p>{MARKED}</p></body>", "html"),
    "lines.ttml": xml(f"<body><div>{elements('p', LINES)}</div></body>", "tt"),
    "whole.svg": f'<svg xmlns="http://www.w3.org/2000/svg"><text>{MARKED}</text></svg>',
    "spans.svg": f'<svg xmlns="http://www.w3.org/2000/svg"><text>{elements("tspan", WORDS, " ")}</text></svg>',
    "words.svg": f'<svg xmlns="http://www.w3.org/2000/svg">{elements("text", WORDS)}</svg>',
    "string.json": json.dumps(MARKED),
    "list.json": json.dumps(LINES),
    "words.json": json.dumps(WORDS),
    "object.json": json.dumps(dict(enumerate(LINES)), indent=2),
    "deep.json": json.dumps({"a": [{"b": {"c": MARKED}}]}),
    "chat.json": json.dumps([{"role": "user", "content": MARKED}]),
    "one.json": json.dumps({"id": "x", "text": MARKED, "tokens": 3}),
    "rows.json": json.dumps([{"id": 7, "text": MARKED}]),
    "lines of objects.json": f"{json.dumps({'text': MARKED})}\n",
    "colours.txt": " ".join(f"\x1b[3{n % 8}m{word}\x1b[0m" for n, word in enumerate(WORDS)),
    "struck over.txt": "".join(f"{one}\b{one}" if one.isalpha() else one for one in MARKED),
    "numbers.md": " ".join(f"[{word}][{n}]" for n, word in enumerate(WORDS)),
    "table.md": "\n".join(f"| **{' | '.join(line.split())}** |" for line in LINES),
    "emph.tex": "\\documentclass{article}\\begin{document}" + " ".join(rf"\emph{{{word}}}" for word in WORDS),
    **{name: " ".join(map(template.format, WORDS)) for name, template in data(__file__, "each_word").items()},
    "page.md": f"<!doctype html><html><body>{elements('p', LINES)}</body></html>",
    "words of a page.txt": f"<html><body><p>{elements('b', WORDS, ' ')}</p></body></html>",
}


def outcome(path: Path, content: str | bytes, detector: Detector = DETECTOR) -> tuple[Item, Detection]:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    (item,) = read_sources([str(path)])
    (detection,) = score(detector, ScoringOptions(), [item])
    assert isinstance(detection, Detection)
    return item, detection


@pytest.mark.parametrize("name", FILES)
def test_marked_text_is_found_in_each_kind_of_file(name: str, tmp_path: Path) -> None:
    item, detection = outcome(tmp_path / name, FILES[name])
    assert detection.verdict == "watermarked"
    assert isinstance(item.content, str)
    if name not in data(__file__, "partly"):
        assert detection.green_fraction > 0.9
    assert recognise(name, FILES[name].encode()[: 2**16]) == item.kind


READERS: dict[str, Callable[[bytes], Any]] = {
    "ipynb": read_notebook,
    "vtt": read_subtitles,
    "srt": read_subtitles,
    "po": read_catalogue,
    "xml": read_xml,
    "json": lambda content: read_json(content, "text"),
}


@pytest.mark.parametrize(
    ("kind", "content", "text"),
    [
        ("ipynb", notebook(cell("# A\n"), cell(["b\n", "c"], "code", shown(plain="d"))), "# A\n\nb\nc\n\nd"),
        ("ipynb", notebook(cell("a", "code", shown(plain="stands in", latex="$b$"))), "a\n\n$b$"),
        ("ipynb", notebook(cell("a", "code", {"data": {"application/json": {"b": ["c", "d"]}}})), "a\n\nc\nd"),
        (
            "ipynb",
            notebook(cell("a", "code", WIDGET)).replace('"metadata": {}, "nb', f'"metadata": {STATE}, "nb'),
            "a\n\nbcd",
        ),
        *cases(__file__, "read"),
    ],
)
def test_what_is_read_of_a_file(kind: str, content: str, text: str) -> None:
    assert READERS[kind](content.encode()).text == text


@pytest.mark.parametrize(("kind", "content", "reason"), cases(__file__, "refused"))
def test_what_is_not_of_its_kind_is_refused(kind: str, content: str, reason: str) -> None:
    with pytest.raises(Refusal, match=reason):
        READERS[kind](content.encode())


@pytest.mark.parametrize(
    ("kind", "content", "note"),
    [
        ("ipynb", notebook(cell(PLAIN, "code", {"data": {"image/png": "iVBOR", "text/plain": "x"}})), "1 picture is"),
        ("ipynb", notebook({**cell(PLAIN), "attachments": {"a.png": {}}}), "1 picture is left out"),
        ("ipynb", notebook(cell(PLAIN, "code", {"data": {"application/x": "y"}})), "1 output of other kinds is"),
        ("ipynb", notebook(cell(PLAIN, "code", {"data": {"application/javascript": "x"}})), "1 script is left out"),
        ("ipynb", notebook(cell(PLAIN, "code", shown(html=f"<p hidden>{MARKED}</p>"))), "hidden text ("),
        ("po", f'msgid ""\nmsgstr "X-Note: {MARKED}\\n"\n\nmsgid "a"\nmsgstr "b"\n', "read behind the body: headers"),
        ("xml", f"<TEI><teiHeader><p>{MARKED}</p></teiHeader><p>{PLAIN}</p></TEI>", "read behind the body: headers"),
        ("xml", f"<a>{PLAIN}<script>{MARKED}</script></a>", "1 script is left out"),
        ("xml", f"<a>{PLAIN}" + "".join(f'<w form="{word}"/>' for word in WORDS) + "</a>", "letters of single words"),
        ("vtt", f"WEBVTT\n\nNOTE x\n\n00:01.000 --> 00:02.000\n{PLAIN}\n", "1 comment is left out"),
        ("vtt", f"WEBVTT\n\n{PLAIN}\n", "letters in text without a time were read, although"),
        ("xml", f'<a>{PLAIN}<b note="{MARKED[:300]}"/></a>', "letters in attribute note of b were not read"),
        ("json", json.dumps({"answer": PLAIN}), "all strings in it were read"),
    ],
)
def test_what_is_not_read_of_a_file_is_noted(kind: str, content: str, note: str) -> None:
    reading = READERS[kind](content.encode())
    assert any(note in one for one in (*reading.notes, *reading.how))


def test_two_fields_of_one_name_are_refused_and_other_fields_noted() -> None:
    with pytest.raises(InputError, match='has 2 columns "text"'):
        document_of_reading(read_json(b'[{"text": "a", "Text": "b"}]', "text"))
    other = json.dumps([{"text": "a", "answer": PLAIN}]).encode()
    (note,) = document_of_reading(read_json(other, "text")).notes
    assert 'letters stand in columns other than "text"' in note


def test_objects_with_a_text_are_rows(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    path.write_text(json.dumps([{"id": "a", "text": "one"}, {"text": "two"}, {"Text": None}]).replace("Text", "text"))
    assert read_document(path).rows == (("a", "one"), ("2", "two"), ("3", ""))
    ids = [(item.row_id, item.place) for item in read_sources([str(path)])]
    assert ids == [("a", "1"), (f"{path}:2", None), (f"{path}:3", None)]


@pytest.mark.parametrize(
    ("content", "kind", "name"),
    [*cases(__file__, "first_bytes"), (FILES["words.srt"].replace("0\n", "1\n", 1), "SUBTITLES", None)],
)
def test_first_bytes_say_the_kind_where_no_name_does(content: str, kind: str, name: str | None) -> None:
    assert recognise(name or "", FILES.get(content, content).encode()) is Kind[kind]


@pytest.mark.parametrize(
    "name", ["whole.ipynb", "lines.srt", "words.json", "TEI.xml", "lines.po", "emph.tex", "page.md"]
)
@pytest.mark.parametrize("ending", [".txt", ".dat"])
def test_a_text_that_looks_like_another_kind_is_scored_as_it_stands_and_noted(
    name: str, ending: str, tmp_path: Path
) -> None:
    content = FILES[name].replace("0\n00:00:00,000", "1\n00:00:00,000", 1)
    path = tmp_path / f"a{ending}"
    path.write_text(content)
    document = read_document(path)
    if document.kind == "text":
        assert document.text == content
        assert "its content looks like" in document.notes[0]
    else:
        assert ending == ".dat"
        assert document.kind == recognise("", content.encode())


@pytest.mark.parametrize("name", ["a.md", "a.rst", "a.tex", "a.org", "a.txt", "stdin"])
def test_many_words_in_markup_make_a_text_without_the_mark_uncertain(name: str, tmp_path: Path) -> None:
    words = PLAIN.split()
    for share, verdict in ((1, "uncertain"), (3, "uncertain"), (6, "not_detected"), (30, "not_detected")):
        text = " ".join(f"**{w}**" if n % share == 0 else w for n, w in enumerate(words))
        item, detection = outcome(tmp_path / name, text)
        assert detection.verdict == verdict
        assert (detection.uncertain_because == "markup") == (verdict == "uncertain")
        assert any("signs of markup touch" in note for note in item.notes) == (share < 8)
        assert not detection.incomplete


def test_programs_and_plain_markdown_are_scored_as_they_stand(tmp_path: Path) -> None:
    source = Path(__file__).read_text(encoding="utf-8")
    page = f"# A title\n\n* **a** list\n\n{PLAIN}"
    for name, content in (("a.py", source), ("a.md", page), ("a.js", "`some` `words` and " * 400)):
        item, detection = outcome(tmp_path / name, content)
        assert item.content == content
        assert item.notes == ()
        assert detection.uncertain_because != "markup"


def test_a_picture_without_text_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.svg"
    path.write_text('<svg xmlns="http://www.w3.org/2000/svg"><path d="M 0 0"/></svg>')
    with pytest.raises(InputError, match="holds no text"):
        read_document(path)


@pytest.mark.parametrize("kind", READERS)
def test_damaged_files_are_read_or_refused(kind: str) -> None:
    dice = random.Random(kind)
    sources = [content.encode() for name, content in FILES.items() if name.endswith(f".{kind}")]
    for _ in range(60):
        content = bytearray(dice.choice(sources))
        for _ in range(dice.randrange(1, 30)):
            start = dice.randrange(len(content))
            content[start : start + dice.randrange(3)] = dice.choice(
                [b"<", b'"', b"{", b"}", b"\xff", b"\n", b"&", b""]
            )
        with suppress(Refusal):
            assert isinstance(READERS[kind](bytes(content)).text, str)
