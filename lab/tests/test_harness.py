"""The lm-evaluation-harness on a diffusion model: stops, lengths, settings; end to end on local tasks."""

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("lm_eval")

from lab_support import CASES
from lm_eval.api.instance import Instance

from dgmark.decode import generate
from dgmark.errors import SettingsError
from dgmark.models.chat import template_of
from dgmark.models.load import load_model
from dgmark.models.toy import ToyDenoiser
from dgmark_lab.evaluate.harness import DiffusionLM
from support.harness_tasks import run_harness, write_task
from support.known_keys import bound_key

TOY = ToyDenoiser(end_ids=())
CONTEXT = "w3 w5 w2"


def asked(kind: str, *arguments: tuple[Any, ...]) -> list[Instance]:
    return [Instance(kind, {}, one, index) for index, one in enumerate(arguments)]


def answers(lm: DiffusionLM, *kwargs: dict[str, Any]) -> list[str]:
    return lm.generate_until(asked("generate_until", *((CONTEXT, one) for one in kwargs)))


def toy(**decoding: Any) -> DiffusionLM:
    return DiffusionLM(TOY, **decoding)


def test_a_continuation_ends_before_the_first_stop() -> None:
    (whole,) = answers(toy(length=8, block_length=4), {})
    words = whole.split()
    stops = [words[5], words[3]]
    (found,) = answers(toy(length=8, block_length=4), {"until": stops})
    expected = min((whole.split(stop)[0] for stop in stops), key=len)
    assert found == expected
    assert len(found) < len(whole)
    assert answers(toy(length=8, block_length=4), {"until": stops[0]}, {"until": ["", "nowhere"]})[1] == whole


def test_the_tasks_number_of_tokens_is_decoded() -> None:
    lm = toy(block_length=4)
    assert lm.config({"max_gen_toks": 5}).length == 5
    assert [len(answer.split()) for answer in answers(lm, {"max_gen_toks": 5}, {"max_gen_toks": 8})] == [5, 8]
    assert lm.config({}).length == 256
    assert toy(length=12, block_length=4).config({"max_gen_toks": 5}).length == 12


@pytest.mark.parametrize(("task", "temperature", "top_k"), CASES["sampling of tasks"])
def test_sampling_is_the_tasks_unless_it_is_given(task: dict[str, Any], temperature: float, top_k: int) -> None:
    config = toy(length=8, block_length=4).config(task)
    assert (config.temperature, config.top_k) == (temperature, top_k or None)
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
    lm = DiffusionLM(small, length=8, block_length=8)
    (found,) = lm.generate_until(asked("generate_until", ("w9 w8 w7 w1 w2 w3 w4", {})))
    assert found == generate(small, "w1 w2 w3 w4", key=None, length=8, block_length=8, temperature=0)[0].text
    assert lm.truncated == 1
    with pytest.raises(SettingsError, match="no room for a prompt"):
        DiffusionLM(small, length=12, block_length=4)


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


QUESTIONS = [
    {"question": "Once upon a time there was a", "answer": "king"},
    {"question": "The sun was shining on the", "answer": "sea"},
]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_harness_s_own_command_end_to_end_on_the_built_in_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local_tasks = write_task(tmp_path, "local_generation", QUESTIONS, until=[","], max_gen_toks=6)
    key = bound_key("harness", load_model(device="cpu", dtype="fp32"))
    key.save(tmp_path / "key.json")
    arguments = f"key={tmp_path / 'key.json'},block_length=8,seed=5,dtype=fp32,temperature=0.7"
    of_model = ("--model", "dgmark", "--model_args", arguments, "--device", "cpu")
    run_harness(monkeypatch, local_tasks, *of_model, "--output_path", str(tmp_path))
    (results,) = tmp_path.rglob("results_*.json")
    recorded = json.loads(results.read_text())
    assert recorded["n-samples"]["local_generation"] == {"original": 2, "effective": 2}
    assert (recorded["config"]["key_fingerprint"], recorded["config"]["truncated"]) == (key.fingerprint, 0)
    assert key.secret is not None
    assert key.secret.hex() not in results.read_text()
    (samples,) = tmp_path.rglob("samples_*.jsonl")
    said = {row["doc_id"]: row["resps"][0][0] for row in map(json.loads, samples.read_text().splitlines())}
    model = load_model(device="cpu", dtype="fp32")
    for index, question in enumerate(QUESTIONS):
        made = generate(
            model, str(question["question"]), key=key, length=6, block_length=8, temperature=0.7, seed=5 + index
        )[0]
        assert said[index] == model.tokenizer.decode(made.token_ids).split(",")[0]


def test_model_args_name_a_key_of_any_rule_and_what_is_unknown_is_refused(tmp_path: Path) -> None:
    bound_key("harness", load_model(device="cpu"), rule="kgw").save(tmp_path / "key.json")
    lm = DiffusionLM.create_from_arg_string(f"key={tmp_path / 'key.json'},length=32", {"device": "cpu"})
    assert lm.get_model_info()["rule"] == "kgw"
    assert lm.config({}).strategy == "left_to_right"
    with pytest.raises(SettingsError, match="lenght"):
        DiffusionLM(TOY, lenght=32)


def test_a_likelihood_shows_no_mark_and_is_refused() -> None:
    with pytest.raises(SettingsError, match="give one that generates"):
        toy().loglikelihood([])
