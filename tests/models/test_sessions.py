"""Sessions: forwards with a cache, against a plain forward that keeps keys and values by hand."""

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor
from transformers import LlamaForCausalLM

from dgmark.errors import SettingsError
from dgmark.models.denoiser import CacheMode, open_session
from dgmark.models.sessions.bidirectional import BidirectionalSession
from dgmark.models.toy import ToyDenoiser
from support.tiny_language_models import bidirectional_llama

START, STOP, LENGTH = 9, 14, 23
CLOSE = 2e-5  # the network takes norms and angles in float32


@pytest.fixture(scope="module")
def network() -> LlamaForCausalLM:
    """A random bidirectional Llama with grouped queries, in double precision."""
    return bidirectional_llama(40, heads=4, layers=3, spread=0.4, seed=7)


@dataclass
class Plain:
    """The same network written out, one canvas at a time; `outside` holds keys and values that stay as they were."""

    network: LlamaForCausalLM
    shift: int = 0

    def __call__(self, ids: Tensor, fresh: range, outside: list[tuple[Tensor, Tensor]] | None = None) -> Tensor:
        """Hidden states of the positions `fresh`; everything else is taken from `outside`."""
        state = dict(self.network.named_parameters())
        x = state["model.embed_tokens.weight"][ids[list(fresh)]]
        self.recorded: list[tuple[Tensor, Tensor]] = []
        for layer in range(3):
            at = f"model.layers.{layer}."
            y = self.norm(x, state[at + "input_layernorm.weight"])
            q, k, v = (y @ state[f"{at}self_attn.{name}_proj.weight"].T for name in "qkv")
            q, k, v = (t.view(len(fresh), -1, 8) for t in (q, k, v))
            q, k = self.rotate(q, fresh), self.rotate(k, fresh)
            if outside is not None:
                keys, values = (t.clone() for t in outside[layer])
                keys[list(fresh)], values[list(fresh)] = k, v
                k, v = keys, values
            self.recorded.append((k, v))
            k, v = (t.repeat_interleave(2, dim=1) for t in (k, v))
            weights = (torch.einsum("qhd,khd->hqk", q, k) / 8**0.5).softmax(-1)
            mixed = torch.einsum("hqk,khd->qhd", weights, v).reshape(len(fresh), -1)
            x = x + mixed @ state[at + "self_attn.o_proj.weight"].T
            y = self.norm(x, state[at + "post_attention_layernorm.weight"])
            gate, up = (y @ state[f"{at}mlp.{name}_proj.weight"].T for name in ("gate", "up"))
            x = x + (torch.nn.functional.silu(gate) * up) @ state[at + "mlp.down_proj.weight"].T
        return self.norm(x, state["model.norm.weight"]) @ state["lm_head.weight"].T

    def norm(self, x: Tensor, weight: Tensor) -> Tensor:
        return x * (x.pow(2).mean(-1, keepdim=True) + 1e-6).rsqrt() * weight

    def rotate(self, x: Tensor, positions: range) -> Tensor:
        angles = torch.tensor(list(positions))[:, None] * 10000 ** (-torch.arange(4, dtype=torch.float64) / 4)
        cos, sin = angles.cos()[:, None], angles.sin()[:, None]
        a, b = x[..., :4], x[..., 4:]
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


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
    plain = Plain(network)
    first = session.begin(before, START, STOP)
    # rows have 1, 3 and 2 candidates
    owner = torch.tensor([0, 1, 1, 1, 2, 2])
    after = changed(before[owner], seed=2)
    second = session.step(after, owner, START, STOP)
    for row in range(3):
        whole = plain(before[row], range(LENGTH))
        assert torch.allclose(first[row], whole[START - shift : STOP - shift], atol=CLOSE)
        outside = plain.recorded
        for index in (owner == row).nonzero()[:, 0].tolist():
            window = fresh(mode, shift)
            logits = plain(after[index], window, outside)
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


PADDING = torch.tensor([0, 4, 2])


def padded(ids: Tensor, padding: Tensor) -> Tensor:
    """Canvases whose first columns are junk."""
    junk = torch.arange(LENGTH) < padding[:, None]
    return torch.where(junk, canvases(11, len(ids)), ids)


@pytest.mark.parametrize("shift", [0, 1])
@pytest.mark.parametrize("mode", ["none", "prefix", "dual"])
def test_padded_rows_answer_as_they_do_alone(network: LlamaForCausalLM, mode: CacheMode, shift: int) -> None:
    before = padded(canvases(9, 3), PADDING)
    owner = torch.tensor([0, 0, 1, 2, 2, 2])
    after = changed(before[owner], seed=10)
    session = BidirectionalSession(network, mode, shift=shift, padding=PADDING)
    first, second = session.begin(before, START, STOP), session.step(after, owner, START, STOP)
    subset = session.step(after[[3, 4]], torch.tensor([2, 2]), START, STOP)
    for row, count in enumerate(PADDING.tolist()):
        alone = BidirectionalSession(network, mode, shift=shift)
        start, stop = START - count, STOP - count
        assert torch.allclose(first[row], alone.begin(before[row, None, count:], start, stop)[0], atol=CLOSE)
        for index in (owner == row).nonzero()[:, 0].tolist():
            expected = alone.step(after[index, None, count:], torch.tensor([0]), start, stop)[0]
            assert torch.allclose(second[index], expected, atol=CLOSE)
            if index in (3, 4):
                assert torch.allclose(subset[index - 3], expected, atol=CLOSE)


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
