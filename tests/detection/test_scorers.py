"""The scorers: one key, a keyring and a baseline's detector follow one protocol."""

import json
from pathlib import Path
from typing import Any

import pytest

from dgmark import Detector, Keyring
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
    "start": Detector(KEY, tokenizer=builtin_tokenizer(), phase="start", fpr=1e-3),
    "ring": Keyring([KEY, OTHER], tokenizer=builtin_tokenizer()),
    "kgw": baseline("kgw"),
    "gloaguen": baseline("gloaguen"),
}
TEXTS = ["", "Once upon a time there was a king.", marked_ids(KEY, 120).tolist(), [5, 6, 7], "<|endoftext|>"]

each_scorer = pytest.mark.parametrize("scorer", SCORERS.values(), ids=list(SCORERS))


@each_scorer
def test_the_settings_are_plain_json_with_the_same_fields(scorer: Scorer) -> None:
    assert list(scorer.settings) == ["keys", "fpr", "baseline", "phase", "max_crop", "normalise"]
    assert json.loads(json.dumps(scorer.settings)) == scorer.settings
    assert isinstance(scorer, Scorer)


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


@pytest.mark.parametrize("wrong", ["folder", Path("folder"), KEY, ["key.json"], [KEY, "key.json"], [None]], ids=repr)
def test_a_keyring_of_something_other_than_a_list_of_keys_is_refused(wrong: Any) -> None:
    advice = r"WatermarkKey\.load\('key\.json'\)"
    with (
        unchecked(),
        pytest.raises(SettingsError, match=advice if isinstance(wrong, list) else rf"load_keys.*{advice}"),
    ):
        Keyring(wrong)
