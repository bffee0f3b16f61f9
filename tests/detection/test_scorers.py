"""The scorers: one key, a keyring and a baseline's detector follow one protocol."""

import json
from pathlib import Path
from typing import Any

import pytest

from dgmark import Detector, Keyring
from dgmark.detection.detect_files import one_key
from dgmark.detection.result import Scorer
from dgmark.errors import SettingsError, VocabularyMismatch
from dgmark_lab import baselines
from support.known_keys import builtin_tokenizer, known_key
from support.marked_texts import marked_ids
from support.unchecked import unchecked

KEY, OTHER = known_key("scorer"), known_key("another scorer")


def baseline(name: str, **options: Any) -> Scorer:
    return baselines.baseline(name, **options).detector(KEY, tokenizer=builtin_tokenizer())


SCORERS: dict[str, Scorer] = {
    "key": Detector(KEY, tokenizer=builtin_tokenizer()),
    "intact": Detector(KEY, tokenizer=builtin_tokenizer(), mode="intact", phase="start", fpr=1e-3),
    "ring": Keyring([KEY, OTHER], tokenizer=builtin_tokenizer()),
    "kgw": baseline("kgw"),
    "gloaguen": baseline("gloaguen"),
}
TEXTS = ["", "Once upon a time there was a king.", marked_ids(KEY, 120).tolist(), [5, 6, 7], "<|endoftext|>"]

each_scorer = pytest.mark.parametrize("scorer", SCORERS.values(), ids=list(SCORERS))


@each_scorer
def test_a_scorer_has_all_that_the_protocol_names(scorer: Scorer) -> None:
    assert isinstance(scorer, Scorer)
    assert scorer.reader.tokenizer is builtin_tokenizer()


@each_scorer
def test_the_settings_are_plain_json_with_the_same_fields(scorer: Scorer) -> None:
    assert list(scorer.settings) == ["keys", "fpr", "mode", "scheme", "phase", "max_crop", "normalise"]
    assert json.loads(json.dumps(scorer.settings)) == scorer.settings


@each_scorer
def test_the_shared_fields_are_those_of_every_row(scorer: Scorer) -> None:
    assert scorer.shared_fields
    for text in TEXTS:
        row = scorer.detect(text).to_row("x")
        assert {name: row[name] for name in scorer.shared_fields} == scorer.shared_fields


@each_scorer
def test_many_texts_are_scored_as_one_by_one(scorer: Scorer) -> None:
    assert scorer.detect_many(TEXTS) == [scorer.detect(text) for text in TEXTS]
    assert scorer.detect_many(iter(TEXTS)) == scorer.detect_many(TEXTS)


@each_scorer
def test_all_scorers_read_alike(scorer: Scorer) -> None:
    with pytest.raises(VocabularyMismatch, match="token id 9000"):
        scorer.detect([5, 9000])
    several: Any = ["a", "b"]
    with unchecked(), pytest.raises(SettingsError, match="detect_many"):
        scorer.detect(several)
    with pytest.raises(SettingsError, match="one text"):
        scorer.detect_many("a")


@pytest.mark.parametrize(
    "changed",
    [
        Detector(OTHER, tokenizer=builtin_tokenizer()),
        Detector(KEY, tokenizer=builtin_tokenizer(), fpr=1e-3),
        Detector(KEY, tokenizer=builtin_tokenizer(), mode="edited"),
        Detector(KEY, tokenizer=builtin_tokenizer(), phase="start"),
        Detector(KEY, tokenizer=builtin_tokenizer(), max_crop=3),
        Detector(KEY, tokenizer=builtin_tokenizer(), normalise=["nfc"]),
        Keyring([KEY, OTHER], tokenizer=builtin_tokenizer()),
        baseline("kgw"),
        baseline("kgw", delta=3.0),
    ],
)
def test_other_choices_are_other_settings(changed: Scorer) -> None:
    assert changed.settings not in [SCORERS["key"].settings, baseline("kgw", delta=2.5).settings]


def test_only_a_single_key_finds_spans_and_shows_tokens() -> None:
    assert one_key(SCORERS["key"]) is SCORERS["key"]
    for name, kind in (("ring", "Keyring"), ("kgw", "BaselineDetector")):
        with pytest.raises(SettingsError, match=f"use a Detector, not a {kind}"):
            one_key(SCORERS[name])


@pytest.mark.parametrize("wrong", ["folder", Path("folder"), KEY, ["key.json"], [KEY, "key.json"], [None]], ids=repr)
def test_a_keyring_of_something_other_than_a_list_of_keys_is_refused(wrong: Any) -> None:
    advice = r"WatermarkKey\.load\('key\.json'\)"
    with (
        unchecked(),
        pytest.raises(SettingsError, match=advice if isinstance(wrong, list) else rf"load_keys.*{advice}"),
    ):
        Keyring(wrong)


def test_a_ring_refuses_a_rate_that_its_keys_cannot_share() -> None:
    with pytest.raises(SettingsError, match="is not between 0 and 1"):
        Keyring([KEY, OTHER], tokenizer=builtin_tokenizer(), fpr=1e-300)
    with pytest.raises(SettingsError, match="is not between 0 and 1"):
        Keyring([KEY, OTHER], tokenizer=builtin_tokenizer(), fpr=1.5)
