"""Ratings by a language model: what is asked, how answers are read, files that go on, and the paper's table."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lab_support import CASES, experiment_of, numbers_of, rows_of, write_rows

from dgmark.errors import InputError
from dgmark_lab.attacks import attack
from dgmark_lab.evaluate.rating import Preference, read_better, read_scores, win_of
from dgmark_lab.experiments.spec import load_experiment
from support.command_line import run
from support.stub_servers import Serve, stub_servers
from support.toy_experiments import report_toy, run_toy

GOOD = '{"coherence": 4, "clarity": 5, "naturalness": 3, "overall": 1}'


@pytest.fixture
def serve() -> Iterator[Serve]:
    with stub_servers() as start:
        yield start


def said(text: str | None, **message: Any) -> dict[str, Any]:
    """A server's answer of a chat."""
    whole = {"role": "assistant", "content": text, **message}
    return {"object": "chat.completion", "choices": [{"index": 0, "message": whole, "finish_reason": "stop"}]}


def question(asked: dict[str, Any]) -> str:
    return str(asked["messages"][0]["content"])


def rates(asked: dict[str, Any]) -> dict[str, Any]:
    """A rater that gives each text the same scores, and prefers a text with "fine" in it, else the first one."""
    if "Text A:" not in question(asked):
        return said(f"Here you are:\n```json\n{GOOD}\n```")
    second = question(asked).split("Text B:")[1]
    return said('{"better": "B"}' if "fine" in second else '{"better": "A"}')


def write_texts(path: Path, texts: list[str]) -> Path:
    return write_rows(path, ({"id": f"t{n}", "text": text} for n, text in enumerate(texts)))


@pytest.mark.parametrize(("answer", "scores"), CASES["answers of raters"])
def test_scores_are_read_from_answers_and_averaged_here(answer: str, scores: list[float]) -> None:
    found = read_scores(answer)
    assert (None if found is None else [*found.values()]) == (scores or None)


@pytest.mark.parametrize(
    ("in_order", "swapped", "win"),
    [("A", "B", 1.0), ("B", "A", 0.0), ("A", "A", 0.5), ("B", "B", 0.5), ("tie", "tie", 0.5), ("A", "tie", 0.75)],
)
def test_a_rater_that_follows_the_place_decides_nothing(in_order: Any, swapped: Any, win: float) -> None:
    assert win_of(Preference("", in_order), Preference("", swapped)) == win
    assert win_of(Preference("", None, "unparsable"), Preference("", swapped)) is None
    assert [read_better(f'{{"better": "{word}"}}') for word in ("a", "B", "Tie", "both")] == ["A", "B", "tie", None]


def test_rows_hold_scores_raw_answers_and_pairs(serve: Serve, tmp_path: Path) -> None:
    url, asked = serve(rates)
    texts = write_texts(tmp_path / "texts.jsonl", ["a fine day", "a day 100%", "one more"])
    others = write_texts(tmp_path / "others.jsonl", ["a night", "a fine night", "one less"])
    out = tmp_path / "out.jsonl"
    arguments = ["rate", texts, "--against", others, "--base-url", url, "--out", out, "--seed", 7]
    result = run(*arguments, code=0)
    assert [row["win"] for row in rows_of(out)] == [1.0, 0.0, 0.5]
    assert [row["seed"] for row in rows_of(out)] == [7, 8, 9]
    for row in rows_of(out):
        assert row["rating"]["scores"] == {"coherence": 4.0, "clarity": 5.0, "naturalness": 3.0, "overall": 4.0}
        assert GOOD in row["other_rating"]["answer"]
        assert (row["rater"], row["temperature"], row["compared"], row["schema"]) == ("small", 0.0, True, 1)
    assert re.search(r"overall\D+4\.00\D+4\.00", result.stdout)
    assert "the text is the better one of its pair: 0.50, 3 pairs" in result.stdout
    assert len(asked) == 3 * 4
    assert {one["seed"] for one in asked} == {7, 8, 9}
    assert sum("a day 100%" in question(one) for one in asked) == 3

    again = run(*arguments)
    assert "3 of 3 rows are already in" in again.stderr
    assert again.stdout == result.stdout
    assert len(asked) == 3 * 4
    texts.write_text(texts.read_text().replace("one more", "another"))
    assert run(*arguments).exit_code == 4


def test_answers_that_say_nothing_are_counted_and_none_becomes_a_score(serve: Serve, tmp_path: Path) -> None:
    def bad(asked: dict[str, Any]) -> dict[str, Any]:
        if "no words" in question(asked):
            return said("I would rather not rate this.")
        if "held back" in question(asked):
            return {"status": 400, "error": {"message": "against the policy", "code": "content_filter"}}
        return said(None, refusal="I cannot help with that.") if "refuse" in question(asked) else rates(asked)

    texts = write_texts(tmp_path / "t.jsonl", ["no words", "held back", "please refuse", "a text", ""])
    out = tmp_path / "out.jsonl"
    result = run("rate", texts, "--base-url", serve(bad)[0], "--model", "small", "--out", out, code=0)
    found = {row["id"]: row["rating"] for row in rows_of(out) if "error" not in row}
    assert [found[f"t{n}"]["problem"] for n in range(4)] == ["unparsable", "refused", "refused", None]
    assert [found[f"t{n}"]["scores"] is None for n in range(4)] == [True, True, True, False]
    assert found["t0"]["answer"] == "I would rather not rate this."
    assert "against the policy" in found["t1"]["answer"]
    assert re.search(r"refused\D+2\D", result.stdout)
    assert re.search(r"unparsable\D+1\D", result.stdout)
    assert "errors in 1 of 5 rows" in result.stderr


def test_a_server_that_stops_loses_no_finished_row(serve: Serve, tmp_path: Path) -> None:
    def tired(asked: dict[str, Any]) -> dict[str, Any]:
        if "number 3" in question(asked) and not mended:
            return {"status": 401, "error": {"message": "no credit is left"}}
        return rates(asked)

    mended: list[int] = []
    texts = write_texts(tmp_path / "t.jsonl", [f"text number {n}" for n in range(6)])
    arguments = ["rate", texts, "--base-url", serve(tired)[0], "--out", tmp_path / "out.jsonl", "--parallel", 2]
    assert "no credit is left" in run(*arguments, code=6).stderr
    assert [row["id"] for row in rows_of(tmp_path / "out.jsonl")] == ["t0", "t1"]
    mended.append(1)
    assert run(*arguments).exit_code == 0
    assert [row["id"] for row in rows_of(tmp_path / "out.jsonl")] == [f"t{n}" for n in range(6)]


SMALL = experiment_of("ratings")


def test_the_paper_s_table_is_rendered_from_ratings_and_pairs(serve: Serve, tmp_path: Path) -> None:
    url, asked = serve(rates)
    store = run_toy(SMALL, tmp_path, limit=3, rater=f"{url}#small")
    assert len(asked) == 6 + 2 * 3
    assert {one["model"] for one in asked} == {"small"}
    _, section = report_toy(SMALL, store)
    found = {(one.cell, one.name): one for one in section.quantities}
    ours = numbers_of(section)
    overall, won = ours["unmarked", "overall"], ours["marked", "share of pairs won"]
    assert (overall.value, overall.count, found["unmarked", "overall"].paper) == (4.0, 3, 4.25)
    assert (won.value, won.count) == (0.5, 3)
    assert ("unmarked", "share of pairs won") not in found
    run_toy(SMALL, tmp_path, limit=3, rater=f"{url}#small")
    assert len(asked) == 6 + 2 * 3
    assert load_experiment("judge").cells[-1].paper.ratings["overall"] == 4.58


def test_a_paraphraser_may_be_behind_a_server(serve: Serve) -> None:
    url, asked = serve(lambda _: said(" Rewritten. "))
    rewrite = attack("paraphrase", model=f"{url}#small", temperature=0.5, max_tokens=40)
    assert rewrite("A text to write anew.", np.random.default_rng(1)) == "Rewritten."
    assert question(asked[0]).endswith("\n\nA text to write anew.")
    assert (asked[0]["temperature"], asked[0]["max_tokens"], asked[0]["model"]) == (0.5, 40, "small")
    refuses = attack("paraphrase", model=serve(lambda _: said(None, refusal="No."))[0])
    with pytest.raises(InputError, match=r"refuses to rewrite this text: No\."):
        refuses("A text to write anew.", np.random.default_rng(1))
