"""The networks of mlx-vlm compute what those of transformers do, through every kind of forward."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import dgmark
from dgmark.errors import CheckpointFormat, DgmarkError, MissingExtra, SettingsError
from dgmark.models.denoiser import traits_of
from dgmark.models.load import load_model
from dgmark.models.loaded import LoadedModel
from support import tiny_checkpoints as tiny
from support.known_keys import bound_key

CLOSE = 1e-4
BLOCKS = {"llada2": [(40, 64), (64, 96), (96, 100)], "nemotron": [(10, 26), (26, 42), (50, 70)]}
of_each_family = pytest.mark.parametrize("family", BLOCKS)


def both(folder: Path, family: str) -> tuple[LoadedModel, LoadedModel]:
    pytest.importorskip("mlx_vlm")
    tiny.write(folder, family)
    return load_model(str(folder), device="mlx"), load_model(str(folder), device="cpu", dtype="fp32")


def random_ids(batch: int, length: int, seed: int = 0) -> Tensor:
    return torch.randint(5, 64, (batch, length), generator=torch.Generator().manual_seed(seed))


@of_each_family
@pytest.mark.parametrize("cache", ["none", "prefix"])
def test_forwards_are_those_of_transformers(tmp_path: Path, family: str, cache: Any) -> None:
    """Block after block, candidates of a lookahead, rows that leave."""
    model, other = both(tmp_path, family)
    ids, sessions = random_ids(3, 100), (model.session(cache), other.session(cache))
    assert (model(ids) - other(ids)).abs().max() < CLOSE
    for number, (start, stop) in enumerate(BLOCKS[family]):
        ids[:, start:stop] = model.mask_id
        got, expected = (session.begin(ids, start, stop) for session in sessions)
        assert expected.std() > 0.5
        assert (got - expected).abs().max() < CLOSE
        owner = torch.tensor([0, 1, 1, 1])
        canvases = ids[owner].clone()
        canvases[:, start:stop] = random_ids(4, stop - start, number)
        got, expected = (session.step(canvases, owner, start, stop) for session in sessions)
        assert (got - expected).abs().max() < CLOSE
        ids[:, start:stop] = random_ids(len(ids), stop - start, 9 + number)
        if number == 0:
            ids = ids[[0, 2]]
            for session in sessions:
                session.keep(torch.tensor([0, 2]))


@of_each_family
def test_texts_are_those_of_transformers(tmp_path: Path, family: str) -> None:
    models = both(tmp_path, family)
    key = bound_key("test", models[0], rule="position")
    options: dict[str, Any] = {"key": key, "length": 64, "seed": 3, "lookahead": 2}
    prompts = [random_ids(1, length, length)[0].tolist() for length in (9, 12)]
    texts = [[one.token_ids for one in dgmark.generate(model, prompts, **options)] for model in models]
    assert texts[0] == texts[1]
    assert any(texts[0])
    assert traits_of(models[0]).number_format == "float32"


@of_each_family
def test_weights_may_be_quantized_by_mlx(tmp_path: Path, family: str) -> None:
    model, _ = both(tmp_path, family)
    import mlx.core as mx
    import mlx.nn as nn
    from mlx.utils import tree_flatten

    network: Any = model.network  # type: ignore[attr-defined]
    sizes = {"group_size": 32, "bits": 8}
    nn.quantize(
        network, **sizes, class_predicate=lambda _, one: hasattr(one, "to_quantized") and one.weight.shape[-1] % 32 == 0
    )
    weights = {f"language_model.{name}": array for name, array in tree_flatten(network.parameters())}
    mx.save_safetensors(str(tmp_path / "model.safetensors"), weights, metadata={"format": "mlx"})
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"quantization": sizes, "quantization_config": sizes}))
    quantized = load_model(str(tmp_path), device="mlx")
    assert torch.equal(quantized(random_ids(2, 40)), model(random_ids(2, 40)))  # whose network is now the quantized one
    with pytest.raises(CheckpointFormat, match="the weights are quantized"):
        load_model(str(tmp_path), device="cpu")


@pytest.mark.parametrize(
    ("family", "options", "error", "message"),
    [
        ("llada", {}, SettingsError, "MLX computes models of the families llada2 and nemotron, not llada"),
        ("llada2", {"dtype": "fp32"}, SettingsError, r"dtype \(--dtype\) is not an option of a model that MLX"),
    ],
)
def test_what_mlx_does_not_compute_is_refused(
    tmp_path: Path, family: str, options: dict[str, Any], error: type[DgmarkError], message: str
) -> None:
    tiny.write(tmp_path, family)
    with pytest.raises(error, match=message):
        load_model(str(tmp_path), device="mlx", **options)


def test_the_missing_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny.write(tmp_path, "llada2")
    monkeypatch.setitem(sys.modules, "mlx_vlm.models", None)
    with pytest.raises(MissingExtra, match=r"device mlx needs mlx and mlx-vlm: run `pip install '\.\[mlx\]'`"):
        load_model(str(tmp_path), device="mlx")


def test_weights_and_caches_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    model, _ = both(tmp_path / "whole", "llada2")
    with pytest.raises(SettingsError, match="use prefix, it is exact"):
        model.session("dual")
    with pytest.raises(SettingsError, match="prompts of one length"):
        model.session("none", torch.tensor([0, 3]))
    session = model.session("prefix")
    with pytest.raises(SettingsError, match="no single block of 32"):
        session.begin(random_ids(1, 80), 30, 40)
    session.begin(random_ids(1, 80), 64, 70)
    with pytest.raises(SettingsError, match="position 32 is before text that is finished up to 64"):
        session.begin(random_ids(1, 80), 32, 40)
    tiny.write(tmp_path / "other", "llada2", tiny.STATES["llada2"](tiny.CONFIGS["llada2"]), hidden_size=64)
    with pytest.raises(CheckpointFormat, match=r"config\.json may not fit the weights"):
        load_model(str(tmp_path / "other"), device="mlx")
