"""llama.cpp computes what the networks of transformers do, and all of decoding works on its logits."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from gguf import GGMLQuantizationType
from torch import Tensor

import dgmark
from dgmark.errors import CheckpointFormat, MissingExtra, ModelError, PromptTooLong, SettingsError, TokenizerMismatch
from dgmark.models import gguf
from dgmark.models.denoiser import traits_of
from dgmark.models.gguf import GgufDenoiser, LlamaCpp
from dgmark.models.load import load_model
from support import tiny_gguf
from support.cases import cases
from support.command_line import run
from support.known_keys import bound_key

FILE = tiny_gguf.GOLDEN / "llada.gguf"  # made by tiny_gguf.diffusion(folder, "llada", n_layers=2)
CLOSE = 1e-3

with_llama = pytest.mark.skipif("not __import__('importlib.util').util.find_spec('llama_cpp')")


@pytest.fixture(scope="module")
def model() -> GgufDenoiser:
    pytest.importorskip("llama_cpp")
    loaded = load_model(str(FILE))
    assert isinstance(loaded, GgufDenoiser)
    return loaded


def random_ids(batch: int, length: int, seed: int = 0) -> Tensor:
    return torch.randint(6, 260, (batch, length), generator=torch.Generator().manual_seed(seed))


# --- logits


@with_llama
@pytest.mark.parametrize("family", ["llada", "dream", "llada-moe", "rnd1"])
def test_forwards_are_those_of_transformers(tmp_path: Path, family: str) -> None:
    other, file = tiny_gguf.diffusion(tmp_path / "model", family)
    model = load_model(str(file))
    for fact in ("mask_id", "end_ids", "vocab_size", "context_length", "defaults", "family"):
        assert getattr(model, fact) == getattr(other, fact)
    assert model.tokenizer.fingerprint == other.tokenizer.fingerprint
    assert traits_of(model).number_format == "f32"
    ids, padding = random_ids(3, 50), torch.tensor([0, 7, 3])
    assert (model(ids) - other(ids)).abs().max() < CLOSE
    sessions = [one.session("none", padding) for one in (model, other)]
    got, expected = (session.begin(ids, 20, 30) for session in sessions)
    assert expected.std() > 2
    assert (got - expected).abs().max() < CLOSE
    for session in sessions:
        session.keep(torch.tensor([1, 2]))
    got, expected = (session.begin(ids[1:], 30, 40) for session in sessions)
    assert (got - expected).abs().max() < CLOSE
    owner = torch.tensor([0, 0, 1])
    canvases = random_ids(3, 50, seed=1)
    got, expected = (session.step(canvases, owner, 30, 40) for session in sessions)
    assert (got - expected).abs().max() < CLOSE


@with_llama
def test_weights_may_be_quantized(tmp_path: Path) -> None:
    other, file = tiny_gguf.diffusion(tmp_path / "model", "llada", GGMLQuantizationType.Q8_0, mlp_hidden_size=64)
    ids = random_ids(2, 50)
    error = (load_model(str(file))(ids) - other(ids)).abs()
    assert 1e-3 < error.mean() < 0.2


@pytest.mark.parametrize("n_batch", [1, 40, 90, 4000])
def test_the_canvases_of_a_forward_do_not_matter(model: GgufDenoiser, n_batch: int) -> None:
    ids = random_ids(70, 40)
    assert (load_model(str(FILE), n_batch=n_batch, n_threads=1)(ids) - model(ids)).abs().max() < 1e-3
    assert (model(ids)[5] - model(ids[5:6])[0]).abs().max() < 1e-3


# --- texts


@with_llama
@pytest.mark.parametrize(("settings", "family"), cases(__file__, "texts"))
def test_texts_are_those_of_transformers(tmp_path: Path, settings: dict[str, Any], family: str) -> None:
    other, file = tiny_gguf.diffusion(tmp_path / "model", family)
    model = load_model(str(file), n_batch=100)
    key = bound_key("test", model, rule=settings.pop("rule", "bigram"))
    batch = {"batch_size": settings.pop("rows", 1), "pad": True}
    prompts = ["the", "the cat and a"]
    texts = [dgmark.generate(one, prompts, key=key, length=64, seed=1, **batch, **settings) for one in (model, other)]
    assert [one.token_ids for one in texts[0]] == [one.token_ids for one in texts[1]]
    assert all(one.token_ids for one in texts[0])
    assert {one.dtype for one in texts[0]} == {"f32"}


def test_the_commands_run(model: GgufDenoiser, tmp_path: Path) -> None:
    options = ["--n-threads", "1", "--n-batch", "80", "--n-gpu-layers", "0"]
    key, out = tmp_path / "key.json", tmp_path / "out.jsonl"
    bound_key("test", model).save(key)
    for command in (
        ["generate", "--model", FILE, "--key", key, "--prompt", "the", "--length", "64", "--out", out, *options],
        ["detect", "--key", key, out],
    ):
        done = run(*command)
        assert done.exit_code in (0, 1), done.output
    (row,) = map(json.loads, out.read_text().splitlines())
    assert row["dtype"] == "f32"
    assert 0 < len(row["token_ids"]) <= 64  # under some sub-keys it ends early


# --- refusals


def test_damaged_weights_are_refused(model: GgufDenoiser, tmp_path: Path) -> None:
    (tmp_path / "part.gguf").write_bytes(FILE.read_bytes()[:-1000])
    with pytest.raises(CheckpointFormat, match=r"fetch (it|the file) again"):
        load_model(str(tmp_path / "part.gguf"))
    (tmp_path / "other.gguf").write_bytes(FILE.read_bytes().replace(b"output_norm.weight", b"output_form.weight"))
    with pytest.raises(CheckpointFormat, match=r"cannot load .*output_norm"):
        load_model(str(tmp_path / "other.gguf"))


def test_a_build_without_the_architecture_is_named(model: GgufDenoiser, tmp_path: Path) -> None:
    (tmp_path / "new.gguf").write_bytes(FILE.read_bytes().replace(b"llada", b"lladx"))
    with pytest.raises(
        MissingExtra, match=r"llama-cpp-python \S+ does not know the architecture .*'lladx'.* newer one"
    ):
        LlamaCpp(tmp_path / "new.gguf")


def test_the_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    gguf._library.cache_clear()
    monkeypatch.setitem(sys.modules, "llama_cpp", None)
    with pytest.raises(MissingExtra, match=r"llama-cpp-python: run `pip install '\.\[gguf\]'`"):
        load_model(str(FILE))


def test_a_tokenizer_of_another_model_is_refused(model: GgufDenoiser, tmp_path: Path) -> None:
    with pytest.raises(CheckpointFormat, match=r"is not that of .*: id 0 is .* there and '<\|mdm_mask\|>' here"):
        load_model(str(FILE), tokenizer="storyteller")
    tiny_gguf.diffusion(tmp_path, "llada", n_layers=2)
    given = load_model(str(FILE), tokenizer=str(tmp_path))
    assert given.tokenizer.fingerprint == model.tokenizer.fingerprint


@pytest.mark.parametrize("method", ["tokens", "text"])
def test_a_tokenizer_that_llama_cpp_contradicts_is_refused(
    model: GgufDenoiser, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    right = getattr(LlamaCpp, method)
    monkeypatch.setattr(LlamaCpp, method, lambda self, given: right(self, given)[:-1])
    with pytest.raises(CheckpointFormat, match=r"llama\.cpp reads .* otherwise .*--tokenizer"):
        load_model(str(FILE))


def test_a_key_of_another_vocabulary_is_refused_before_a_text(model: GgufDenoiser, storyteller: Any) -> None:
    with pytest.raises(TokenizerMismatch, match="--tokenizer"):
        dgmark.generate(model, "the", key=bound_key("test", storyteller))


def test_a_context_too_small_is_refused_before_a_text(model: GgufDenoiser) -> None:
    with pytest.raises(PromptTooLong, match="512"):
        dgmark.generate(model, "the cat " * 100, key=None, length=384)


def test_caches_are_refused(model: GgufDenoiser) -> None:
    with pytest.raises(SettingsError, match="use cache none"):
        dgmark.generate(model, "the", key=None, cache="prefix")


def test_a_failed_forward_is_named(model: GgufDenoiser) -> None:
    with pytest.raises(ModelError, match=r"could not compute 8 positions of .*invalid token"):
        model(torch.full((1, 8), 5000))
