"""What `dgmark detect` shows to a person: the card of one text, the table of several, the text with its spans."""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from dgmark import Detector
from dgmark.cli.process import correct_size
from support.command_line import run
from support.known_keys import key_file_of, known_key
from support.marked_texts import marked_text

KEY = known_key("card", rule="bigram")
WILLOWS = (Path(__file__).parents[1] / "texts" / "willows.txt").read_text(encoding="utf-8")
MARKED = marked_text(KEY, 250)
key_file = key_file_of(KEY)


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    folder = tmp_path / "texts"
    folder.mkdir()
    contents = {"human": WILLOWS[:4000], "loop": "the king said " * 300, "mixed": mixed(), "short": "A few words."}
    for name, content in contents.items():
        (folder / f"{name}.txt").write_text(content, encoding="utf-8")
    return folder


def mixed() -> str:
    return f"{WILLOWS[:900]}{' ' * 300}{MARKED} {WILLOWS[900:1500]}"


def shown(*arguments: Any, width: int = 80, monkeypatch: pytest.MonkeyPatch | None = None) -> str:
    if monkeypatch:
        monkeypatch.setenv("COLUMNS", str(width))
    result = run("detect", *arguments, code=0)
    return result.stdout


def on_one_line(text: str) -> str:
    return " ".join(text.split())


def test_the_card_begins_with_the_verdict_and_quotes_the_span(key_file: Path, texts: Path) -> None:
    card = shown("--key", key_file, texts / "mixed.txt")
    said = on_one_line(card)
    share = re.match(
        rf"A span of this text \((5\d)% of it\) carries the watermark of key {KEY.fingerprint}. The chance", said
    )
    assert share
    assert "Nothing follows for the unmarked rest" in said
    place = re.search(rf"characters ([\d,]+) to ([\d,]+) \({share[1]}% of the text\)", said)
    assert place
    start, end = (int(number.replace(",", "")) for number in place.groups())
    (span,) = Detector(KEY).spans(mixed())
    assert (start, end) == (span.start + 1, span.end)
    assert abs(start - 1200) + abs(end - 1200 - len(MARKED)) < 40
    assert " ".join(mixed()[start - 1 : end].split())[:60] in said
    assert f"no mark was found in characters 1 to {start - 1:,}, {end + 1:,} to {len(mixed()):,}" in said
    assert "p-value" not in card
    assert "z-score" not in card


def test_a_disguised_part_is_found_with_its_place_and_share(key_file: Path, texts: Path) -> None:
    disguised = MARKED.replace("a", "а").replace(" ", " \u200b")
    (texts / "mixed.txt").write_text(mixed().replace(MARKED, disguised), encoding="utf-8")
    command = ("--key", key_file, "--normalise", "all", "--spans")
    card = on_one_line(shown(*command, "--show", texts / "mixed.txt"))
    assert re.match(r"A span of this text \((5|6)\d% of it\) carries the watermark", card)
    (found,) = re.findall(r"\[\[marked 1: (.*?)\]\]", card)
    assert found[:200] in on_one_line(disguised)
    (row,) = [json.loads(shown(*command, "--json", texts / "mixed.txt"))]
    assert 0.5 < row["marked_share"] < 0.7
    assert abs(row["spans"][0]["start"] - 1200) + abs(row["spans"][0]["end"] - 1200 - len(disguised)) < 90


def test_statistics_are_shown_on_request_with_one_p_value(key_file: Path, texts: Path) -> None:
    card = shown("--key", key_file, "--verbose", texts / "mixed.txt")
    assert len(re.findall(r"\d(?:\.\d+)?e-\d+", card)) == 1
    assert "z-score" in card
    assert shown("--key", key_file, "-v", texts / "mixed.txt") == card


def test_the_table_has_a_column_for_the_key_and_for_spans_if_asked(
    key_file: Path, texts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = shown("--key", key_file, texts, width=400, monkeypatch=monkeypatch)
    assert KEY.fingerprint not in table
    assert re.search(r"mixed.txt +│ found in part \(5\d%\)", table)
    assert "marked characters" not in table
    assert "p-value" not in table
    with_keys = shown("--keys", key_file.parent, texts, width=400, monkeypatch=monkeypatch)
    assert KEY.fingerprint not in with_keys  # one key needs no column
    known_key("second").save(key_file.parent / "second.json")
    try:
        with_keys = shown("--keys", key_file.parent, texts, width=400, monkeypatch=monkeypatch)
    finally:
        (key_file.parent / "second.json").unlink()
    (row,) = [line for line in with_keys.splitlines() if f"│ {key_file.name} " in line]
    assert re.search(r"│ found in part \(5\d%\) +│", row)
    with_spans = on_one_line(shown("--key", key_file, "--spans", texts, width=400, monkeypatch=monkeypatch))
    assert re.search(r"mixed.txt │ found in part \(5\d%\) │ 1,\d+ to 2,\d+ │ (once|1) in ", with_spans)
    assert re.search(r"human.txt │ not found │ none │", with_spans)
    assert re.search(r"short.txt │ inconclusive: too short │ none │", with_spans)


def test_a_file_that_cannot_be_read_has_a_row(key_file: Path, tmp_path: Path) -> None:
    table = on_one_line(run("detect", "--key", key_file, __file__, tmp_path / "none.txt", code=4).stdout)
    assert "not tested: " in table


def test_a_terminal_obeys_no_text_and_no_id(key_file: Path, tmp_path: Path) -> None:
    hostile = "\x1b[2J\x1b]0;title\x07\b\r\x7f\x9b1m\u202e"
    signs = "␛[2J␛]0;title␇␈␍␡\ufffd1m\ufffd"
    lines: list[dict[str, Any]] = [
        {"id": f"{hostile}\n{number}", "text": hostile + text} for number, text in enumerate((MARKED, ""))
    ]
    lines.append({"id": hostile + "bad", "text": None, "error": hostile})
    path = tmp_path / "texts.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    for option in ("--show", "--verbose", "--spans"):
        said = run("detect", "--key", key_file, option, path, code=4).stdout
        assert not set(said) & set("\x1b\x07\b\r\x7f\x9b\u202e")
        assert "␛[2J" in said
    assert f"\n{signs}␊0\n{signs}{MARKED[:20]}" in run("detect", "--key", key_file, "--show", path).stdout.replace(
        "[[marked 1: ", ""
    )
    path.write_text(json.dumps(lines[-1]))
    assert f"error: {signs}bad: {signs}" in run("detect", "--key", key_file, path).stderr
    assert not set(run("detect", "--key", key_file, "--format", "jsonl", path).stdout) & set("\x1b\x7f\x9b")


def test_a_key_that_finds_no_spans_shows_none_and_refuses_to_list_them(tmp_path: Path) -> None:
    key, key_file, text = known_key("positions", rule="position"), tmp_path / "key.json", tmp_path / "text.txt"
    key.save(key_file)
    text.write_text(marked_text(key, 250))
    card = on_one_line(shown("--key", key_file, "--show", text))
    assert f"The watermark of key {key.fingerprint} was found in this text." in card
    assert "No single span" not in card
    assert "its marked spans are not looked for" in card
    refused = run("detect", "--key", key_file, "--spans", text, code=2)
    assert "error: --spans finds nothing, as it needs a key of rule bigram" in on_one_line(refused.stderr)


def test_a_text_shows_its_spans_between_plain_characters(
    key_file: Path, texts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = shown("--key", key_file, "--show", texts / "mixed.txt", monkeypatch=monkeypatch)
    assert "\x1b" not in text
    (span,) = re.findall(r"\[\[marked 1: (.*?)\]\]", text, flags=re.DOTALL)
    (found,) = Detector(KEY).spans(mixed())
    assert span == mixed()[found.start : found.end]
    assert "[[marked" not in shown("--key", key_file, "--show", texts / "human.txt")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    coloured = shown("--key", key_file, "--show", texts / "mixed.txt")
    assert "\x1b[32m[[marked 1: " in coloured
    assert re.sub("\x1b\\[[0-9;]*m", "", coloured) == text


def test_names_of_files_break_behind_signs(key_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("an-essay-with-quite-a-long-name-2026.txt", "another_essay_of_" + 60 * "x" + ".txt"):
        (tmp_path / name).write_text("Too short.")
    monkeypatch.chdir(tmp_path)
    table = shown("--key", key_file, *sorted(path.name for path in tmp_path.iterdir()), monkeypatch=monkeypatch)
    lines = [line.split("│")[1].strip() for line in table.splitlines() if line.startswith("│")]
    assert lines[:2] == ["an-essay-with-quite-a-", "long-name-2026.txt"]
    assert "".join(lines[2:]) == "another_essay_of_" + 60 * "x" + ".txt"
    assert max(map(len, table.splitlines())) <= 80


def test_a_pipe_gets_lines_that_are_neither_broken_nor_padded(
    key_file: Path, texts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    card = shown("--key", key_file, "--verbose", texts / "mixed.txt").splitlines()
    assert card == [line.rstrip() for line in card]
    assert max(map(len, card)) > 100
    (quoted,) = [line for line in card if line.lstrip().startswith('"')]
    assert quoted.endswith('"')
    name = "an-essay-with-quite-a-long-name-" + 60 * "x" + ".txt"
    (texts / name).write_text("Too short.")
    header, *lines = shown("--key", key_file, "--spans", "-v", texts).splitlines()
    names = header.split("\t")
    assert names[:3] == ["text", "watermark", "marked characters"]
    found = {line.split("\t")[0].rpartition("/")[2]: line.split("\t") for line in lines if "\t" in line}
    assert set(found) == {"human.txt", "loop.txt", "mixed.txt", "short.txt", name}
    assert {len(cells) for cells in found.values()} == {len(names)}
    assert found["human.txt"][1:3] == ["not found", "none"]
    assert all(cell == cell.strip() for cells in found.values() for cell in cells)


@pytest.mark.parametrize("stated", ["0", "00", "", "-3", "wide", "²"])
def test_what_is_no_width_counts_as_none(stated: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("COLUMNS", "LINES"):
        monkeypatch.setenv(name, stated)
    correct_size()
    assert not {"COLUMNS", "LINES"} & os.environ.keys()


@pytest.mark.parametrize("width", [1, 5, 39])
def test_no_column_is_too_narrow_to_say_anything(tmp_path: Path, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    key = known_key("card", rule="bigram", subkeys=2)
    key.save(tmp_path / "key.json")
    for name in ("one.txt", "two.txt"):
        (tmp_path / name).write_text(marked_text(key.subkey(1), 250))
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("LINES", "3")
    correct_size()
    asked = ("--verbose", "--payload", "--spans", tmp_path / "one.txt", tmp_path / "two.txt")
    lines = run("detect", "--key", tmp_path / "key.json", *asked, code=0).stdout.splitlines()
    columns = zip(*(line.split("│")[1:-1] for line in lines if line.startswith("│")), strict=True)
    said = ["".join(column).replace(" ", "") for column in columns]
    assert len(said) == 9
    assert all(said)
    assert os.environ["LINES"] == "3"
