"""Every family: the published layout, loaded, against a second forward from its description; caches, padding, ids."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch
from safetensors.torch import save_file
from tokenizers.models import WordLevel

from dgmark import generate
from dgmark.checkpoint.families import DREAM, FAMILIES, LLADA, LLADA2, family_of
from dgmark.checkpoint.folder import Checkpoint
from dgmark.checkpoint.tokenizer import Tokenizer, wrap
from dgmark.errors import CheckpointFormat, MissingExtra, ModelError, ModelNotFound, SettingsError
from dgmark.models.chat import chat_prompt
from dgmark.models.denoiser import CacheMode, open_session, traits_of
from dgmark.models.load import NetworkDenoiser, load_model
from dgmark.models.special_ids import find_end_ids, find_mask_id
from dgmark.models.toy import ToyDenoiser
from support import tiny_checkpoints as tiny
from support.cases import cases, data
from support.tiny_checkpoints import load, random_ids
from support.unchecked import unchecked

CLOSE = 1e-4


@pytest.fixture(scope="module")
def states() -> dict[str, tiny.State]:
    return {family: make(tiny.CONFIGS[family]) for family, make in tiny.STATES.items()}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory, states: dict[str, tiny.State]) -> dict[str, NetworkDenoiser]:
    folder = tmp_path_factory.mktemp("models")
    for family, state in states.items():
        tiny.write(folder / family, family, state)
    return {path.name: load(path, family=tiny.STATED.get(path.name)) for path in folder.iterdir()}


# ---- logits ----


@pytest.mark.parametrize("family", tiny.READINGS)
@pytest.mark.parametrize(("start", "stop"), [(0, 12), (1, 9), (20, 52), (28, 32), (39, 40), (0, 61)])
@pytest.mark.parametrize("cache", ["none", "prefix"])
def test_a_decoder_family_is_what_its_description_says(
    models: dict[str, NetworkDenoiser],
    states: dict[str, tiny.State],
    family: str,
    start: int,
    stop: int,
    cache: CacheMode,
) -> None:
    ids, block = random_ids(61), tiny.READINGS[family][1]
    if block and cache == "prefix":  # a decoded block is inside one of the mask's
        stop = min(stop, (start // block + 1) * block)
    expected = tiny.window_logits(family, states[family], tiny.CONFIGS[family], ids, start, stop)
    assert expected.std() > 0.5
    assert (models[family].session(cache).begin(ids, start, stop) - expected).abs().max() < CLOSE


def test_shards_are_the_same_model(models: dict[str, NetworkDenoiser], tmp_path: Path) -> None:
    tiny.write_shards(tmp_path, tiny.write(tmp_path, "llada2"), shards=3)
    assert torch.equal(load(tmp_path)(random_ids(40)), models["llada2"](random_ids(40)))


@pytest.mark.parametrize("family", ["dream", "llada2", "llada2.2"])
def test_bf16_keeps_in_float32_what_would_suffer(tmp_path: Path, family: str) -> None:
    tiny.write(tmp_path, family)
    network = load(tmp_path, "bf16").network
    kept = {name for name, p in network.named_parameters() if p.dtype != torch.bfloat16}
    assert kept == {f"model.layers.{n}.mlp.gate.weight" for n in (1, 2) if family.startswith("llada2")}
    buffers = dict(network.named_buffers())
    assert "model.rotary_emb.inv_freq" in buffers
    assert {b.dtype for b in buffers.values()} == {torch.float32}
    assert any("e_score_correction_bias" in name for name in buffers) == family.startswith("llada2")


# ---- traits ----


def test_each_family_states_its_traits_ids_and_context(models: dict[str, NetworkDenoiser]) -> None:
    stated: dict[str, list[Any]] = {}
    for name, model in models.items():
        traits, block = traits_of(model), traits_of(model).block_multiple
        stated[name] = [traits.confidence_source, traits.block_origin, traits.pads, model.mask_id]
        stated[name] += [[*model.end_ids[:2]], model.context_length, *([] if block is None else [block])]
    assert stated == data(__file__, "traits")


# ---- caches ----


@pytest.mark.parametrize(("family", "blocks"), cases(__file__, "finished_text"))
def test_a_cache_of_finished_text_is_exact(
    models: dict[str, NetworkDenoiser], family: str, blocks: list[list[int]]
) -> None:
    """Block after block, candidates of a lookahead, rows that leave: the cached forwards are those without a cache."""
    model = models[family]
    ids = random_ids(100, batch=3)
    cached, plain = model.session("prefix"), model.session("none")
    rows = torch.arange(3)
    for number, (start, stop) in enumerate(blocks):
        ids[:, start:stop] = model.mask_id
        got, expected = cached.begin(ids, start, stop), plain.begin(ids, start, stop)
        assert (got - expected).abs().max() < CLOSE
        owner = rows[: len(ids)].repeat_interleave(torch.tensor([1, 3, 2])[: len(ids)])
        canvases = ids[owner].clone()
        canvases[:, start:stop] = random_ids(stop - start, len(owner), seed=number)
        got = cached.step(canvases, owner, start, stop)
        assert (got - plain.step(canvases, owner, start, stop)).abs().max() < CLOSE
        last = canvases[owner == 1]
        got = cached.step(last, torch.full((len(last),), 1), start, stop)
        assert (got - plain.step(last, torch.full((len(last),), 1), start, stop)).abs().max() < CLOSE
        ids[:, start:stop] = random_ids(stop - start, len(ids), seed=10 + number)
        if number == 0:
            kept = torch.tensor([0, 2])
            cached.keep(kept)
            plain.keep(kept)
            ids = ids[kept]


@pytest.mark.parametrize(("start", "stop"), [(30, 40), (0, 64), (40, 70)])
def test_a_block_across_the_blocks_of_the_mask_is_refused(
    models: dict[str, NetworkDenoiser], start: int, stop: int
) -> None:
    session = models["llada2"].session("prefix")
    with pytest.raises(SettingsError, match="no single block of 32"):
        session.begin(random_ids(80), start, stop)


def test_caches_that_a_family_does_not_have_are_refused(models: dict[str, NetworkDenoiser]) -> None:
    for family in ("llada2", "block-llama"):
        with pytest.raises(SettingsError, match="use prefix, it is exact"):
            open_session(models[family], "dual")
    with pytest.raises(SettingsError, match="prompts of one length"):
        open_session(models["llada2"], "prefix", torch.tensor([0, 3]))


def test_a_checkpoint_may_state_blocks_of_its_own(models: dict[str, NetworkDenoiser]) -> None:
    model = models["fast-dllm-v2"]
    blocks = model.family.block_multiple, traits_of(model).block_multiple, model.defaults["block_length"]
    assert blocks == (32, 16, 16)
    with pytest.raises(SettingsError, match="attends in blocks of 16: block length 32 does not divide it"):
        generate(model, [[5, 6]], key=None, length=32, block_length=32)


def test_going_back_is_refused(models: dict[str, NetworkDenoiser]) -> None:
    session = models["block-llama"].session("prefix")
    session.begin(random_ids(40), 20, 30)
    with pytest.raises(SettingsError, match="position 10 is before text that is finished up to 20"):
        session.begin(random_ids(40), 10, 20)


# ---- padding ----


PADDED = {
    "none": ("llada", "dream", "llada-moe", "block-llama", "a2d-bd3lm"),
    "prefix": ("llada", "dream", "block-llama", "a2d-bd3lm", "nemotron"),
    "dual": ("llada", "rnd1"),
}


@pytest.mark.parametrize(("family", "cache"), [(family, cache) for cache in PADDED for family in PADDED[cache]])
def test_padded_rows_answer_as_they_do_alone(models: dict[str, NetworkDenoiser], family: str, cache: Any) -> None:
    model, padding = models[family], torch.tensor([0, 7, 3])
    ids = random_ids(48, batch=3)
    session = open_session(model, cache, padding)
    first = session.begin(ids, 30, 40)
    second = session.step(ids[[1, 1, 2]], torch.tensor([1, 1, 2]), 30, 40)
    session.keep(torch.tensor([1, 2]))
    third = session.begin(ids[1:], 40, 48)
    for row, columns in enumerate(padding.tolist()):
        alone, own = ids[row, None, columns:], model.session("none")
        expected = own.begin(alone, 30 - columns, 40 - columns)[0]
        assert (first[row] - expected).abs().max() < CLOSE
        if row:
            assert (second[row] - expected).abs().max() < CLOSE
            expected = own.begin(alone, 40 - columns, 48 - columns)[0]
            assert (third[row - 1] - expected).abs().max() < CLOSE


# ---- special ids ----


def checkpoint(vocab_size: int, **config: Any) -> Checkpoint:
    return Checkpoint("stub", Path("stub"), {"vocab_size": vocab_size, **config})


def stub_tokenizer(mask: tuple[str, int] | None, end_ids: tuple[int, ...]) -> Tokenizer:
    backend = tokenizers.Tokenizer(WordLevel(dict([mask] if mask else []) | {"w0": 1}, unk_token="w0"))
    return replace(wrap(backend, "stub"), end_ids=end_ids, vocab_size=126349)


def test_published_sizes_come_with_published_ids() -> None:
    tokenizer = stub_tokenizer(("<|mdm_mask|>", 126336), (126081, 126348))
    assert find_mask_id(checkpoint(126464), tokenizer, LLADA) == 126336
    assert find_end_ids(checkpoint(126464, eos_token_id=126081), tokenizer, LLADA) == (126081, 126348)


@pytest.mark.parametrize(
    ("family", "size", "mask"),
    [(LLADA, 126464, "<|mdm_mask|>"), (DREAM, 152064, "<|mask|>"), (LLADA2, 157184, "<|mask|>")],
)
def test_another_id_than_the_published_one_is_an_error(family: Any, size: int, mask: str) -> None:
    right = family.known_ids[size]
    with pytest.raises(CheckpointFormat, match=f"the mask id is 7, but {right.mask_id}"):
        find_mask_id(checkpoint(size), stub_tokenizer((mask, 7), (right.end_of_text,)), family)
    with pytest.raises(CheckpointFormat, match=f"mask id {right.mask_id}, the tokenizer 7"):
        find_mask_id(checkpoint(size, mask_token_id=right.mask_id), stub_tokenizer((mask, 7), ()), family)
    with pytest.raises(CheckpointFormat, match=f"{right.end_of_text} ends a text"):
        find_end_ids(checkpoint(size), stub_tokenizer(None, ()), family)
    # a different size is a different model, with no known ids
    assert find_mask_id(checkpoint(size + 1), stub_tokenizer((mask, 7), ()), family) == 7
    assert find_end_ids(checkpoint(size + 1), stub_tokenizer(None, (3,)), family) == (3,)


def test_an_end_of_turn_counts_whether_or_not_it_is_marked_special() -> None:
    tokenizer = stub_tokenizer(None, ())
    tokenizer.backend.add_tokens(["<|eot_id|>"])
    eot = tokenizer.backend.token_to_id("<|eot_id|>")
    assert eot not in tokenizer.special_ids
    assert find_end_ids(checkpoint(80), tokenizer, LLADA) == (eot,)


def test_illada_is_known_by_its_vocabulary() -> None:
    """Its tokenizer names no mask; if config.json names none either, the published id holds."""
    assert find_mask_id(checkpoint(155136), stub_tokenizer(None, ()), LLADA) == 5
    assert find_end_ids(checkpoint(155136, eos_token_id=2), stub_tokenizer(None, ()), LLADA) == (2,)


def test_the_mask_token_of_the_tokenizers_configuration_counts(tmp_path: Path) -> None:
    tiny.write(tmp_path, "dream")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"mask_token": {"content": "w3"}}))
    assert load(tmp_path).mask_id == len(tiny.SPECIAL["dream"]) + 3


# ---- chat ----


def test_a_chat_prompt_is_the_familys_template(models: dict[str, NetworkDenoiser]) -> None:
    """Words of the template that the tiny tokenizer does not know are its unknown word, w0."""
    turns = "<|start_header_id|> w0 <|end_header_id|> w7 w8 <|eot_id|> <|start_header_id|> w0 <|end_header_id|>"
    tokenizer = tiny.tokenizer("llada")
    expected = [tokenizer.token_to_id(word) for word in f"<|startoftext|> {turns}".split()]
    assert chat_prompt(models["llada"], "  w7 w8\n") == expected


MESSAGES = {
    "asked": [("user", " a\n")],
    "talk": [("system", "be brief "), ("user", "a"), ("assistant", "b"), ("user", "c")],
}


@pytest.mark.parametrize(("family", "messages", "expected"), cases(__file__, "conversations"))
def test_a_conversation_is_written_as_the_family_was_trained(family: str, messages: str, expected: str) -> None:
    """Heads of messages are written [role] here, and their ends |."""
    chat = FAMILIES[family].chat
    assert chat is not None
    head, middle, end = {
        "llada": ("<|start_header_id|>", "<|end_header_id|>\n\n", "<|eot_id|>"),
        "llada2": ("<role>", "</role>", "<|role_end|>"),
        "stable-diffcoder": ("<[begin\u2581of\u2581sentence]>", "\n", "<[end\u2581of\u2581sentence]>"),
    }.get(family, ("<|im_start|>", "\n", "<|im_end|>"))
    text = chat.text(MESSAGES[messages]).replace(end, "|")
    assert re.sub(rf"{re.escape(head)}(\w+){re.escape(middle)}", r"[\1]", text) == expected


@pytest.mark.parametrize(
    ("messages", "problem"),
    [
        ([], "there is no message"),
        ([("user", "w1"), ("tool", "w2")], "message 1 .* role 'tool', which is not one of: system, user, assistant"),
        ([("system", "w1"), ("User", "w2")], "message 1 .* role 'User'"),
        (["w1"], "message 0 .* give a pair"),
        ([("user", 3)], "message 0 .* give a pair"),
        ({"user": "w1"}, "several messages are given as a list, not as a dict"),
    ],
    ids=str,
)
def test_what_is_no_conversation_is_refused(models: dict[str, NetworkDenoiser], messages: Any, problem: str) -> None:
    with unchecked(), pytest.raises(SettingsError, match=problem):
        chat_prompt(models["llada"], messages)


def test_a_model_without_a_template_is_no_chat_model(models: dict[str, NetworkDenoiser]) -> None:
    for model in (models["rnd1"], ToyDenoiser()):
        with pytest.raises(SettingsError, match="has no chat template"):
            chat_prompt(model, "w1")


def test_a_tokenizer_without_the_templates_tokens_is_no_chat_models() -> None:
    with pytest.raises(SettingsError, match=r"storyteller has no token <\|"):
        chat_prompt(load_model(device="cpu"), "Once upon a time")


# ---- refusals ----


def refused(folder: Path, family: str, message: str, **changes: Any) -> None:
    tiny.write(folder, family, **changes)
    with pytest.raises(CheckpointFormat, match=message) as caught:
        load(folder)
    assert str(folder) in str(caught.value)


def test_code_of_a_checkpoint_is_never_run(tmp_path: Path) -> None:
    (tmp_path / "modeling_other.py").write_text("raise SystemExit('ran')")
    changes: dict[str, Any] = {"model_type": "other", "architectures": ["OtherModel"]}
    message = f"'other'; families that can be loaded: {', '.join(FAMILIES)}; its auto_map .* runs no code"
    refused(tmp_path, "dream", message, **changes, auto_map={"AutoModel": "modeling_other.OtherModel"})


@pytest.mark.parametrize(("changes", "family", "message"), cases(__file__, "refused"))
def test_what_is_not_the_family_is_refused(tmp_path: Path, changes: Any, family: str, message: str) -> None:
    state = tiny.STATES[family](tiny.CONFIGS[family])
    changes = {name: ... if value == "..." else value for name, value in changes.items()}  # left out
    refused(tmp_path, family, message, state=state, **changes)


@pytest.mark.parametrize("family", tiny.READINGS)
def test_missing_extra_and_resized_tensors_are_named(tmp_path: Path, family: str) -> None:
    state = tiny.write(tmp_path, family)
    name = next(name for name in sorted(state) if re.search(r"(layers?|blocks)\.1\.", name))
    norm = next(name for name in sorted(state) if "norm" in name.lower())
    for changed, message in (
        ({other: t for other, t in state.items() if other != name}, r"(tensors missing \['|does not fit the weights)"),
        (state | {"model.layers.1.odd.weight": torch.zeros(2)}, "odd"),
        # which transformers would ignore in a Glm4Moe
        (state | {"model.layers.46.odd.weight": torch.zeros(2)}, r"layers\.46"),
        (state | {norm: torch.ones(9)}, r"\[9\] instead of"),
    ):
        save_file(changed, tmp_path / "model.safetensors")
        with pytest.raises(CheckpointFormat, match=message):
            load(tmp_path, family=tiny.STATED.get(family))


@pytest.mark.parametrize("family", ["llada2", "llada2.2", "llada-moe", "sdar-moe", "rnd1"])
def test_every_expert_must_be_there(tmp_path: Path, family: str) -> None:
    state = tiny.write(tmp_path, family)
    del state["model.layers.1.mlp.experts.3.up_proj.weight"]
    save_file(state, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointFormat, match=r"(does|may) not fit the weights"):
        load(tmp_path)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.gguf"])
def test_other_weights_than_safetensors_are_not_loaded(tmp_path: Path, name: str) -> None:
    state = tiny.write(tmp_path, "dream")
    (tmp_path / "model.safetensors").unlink()
    torch.save(state, tmp_path / name)
    with pytest.raises(ModelNotFound, match="only safetensors weights are loaded"):
        load(tmp_path)


@pytest.mark.parametrize("head_dim", [None, ...])
def test_heads_share_the_width_where_their_size_is_not_stated(tmp_path: Path, head_dim: Any) -> None:
    config = tiny.CONFIGS["llada2"] | {"head_dim": 8}
    state = tiny.STATES["llada2"](config)
    tiny.write(tmp_path, "llada2", state, head_dim=head_dim)
    ids = random_ids(40)
    expected = tiny.window_logits("llada2", state, config, ids, 0, 40)
    assert (load(tmp_path)(ids) - expected).abs().max() < CLOSE


def test_an_unmerged_adapter_is_refused(tmp_path: Path) -> None:
    tiny.write(tmp_path, "dream")
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(CheckpointFormat, match=r"adapter_config\.json: merge"):
        load(tmp_path)


def test_the_family_can_be_stated(tmp_path: Path, models: dict[str, NetworkDenoiser]) -> None:
    tiny.write(tmp_path, "dream", model_type="renamed", architectures=...)
    with pytest.raises(CheckpointFormat, match="'renamed'"):
        load(tmp_path)
    assert torch.equal(load(tmp_path, family="dream")(random_ids(20)), models["dream"](random_ids(20)))
    with pytest.raises(SettingsError, match="family 'gpt' is not one of: llada, dream"):
        load(tmp_path, family="gpt")


def test_a_family_that_config_does_not_tell_is_known_by_the_published_name(tmp_path: Path) -> None:
    for kind, sees_all in (("mdlm", True), ("bd3lm", False)):
        folder = tmp_path / f"models--dllm-hub--Qwen3-0.6B-diffusion-{kind}-v0.1"
        tiny.write(folder, f"a2d-{kind}")
        assert (load(folder).family.attention == "bidirectional") == sees_all


def test_a_tied_output_matrix_may_be_stored_as_well(tmp_path: Path, models: dict[str, NetworkDenoiser]) -> None:
    state = tiny.write(tmp_path, "fast-dllm-v2")
    save_file(state | {"lm_head.weight": state["model.embed_tokens.weight"].clone()}, tmp_path / "model.safetensors")
    assert torch.equal(load(tmp_path)(random_ids(20)), models["fast-dllm-v2"](random_ids(20)))


def test_a_checkpoint_without_model_type_is_known_by_its_architecture() -> None:
    for family in (LLADA, DREAM, LLADA2):
        assert family_of(checkpoint(80, architectures=list(family.architectures))) is family


# ---- placement ----


def test_other_placements_and_missing_packages_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny.write(tmp_path, "dream")
    with pytest.raises(SettingsError, match="device_map 'all' is not auto"):
        load(tmp_path, device_map="all")
    monkeypatch.setattr("dgmark.models.weights.find_spec", lambda _: None)
    with pytest.raises(MissingExtra, match=r"this needs accelerate: run .pip install '\.\[large\]'"):
        load(tmp_path, device_map="auto")


@pytest.mark.parametrize("family", ["llada", "llada2"])
def test_accelerate_places_the_layers(models: dict[str, NetworkDenoiser], tmp_path: Path, family: str) -> None:
    pytest.importorskip("accelerate")
    tiny.write(tmp_path, family)
    assert torch.equal(load(tmp_path, device_map="auto")(random_ids(40)), models[family](random_ids(40)))


def test_a_model_that_does_not_fit_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny.write(tmp_path, "dream")

    def full(*_: object) -> None:
        raise torch.OutOfMemoryError("out of memory")

    monkeypatch.setattr(torch.nn.Module, "to", full)
    with pytest.raises(ModelError, match="does not fit the memory of cpu: choose dtype bf16"):
        load(tmp_path)


def test_loading_prints_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    tiny.write(tmp_path, "llada2")
    load(tmp_path)
    captured = capfd.readouterr()
    assert captured.out + captured.err == ""
