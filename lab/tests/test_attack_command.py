"""`dgmark-lab attack` as a user meets it: rows, resuming, bad rows, the list."""

import hashlib
from pathlib import Path

import numpy as np
import pytest
from lab_support import CASES, rows_of, write_rows

from dgmark_lab.attacks import ATTACKS, attack
from support.command_line import run

TEXTS = ["one two three four five six", "Die Möwe – und das Meer 漢字", "a b c d"]


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    made = ({"id": f"t{n}", "prompt": f"p{n}", "text": text, "token_ids": [9]} for n, text in enumerate(TEXTS))
    return write_rows(tmp_path / "in.jsonl", made)


def test_rows_say_what_was_done(texts: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    options = ("--budget", ".5", "--option", "unit=word", "--seed", 7)
    run("attack", "deletion", texts, *options, "--out", out, code=0)
    assert [row["id"] for row in rows_of(out)] == ["t0", "t1", "t2"]
    for number, (row, text) in enumerate(zip(rows_of(out), TEXTS, strict=True)):
        edit = attack("deletion", budget=0.5, unit="word")
        assert row == {
            "id": f"t{number}",
            "prompt": f"p{number}",
            "text": edit(text, np.random.default_rng(7 + number)),
            "attack": "deletion",
            "options": {"budget": 0.5, "unit": "word", "tokenizer": "storyteller"},
            "seed": 7 + number,
            "source_sha256": hashlib.sha256(text.encode()).hexdigest(),
            "schema": 1,
        }


def test_what_is_finished_is_not_made_again(texts: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    arguments = ["attack", "substitution", texts, "--out", out]
    run(*arguments)
    whole = out.read_bytes()
    out.write_bytes(whole[: whole.index(b"\n") + 9])
    again = run(*arguments)
    assert "1 of 3 rows are already in" in again.stderr
    assert out.read_bytes() == whole
    assert "differs in options" in run(*arguments, "--budget", ".3", code=4).stderr
    texts.write_text(texts.read_text().replace("one two", "two one"))
    assert "made from a different text or seed" in run(*arguments).stderr


def test_a_bad_row_becomes_an_error_row(texts: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    texts.write_text(texts.read_text() + '{"id": "x"}\n{\n{"id": "g", "error": "too long", "schema": 1}\n')
    assert "errors in 3 of 6 rows" in run("attack", "insertion", texts, "--out", out, code=0).stderr
    assert [row.get("error", "")[:10] for row in rows_of(out)] == ["", "", "", 'no "text"', "not valid ", "too long"]


def test_one_text_comes_out_as_text() -> None:
    result = run("attack", "crop", "-", "--option", "front=0.5", "--option", "unit=word", stdin="one two three four")
    assert result.stdout == "three four\n"


@pytest.mark.parametrize(("arguments", "message"), CASES["refused arguments of attack"])
def test_an_invalid_option_is_refused(arguments: list[str], message: str) -> None:
    assert message in run("attack", *arguments, stdin="a text", code=2).stderr


def test_the_list_names_every_attack() -> None:
    listed = run("attack", "--list").stdout
    assert all(f"\n{name}  " in "\n" + listed for name in ATTACKS)
    assert "front=0.25  back=0.0\n" in listed
