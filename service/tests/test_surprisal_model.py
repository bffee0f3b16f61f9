"""A service whose checks are weighed by a language model."""

from pathlib import Path

import pytest

from dgmark import LanguageModel
from dgmark.errors import SettingsError
from dgmark_service.app import create_app
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
        without = client.post("/v1/detect", json={"text": marked_text(key, 200)}).json()
    assert (found["verdict"], found["test"]) == ("watermarked", "weighted")
    assert found["weights"]["fingerprint"] == LanguageModel().fingerprint
    assert any("as the language model builtin sees the text" in one for one in found["meaning"])
    assert found["shades"]
    for one in found["shades"]:
        assert one["level"] in (1, 2, 3)
        assert any(span["start"] <= one["start"] < one["end"] <= span["end"] for span in found["spans"])
    assert "shades" not in without
    assert report["method"]["language_model_fingerprint"] == LanguageModel().fingerprint


def test_a_key_without_weights_is_refused_at_the_start(tmp_path: Path) -> None:
    known_key("groups").save(tmp_path / "groups.json")
    with pytest.raises(SettingsError, match="has no weighted test"):
        create_app(ServiceSettings(tmp_path, surprisal_model="builtin"))
