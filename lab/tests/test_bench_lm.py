"""The lm-evaluation-harness on a diffusion model: stops, lengths, settings; end to end on local tasks."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

pytest.importorskip("lm_eval")

from lm_eval.api.instance import Instance
from lm_eval.tasks import TaskManager

from dgmark.decode import generate
from dgmark.errors import InputError, SettingsError
from dgmark.models.chat import template_of
from dgmark.models.load import load_model
from dgmark.models.toy import ToyDenoiser
from dgmark_lab.cli import app
from dgmark_lab.evaluate.benchmarks import PRESETS, DiffusionLM, TaskSettings, headline, run_tasks

TOY = ToyDenoiser(end_ids=())
CONTEXT = "w3 w5 w2"


def asked(kind: str, *arguments: tuple[Any, ...]) -> list[Instance]:
    return [Instance(kind, {}, one, index) for index, one in enumerate(arguments)]


def answers(lm: DiffusionLM, *kwargs: dict[str, Any]) -> list[str]:
    return lm.generate_until(asked("generate_until", *((CONTEXT, one) for one in kwargs)))


def toy(**decoding: Any) -> DiffusionLM:
    return DiffusionLM(TOY, decoding=decoding)


def test_a_continuation_ends_before_the_first_stop() -> None:
    (whole,) = answers(toy(length=8, block_length=4), {})
    words = whole.split()
    stops = [words[5], words[3]]
    (found,) = answers(toy(length=8, block_length=4), {"until": stops})
    expected = min((whole.split(stop)[0] for stop in stops), key=len)
    assert found == expected
    assert len(found) < len(whole)
    assert answers(toy(length=8, block_length=4), {"until": stops[0]}, {"until": ["", "nowhere"]})[1] == whole


def test_the_tasks_number_of_tokens_is_decoded_in_whole_blocks_and_cut() -> None:
    lm = toy(block_length=4)
    assert lm.config({"max_gen_toks": 5}).length == 8
    (short, whole) = answers(lm, {"max_gen_toks": 5}, {"max_gen_toks": 8})
    assert short.split() == whole.split()[:5]
    assert lm.config({}).length == 256
    assert toy(length=12, block_length=4).config({"max_gen_toks": 5}).length == 12


@pytest.mark.parametrize(
    ("task", "temperature", "top_k"),
    [
        ({"top_k": 3}, 0.0, None),
        ({"do_sample": False, "temperature": 0.7, "top_k": 3}, 0.0, None),
        ({"do_sample": True, "top_k": 3, "top_p": 0.9}, 1.0, 3),
        ({"do_sample": True, "temperature": 0.7}, 0.7, None),
        ({"temperature": 0.4, "top_k": 3}, 0.4, 3),
    ],
)
def test_sampling_is_the_tasks_unless_it_is_given(task: dict[str, Any], temperature: float, top_k: int | None) -> None:
    config = toy(length=8, block_length=4).config(task)
    assert (config.temperature, config.top_k) == (temperature, top_k)
    assert config.top_p == (task.get("top_p") if temperature else None)
    assert toy(length=8, block_length=4, temperature=0.5).config(task).temperature == 0.5


def test_requests_do_not_touch_each_other() -> None:
    """Batches, order of lengths and other settings in between leave each answer as it is alone, seed for seed."""
    contexts = ["w1 w2 w3 w4", "w5", "w6 w7 w8 w9", "w5"]
    kwargs = [{"do_sample": True}, {"do_sample": False}, {"do_sample": True}, {"do_sample": True}]
    lm = toy(length=8, block_length=4)
    found = lm.generate_until(asked("generate_until", *zip(contexts, kwargs, strict=True)))
    for index, (context, sampling) in enumerate(zip(contexts, kwargs, strict=True)):
        alone = generate(
            TOY, context, key=None, length=8, block_length=4, temperature=float(sampling["do_sample"]), seed=index
        )
        assert found[index] == alone[0].text


def test_a_long_prompt_loses_its_beginning() -> None:
    small = ToyDenoiser(end_ids=(), context_length=12)
    lm = DiffusionLM(small, decoding={"length": 8, "block_length": 8})
    (found,) = lm.generate_until(asked("generate_until", ("w9 w8 w7 w1 w2 w3 w4", {})))
    assert found == generate(small, "w1 w2 w3 w4", key=None, length=8, block_length=8, temperature=0)[0].text
    assert lm.counts["truncated"] == 1
    with pytest.raises(SettingsError, match="no room for a prompt"):
        DiffusionLM(small, decoding={"length": 12, "block_length": 4})


def test_a_chat_is_one_turn_in_the_familys_template(tmp_path: Path) -> None:
    from support.tiny_checkpoints import write

    write(tmp_path / "llada", "llada")
    model = load_model(str(tmp_path / "llada"), device="cpu", dtype="fp32")
    lm = DiffusionLM(model)
    user = {"role": "user", "content": " w1 w2 "}
    prompt = lm.apply_chat_template([{"role": "system", "content": "w3"}, user])
    assert prompt == template_of(model).text([("user", "w3\n\n w1 w2 ")])
    assert "w3\n\n w1 w2" in prompt
    begun = lm.apply_chat_template([user, {"role": "assistant", "content": "w4"}], add_generation_prompt=False)
    assert begun.endswith("<|end_header_id|>\n\nw4")
    with pytest.raises(SettingsError, match="one turn"):
        lm.apply_chat_template([user, {"role": "assistant", "content": "w4"}, user])
    with pytest.raises(SettingsError, match="no chat template"):
        toy().apply_chat_template([user])


def test_presets_have_block_lengths_by_model() -> None:
    models = {"GSAI-ML/LLaDA-1.5": "llada", "Dream-org/Dream-v0-Instruct-7B": "dream", "storyteller": "llada"}
    found = [PRESETS["gsm8k"].decoding(model, family) for model, family in models.items()]
    assert found == [{"length": 256, "block_length": block} for block in (16, 32, 8)]


QUESTIONS = [
    {"question": "Once upon a time there was a", "answer": "king", "choices": ["king", "sea"]},
    {"question": "The sun was shining on the", "answer": "sea", "choices": ["sea", "king"]},
]
COMMON = """
dataset_path: json
dataset_kwargs:
  data_files: {data}
  cache_dir: {cache}
test_split: train
doc_to_text: "{{{{question}}}}"
"""
TASKS = {
    "local_generation": """
task: local_generation
output_type: generate_until
doc_to_target: "{{{{answer}}}}"
generation_kwargs:
  until: [","]
  max_gen_toks: 6
metric_list:
  - metric: exact_match
    aggregation: mean
    higher_is_better: true
""",
    "local_choice": """
task: local_choice
output_type: multiple_choice
doc_to_choice: "{{{{choices}}}}"
doc_to_target: 0
metric_list:
  - metric: acc
    aggregation: mean
    higher_is_better: true
""",
}
TASKS["local_code"] = TASKS["local_generation"].replace("local_generation", "local_code") + "unsafe_code: true"


@pytest.fixture
def local_tasks(tmp_path: Path) -> Path:
    """Task files with two questions, read from this machine alone."""
    folder = tmp_path / "tasks"
    folder.mkdir()
    data = folder / "questions.json"
    data.write_text("".join(json.dumps(one) + "\n" for one in QUESTIONS))
    for name, content in TASKS.items():
        (folder / f"{name}.yaml").write_text((content + COMMON).format(data=data, cache=tmp_path / "cache"))
    return folder


@pytest.mark.slow
def test_the_harness_end_to_end_on_the_built_in_model(
    local_tasks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    out = tmp_path / "out"
    command = [
        "bench-lm", "--tasks", "local_generation", "--include", str(local_tasks), "--no-watermark",
        "--block-length", "8", "--device", "cpu", "--dtype", "fp32", "--out", str(out), "--json",
    ]  # fmt: skip
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.stderr
    results = json.loads(done.stdout)
    assert results == json.loads((out / "results.json").read_text())
    assert results["n_samples"]["local_generation"] == {"original": 2, "effective": 2}
    assert results["counts"] == {"generate_until": 2, "truncated": 0}
    assert results["key_fingerprint"] is None
    model = load_model(device="cpu", dtype="fp32")
    rows = [json.loads(line) for line in (out / "samples.jsonl").read_text().splitlines()]
    said = {row["doc_id"]: row["resps"][0][0] for row in rows}
    for index, question in enumerate(QUESTIONS):
        made = generate(
            model, str(question["question"]), key=None, length=8, block_length=8, temperature=0, seed=index
        )[0]
        assert said[index] == model.tokenizer.decode(made.token_ids[:6]).split(",")[0]


def test_code_is_executed_on_request_alone(local_tasks: Path) -> None:
    lm = toy(length=8, block_length=8)
    wanted = TaskSettings(("local_code",), (local_tasks,), limit=1)
    with pytest.raises(SettingsError, match="--confirm-run-unsafe-code"):
        run_tasks(lm, wanted)
    assert not lm.counts
    allowed = TaskSettings(("local_code",), (local_tasks,), limit=1, run_unsafe_code=True)
    found = run_tasks(lm, allowed)
    assert [row[:3] for row in headline(found)] == [("local_code", "exact_match", "none")]


def test_a_choice_by_likelihood_shows_no_mark_and_is_refused(local_tasks: Path) -> None:
    with pytest.raises(SettingsError, match="give one that generates"):
        run_tasks(toy(), TaskSettings(("local_choice",), (local_tasks,)))


def test_tasks_that_cannot_be_had(local_tasks: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def few(**arguments: Any) -> TaskManager:
        return TaskManager(**{**arguments, "include_defaults": False})

    monkeypatch.setattr("dgmark_lab.evaluate.benchmarks.TaskManager", few)
    with pytest.raises(SettingsError, match="no task no_such_task"):
        run_tasks(toy(), TaskSettings(("no_such_task",), (local_tasks,)))
    (local_tasks / "questions.json").unlink()
    with pytest.raises(InputError, match="cannot be set up"):
        run_tasks(toy(), TaskSettings(("local_code",), (local_tasks,)))


@pytest.mark.parametrize("arguments", [[], ["--tasks", "x", "--preset", "mmlu"], ["--preset", "arc"]], ids=str)
def test_invalid_commands_are_refused(arguments: list[str]) -> None:
    done = CliRunner().invoke(app, ["bench-lm", "--no-watermark", *arguments])
    assert done.exit_code == 2
