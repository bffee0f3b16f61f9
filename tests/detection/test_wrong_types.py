"""Arguments of the wrong type: dgmark's own error, which says what is wanted, and never a result."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dgmark.checkpoint.tokenizer import load_tokenizer
from dgmark.detection.detector import Detector
from dgmark.detection.keyring import Keyring, load_keys
from dgmark.errors import SettingsError
from dgmark.models.toy import ToyDenoiser
from dgmark.rows.detect_files import detect_file
from dgmark.watermark.key import WatermarkKey
from dgmark.watermark.position import tables_of
from support.known_keys import builtin_tokenizer, known_key, known_spec
from support.unchecked import unchecked

KEY = known_key("types")
TOY = ToyDenoiser()
ROTATING = known_key("types", rotation=16)
WRONG: list[Any] = [
    *(5.5, float("nan"), b"x", ["a", "b"], [1.5], [[1]], [None], {"a": 1}, object(), True, (1, 2, 3)),
    *(np.zeros((2, 2)), None, 10**30, -1),
]
SEVERAL: list[Any] = [["a", "b"], [[1]]]


def detector(**settings: Any) -> Detector:
    return Detector(KEY, **{"tokenizer": builtin_tokenizer(), **settings})


# what a call takes, and which of the values above are right for it
CALLS: dict[str, tuple[Callable[[Any], object], Callable[[Any], bool]]] = {
    "key": (Detector, lambda _: False),
    "fpr": (lambda value: detector(fpr=value), lambda _: False),
    "phase": (lambda value: detector(phase=value), lambda _: False),
    "max_crop": (lambda value: Detector(ROTATING, max_crop=value), lambda value: value == 10**30),
    "tokenizer": (lambda value: detector(tokenizer=value), lambda value: value is None),
    "normalise": (lambda value: detector(normalise=value), lambda _: False),
    "text": (lambda value: detector().detect(value), lambda value: value == (1, 2, 3)),
    "texts": (lambda value: detector().detect_many(value), lambda value: value in SEVERAL),
    "only": (lambda value: detector().detect("The king.", only=value), lambda value: value is None),
    "tokens": (lambda value: detector().tokens("The king.", value), lambda _: False),
    "keyring": (Keyring, lambda _: False),
    "keyring's fpr": (lambda value: Keyring([KEY], fpr=value), lambda _: False),
    "folder of keys": (load_keys, lambda _: False),
    "key file": (WatermarkKey.load, lambda _: False),
    "file of a key": (KEY.save, lambda _: False),
    "modulus": (lambda value: WatermarkKey.generate(TOY, modulus=value), lambda value: value is None),
    "rotation": (lambda value: WatermarkKey.generate(TOY, rotation=value), lambda value: value is None),
    "code length": (lambda value: WatermarkKey.generate(TOY, code_length=value), lambda value: value is None),
    "grouping": (lambda value: WatermarkKey.generate(TOY, grouping=value), lambda value: value is None),
    "rule": (lambda value: WatermarkKey.generate(TOY, rule=value), lambda value: value is None),
    "farthest": (lambda value: WatermarkKey.generate(TOY, farthest=value), lambda value: value is None),
    "model": (WatermarkKey.generate, lambda _: False),
    "secret": (lambda value: WatermarkKey(known_spec(), "id", value), lambda _: False),
    "spec": (lambda value: WatermarkKey(value, "id", KEY.secret), lambda _: False),
    "name of a tokenizer": (load_tokenizer, lambda _: False),
    "inputs": (lambda value: detect_file(KEY, value, "out.jsonl"), lambda value: value == ["a", "b"]),
    "out": (lambda value: detect_file(KEY, "in.txt", value), lambda _: False),
    "ranges": (lambda value: detect_file(KEY, "in.txt", "out.jsonl", only=value), lambda _: False),
    "scorer": (lambda value: detect_file(value, "in.txt", "out.jsonl"), lambda _: False),
}


@pytest.mark.parametrize("value", WRONG, ids=lambda value: repr(value)[:20])
@pytest.mark.parametrize("call", CALLS)
def test_a_wrong_type_is_an_error_of_the_settings(
    call: str, value: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.txt").write_text("The king.")
    made, right = CALLS[call]
    if not isinstance(value, np.ndarray) and right(value):
        made(value)
        return
    with unchecked(), pytest.raises(SettingsError):
        made(value)
    assert [path.name for path in tmp_path.iterdir()] == ["in.txt"]


def test_numbers_of_numpy_are_numbers() -> None:
    with unchecked():
        numbers: Any = {"max_crop": np.int64(5), "fpr": np.float64(0.01)}
        assert Detector(ROTATING, **numbers).detect("The king went.").verdict == "uncertain"
        assert tables_of(WatermarkKey.generate(modulus=np.int32(3))).spec.modulus == 3
