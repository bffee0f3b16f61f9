"""Hub ids: the local cache, what is fetched, and the error if that fails. No test touches the network."""

from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import torch
from huggingface_hub import constants

from dgmark import WatermarkKey, load_model, load_tokenizer
from dgmark.checkpoint.folder import find_checkpoint, is_hub_id, snapshot
from dgmark.errors import CheckpointFormat, ModelNotFound
from support import tiny_checkpoints as tiny
from support.cases import cases

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and no network."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    return tmp_path


def put(cache: Path, hub_id: str, family: str) -> Path:
    """A checkpoint in the cache's layout."""
    repo = cache / ("models--" + hub_id.replace("/", "--"))
    (repo / "refs").mkdir(parents=True)
    (repo / "refs" / "main").write_text(COMMIT)
    (repo / "snapshots").mkdir()
    tiny.write(repo / "snapshots" / COMMIT, family)
    return repo / "snapshots" / COMMIT


@pytest.mark.parametrize(("name", "expected"), cases(__file__, "names"))
def test_a_hub_id_is_two_names(name: str, expected: bool) -> None:
    assert is_hub_id(name) == expected


def test_a_checkpoint_in_the_cache_is_loaded_by_its_id(cache: Path) -> None:
    folder = put(cache, "dream-lab/tiny", "dream")
    model = load_model("dream-lab/tiny", dtype="fp32", device="cpu")
    ids = torch.arange(4, 30)[None]
    assert model.name == "dream-lab/tiny"
    assert torch.equal(model(ids), load_model(str(folder), dtype="fp32", device="cpu")(ids))
    (folder / "model.safetensors").unlink()  # a key and a tokenizer need no weights
    assert WatermarkKey.generate("dream-lab/tiny").spec.table_size == 80
    assert load_tokenizer("dream-lab/tiny").name == "dream-lab/tiny"


def test_a_folder_of_that_name_comes_first(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(cache, "lab/model", "dream")
    (tmp_path / "work" / "lab").mkdir(parents=True)
    tiny.write(tmp_path / "work" / "lab" / "model", "llada")
    monkeypatch.chdir(tmp_path / "work")
    assert find_checkpoint("lab/model").config["model_type"] == "llada"


def test_a_missing_checkpoint_says_how_to_fetch_it(cache: Path) -> None:
    with pytest.raises(ModelNotFound, match=r"cannot be fetched .*hf download lab/absent --include '\*\.json'"):
        load_model("lab/absent")
    with pytest.raises(ModelNotFound, match="hf download lab/absent --revision v1 "):
        load_model("lab/absent", revision="v1")


def test_a_connection_that_breaks_is_reported_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    class BrokenConnection(Exception):  # like httpx's errors, which are not OSErrors
        pass

    def breaks(*_: object, **__: object) -> str:
        raise BrokenConnection("peer closed connection")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", breaks)
    with pytest.raises(ModelNotFound, match=r"lab/absent is not a local folder; .*\(peer closed connection\)"):
        load_model("lab/absent")


def test_weights_are_fetched_only_of_what_can_be_loaded(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = put(cache, "lab/gpt", "dream")
    (folder / "config.json").write_text('{"model_type": "gpt2", "vocab_size": 80}')
    asked: list[Any] = []

    def download(hub_id: str, **options: Any) -> str:
        asked.append((options["allow_patterns"], options["ignore_patterns"]))
        return str(folder)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    with pytest.raises(CheckpointFormat, match="'gpt2'"):
        load_model("lab/gpt")
    assert asked == [(["*.json", "merges.txt"], ["*/*"])]
    snapshot("lab/gpt", weights=True)
    assert asked[1] == (["*.json", "merges.txt", "*.safetensors"], ["*/*"])  # never code and pickles
