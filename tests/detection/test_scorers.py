"""The scorers: one key of any rule and a keyring follow one protocol.

A keyring names the right key, and its p-value is corrected for the number of keys.
"""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dgmark.checkpoint.tokenizer import Tokenizer
from dgmark.detection.detector import Detector
from dgmark.detection.keyring import Keyring, load_keys
from dgmark.detection.results.detection import Detection
from dgmark.detection.scorer import Scorer
from dgmark.errors import DgmarkError, InputError, KeyFileNotFound, SettingsError, VocabularyMismatch
from dgmark.watermark.key import WatermarkKey
from dgmark_lab.rule_keys import rule_key
from support.known_keys import bound_key, builtin_tokenizer, known_key
from support.marked_texts import marked_ids, marked_text
from support.unchecked import unchecked

RIGHT = known_key("ring 3")
KEYS = [known_key(f"ring {k}") for k in range(20)]


SCORERS: dict[str, Scorer] = {
    "key": Detector(RIGHT, tokenizer=builtin_tokenizer()),
    "start": Detector(RIGHT, tokenizer=builtin_tokenizer(), phase="start", fpr=1e-3),
    "ring": Keyring([RIGHT, KEYS[0]], tokenizer=builtin_tokenizer()),
    "kgw": Detector(rule_key("kgw", RIGHT), tokenizer=builtin_tokenizer()),
    "gloaguen": Detector(rule_key("gloaguen", RIGHT), tokenizer=builtin_tokenizer()),
    "rules": Keyring([RIGHT, rule_key("kgw", KEYS[1])], tokenizer=builtin_tokenizer()),
}
TEXTS = ["", "Once upon a time there was a king.", marked_ids(RIGHT, 120).tolist(), [5, 6, 7], "<|endoftext|>"]

each_scorer = pytest.mark.parametrize("scorer", SCORERS.values(), ids=list(SCORERS))


@each_scorer
def test_the_settings_are_plain_json_with_the_same_fields(scorer: Scorer) -> None:
    of_positions = [] if scorer in (SCORERS["kgw"], SCORERS["gloaguen"]) else ["phase", "max_crop"]
    assert list(scorer.settings) == ["keys", "fpr", "normalise", *of_positions]
    assert json.loads(json.dumps(scorer.settings)) == scorer.settings
    assert isinstance(scorer, Scorer)


@each_scorer
def test_many_texts_are_scored_as_one_by_one(scorer: Scorer) -> None:
    assert scorer.detect_many(TEXTS) == [scorer.detect(text) for text in TEXTS]
    assert scorer.detect_many(iter(TEXTS)) == scorer.detect_many(TEXTS)


BAD: list[Any] = [None, float("nan"), b"bytes", 5.5, [5, 9000], [-1], [1, "a"], np.array([5.5]), ["a", "b"], {}]


@each_scorer
@pytest.mark.parametrize("place", [0, 2, len(TEXTS)])
def test_a_bad_text_is_an_error_in_its_place_and_leaves_the_others(scorer: Scorer, place: int) -> None:
    good = scorer.detect_many(TEXTS)
    for bad in BAD:
        texts = [*TEXTS[:place], bad, *TEXTS[place:]]
        with unchecked():
            found = scorer.detect_many(texts, errors="return")
            error = found.pop(place)
            assert isinstance(error, DgmarkError), bad
            assert found == good
            with pytest.raises(type(error), match=re.escape(str(error))):
                scorer.detect_many(texts)


class _Refusing(Tokenizer):
    """A tokenizer that gives no ids for some texts."""

    def encode_batch(self, texts: list[str]) -> list[list[int]]:
        if any("sea" in text for text in texts):
            raise InputError("no token stands for this")
        return super().encode_batch(texts)


def test_a_text_that_the_tokenizer_refuses_is_an_error_in_its_place() -> None:
    own = builtin_tokenizer()
    tokenizer = _Refusing(**{name: getattr(own, name) for name in Tokenizer.__dataclass_fields__})
    scorer = Detector(RIGHT, tokenizer=tokenizer)
    first, error, last = scorer.detect_many(["The king.", "The sea.", "The brook."], errors="return")
    assert [first, last] == SCORERS["key"].detect_many(["The king.", "The brook."])
    assert isinstance(error, InputError)
    with pytest.raises(InputError, match="no token stands for this"):
        scorer.detect_many(["The king.", "The sea."])


@each_scorer
def test_all_scorers_read_alike(scorer: Scorer) -> None:
    with pytest.raises(VocabularyMismatch, match="token id 9000"):
        scorer.detect([5, 9000])
    several: Any = ["a", "b"]
    with unchecked(), pytest.raises(SettingsError, match="detect_many"):
        scorer.detect(several)
    with pytest.raises(SettingsError, match="one text"):
        scorer.detect_many("a")


# --- keyrings ------------------------------------------------------------------------------------


def ring(keys: list[WatermarkKey] = KEYS, fpr: float = 1e-4) -> Keyring:
    return Keyring(keys, tokenizer=builtin_tokenizer(), fpr=fpr)


@pytest.mark.parametrize("missing", [0, 7])
def test_the_right_key_of_many_is_named(missing: int) -> None:
    ids = marked_ids(RIGHT, 260)[missing:]
    found = ring().detect(ids)
    assert (found.verdict, found.key_fingerprint, found.keys_tested) == ("watermarked", RIGHT.fingerprint, 20)
    assert RIGHT.fingerprint in found.summary
    own = Detector(RIGHT, tokenizer=builtin_tokenizer(), fpr=1e-4 / 20).detect(ids)
    assert (found.p_value, found.fpr) == (20 * own.p_value, 1e-4)


def test_rounding_does_not_decide_which_key_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal p-values are changed by up to a share of 1e-12, as another processor might."""
    exact, dice = Detector.p_value, np.random.default_rng(0)
    monkeypatch.setattr(Detector, "p_value", lambda *args: exact(*args) * (1 + dice.uniform(-1e-12, 1e-12)))
    named = [replace(RIGHT, name=name) for name in ("first", "second", "third")]
    assert {ring(named).detect(marked_ids(RIGHT, 100)).key_name for _ in range(10)} == {"first"}


def test_no_keys_are_refused() -> None:
    with pytest.raises(SettingsError, match="no key"):
        ring([])
    with pytest.raises(SettingsError, match="is not between 0 and 1"):
        ring(fpr=1e-300)  # which 20 keys cannot share


def test_keys_of_several_models_are_tried_each_with_its_tokenizer() -> None:
    other = bound_key("other", "narrator")
    right = known_key("right", rule="bigram")
    keys, text = [other, right], marked_text(right, 100)
    found, unmarked, too_large = Keyring(keys).detect_many([text, "w1 w2 w3", [8_000]], errors="return")
    assert isinstance(found, Detection)
    assert isinstance(unmarked, Detection)
    assert (found.verdict, found.key_fingerprint, found.keys_tested) == ("watermarked", right.fingerprint, 2)
    assert found.p_value == 2 * Detector(right, fpr=1e-4 / 2).detect(text).p_value
    assert isinstance(too_large, Detection)  # an id of one of the models
    with pytest.raises(VocabularyMismatch):
        Keyring(keys).detect([10**6])


def test_a_folder_of_keys_is_read_in_order(tmp_path: Path) -> None:
    for name, key in zip("cab", KEYS, strict=False):
        key.save(tmp_path / f"{name}.json")
    assert [key.key_id for key in load_keys(tmp_path)] == [KEYS[1].key_id, KEYS[2].key_id, KEYS[0].key_id]
    with pytest.raises(KeyFileNotFound, match="is not a folder"):
        load_keys(tmp_path / "none")


@pytest.mark.parametrize(
    "wrong", ["folder", Path("folder"), RIGHT, ["key.json"], [RIGHT, "key.json"], [None]], ids=repr
)
def test_a_keyring_of_something_other_than_a_list_of_keys_is_refused(wrong: Any) -> None:
    advice = r"WatermarkKey\.load\('key\.json'\)"
    with (
        unchecked(),
        pytest.raises(SettingsError, match=advice if isinstance(wrong, list) else rf"load_keys.*{advice}"),
    ):
        Keyring(wrong)
