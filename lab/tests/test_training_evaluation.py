"""Evaluation and export: figures against slow references, rows that are not made twice, a folder that is checked."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import typer
from typer.testing import CliRunner

import dgmark
from dgmark.errors import CheckpointFormat, InputError, ResumeMismatch, SettingsError
from dgmark_lab.evaluate import load_judge, token_nats
from dgmark_lab.evaluate.repetition import periodic, repeated_ngrams
from dgmark_lab.training import evaluate
from dgmark_lab.training import export as exporting
from dgmark_lab.training.corpus import Document, read_documents
from dgmark_lab.training.evaluate import figures_of
from dgmark_lab.training.export import export
from dgmark_lab.training.networks import load_network, weights_fingerprint
from dgmark_lab.training.report import markdown, page
from dgmark_lab.training.samples import Plan, generate_cell, held_out_prompts
from support.training_setup import tiny, tiny_shards, trainer

# long enough for prompts of a paragraph
PARAGRAPH = "The fox went to the wood. The king ate the bread. A girl saw a ship. My sister sang all night. " * 4


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A storyteller and a judge of a few steps, and held-out documents."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("runs")
    shards = tiny_shards(folder)
    bigger = {"network": {"context": 160}, "rows": {"length": 160, "batch": 2}}
    for kind in ("storyteller", "judge"):
        (folder / kind).mkdir()
        (folder / kind / "tokens").symlink_to(shards.folder)
        trainer(
            tiny(kind, **bigger, schedule={"steps": 3, "warmup_steps": 1, "decay_steps": 1}), shards, folder / kind
        ).train()
    rows = [{"id": f"held-{n}", "paragraphs": [f"{n} " + PARAGRAPH] * 3} for n in range(6)]
    (folder / "heldout.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def invoke(command: Any, *arguments: str) -> Any:
    app = typer.Typer()
    app.command()(command)
    return CliRunner().invoke(app, list(arguments))


def evaluation_of(runs: Path, out: Path, *more: str) -> Any:
    return invoke(
        evaluate.main, "--model", str(runs / "storyteller/model"), "--data", str(runs / "heldout.jsonl"),
        "--judge", str(runs / "judge/model"), "--out", str(out), "--rows", "4", "--length", "32", "--texts", "6",
        "--tokens", "32", "--device", "cpu", *more,
    )  # fmt: skip


@pytest.fixture(scope="module")
def evaluated(runs: Path) -> Path:
    done = evaluation_of(runs, runs / "evaluation")
    assert done.exit_code == 0, done.output
    return runs / "evaluation"


# ---- samples ----


def test_prompts_are_beginnings_of_held_out_paragraphs(runs: Path) -> None:
    documents = list(read_documents(runs / "heldout.jsonl"))
    tokenizer = dgmark.load_tokenizer(str(runs / "storyteller/model"))
    prompts = held_out_prompts(documents, tokenizer, 3)
    assert prompts == held_out_prompts(documents, tokenizer, 3)
    assert len(set(prompts)) == 3
    for prompt in prompts:
        assert any(paragraph.startswith(prompt + " ") for one in documents for paragraph in one.paragraphs)
        assert 16 <= len(tokenizer.encode(prompt)) <= 32
    with pytest.raises(InputError, match="ask for fewer"):
        held_out_prompts([Document("a", ["short"])], tokenizer, 1)


def test_cells_resume_and_refuse_other_models(runs: Path, tmp_path: Path) -> None:
    model = dgmark.load_model(str(runs / "storyteller/model"), device="cpu")
    plan = Plan(texts=3, length=8, block_length=8, batch=2)
    prompts, path = ["The fox", "A girl saw", "The king"], tmp_path / "t1-marked.jsonl"
    rows = generate_cell(model, prompts, "t1-marked", plan, path)
    assert [row["prompt"] for row in rows] == prompts
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:1]) + lines[1][:20])
    again = generate_cell(model, prompts, "t1-marked", plan, path)
    assert [row["token_ids"] for row in again] == [row["token_ids"] for row in rows]
    assert path.read_bytes() == b"".join(lines)
    with pytest.raises(ResumeMismatch):
        generate_cell(model, prompts, "t1-marked", Plan(length=16, block_length=8), path)
    unmarked = generate_cell(model, prompts, "t1-unmarked", plan, tmp_path / "t1-unmarked.jsonl")
    assert [json.loads(line)["key_fingerprint"] is None for line in lines] == [False] * 3
    assert unmarked != rows


def test_figures_are_means_over_texts() -> None:
    texts = [[1, 2] * 8, list(range(20)), [5, 5, 5, 5]]
    rows = [{"token_ids": ids, "ended": index == 1} for index, ids in enumerate(texts)]
    found = figures_of(rows)
    assert found["texts"] == 3
    assert found["ended"] == pytest.approx(1 / 3)
    assert found["lengths"] == {"min": 4, "lower_quartile": 10, "median": 16, "upper_quartile": 18, "max": 20}
    assert found["repeated_4_grams"] == pytest.approx(np.mean([repeated_ngrams(ids) for ids in texts]))
    assert found["in_runs"]["2"] == pytest.approx(np.mean([periodic(ids, 2).in_runs for ids in texts]))
    assert found["in_runs"]["1"] == pytest.approx(1 / 3)


# ---- the command ----


def test_the_evaluation_holds_every_figure(runs: Path, evaluated: Path) -> None:
    figures = json.loads((evaluated / "evaluation.json").read_text())
    assert list(figures["bounds"]) == ["this model", "the judge"]
    assert figures["bounds"]["this model"]["monte_carlo_error"] > 0
    assert figures["bounds"]["the judge"]["monte_carlo_error"] == 0
    # a model of three steps is near the uniform distribution over its 320 tokens
    assert all(abs(bound["per_token"] - math.log(320)) < 1 for bound in figures["bounds"].values())
    assert list(figures["cells"]) == ["t1-unmarked", "t1-marked", "greedy-unmarked", "greedy-marked"]
    judge = load_judge(str(runs / "judge/model"), device="cpu", dtype="fp32")
    for name, cell in figures["cells"].items():
        rows = [json.loads(line) for line in (evaluated / f"{name}.jsonl").read_text().splitlines()]
        nats = np.concatenate(token_nats(judge, [row["text"] for row in rows], [row["prompt"] for row in rows]))
        assert cell["judge"]["perplexity"] == pytest.approx(math.exp(nats.mean()))
        assert cell["judge"]["low"] <= cell["judge"]["perplexity"] <= cell["judge"]["high"]
        assert set(cell["in_runs"]) == {"1", "2", "3", "4"}
    assert figures["weights"] == weights_fingerprint(load_network(runs / "storyteller/model").module)
    table = (evaluated / "evaluation.md").read_text()
    assert table == markdown(figures)
    assert all(f"| {name} |" in table for name in ("this model", "the judge", "t1-marked", "greedy-unmarked"))
    assert str(runs) not in table
    assert str(runs) not in json.dumps(figures)


def test_an_evaluation_repeats_itself_and_keeps_its_samples(runs: Path, evaluated: Path) -> None:
    before = {path.name: path.read_bytes() for path in evaluated.iterdir()}
    assert evaluation_of(runs, evaluated).exit_code == 0
    assert {path.name: path.read_bytes() for path in evaluated.iterdir()} == before


def test_the_page_shows_every_sample_and_no_markup_of_theirs(evaluated: Path) -> None:
    shown = (evaluated / "samples.html").read_text()
    assert shown.count("<h2>") == 6
    assert shown.count("<h3>") == 24
    row = {"prompt": "a <script>", "text": "</p>&", "token_ids": [1], "ended": True}
    assert "a &lt;script&gt;</b>&lt;/p&gt;&amp;" in page("x", {"cell": [row]})


def test_a_masked_model_is_no_judge(runs: Path, tmp_path: Path) -> None:
    done = invoke(
        evaluate.main, "--model", str(runs / "storyteller/model"), "--data", str(runs / "heldout.jsonl"), "--judge",
        str(runs / "storyteller/model"), "--out", str(tmp_path / "out"), "--device", "cpu",
    )  # fmt: skip
    assert done.exit_code == CheckpointFormat.exit_code
    assert "no autoregressive model" in done.stderr
    assert not (tmp_path / "out").exists()


def test_more_models_are_bounded_on_the_same_documents_under_their_names(runs: Path, tmp_path: Path) -> None:
    other = f"before={runs / 'storyteller/model'}"
    assert evaluation_of(runs, tmp_path, "--texts", "0", "--against", other).exit_code == 0
    figures = json.loads((tmp_path / "evaluation.json").read_text())
    assert figures["bounds"]["before"] == figures["bounds"]["this model"]
    assert "cells" not in figures
    assert not (tmp_path / "samples.html").exists()
    nameless = evaluation_of(runs, tmp_path, "--against", str(runs / "storyteller/model"))
    assert nameless.exit_code == 2
    assert "NAME=FOLDER" in nameless.stderr


def test_only_documents_of_a_name_are_measured(runs: Path, tmp_path: Path) -> None:
    alone = tmp_path / "alone.jsonl"
    alone.write_text((runs / "heldout.jsonl").read_text().splitlines()[1] + "\n")
    arguments = ["--model", str(runs / "storyteller/model"), "--rows", "4", "--length", "32", "--texts", "0"]
    found = {}
    for name, documents in {"part": [str(runs / "heldout.jsonl"), "--only", "held-1"], "alone": [str(alone)]}.items():
        told = [*arguments, "--out", str(tmp_path / name), "--data", *documents]
        assert invoke(evaluate.main, *told).exit_code == 0
        found[name] = json.loads((tmp_path / name / "evaluation.json").read_text())
    assert found["part"]["bounds"] == found["alone"]["bounds"]
    assert [found[name]["heldout_only"] for name in ("part", "alone")] == ["held-1", None]
    none = evaluation_of(runs, tmp_path, "--only", "lost-")
    assert none.exit_code == InputError.exit_code
    assert "begins with 'lost-'" in none.stderr


# ---- export ----


def test_the_exported_folder_is_the_run_s_model_with_a_card(runs: Path, evaluated: Path, tmp_path: Path) -> None:
    done = invoke(
        exporting.main, "--run", str(runs / "storyteller"), "--out", str(tmp_path / "shipped"), "--evaluation",
        str(evaluated / "evaluation.json"),
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    names = {path.name for path in (tmp_path / "shipped").iterdir()}
    assert names == {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "MODEL_CARD.md"}
    shipped, trained = (
        dgmark.load_model(str(one), device="cpu", dtype="fp32")
        for one in (tmp_path / "shipped", runs / "storyteller/model")
    )
    ids = torch.tensor([[5, 9, 2, 2, 7]])
    assert torch.equal(shipped(ids), trained(ids))
    text = (tmp_path / "shipped/MODEL_CARD.md").read_text()
    assert (evaluated / "evaluation.md").read_text().strip() in text
    assert "3 of 3 steps, 960 tokens" in text
    assert "from random weights" in text
    assert "Made-up tales. 40 documents" in text
    assert "Licence**: Apache-2.0" in text


def test_a_judge_without_evaluation_says_so(runs: Path, tmp_path: Path) -> None:
    size = export(runs / "judge", tmp_path / "judge", dtype="fp32", file_size="20KB")
    assert size == sum(path.stat().st_size for path in (tmp_path / "judge").iterdir())
    assert len(list((tmp_path / "judge").glob("*.safetensors"))) > 1
    assert "Not evaluated." in (tmp_path / "judge/MODEL_CARD.md").read_text()
    assert load_network(tmp_path / "judge").family == "llama"


def test_runs_that_cannot_be_exported_are_refused(
    runs: Path, evaluated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, out = runs / "storyteller", tmp_path / "out"
    with pytest.raises(SettingsError, match="exists"):
        export(run, runs / "judge")
    with pytest.raises(SettingsError, match="'int4' is not one of"):
        export(run, out, dtype="int4")
    with pytest.raises(SettingsError, match="folder of a training run"):
        export(tmp_path, out)
    with pytest.raises(InputError, match="measured on other weights"):
        export(runs / "judge", out, evaluation=evaluated / "evaluation.json")
    with pytest.raises(InputError, match="is not an evaluation"):
        export(run, out, evaluation=tmp_path / "none.json")
    monkeypatch.setattr(exporting, "LARGEST", 1000)
    with pytest.raises(SettingsError, match="--allow-large"):
        export(run, out)
    assert list(tmp_path.iterdir()) == []
    assert export(run, out, allow_large=True) > 1000
