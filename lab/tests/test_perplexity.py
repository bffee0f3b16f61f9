"""Perplexity under a judge against a slow loop; windows, prompts, refusals; the built-in judge."""

import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertForMaskedLM, Gemma3Config, Gemma3ForConditionalGeneration

from dgmark.checkpoint.folder import builtin_folder
from dgmark.checkpoint.tokenizer import load_tokenizer
from dgmark.errors import CheckpointFormat, InputError, ModelNotFound, SettingsError
from dgmark.models.language_model import LanguageModel
from dgmark.models.token_nats import token_nats
from dgmark_lab.evaluate.likelihood import perplexity
from support.tiny_checkpoints import tokenizer

PROMPTS = ["Once upon a time", "The old king said that", "", "He went down to the sea, and"]
TEXTS = [
    " there was a little girl who lived in the wood.",
    " he would go.",
    "The sun was on the hills.",
    " never came back",
]


@pytest.fixture(scope="module")
def judge() -> LanguageModel:
    return LanguageModel(device="cpu", dtype="fp32")


def slow_nats(judge: LanguageModel, text: str, prompt: str) -> list[float]:
    """One forward for every token, each of what stands before it alone."""
    before, nats = judge.tokenizer.encode(prompt), []
    for token in judge.tokenizer.encode(text):
        if before:
            logits = judge.network(input_ids=torch.tensor([before])).logits[0, -1].double()
            nats.append(float(logits.logsumexp(0) - logits[token]))
        before = [*before, token]
    return nats


def test_nats_are_those_of_one_token_after_another(judge: LanguageModel) -> None:
    found = token_nats(judge, TEXTS, PROMPTS)
    for nats, text, prompt in zip(found, TEXTS, PROMPTS, strict=True):
        np.testing.assert_allclose(nats, slow_nats(judge, text, prompt), atol=1e-4)
    assert len(found[2]) == len(judge.tokenizer.encode(TEXTS[2])) - 1  # no prompt: nothing to predict the first from


def test_batches_and_order_do_not_matter(judge: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    together = token_nats(judge, TEXTS, PROMPTS)
    monkeypatch.setattr("dgmark.models.token_nats.BATCH_TOKENS", 1)
    alone = token_nats(judge, TEXTS, PROMPTS)
    back = token_nats(judge, TEXTS[::-1], PROMPTS[::-1])[::-1]
    for one, two, three in zip(together, alone, back, strict=True):
        np.testing.assert_allclose(one, two, atol=1e-4)
        np.testing.assert_allclose(one, three, atol=1e-4)


@pytest.mark.parametrize("context", [2, 8, 9])
def test_windows_score_each_token_once_with_half_a_context(judge: LanguageModel, context: int) -> None:
    short = LanguageModel(device="cpu", dtype="fp32", context=context)
    prompt, text = PROMPTS[3], TEXTS[0] + TEXTS[2]
    head, body = judge.tokenizer.encode(prompt), judge.tokenizer.encode(text)
    (found,) = token_nats(short, [text], [prompt])
    ids, step = head + body, context // 2
    expected, stop = [], max(context, len(head) + step)
    for at in range(len(head), len(ids)):
        if at >= stop:
            stop += step
        last = min(stop, len(ids))
        logits = judge.network(input_ids=torch.tensor([ids[max(0, last - context) : at]])).logits[0, -1].double()
        expected.append(float(logits.logsumexp(0) - logits[ids[at]]))
        assert at - max(0, last - context) >= min(at, context - step)
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_figures_are_the_sums_they_claim_to_be(judge: LanguageModel) -> None:
    found = perplexity(judge, [*TEXTS, ""], [*PROMPTS, "An empty text after this"])
    nats = [slow_nats(judge, text, prompt) for text, prompt in zip(TEXTS, PROMPTS, strict=True)]
    total, count = sum(map(sum, nats)), sum(map(len, nats))
    assert found.corpus.value == pytest.approx(math.exp(total / count), rel=1e-4)
    assert found.mean.value == pytest.approx(np.mean([math.exp(sum(one) / len(one)) for one in nats]), rel=1e-4)
    assert found.tokens == count
    first = judge.tokenizer.decode(judge.tokenizer.encode(TEXTS[2])[:1])
    assert found.nats_per_byte.value == pytest.approx(total / (sum(map(len, TEXTS)) - len(first)), rel=1e-4)
    assert [text.tokens for text in found.texts] == [*map(len, nats), 0]
    assert found.texts[-1].perplexity is None


def test_ids_are_taken_as_they_are_and_bytes_are_those_of_utf8(judge: LanguageModel) -> None:
    (text,) = perplexity(judge, ["Brüder – ja"], ["Die"]).texts
    assert text.bytes == 14
    ids = [judge.tokenizer.encode(text) for text in TEXTS]
    by_ids = perplexity(judge, ids, [judge.tokenizer.encode(prompt) for prompt in PROMPTS])
    assert by_ids.texts == perplexity(judge, TEXTS, PROMPTS).texts
    with pytest.raises(InputError, match="id 8192 is not among"):
        perplexity(judge, [[5, 8192]])
    with pytest.raises(InputError, match="2 texts and 1 prompts"):
        perplexity(judge, ["a b", "c d"], ["x"])
    with pytest.raises(InputError, match="no text has a token"):
        perplexity(judge, ["", ""])


def test_the_built_in_judge_prefers_prose_to_its_words_in_any_order(judge: LanguageModel) -> None:
    text = (Path(__file__).parents[2] / "tests" / "texts" / "willows.txt").read_text()
    words = text.split()
    shuffled = " ".join(np.random.default_rng(0).permutation(words))
    found = [perplexity(judge, [one[:1500]]).nats_per_byte.value for one in (text, shuffled)]
    assert found[0] + 0.3 < found[1]
    assert judge.tokenizer.fingerprint == load_tokenizer().fingerprint
    assert judge.context_length == 512


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The built-in judge as a user's folder: the plain layout with its tokenizer beside."""
    copied = tmp_path / "judge"
    shutil.copytree(builtin_folder("judge"), copied)
    shutil.copy(builtin_folder("storyteller") / "tokenizer.json", copied)
    return copied


def test_a_folder_gives_the_same_figures(judge: LanguageModel, folder: Path) -> None:
    mine = LanguageModel(str(folder), device="cpu", dtype="fp32", context=64)
    assert mine.context_length == 64
    assert perplexity(mine, TEXTS, PROMPTS).texts == perplexity(judge, TEXTS, PROMPTS).texts


def test_an_opening_token_stands_before_every_text_and_window(judge: LanguageModel, folder: Path) -> None:
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**settings, "add_bos_token": True}))
    mine = LanguageModel(str(folder), device="cpu", dtype="fp32")
    assert mine.opening == (1,)
    found = token_nats(mine, TEXTS, PROMPTS)
    plain = token_nats(judge, TEXTS, [[1, *judge.tokenizer.encode(prompt)] for prompt in PROMPTS])
    assert [len(one) for one in found] == [len(judge.tokenizer.encode(text)) for text in TEXTS]
    for one, two in zip(found, plain, strict=True):
        np.testing.assert_allclose(one, two, atol=1e-4)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "no-such-model", "auto_map": {"AutoModelForCausalLM": "x.Y"}}, "runs no code"),
        ({"transformers_weights": "model.bin"}, "names a file of weights"),
        ({"quantization_config": {"quant_method": "quark"}}, "the weights are quantized"),
        ({"intermediate_size": 860}, "has the sizes"),
    ],
)
def test_unsuitable_judges_are_refused(folder: Path, changes: dict[str, Any], message: str) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **changes}))
    with pytest.raises(CheckpointFormat, match=message):
        LanguageModel(str(folder))


def test_what_config_json_says_of_code_to_run_is_left_out_at_any_depth(folder: Path) -> None:
    from dgmark.checkpoint.folder import Checkpoint
    from dgmark.models.architecture import own_config

    nested = {"text_config": {"_attn_implementation": "somebody/kernels", "hidden_size": 8}, "attn_implementation": "x"}
    assert own_config(Checkpoint("x", folder, nested)) == {"text_config": {"hidden_size": 8}}


def test_other_kinds_of_models_and_invalid_options_are_refused(folder: Path, tmp_path: Path) -> None:
    sizes: dict[str, Any] = {
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
    }
    torch.manual_seed(0)
    encoder = BertForMaskedLM(BertConfig(vocab_size=80, initializer_range=0.4, **sizes))
    encoder.save_pretrained(tmp_path / "bert")
    tokenizer("dream").save(str(tmp_path / "bert/tokenizer.json"))
    with pytest.raises(CheckpointFormat, match="attends to later tokens"):
        LanguageModel(str(tmp_path / "bert"))
    with pytest.raises(CheckpointFormat, match="no autoregressive model"):
        LanguageModel("storyteller")
    with pytest.raises(SettingsError, match="context 1024 is invalid"):
        LanguageModel(str(folder), context=1024)
    with pytest.raises(SettingsError, match="dtype 'fp8'"):
        LanguageModel(dtype="fp8")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(ModelNotFound, match="only safetensors"):
        LanguageModel(str(folder))


def test_gemma_3_in_its_layout_with_pictures_is_a_judge_of_text(tmp_path: Path) -> None:
    """Its config.json nests one for text; the class is the one for text and pictures."""
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    text = {**sizes, "vocab_size": 8200, "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 256}
    vision = {**sizes, "num_hidden_layers": 1, "image_size": 28, "patch_size": 14}
    config = Gemma3Config(text_config={**text, "sliding_window": 16}, vision_config=vision, mm_tokens_per_image=4)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        made = Gemma3ForConditionalGeneration(config)
        made.train(False)
    made.save_pretrained(tmp_path)
    shutil.copy(builtin_folder("storyteller") / "tokenizer.json", tmp_path)
    mine = LanguageModel(str(tmp_path), device="cpu", dtype="fp32")
    assert (mine.context_length, mine.vocab_size) == (256, 8200)
    (found,) = token_nats(mine, [TEXTS[0]], [PROMPTS[0]])
    head, body = mine.tokenizer.encode(PROMPTS[0]), mine.tokenizer.encode(TEXTS[0])
    with torch.no_grad():
        logits = made(input_ids=torch.tensor([head + body])).logits[0, len(head) - 1 : -1].log_softmax(-1)
    np.testing.assert_allclose(found, -logits[torch.arange(len(body)), torch.tensor(body)].numpy(), atol=1e-4)
