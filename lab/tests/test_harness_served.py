"""Clients of `dgmark serve`: the lm-evaluation-harness, with lists of prompts, and `dgmark-lab rate`."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi import FastAPI

pytest.importorskip("lm_eval.models")  # which the harness imports only where it knows no model yet, not even dgmark's
pytest.importorskip("tenacity")  # without which the harness asks no service

from dgmark.decode import generate
from dgmark.models.loaded import LoadedModel
from dgmark.watermark.key import WatermarkKey
from support.command_line import run
from support.harness_tasks import run_harness, write_task
from support.services import served_to_client

ITEMS = [{"question": f"w{place + 1} w{place + 2} w{place + 3}", "answer": "w1"} for place in range(10)]
pytestmark = pytest.mark.slow

Served = tuple[str, FastAPI, LoadedModel, dict[str, WatermarkKey]]
SEED = 1234  # the harness's own


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A service of a tiny model, whose client knows its token."""
    with (
        pytest.MonkeyPatch.context() as patch,
        served_to_client(tmp_path_factory.mktemp("served"), generate_keys=("main",)) as (token, url, app, model, keys),
    ):
        patch.setenv("OPENAI_API_KEY", token)
        yield url, app, model, keys


@pytest.mark.soak
def test_dgmark_serve_can_be_asked_though_its_tiny_model_rates_nothing(served: Served, tmp_path: Path) -> None:
    texts = tmp_path / "t.jsonl"
    texts.write_text('{"id": "a", "text": "w1 w2 w3"}\n{"id": "b", "text": "w4 w5"}\n')
    arguments = ["--base-url", f"{served[0]}/v1", "--out", tmp_path / "out.jsonl", "--temperature", 0.7]
    result = run("rate", texts, *arguments, code=0)
    ratings = [json.loads(line)["rating"] for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [rating["problem"] for rating in ratings] == ["unparsable"] * 2
    assert all(rating["answer"] for rating in ratings)
    assert "no answer holds scores" in result.stderr


@pytest.mark.filterwarnings("ignore")
def test_the_harness_sends_lists_of_prompts_and_gets_each_text_back(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, app, model, keys = served
    settings = {"until": ["nowhere", "not here"], "max_gen_toks": 16, "temperature": 0.5}
    tasks = write_task(tmp_path, "served_generation", ITEMS, **settings)
    arguments = f"model=tiny,base_url={url}/v1/completions,tokenizer_backend=None,tokenized_requests=False"
    of_model = ("--model", "local-completions", "--model_args", arguments, "--batch_size", "4")
    run_harness(monkeypatch, tasks, *of_model, "--output_path", str(tmp_path / "out"))
    (requests,) = app.state.service.metrics.requests.collect()
    asked = [one.value for one in requests.samples if one.labels.get("path") == "/v1/completions"]
    assert asked[0] == 3  # ten items, four in each request
    (samples,) = (tmp_path / "out").rglob("samples_*.jsonl")
    said = {row["doc_id"]: row["resps"][0][0] for row in map(json.loads, samples.read_text().splitlines())}
    assert sorted(said) == list(range(10))
    for place, item in enumerate(ITEMS):
        # the harness sorts the items, so any row of a request may be this one's
        rows = [
            generate(model, item["question"], key=keys["main"], length=16, block_length=16, temperature=0.5, seed=seed)
            for seed in range(SEED, SEED + 4)
        ]
        assert said[place] in [texts[0].text for texts in rows]
