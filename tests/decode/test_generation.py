"""From prompts to texts: settings, refusals, batches, and the mark end to end on the built-in model."""

from dataclasses import replace
from typing import Any

import pytest

from dgmark import Detector, Generation, WatermarkKey, generate, load_model
from dgmark.decode import DecodeConfig, Prepared, Request
from dgmark.decode.texts.generation import generations
from dgmark.errors import InputError, PromptTooLong
from dgmark.models.toy import ToyDenoiser
from support.known_keys import bound_key

TOY = ToyDenoiser()
SMALL = ToyDenoiser(context_length=15, end_ids=(), name="small")
SHORT: dict[str, Any] = {"length": 12, "block_length": 4}
PROMPTS = ["w1 w2", "w3", "w4 w5", "w6 w7 w8", "w9", "w10 w11", "w1 w2"]


def decoded(requests: list[Request], config: DecodeConfig) -> list[Generation]:
    """The toy's texts, all of them in one batch."""
    return generations(Prepared.of(TOY, requests, config), range(len(requests)))


# ---- invalid settings and prompts ----


@pytest.mark.parametrize(
    ("prompt", "error", "message"),
    [
        ("", InputError, "prompt is empty"),
        (" ", InputError, "prompt is empty"),
        ([], InputError, "prompt is empty"),
        # on a GPU they would end the process in a device-side assertion
        *(([2, token_id], InputError, str(token_id)) for token_id in (-1, SMALL.vocab_size, 10**9)),
        ("w1 w2 w3 w4", PromptTooLong, r"4 tokens .* response 12, but small holds 15 .* to 3 tokens"),
    ],
    ids=str,
)
def test_a_prompt_that_cannot_be_continued_is_refused(prompt: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        generate(SMALL, ["w1", prompt], key=None, **SHORT)
    assert len(generate(SMALL, "w1 w2 w3", key=None, **SHORT)[0].token_ids) == 12  # which just fits


# ---- rows and batches ----


def test_a_prompt_of_ids_gives_the_response_of_its_text() -> None:
    (from_ids,) = generate(TOY, [[3, 4]], key=None, **SHORT)
    (from_text,) = generate(TOY, ["w1 w2"], key=None, **SHORT)
    assert replace(from_ids, prompt="w1 w2") == from_text


@pytest.mark.slow
@pytest.mark.parametrize("key", [None, bound_key("rotating", TOY, modulus=3, rotation=5)], ids=["unmarked", "marked"])
def test_a_text_is_the_same_in_every_batch(key: WatermarkKey | None) -> None:
    # prompts of several lengths, rows that end early
    config = DecodeConfig(**SHORT)
    alone = [decoded([Request(prompt, 5 + i, key)], config)[0] for i, prompt in enumerate(PROMPTS)]
    assert {row.ended for row in alone} == {True, False}
    for batch_size in (2, 3, 100):
        assert generate(TOY, PROMPTS, key=key, seed=5, batch_size=batch_size, **SHORT) == alone


def test_the_result_says_how_it_was_made() -> None:
    key = bound_key("row", TOY)
    made = generate(TOY, "w1 w2", key=key, strategy="entropy", temperature=0.5, top_k=9, top_p=0.9, seed=4, **SHORT)[0]
    assert (made.prompt, made.model, made.seed, made.key_fingerprint) == ("w1 w2", "toy", 4, key.fingerprint)
    given = {"strategy": "entropy", "temperature": 0.5, "top_k": 9, "top_p": 0.9, **SHORT}
    assert made.settings == DecodeConfig(**given).to_dict()
    assert given.items() <= made.settings.items()
    assert made.text == TOY.tokenizer.decode(made.token_ids)
    assert generate(TOY, "w1 w2", key=None, **SHORT)[0].key_fingerprint is None


def test_the_row_holds_the_result_and_no_secret() -> None:
    key = bound_key("row", TOY)
    (made,) = generate(TOY, "w1 w2", key=key, **SHORT)
    row = made.to_row("a")
    assert row["id"] == "a"
    assert row["trace"] == made.trace.to_dict()
    for name in ("prompt", "text", "token_ids", "ended", "model", "seed", "key_fingerprint", "settings"):
        assert row[name] == getattr(made, name)
    assert "trace" not in made.to_row("a", with_trace=False)
    assert key.secret is not None
    assert key.secret.hex() not in repr(row)
    assert repr(bytes(key.secret or b"")) not in repr(row)


def test_progress_adds_up_over_batches() -> None:
    told: list[int] = []
    rows = generate(TOY, PROMPTS, key=None, batch_size=2, progress=told.append, **SHORT)
    assert sum(told) == sum(len(row.trace.step) for row in rows)


# ---- end to end ----


@pytest.mark.slow
@pytest.mark.parametrize(("modulus", "rotation"), [(2, 0), (3, 0), (4, 16), (2, 16)])
def test_marked_toy_text_is_detected_with_its_key_alone(modulus: int, rotation: int) -> None:
    model = ToyDenoiser(words=500, padding=12, end_ids=())
    key, other = (bound_key(name, model, modulus=modulus, rotation=rotation, code_length=0) for name in "ab")
    settings: dict[str, Any] = {"length": 96, "block_length": 32, "seed": 1}
    marked, unmarked = (generate(model, "w1 w2", key=k, **settings)[0] for k in (key, None))

    detector = Detector(key, tokenizer=model.tokenizer)
    for written in (marked.token_ids, marked.text):
        assert detector.detect(written).verdict == "watermarked"
    assert detector.detect(marked.token_ids).num_tokens_matched == sum(marked.trace.matched)
    assert detector.detect(unmarked.token_ids).verdict != "watermarked"
    assert Detector(other, tokenizer=model.tokenizer).detect(marked.token_ids).verdict != "watermarked"
    # cropped at the front by a number of tokens that is not a multiple of m
    assert detector.detect(marked.token_ids[7:]).verdict == "watermarked"


STORY_PROMPT = "They crossed a hill. At the foot of the hill flowed a brook,"


def test_a_bf16_model_writes_marked_text() -> None:
    model = load_model(dtype="bf16", device="cpu")
    key = bound_key("bf16", model, rule="position")
    first, again = (generate(model, STORY_PROMPT, key=key, length=8, block_length=8)[0] for _ in range(2))
    assert first == again
    assert sum(first.trace.matched) > 4
    assert all(0 < reward <= 1 for reward in first.trace.reward)
