"""The examples as they stand in `examples/`, on the built-in model and on a toy."""

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from starlette.testclient import TestClient

import dgmark
from dgmark.models.load import NetworkDenoiser
from dgmark.models.toy import ToyDenoiser
from dgmark.watermark import rules
from support.installed import install
from support.known_keys import bound_key, known_key
from support.marked_texts import marked_text
from support.unchecked import unchecked

EXAMPLES = Path(__file__).parents[2] / "examples"
KEY = known_key("examples", rule="bigram")
MARKED, HUMAN = marked_text(KEY, 300), "The king went to the sea and saw nothing but water. " * 30


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """A folder with key.json, in which examples can be imported."""
    monkeypatch.syspath_prepend(EXAMPLES)
    monkeypatch.chdir(tmp_path)
    KEY.save(tmp_path / "key.json")
    yield tmp_path
    for path in EXAMPLES.glob("*.py"):
        sys.modules.pop(path.stem, None)


def test_a_folder_is_checked(example: Path) -> None:
    (folder := example / "documents").mkdir()
    (folder / "marked.txt").write_text(MARKED)
    (folder / "plain.txt").write_text(HUMAN)
    (folder / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(64))
    found = import_module("check_folder").check("key.json", str(folder))
    assert found["marked.txt"] == "watermarked"
    assert found["plain.txt"] in ("not_detected", "uncertain")
    assert found["picture.png"].startswith("not tested: ")


def test_a_parquet_file_is_checked(example: Path) -> None:
    pq.write_table(pa.table({"id": [1, 2, 3], "text": [MARKED, None, MARKED]}), "in.parquet")
    counts = import_module("check_parquet").check("key.json", "in.parquet", "out.parquet", rows=2)
    assert counts == {"watermarked": 2, "None": 1}
    assert pq.read_table("out.parquet").column("id").to_pylist() == [1, 2, 3]


def test_a_text_is_streamed(example: Path, storyteller: NetworkDenoiser, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dgmark, "load_model", lambda _: storyteller)
    answer = TestClient(import_module("stream_with_fastapi").app).get("/write?prompt=Once upon a time&length=96")
    assert answer.status_code == 200
    assert dgmark.detect(answer.text, KEY).p_value < 1e-4


def test_a_loop_of_ones_own_leaves_a_mark(example: Path, storyteller: NetworkDenoiser) -> None:
    text = import_module("own_loop").write(storyteller, KEY, "Once upon a time", length=96)
    assert dgmark.detect(text, KEY).p_value < 1e-4


def test_a_rule_marks_and_is_found(example: Path) -> None:
    install(example, "green", rules.GROUP, "green = green_rule:GREEN\n")
    toy = ToyDenoiser(words=300, spread=6.0, end_bias=-60.0, end_ids=())
    sys.path.insert(0, str(example))
    caches: list[Any] = [rules._added, rules._loaded]
    try:
        for cache in caches:
            cache.cache_clear()
        with unchecked():
            key = bound_key("examples", toy, rule="green")
            (text,) = dgmark.generate(toy, ["w1 w2"], key=key, length=96, block_length=32)
            detector = dgmark.Detector(key, tokenizer=toy.tokenizer)
            assert detector.detect(text.token_ids).verdict == "watermarked"
    finally:
        sys.path.remove(str(example))
        for cache in caches:
            cache.cache_clear()
