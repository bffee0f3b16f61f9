"""Attacks that ask a model: refilling with a dLLM, DIPPER, paraphrase."""

import re
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from dgmark import load_tokenizer
from dgmark.errors import InputError, ModelNotFound, PromptTooLong, SettingsError
from dgmark.models.toy import ToyDenoiser
from dgmark_lab.attacks import attack
from dgmark_lab.attacks import paraphrase as paraphrase_module
from dgmark_lab.attacks import rephrase as rephrase_module
from dgmark_lab.attacks.budgets import edit_count, places
from dgmark_lab.attacks.paraphrase import load_rewriter
from dgmark_lab.attacks.refill import refill_ids, tokens_of_words
from support.tiny_language_models import WORDS, write_causal, write_t5

STORY = Path(__file__).parents[2] / "tests/texts/willows.txt"
TOY = ToyDenoiser(end_bias=3.0)
TEXT = " ".join(f"w{number % 24}" for number in range(40))


def dice(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


# --- refill ---


@pytest.mark.parametrize("budget", [0.1, 0.9])
def test_refilling_keeps_what_was_not_masked(budget: float) -> None:
    masked, old = places(40, budget, dice()), TEXT.split()
    made = attack("refill", model=TOY, budget=budget)(TEXT, dice()).split()
    assert len(made) == 40
    changed = [place for place in range(40) if made[place] != old[place]]
    assert changed
    assert set(changed) <= set(masked)
    assert not any("<|" in word for word in made)


def test_refilling_words_keeps_the_others() -> None:
    text = STORY.read_text(encoding="utf-8")[:600].strip()
    offsets = load_tokenizer().encode_with_offsets(text).offsets
    ends = [offsets[token][1] for token in tokens_of_words(text, offsets, 0.2, dice())]
    words = [match.span() for match in re.finditer(r"\S+", text)]
    kept = [text[begin:end] for begin, end in words if not any(begin < at <= end for at in ends)]
    assert len(kept) == len(words) - edit_count(len(words), 0.2)
    made = attack("refill", budget=0.2, holes="words")(text, dice())
    assert made != text
    assert all(word in made for word in kept)


def test_refilling_sees_both_sides_and_draws_by_the_dice() -> None:
    refill = attack("refill", model=TOY, budget=0.5)
    assert refill(TEXT, dice(3)) == refill(TEXT, dice(3))
    assert refill(TEXT, dice(3)) != refill(TEXT, dice(4))
    ids = TOY.tokenizer.encode(TEXT)
    one, other = (refill_ids(TOY, [*ids[:-1], last], [4, 5], 0, {"temperature": 0})[4:6] for last in (ids[-1], ids[0]))
    assert one != other


def test_what_cannot_be_refilled() -> None:
    with pytest.raises(SettingsError, match="no setting warmth"):
        attack("refill", model=TOY, settings={"warmth": 1})(TEXT, dice())
    assert attack("refill", model=TOY)("", dice()) == ""
    assert attack("refill", model=TOY, budget=0)(TEXT, dice()) == TEXT
    with pytest.raises(InputError, match="nothing to go by"):
        attack("refill", model=TOY, budget=1)(TEXT, dice())
    with pytest.raises(PromptTooLong, match="600 tokens"):
        attack("refill", model=TOY)("w1 " * 600, dice())


# --- DIPPER ---


@pytest.fixture(scope="module")
def t5(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_t5(tmp_path_factory.mktemp("t5")))


def test_dipper_rewrites_a_few_sentences_at_a_time(t5: str, monkeypatch: pytest.MonkeyPatch) -> None:
    network, tokenizer = load_rewriter("T5ForConditionalGeneration", t5, t5, None, None)
    spy = Mock(wraps=tokenizer)
    monkeypatch.setattr(paraphrase_module, "load_rewriter", lambda *_: (network, spy))
    made = attack("dipper", model=t5, lexical=60, order=10, interval=2)("w1 w2.  w3! w4\nw5? w6", dice())
    (first,), (second,) = (call.args[0] for call in spy.call_args_list)
    assert first == "lexical = 40, order = 90 <sent> w1 w2. w3! </sent>"
    head, rest = second.split(" <sent> ")
    assert rest == "w4 w5? w6 </sent>"
    written = head.removeprefix("lexical = 40, order = 90").strip()
    assert written
    assert made.startswith(written)
    assert set(made.split()) <= set(WORDS)


def test_dipper_draws_by_the_dice_and_leaves_torch_alone(t5: str) -> None:
    rewrite = attack("dipper", model=t5)
    torch.manual_seed(5)
    before = torch.get_rng_state()
    made = rewrite("w1 w2 w3.", dice(1))
    assert torch.equal(torch.get_rng_state(), before)
    assert rewrite("w1 w2 w3.", dice(1)) == made
    assert rewrite("w1 w2 w3.", dice(2)) != made
    assert rewrite(" ", dice()) == " "


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"model": "no/such/folder"}, ModelNotFound, "cannot be loaded"),
        ({"dtype": "float3"}, SettingsError, "not one of torch's"),
        ({"device": "no-such"}, SettingsError, "cannot be used here"),
    ],
)
def test_models_devices_and_number_formats_are_checked(
    t5: str, options: dict[str, str], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        attack("dipper", **{"model": t5} | options)("w1.", dice())


# --- paraphrase ---


@pytest.mark.parametrize("chat", [True, False])
def test_a_causal_model_paraphrases(chat: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = str(write_causal(tmp_path, chat))
    monkeypatch.setattr(paraphrase_module, "PROMPT", "w1 w2")
    network, tokenizer = load_rewriter("AutoModelForCausalLM", folder, folder, None, None)
    spy = Mock(wraps=network.generate)
    monkeypatch.setattr(network, "generate", spy)
    rewrite = attack("paraphrase", model=folder, max_tokens=9, temperature=1.0)
    made = rewrite("w3 w4", dice(1))
    question = tokenizer.decode(spy.call_args.kwargs["input_ids"][0]).split()
    assert question == ["w1", "w2", "w3", "w4", *(["w39"] if chat else [])]
    assert 0 < len(made.split()) <= 9
    assert rewrite("w3 w4", dice(1)) == made
    assert rewrite("", dice()) == ""
    greedy = attack("paraphrase", model=folder, max_tokens=9, temperature=0)
    assert greedy("w3 w4", dice(1)) == greedy("w3 w4", dice(2))
    monkeypatch.setattr(network, "generate", lambda **given: given["input_ids"])
    with pytest.raises(InputError, match="answered with an empty text"):
        rewrite("w3 w4", dice(1))


# --- rephrase ---


def test_a_diffusion_model_rephrases_each_passage(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def answers(model: ToyDenoiser, prompts: list[str], **settings: object) -> list[Mock]:
        asked.extend(prompts)
        assert settings["chat"] is True
        assert settings["length"] == 15  # a quarter more than the longest passage
        return [Mock(text=f" answer {number} ") for number in range(len(prompts))]

    monkeypatch.setattr(rephrase_module, "generate", answers)
    rewrite = attack("rephrase", model=TOY, words=12)
    assert rewrite(TEXT, dice()) == "answer 0\n\nanswer 1\n\nanswer 2\n\nanswer 3"
    assert " ".join(question.removeprefix(f"{rephrase_module.PROMPT}\n\n") for question in asked) == TEXT
    assert rewrite(" ", dice()) == " "
