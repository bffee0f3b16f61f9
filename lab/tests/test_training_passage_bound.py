"""Bounds in nats a character: passages, and blocks one after the other."""

import json
from pathlib import Path

import numpy as np
import pytest

from dgmark.errors import InputError
from dgmark.models.load import load_model
from dgmark_lab.evaluate.monte_carlo import answer_likelihood
from dgmark_lab.training.corpus import Document
from dgmark_lab.training.passage_bound import Passage, passage_bound, passages_of

TALE = " ".join(f"word{n % 7} said the king to the miller" for n in range(60))


def test_passages_are_whole_words_of_a_document() -> None:
    found = passages_of([Document("a", [TALE]), Document("b", ["too short"])], 20, 40, 60)
    assert len(found) == 20
    for one in found:
        assert one.context + one.text in TALE
        assert one.text.startswith(" ")
        assert 40 <= len(one.context) < 55
        assert 60 <= len(one.text) < 75
        assert TALE[TALE.index(one.context + one.text) + len(one.context + one.text)] == " "
    assert found == passages_of([Document("a", [TALE])], 20, 40, 60)
    with pytest.raises(InputError, match="no document has 200 characters"):
        passages_of([Document("b", ["too short"])], 2, 40, 60)


def test_a_passage_bound_is_the_sum_of_its_blocks() -> None:
    model = load_model()
    passages = [
        Passage("Once upon a time there was", " an old king who lived by the sea"),
        Passage("The", " dog ran off"),
    ]
    whole = passage_bound(model, passages, block_length=64, samples=16)
    nats = [
        -answer_likelihood(
            model, model.tokenizer.encode(one.context), model.tokenizer.encode(one.text), samples=16, seed=number
        ).bound
        for number, one in enumerate(passages)
    ]
    characters = sum(len(one.text) for one in passages)
    assert whole.per_character == pytest.approx(sum(nats) / characters)
    assert whole.per_token == pytest.approx(sum(nats) / sum(len(model.tokenizer.encode(one.text)) for one in passages))
    assert whole.monte_carlo_error > 0
    single = passage_bound(model, passages, block_length=1, samples=2)  # left to right: nothing is drawn
    assert single.monte_carlo_error == 0
    before, ids = model.tokenizer.encode(passages[1].context), model.tokenizer.encode(passages[1].text)
    chain = sum(answer_likelihood(model, [*before, *ids[:n]], [ids[n]]).bound for n in range(len(ids)))
    alone = passage_bound(model, passages[1:], block_length=1, samples=2)
    assert alone.per_character == pytest.approx(-chain / len(passages[1].text))


def test_the_command_measures_once(tmp_path: Path) -> None:
    import typer
    from typer.testing import CliRunner

    from dgmark_lab.training.passage_bound import main

    app = typer.Typer()
    app.command()(main)
    (tmp_path / "documents.jsonl").write_text(json.dumps({"id": "tale", "paragraphs": [TALE]}) + "\n")
    out = tmp_path / "bounds.json"
    base = ["--data", str(tmp_path / "documents.jsonl"), "--out", str(out), "--passages", "2", "--samples", "2"]
    sizes = ["--given", "40", "--scored", "40"]
    assert CliRunner().invoke(app, [*base, *sizes, "--model", "storyteller:8"]).exit_code == 0
    (asked, found) = next(iter(json.loads(out.read_text()).items()))
    assert asked == "storyteller:8 all 2 40 40 2"
    assert (found["passages"], found["block_length"]) == (2, 8)
    assert np.isfinite(found["per_character"])
    out.write_text(json.dumps({asked: found | {"per_character": 7.0}}))
    assert CliRunner().invoke(app, [*base, *sizes, "--model", "storyteller:8"]).exit_code == 0
    assert json.loads(out.read_text())[asked]["per_character"] == 7.0
    refused = CliRunner().invoke(app, [*base, *sizes, "--model", "storyteller"])
    assert refused.exit_code == 2
    assert "give NAME:BLOCK" in refused.stderr
