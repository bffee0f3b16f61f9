"""`convert`: the same logits from one file with native names; never a partial folder, never overwriting one."""

import json
import os
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from dgmark import convert_checkpoint, load_model
from dgmark.errors import CheckpointFormat, SettingsError
from dgmark.models.load import NetworkDenoiser
from support import tiny_checkpoints as tiny

IDS = torch.arange(4, 60)[None]


@pytest.mark.parametrize("family", list(tiny.STATES))
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_converted_checkpoint_is_the_same_model(tmp_path: Path, family: str, dtype: torch.dtype) -> None:
    state = {name: tensor.to(dtype) for name, tensor in tiny.STATES[family](tiny.CONFIGS[family]).items()}
    source, target = tmp_path / "source", tmp_path / "made" / "target"
    tiny.write(source, family, state)
    tiny.write_shards(source, state)
    stated = tiny.STATED.get(family)
    convert_checkpoint(source, target, family=stated)
    before = load_model(str(source), dtype="fp32", device="cpu", family=stated)
    after = load_model(str(target), dtype="fp32", device="cpu")
    assert torch.equal(before(IDS), after(IDS))
    assert after.family is before.family
    assert after.tokenizer.fingerprint == before.tokenizer.fingerprint
    written = load_file(target / "model.safetensors")
    assert {name: t.dtype for name, t in written.items() if "e_score" not in name} == dict.fromkeys(
        [name for name in written if "e_score" not in name], dtype
    )
    assert isinstance(after, NetworkDenoiser)
    assert set(written) <= set(after.network.state_dict())
    assert json.loads((target / "config.json").read_text())["dgmark_family"] == before.family.name
    assert sorted(path.name for path in target.iterdir()) == ["config.json", "model.safetensors", "tokenizer.json"]
    assert [path.name for path in target.parent.iterdir()] == ["target"]


def test_the_built_in_model_keeps_its_tie(tmp_path: Path) -> None:
    convert_checkpoint("storyteller", tmp_path / "copy")
    with safe_open(tmp_path / "copy" / "model.safetensors", framework="pt") as file:
        assert "lm_head.weight" not in file.keys()  # noqa: SIM118
    before, after = load_model(device="cpu"), load_model(str(tmp_path / "copy"), device="cpu")
    assert torch.equal(before(IDS), after(IDS))


def test_a_converted_checkpoint_converts_again(tmp_path: Path) -> None:
    tiny.write(tmp_path / "source", "llada2")
    convert_checkpoint(tmp_path / "source", tmp_path / "once")
    convert_checkpoint(tmp_path / "once", tmp_path / "twice")
    once, twice = (load_file(tmp_path / name / "model.safetensors") for name in ("once", "twice"))
    assert set(once) == set(twice)
    assert all(torch.equal(once[name], twice[name]) for name in once)


def test_a_folder_that_is_there_is_left_alone(tmp_path: Path) -> None:
    tiny.write(tmp_path / "source", "dream")
    (tmp_path / "target").mkdir()
    with pytest.raises(SettingsError, match="is there already"):
        convert_checkpoint(tmp_path / "source", tmp_path / "target")
    assert list((tmp_path / "target").iterdir()) == []


def test_a_failure_is_named_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny.write(tmp_path / "source", "dream")
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsError, match="cannot be written"):
        convert_checkpoint(tmp_path / "source", tmp_path / "file" / "target")

    def full(*_: object, **__: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr("dgmark.models.convert.save_file", full)
    with pytest.raises(SettingsError, match="cannot be written: no space left"):
        convert_checkpoint(tmp_path / "source", tmp_path / "target")
    assert {path.name for path in tmp_path.iterdir()} == {"source", "file"}


def test_of_several_number_formats_the_widest_is_kept(tmp_path: Path) -> None:
    """The first shard alone would give bf16, which would round the rest."""
    state = tiny.STATES["llada"](tiny.CONFIGS["llada"])
    first = sorted(state)[::2]
    state |= {name: state[name].bfloat16() for name in first}
    tiny.write(tmp_path / "source", "llada", state)
    tiny.write_shards(tmp_path / "source", state)
    convert_checkpoint(tmp_path / "source", tmp_path / "target")
    before, after = (load_model(str(tmp_path / name), dtype="fp32", device="cpu") for name in ("source", "target"))
    assert torch.equal(before(IDS), after(IDS))


@pytest.mark.parametrize(("umask", "folder_mode", "file_mode"), [(0o027, 0o750, 0o640), (0o077, 0o700, 0o600)])
def test_who_may_read_it_is_as_the_umask_says(tmp_path: Path, umask: int, folder_mode: int, file_mode: int) -> None:
    tiny.write(tmp_path / "source", "dream")
    before = os.umask(umask)
    try:
        convert_checkpoint(tmp_path / "source", tmp_path / "target")
    finally:
        os.umask(before)
    assert (tmp_path / "target").stat().st_mode & 0o777 == folder_mode
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "target").iterdir()} == {file_mode}


def test_what_cannot_be_converted_is_refused(tmp_path: Path) -> None:
    state = tiny.write(tmp_path / "integers", "dream")
    save_file({name: t.to(torch.int8) for name, t in state.items()}, tmp_path / "integers" / "model.safetensors")
    with pytest.raises(CheckpointFormat, match="holds I8"):
        convert_checkpoint(tmp_path / "integers", tmp_path / "target")
    assert not (tmp_path / "target").exists()
