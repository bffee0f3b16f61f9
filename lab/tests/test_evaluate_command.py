"""`dgmark-lab evaluate` as users call it."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from lab_support import write_rows
from typer.testing import Result

from dgmark.models.language_model import LanguageModel
from dgmark_lab.evaluate.likelihood import perplexity
from support import command_line

PROMPT = "Once upon a time there was"
ROWS = [
    {"id": "a", "prompt": PROMPT, "text": " a little girl who lived in a wood."},
    {"id": "b", "prompt": "The king said", "text": " that he would go to the sea, and he went."},
    {"id": "c", "prompt": PROMPT, "text": " a man a man a man a man a man a man"},
]


def run(*arguments: object, code: int | None = None) -> Result:
    # the default depends on the processor, and 16 bits give other digits in other batches
    return command_line.run(*arguments, "--dtype", "fp32", code=code)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_rows(tmp_path / "rows.jsonl", ROWS)


def test_figures_are_the_librarys(source: Path) -> None:
    done = run("evaluate", source, "--json", "--device", "cpu", "--dtype", "fp32", code=0)
    document = json.loads(done.stdout)
    judge = LanguageModel(device="cpu", dtype="fp32")
    expected = perplexity(judge, [row["text"] for row in ROWS], [row["prompt"] for row in ROWS])
    (found,) = document["sets"]
    assert found["perplexity"]["corpus"] == {**asdict(expected.corpus), "low": None, "high": None}
    assert found["perplexity"]["num_tokens"] == expected.tokens
    assert found["diversity"]["num_texts"] == 3
    assert [text["id"] for text in found["texts"]] == ["a", "b", "c"]
    assert [text["nats"] for text in found["texts"]] == [text.nats for text in expected.texts]
    assert found["texts"][2]["distinct"]["4"] < 0.5
    assert document["differences"] is None


def test_two_sets_are_compared_pair_by_pair(source: Path, tmp_path: Path) -> None:
    worse = [{**row, "text": " ".join(reversed(row["text"].split()))} for row in reversed(ROWS)]
    other = write_rows(tmp_path / "other.jsonl", [*worse, {"id": "d", "prompt": "x", "text": "y"}])
    done = run("evaluate", source, "--against", other, "--json", code=0)
    assert "3 pairs; 1 rows are in no pair" in done.stderr
    document = json.loads(done.stdout)
    first, second = document["sets"]
    difference = document["differences"]["perplexity"]["difference"]["value"]
    assert difference == pytest.approx(second["perplexity"]["mean"]["value"] - first["perplexity"]["mean"]["value"])
    assert document["differences"]["nats_per_token"]["pairs"] == 3
    shown = run("evaluate", source, "--against", other)
    assert "rows.jsonl" in shown.stdout
    assert "sign test" in shown.stdout


def test_ids_are_scored_as_they_are_on_request(tmp_path: Path) -> None:
    source = write_rows(
        tmp_path / "ids.jsonl", [{"id": "a", "prompt": PROMPT, "text": "", "token_ids": [300, 400, 500]}]
    )
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
    assert message in run("evaluate", write_rows(tmp_path / "rows.jsonl", rows), "--judge", "none", code=4).stderr


@pytest.mark.parametrize(("change", "message"), [({"prompt": "x"}, "different prompts"), ({"id": "z"}, "share no id")])
def test_sets_that_are_no_pairs(source: Path, tmp_path: Path, change: dict[str, str], message: str) -> None:
    other = write_rows(tmp_path / "other.jsonl", [{**ROWS[0], **change}])
    assert message in run("evaluate", source, "--against", other, "--judge", "none").stderr
