"""A service whose checks are weighed by a language model."""

from pathlib import Path
from typing import Any, cast

import pytest

from dgmark import LanguageModel
from dgmark.detection.statistics.rules import seconds_to_check
from dgmark.errors import SettingsError
from dgmark_service.app import create_app
from dgmark_service.detection_worker import Checker, Options
from dgmark_service.error_answers import ErrorAnswer
from dgmark_service.schemas import DetectRequest
from dgmark_service.settings import ServiceSettings
from support.known_keys import known_key
from support.marked_texts import marked_text
from support.services import service


def test_answers_of_the_service_name_the_model(tmp_path: Path) -> None:
    key = known_key("one", rule="bigram")
    with service(tmp_path, "one", surprisal_model="builtin") as client:
        answer = client.post("/v1/detect", json={"text": marked_text(key, 200), "spans": True})
        assert answer.status_code == 200
        found = answer.json()
        report = client.post("/v1/report", json={"text": marked_text(key, 200), "format": "json"}).json()
        about, app = client.get("/v1/about").json(), cast(Any, client.app)
        rate = app.state.service.workers.shared.chars_per_second
        without = client.post("/v1/detect", json={"text": marked_text(key, 200)}).json()
    assert (found["verdict"], found["test"]) == ("watermarked", "weighted")
    assert found["figures"]["weights"]["fingerprint"] == LanguageModel().fingerprint
    assert any("as the language model builtin sees the text" in one for one in found["meaning"])
    assert found["shades"]
    for one in found["shades"]:
        assert one["level"] in (1, 2, 3)
        assert any(span["start"] <= one["start"] < one["end"] <= span["end"] for span in found["spans"])
    assert "shades" not in without
    assert report["method"]["language_model_fingerprint"] == LanguageModel().fingerprint
    assert rate > 0
    for chars, keys in ((about["max_chars"], ()), (about["keys"][0]["max_chars"], (key,))):
        # the test of the text takes time, too
        seconds = [seconds_to_check(number, keys) + number / rate for number in (chars, chars + 1)]
        assert seconds[0] < 60 + 1e-6
        assert chars == 1_000_000 or seconds[1] > 60 - 1e-6


def test_a_text_that_the_model_would_not_read_in_time_is_refused_before_it_begins() -> None:
    key = known_key("one", rule="bigram")
    checker = Checker(ServiceSettings(Path("keys"), surprisal_model="builtin"), {"one": key}, {})
    assert checker.most_chars(key) == 10**6
    checker.chars_per_second = 1000.0
    most = checker.most_chars(key)
    assert 59_000 < most <= 60_000
    options = Options(("one",), False, 1e-4, 1e-4)
    with pytest.raises(ErrorAnswer, match=f"reading along for this text .* parts of up to {most:,} characters"):
        checker.detect(DetectRequest(text="a word " * 10_000), None, options)


def test_a_key_without_weights_is_refused_at_the_start(tmp_path: Path) -> None:
    known_key("groups").save(tmp_path / "groups.json")
    with pytest.raises(SettingsError, match="has no weighted test"):
        create_app(ServiceSettings(tmp_path, surprisal_model="builtin"))
