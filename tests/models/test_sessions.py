"""Sessions: forwards with a cache, against a plain forward that keeps keys and values by hand."""

import pytest
import torch
from torch import Tensor
from transformers import LlamaForCausalLM

from dgmark.errors import SettingsError
from dgmark.models.denoiser import CacheMode, open_session
from dgmark.models.sessions.bidirectional import BidirectionalSession
from dgmark.models.toy import ToyDenoiser
from support import tiny_checkpoints as tiny
from support.tiny_language_models import bidirectional_llama

START, STOP, LENGTH = 9, 14, 23
CLOSE = 2e-5  # the network takes norms and angles in float32


@pytest.fixture(scope="module")
def network() -> LlamaForCausalLM:
    """A random bidirectional Llama with grouped queries, in double precision."""
    return bidirectional_llama(40, heads=4, layers=3, spread=0.4, seed=7)


KeysValues = list[tuple[Tensor, Tensor]]


def plain(
    network: LlamaForCausalLM, ids: Tensor, fresh: range, outside: KeysValues | None = None
) -> tuple[Tensor, KeysValues]:
    """The same network written out for one canvas: logits of the positions `fresh`, and keys and values by layer.

    Keys and values of all other positions are taken from `outside`.
    """
    state = dict(network.named_parameters())
    frequencies = 10000 ** (-torch.arange(4, dtype=torch.float64) / 4)
    x = state["model.embed_tokens.weight"][ids[None, list(fresh)]]
    recorded = []
    for layer in range(3):
        at = f"model.layers.{layer}."
        w = {name.removeprefix(at): tensor for name, tensor in state.items() if name.startswith(at)}
        h = tiny.rms_norm(x, w["input_layernorm.weight"], 1e-6)
        q, k, v = (
            tiny.heads_of(h @ w[f"self_attn.{name}_proj.weight"].T, count)
            for name, count in zip("qkv", (4, 2, 2), strict=True)
        )
        q, k = (tiny.turned(t, frequencies, fresh.start) for t in (q, k))
        if outside is not None:
            keys, values = (t.clone() for t in outside[layer])
            keys[:, :, list(fresh)], values[:, :, list(fresh)] = k, v
            k, v = keys, values
        recorded.append((k, v))
        x = x + tiny.attend(q, k, v) @ w["self_attn.o_proj.weight"].T
        x = x + tiny.swiglu(tiny.rms_norm(x, w["post_attention_layernorm.weight"], 1e-6), w, "mlp")
    hidden = tiny.rms_norm(x, state["model.norm.weight"], 1e-6)
    return (hidden @ state["lm_head.weight"].T)[0], recorded


def canvases(seed: int, rows: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 40, (rows, LENGTH), generator=generator)


def changed(ids: Tensor, seed: int) -> Tensor:
    """Canvases that differ from `ids` inside the block."""
    new = ids.clone()
    new[:, START:STOP] = canvases(seed, len(ids))[:, START:STOP]
    return new


def fresh(mode: CacheMode, shift: int) -> range:
    return {
        "none": range(LENGTH),
        "prefix": range(START - shift, LENGTH),
        "dual": range(START - shift, STOP),
    }[mode]


@pytest.mark.parametrize("shift", [0, 1])
@pytest.mark.parametrize("mode", ["none", "prefix", "dual"])
def test_a_step_computes_what_is_not_cached_and_takes_the_rest_as_it_was(
    network: LlamaForCausalLM, mode: CacheMode, shift: int
) -> None:
    before = canvases(1, 3)
    session = BidirectionalSession(network, mode, shift=shift)
    first = session.begin(before, START, STOP)
    # rows have 1, 3 and 2 candidates
    owner = torch.tensor([0, 1, 1, 1, 2, 2])
    after = changed(before[owner], seed=2)
    second = session.step(after, owner, START, STOP)
    for row in range(3):
        whole, outside = plain(network, before[row], range(LENGTH))
        assert torch.allclose(first[row], whole[START - shift : STOP - shift], atol=CLOSE)
        for index in (owner == row).nonzero()[:, 0].tolist():
            window = fresh(mode, shift)
            logits, _ = plain(network, after[index], window, outside)
            low = START - shift - window.start
            assert torch.allclose(second[index], logits[low : low + STOP - START], atol=CLOSE)


@pytest.mark.parametrize("mode", ["none", "prefix", "dual"])
def test_steps_leave_no_trace_in_the_cache(network: LlamaForCausalLM, mode: CacheMode) -> None:
    """Many candidates, then few, then rows left out: each step answers as if it were the first."""
    before = canvases(5, 4)
    session = BidirectionalSession(network, mode)
    session.begin(before, START, STOP)
    for owner in ([0, 0, 0, 0, 1, 2, 3], [0, 1, 2, 3], [1, 1, 3], [2], [0, 0, 1, 1, 2, 2, 3, 3]):
        rows = torch.tensor(owner)
        after = changed(before[rows], seed=len(owner))
        fresh_session = BidirectionalSession(network, mode)
        fresh_session.begin(before, START, STOP)
        expected = torch.cat([fresh_session.step(after[i, None], rows[i, None], START, STOP) for i in range(len(rows))])
        assert torch.allclose(session.step(after, rows, START, STOP), expected, atol=CLOSE)


def test_the_next_block_renews_the_cache(network: LlamaForCausalLM) -> None:
    before = canvases(6, 2)
    session = BidirectionalSession(network, "dual")
    session.begin(before, 4, START)
    session.step(before, torch.arange(2), 4, START)
    after = changed(before, 7)[1:]
    session.keep(torch.tensor([1]))
    fresh_session = BidirectionalSession(network, "dual")
    assert torch.equal(session.begin(after, START, STOP), fresh_session.begin(after, START, STOP))
    assert torch.equal(
        session.step(after, torch.tensor([0]), START, STOP), fresh_session.step(after, torch.tensor([0]), START, STOP)
    )


@pytest.mark.parametrize("mode", ["prefix", "dual"])
@pytest.mark.parametrize("shift", [0, 1])
def test_a_cached_block_may_begin_at_position_0(network: LlamaForCausalLM, mode: CacheMode, shift: int) -> None:
    ids = canvases(8, 2)
    session = BidirectionalSession(network, mode, shift=shift)
    first = session.begin(ids, 0, 5)
    assert torch.allclose(session.step(ids, torch.arange(2), 0, 5), first, atol=CLOSE)


def test_a_model_without_sessions_runs_whole_forwards() -> None:
    toy = ToyDenoiser()
    ids = torch.randint(2, 20, (3, 12), generator=torch.Generator().manual_seed(1))
    session = open_session(toy)
    assert torch.equal(session.begin(ids, 4, 8), toy(ids)[:, 4:8])
    session.keep(torch.tensor([0, 2]))
    assert torch.equal(session.step(ids[[0, 0, 2]], torch.tensor([0, 0, 1]), 4, 8), toy(ids[[0, 0, 2]])[:, 4:8])


def test_a_model_without_sessions_has_no_cache() -> None:
    with pytest.raises(SettingsError, match="toy has no cache 'dual'"):
        open_session(ToyDenoiser(), "dual")
