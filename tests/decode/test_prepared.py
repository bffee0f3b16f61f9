"""Prepared requests: checked and encoded once, different keys in one batch, the same text from every caller."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import dgmark
from dgmark import Generation, WatermarkKey
from dgmark.decode import DecodeConfig, Prepared, Request
from dgmark.decode.texts.generation import generation_of, generations
from dgmark.errors import DgmarkError, InputError, PromptTooLong, SettingsError, TokenizerMismatch, VocabularyMismatch
from dgmark.models.toy import ToyDenoiser
from dgmark_lab.rule_keys import rule_key
from support.known_keys import bound_key
from support.unchecked import unchecked

TOY = ToyDenoiser(end_bias=0.4)
SHORT: dict[str, Any] = {"length": 12, "block_length": 4}
PROMPTS: list[str | list[int]] = ["w1 w2", "w3", [4, 5], "w6 w7 w8", "w9", "w10 w11", "w12", "w3 w4"]


def key_of(number: int, model: ToyDenoiser = TOY) -> WatermarkKey:
    """One of several keys of different kinds for a model."""
    kinds: list[dict[str, Any]] = [
        {"code_length": 0},
        {"modulus": 3, "code_length": 0},
        {"rotation": 5, "code_length": 8},
        {"subkeys": 64},
        {"rule": "bigram"},
    ]
    key = bound_key(f"prepared {number}", model, **kinds[number])
    return key.subkey(7 + number) if key.spec.subkeys > 1 else key


KEYS = [key_of(0), None, key_of(1), key_of(2), None, key_of(0), key_of(3), key_of(4)]
REQUESTS = [Request(prompt, 7 * i, key) for i, (prompt, key) in enumerate(zip(PROMPTS, KEYS, strict=True))]


def decoded(requests: list[Request], model: ToyDenoiser = TOY, **options: Any) -> list[Generation]:
    """The texts of requests that are decoded together wherever possible."""
    settings = {name: options.pop(name) for name in list(options) if name in DecodeConfig.__dataclass_fields__}
    prepared = Prepared.of(model, requests, DecodeConfig(**{**SHORT, **settings}), **options)
    return generations(prepared, range(len(requests)))


# ---- rows of different keys ----


def test_rows_of_different_keys_of_one_rule_share_one_batch() -> None:
    prepared = Prepared.of(TOY, [replace(request, prompt="w1") for request in REQUESTS], DecodeConfig(12, 4))
    assert [batch.rows for batch in prepared.batches(range(8))] == [[0, 1, 2, 3, 4, 5], [6, 7]]
    # a row without a mark joins rows of either rule
    assert [batch.rows for batch in prepared.batches([7, 1, 0, 4, 5, 6])] == [[7, 1, 4, 6], [0, 5]]
    assert [batch.rows for batch in prepared.batches([1, 7, 0])] == [[1, 7], [0]]


def test_a_rule_of_one_key_at_a_time_decodes_rows_of_a_key_and_unmarked_ones_together() -> None:
    keys = [rule_key("unigram", key_of(number)) for number in range(2)]
    given = [None if i in (1, 4) else keys[i % 2] for i in range(8)]
    requests = [replace(request, prompt="w1", key=key) for request, key in zip(REQUESTS, given, strict=True)]
    prepared = Prepared.of(TOY, requests, DecodeConfig(12, 4))
    # rows without a mark join either key
    assert [batch.rows for batch in prepared.batches(range(8))] == [[0, 1, 2, 4, 6], [3, 5, 7]]
    assert decoded(requests) == [decoded([request])[0] for request in requests]


# ---- refusals ----


@pytest.mark.parametrize("key", ["key.json", Path("key.json"), {"key": KEYS[0]}, b"secret", 7], ids=repr)
def test_what_is_no_key_is_refused_with_what_to_do(key: Any) -> None:
    ways: list[Any] = [
        lambda: dgmark.generate(TOY, "w1", key=key, **SHORT),
        lambda: dgmark.stream_generate(TOY, "w1", key=key, **SHORT),
        lambda: dgmark.infill(TOY, [["w1", 3]], key=key),
    ]
    for way in ways:
        with unchecked(), pytest.raises(SettingsError, match=r"WatermarkKey\.load\('key"):
            way()


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (Request("w1", 0, key_of(0, ToyDenoiser(words=25, padding=5))), TokenizerMismatch),
        (Request("w1", 0, key_of(0, ToyDenoiser(padding=7))), VocabularyMismatch),
        (Request("", 0, None), InputError),
        (Request("w1 " * 600, 0, None), PromptTooLong),
    ],
    ids=["tokenizer", "vocabulary", "empty", "long"],
)
def test_every_request_is_checked_before_any_is_decoded(request_: Request, error: type[DgmarkError]) -> None:
    with pytest.raises(error):
        Prepared.of(TOY, [*REQUESTS, request_], DecodeConfig(12, 4))


def test_requests_that_cannot_be_decoded_can_be_left_out() -> None:
    requests = [REQUESTS[0], Request("", 0, None), REQUESTS[3], Request("w1 " * 600, 0, KEYS[0])]
    prepared = Prepared.of(TOY, requests, DecodeConfig(12, 4), strict=False, batch_size=3)
    assert {row: type(error) for row, error in prepared.refused.items()} == {1: InputError, 3: PromptTooLong}
    assert [*prepared.chunks()] == [range(3), range(3, 4)]
    first, empty, second, long = prepared.results(partial(generation_of, prepared), range(4), strict=False)
    assert [first, second] == decoded([REQUESTS[0], REQUESTS[3]])
    assert [empty, long] == [prepared.refused[1], prepared.refused[3]]
    with pytest.raises(PromptTooLong):
        generations(prepared, [3])
