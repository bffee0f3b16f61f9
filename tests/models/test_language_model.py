"""Surprisals of the built-in language model against one forward a token, windows, and what is refused."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import dgmark
from dgmark import Detector, LanguageModel
from dgmark.checkpoint.folder import builtin_folder
from dgmark.errors import CheckpointFormat, SettingsError
from dgmark.models.surprisal_models import load_surprisal_model
from support.known_keys import builtin_tokenizer, known_key, weight_figures
from support.marked_texts import marked_text

TEXT = "Once upon a time there was a miller who had three sons, and the youngest was called Hans — naïve Hans."


@pytest.fixture(scope="module")
def model() -> LanguageModel:
    return LanguageModel(device="cpu", dtype="fp32")


def test_surprisal_is_that_of_each_token_behind_an_end_token(model: LanguageModel) -> None:
    ((offsets, nats),) = model.surprisals([TEXT])
    encoded = builtin_tokenizer().encode_with_offsets(TEXT)
    assert offsets.tolist() == [list(pair) for pair in encoded.offsets]
    ids = [builtin_tokenizer().end_ids[0], *encoded.ids]
    for place in (0, 1, 7, len(encoded.ids) - 1):
        logits = model.logits(torch.tensor([ids[: place + 1]]))[0, -1].double()
        assert nats[place] == pytest.approx(float(logits.logsumexp(0) - logits[encoded.ids[place]]), abs=1e-4)


def test_texts_of_any_length_have_a_surprisal_for_each_token(model: LanguageModel) -> None:
    texts = ["", "a", TEXT, TEXT * 40]
    for text, (offsets, nats) in zip(texts, model.surprisals(texts), strict=True):
        assert len(nats) == len(offsets) == len(builtin_tokenizer().encode(text))
        assert np.all(np.isfinite(nats) & (nats >= 0))
    alone = model.surprisals([TEXT])[0][1]
    np.testing.assert_allclose(model.surprisals(texts)[2][1], alone, atol=1e-4)


def test_the_fingerprint_follows_weights_and_tokenizer(model: LanguageModel, tmp_path: Path) -> None:
    folder = tmp_path / "judge"
    shutil.copytree(builtin_folder("judge"), folder)
    shutil.copy(builtin_folder("storyteller") / "tokenizer.json", folder)
    same = LanguageModel(folder, device="cpu", dtype="fp32")
    assert same.fingerprint == model.fingerprint
    content = bytearray((folder / "model.safetensors").read_bytes())
    content[-1] ^= 1
    (folder / "model.safetensors").write_bytes(bytes(content))
    assert LanguageModel(folder, device="cpu", dtype="fp32").fingerprint != model.fingerprint


def test_the_fingerprint_follows_what_a_text_is_read_behind_and_the_context(model: LanguageModel) -> None:
    short = LanguageModel(device="cpu", dtype="fp32", context=64)
    opened = LanguageModel(device="cpu", dtype="fp32")
    opened.opening = (1,)
    bare = LanguageModel(device="cpu", dtype="fp32")
    bare.tokenizer = replace(bare.tokenizer, end_ids=())
    assert len({one.fingerprint for one in (model, short, opened, bare)}) == 4


def test_a_text_is_weighed_by_a_model(model: LanguageModel) -> None:
    key = known_key("language model", rule="bigram")
    found = Detector(key, surprisal_model=model).detect(marked_text(key, 90))
    expected = ("weighted", "builtin", model.fingerprint)
    assert (found.test, weight_figures(found).model, weight_figures(found).fingerprint) == expected


def test_a_model_is_named_wherever_keys_are_tested(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = list[str]()

    def load(name: str, *_: object, **__: object) -> LanguageModel:
        loaded.append(name)
        return LanguageModel(device="cpu")

    monkeypatch.setattr("dgmark.models.surprisal_models.load_surprisal_model", load)
    keys = [known_key(name, rule="bigram") for name in ("one", "two")]
    text = marked_text(keys[0], 90)
    named: Any = {"surprisal_model": "builtin"}
    found = [
        dgmark.detect(text, keys[0], **named),
        dgmark.Keyring(keys, **named).detect(text),
        *dgmark.RowKeys({"a": keys[0], "b": keys[1]}, **named).detect_many([text], ["a"]),
    ]
    assert [isinstance(one, dgmark.Detection) and one.test for one in found] == ["weighted"] * 3
    assert loaded == ["builtin"] * 3  # once for all keys
    with pytest.raises(SettingsError, match="position, has no weighted test"):
        dgmark.detect(text, known_key("order"), **named)
    assert len(loaded) == 3


def test_the_built_in_model_of_a_key_has_its_tokenizer() -> None:
    found = load_surprisal_model("builtin", builtin_tokenizer().fingerprint)
    assert found.name == "builtin"
    with pytest.raises(SettingsError, match="has a name"):
        load_surprisal_model(" ", "0" * 16)


def test_a_tokenizer_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    from tokenizers import Tokenizer, models

    shutil.copytree(builtin_folder("judge"), tmp_path / "judge")
    other = Tokenizer(models.WordLevel({f"w{n}": n for n in range(9000)}, unk_token="w0"))
    other.save(str(tmp_path / "judge/tokenizer.json"))
    with pytest.raises(CheckpointFormat, match="more ids than the model"):
        LanguageModel(tmp_path / "judge")
