"""`dgmark-lab evaluate` and `dgmark-lab rate` as users call them."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from dgmark_lab.cli import app
from dgmark_lab.evaluate.judge import load_judge
from dgmark_lab.evaluate.likelihood import perplexity, score_texts
from support.stub_endpoint import GOOD, stub_endpoint

PROMPT = "Once upon a time there was"
ROWS = [
    {"id": "a", "prompt": PROMPT, "text": " a little girl who lived in a wood."},
    {"id": "b", "prompt": "The king said", "text": " that he would go to the sea, and he went."},
    {"id": "c", "prompt": PROMPT, "text": " a man a man a man a man a man a man"},
]


def run(*arguments: object) -> Result:
    # the default depends on the processor, and 16 bits give other digits in other batches
    exact = ("--dtype", "fp32") if arguments[0] == "evaluate" else ()
    return CliRunner().invoke(app, [*map(str, arguments), *exact])


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write(tmp_path / "rows.jsonl", ROWS)


def test_figures_are_the_librarys(source: Path) -> None:
    done = run("evaluate", source, "--json", "--device", "cpu", "--dtype", "fp32")
    assert done.exit_code == 0, done.stderr
    document = json.loads(done.stdout)
    judge = load_judge(device="cpu", dtype="fp32")
    expected = perplexity(judge, [row["text"] for row in ROWS], [row["prompt"] for row in ROWS])
    (found,) = document["sets"]
    assert found["perplexity"] == json.loads(json.dumps(expected.to_dict()))
    assert found["diversity"]["num_texts"] == 3
    assert document["differences"] is None


def test_two_sets_are_compared_pair_by_pair(source: Path, tmp_path: Path) -> None:
    worse = [{**row, "text": " ".join(reversed(row["text"].split()))} for row in reversed(ROWS)]
    other = write(tmp_path / "other.jsonl", [*worse, {"id": "d", "prompt": "x", "text": "y"}])
    done = run("evaluate", source, "--against", other, "--json")
    assert done.exit_code == 0, done.stderr
    assert "3 pairs; 1 rows are in no pair" in done.stderr
    document = json.loads(done.stdout)
    first, second = document["sets"]
    difference = document["differences"]["perplexity"]["difference"]["value"]
    assert difference == pytest.approx(second["perplexity"]["mean"]["value"] - first["perplexity"]["mean"]["value"])
    assert document["differences"]["nats_per_token"]["pairs"] == 3
    shown = run("evaluate", source, "--against", other)
    assert "rows.jsonl" in shown.stdout
    assert "sign test" in shown.stdout


def test_rows_are_kept_and_not_made_again(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out.jsonl"
    whole = run("evaluate", source, "--json")
    write(source, ROWS[:2])
    assert run("evaluate", source, "--out", out, "--json").exit_code == 0
    write(source, ROWS)
    scored: list[int] = []
    real = score_texts

    def counted(judge: Any, texts: Any, *more: Any, **settings: Any) -> Any:
        scored.append(len(texts))
        return real(judge, texts, *more, **settings)

    monkeypatch.setattr(sys.modules["dgmark_lab.cli.evaluate"], "score_texts", counted)
    again = run("evaluate", source, "--out", out, "--json")
    assert scored == [1]
    figures = [json.loads(one.stdout)["sets"][0]["perplexity"]["corpus"]["value"] for one in (whole, again)]
    assert figures[0] == pytest.approx(figures[1])
    assert [json.loads(line)["id"] for line in out.read_text().splitlines()] == ["a", "b", "c"]
    assert run("evaluate", source, "--out", out, "--context", "50").exit_code == 4
    write(source, [{**ROWS[0], "text": " another text"}])
    changed = run("evaluate", source, "--out", out)
    assert changed.exit_code == 4
    assert "different text" in changed.stderr


def test_ids_are_scored_as_they_are_on_request(tmp_path: Path) -> None:
    source = write(tmp_path / "ids.jsonl", [{"id": "a", "prompt": PROMPT, "text": "", "token_ids": [300, 400, 500]}])
    document = json.loads(run("evaluate", source, "--ids", "--json").stdout)
    assert document["sets"][0]["perplexity"]["num_tokens"] == 3
    assert document["sets"][0]["diversity"]["unit"] == "token"


def test_without_a_judge_there_is_no_perplexity(source: Path) -> None:
    document = json.loads(run("evaluate", source, "--judge", "none", "--json").stdout)
    assert document["sets"][0]["perplexity"] is None


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "holds no text"),
        ([{"id": "a"}], "no text"),
        ([{"id": "a", "error": "too long"}], "too long"),
        ([ROWS[0], ROWS[0]], "have the id 'a'"),
        ([{"id": "a", "prompt": [5, 6], "text": "x"}], "prompt is token ids"),
    ],
)
def test_rows_that_cannot_be_evaluated(tmp_path: Path, rows: list[dict[str, Any]], message: str) -> None:
    done = run("evaluate", write(tmp_path / "rows.jsonl", rows), "--judge", "none")
    assert done.exit_code == 4
    assert message in done.stderr


@pytest.mark.parametrize(("change", "message"), [({"prompt": "x"}, "different prompts"), ({"id": "z"}, "share no id")])
def test_sets_that_are_no_pairs(source: Path, tmp_path: Path, change: dict[str, str], message: str) -> None:
    other = write(tmp_path / "other.jsonl", [{**ROWS[0], **change}])
    assert message in run("evaluate", source, "--against", other, "--judge", "none").stderr


def test_documents_and_folders_are_texts_without_a_prompt(tmp_path: Path) -> None:
    words = "The king went down to the sea, and the queen stayed at home with the cat. " * 3
    (tmp_path / "a.txt").write_text(words)
    rows = write(tmp_path / "rows.jsonl", [{"id": "a", "text": words.strip()}])
    of_rows, of_text = (
        json.loads(run("evaluate", source, "--judge", "none", "--json").stdout)["sets"][0]["diversity"]
        for source in (rows, tmp_path / "a.txt")
    )
    assert of_text["distinct"] == of_rows["distinct"]
    folder = tmp_path / "folder"
    folder.mkdir()
    for name in ("a.txt", "b.txt"):
        (folder / name).write_text(words)
    assert re.search("texts +│ 2, ", run("evaluate", folder, "--judge", "none").stdout)
    (folder / "c.pdf").write_bytes(b"not a PDF")
    refused = run("evaluate", folder, "--judge", "none")
    assert refused.exit_code == 4
    assert "c.pdf" in refused.stderr


def test_ratings_resume_and_a_changed_text_is_refused(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret-of-a-test")
    out = tmp_path / "ratings.jsonl"
    with stub_endpoint() as stub:
        command = ["rate", source, "--model", "stub", "--base-url", stub.url, "--out", out]
        first = run(*command, "--json")
        assert first.exit_code == 0, first.stderr
        whole = out.read_bytes()
        out.write_bytes(whole[: whole.index(b"\n") + 30])
        again = run(*command, "--json")
        assert (len(stub.requests), out.read_bytes()) == (5, whole)
        assert again.stdout == first.stdout
        assert "coherence" in run(*command).stdout
        source.write_text(source.read_text().replace(ROWS[0]["text"], "Another text."))
        refused = run(*command)
        assert (refused.exit_code, len(stub.requests), out.read_bytes()) == (4, 5, whole)
    assert "made from a different text" in refused.stderr
    assert json.loads(first.stdout)["means"]["overall"]["value"] == pytest.approx(GOOD["overall"])
    assert [json.loads(line)["clarity"] for line in whole.splitlines()] == [5.0] * 3
    assert b"sk-secret" not in whole + (first.stdout + first.stderr).encode()
