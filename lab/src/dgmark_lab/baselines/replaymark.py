"""ReplayMark: at places where the model answers changes of its context in two ways, the key says which way to go.

github.com/ming053l/ReplayMark, August 2026; there is no paper. The rule is written from its `replaymark/resample.py`
and `challenges.py`. Before a block is written, the model reads what stands before it several times, each time with
another part of it masked, and the block and all that follows masked. Of two such readings, a token's contrast is the
difference of its log-probabilities. Each place takes the two readings that split the probability of its tokens most
evenly; it is a carrier if each side has a share of at least `least_split` / 2. The key has a coin for each carrier,
and a token matches if the sign of its contrast is the coin's.

The detector reads the same contexts with the same model, and counts the carriers whose tokens match. Which places are
carriers, and which sign a token has, depends on what stands before a block and not on the coins, so the count is
binomial over random coins. It needs the prompt: without it, the contexts differ from those of the writer.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from dgmark.models.chat import chat_prompt
from dgmark.models.denoiser import Denoiser, encode_text, open_session, traits_of
from dgmark.models.load import load_model
from dgmark.watermark.key import WatermarkKey
from dgmark.watermark.spec import spec_as
from dgmark_lab.baselines.prf import HashKey, states, uniform_bits
from dgmark_lab.baselines.published import Ids, PublishedTest, Score, binomial_p
from dgmark_lab.baselines.specs import ReplayMarkSpec

# the share of the context that a reading leaves out, and the fewest tokens
_LEFT_OUT, _LEAST_LEFT_OUT = 0.2, 4
# tokens of smaller probability enter no split
_LEAST_SHARE = 1e-9
# the share of its carriers that a typical mark matches: .68 to .71 in the repository's figures for 512 tokens
_TYPICAL = 0.68


class ReplayMarkTest(PublishedTest):
    """The test of ReplayMark on a text without its prompt: it finds what was written without one; see `replay`."""

    @classmethod
    def scored(cls, key: WatermarkKey, ids: Ids, positions: Ids, fpr: float) -> Score:  # noqa: ARG003 (text only)
        """Replay the text alone; see `replay`."""
        return replay(key, (), ids.tolist(), fpr)

    @classmethod
    def after_prompt(cls, key: WatermarkKey, prompt: str, text: Sequence[int], *, chat: bool, fpr: float) -> Score:
        """Replay the text after its prompt; see `replay`."""
        model = model_of(key)
        return replay(key, chat_prompt(model, prompt) if chat else encode_text(model, prompt), text, fpr)


def replay(key: WatermarkKey, prompt: Sequence[int], text: Sequence[int], fpr: float) -> Score:
    """Score the ids of a text after those of its prompt, as the model was given it. Published: the same binomial test.

    What exceeds the key's length is not scored. The score says whether a typical mark would reach a p-value of `fpr`.

    Raises:
        ModelNotFound: the model is not on this machine.
    """
    spec = spec_as(ReplayMarkSpec, key)
    text = list(text)[: spec.text_length]
    scored = matched = 0
    for first in range(0, len(text), spec.block):
        before = [*prompt, *text[:first]]
        block = np.array(text[first : first + spec.block])
        readings = Readings.of(key, before, first)
        hits = readings.wanted[np.arange(len(block)), block]
        carriers = readings.carriers[: len(block)]
        scored, matched = scored + int(carriers.sum()), matched + int(hits[carriers].sum())
    p_value = binomial_p(matched, scored, 0.5)
    typical = binomial_p(round(_TYPICAL * scored), scored, 0.5)
    return Score(
        scored=scored,
        matched=matched,
        z_score=(2 * matched - scored) / max(1, scored) ** 0.5,
        p_value=p_value,
        p_published=p_value,
        detectable=p_value <= fpr or typical <= fpr,
    )


@dataclass(frozen=True)
class Readings:
    """What the model says of a block that is masked, in several contexts.

    Attributes:
        key: the key.
        first: the position of the block's first token.
        contrast: of each place and token, the difference of its log-probabilities in the two readings of the place.
        carriers: which places are counted.
    """

    key: WatermarkKey
    first: int
    contrast: Tensor
    carriers: Bool[np.ndarray, " block"]

    @classmethod
    def of(cls, key: WatermarkKey, before: Sequence[int], first: int) -> "Readings":
        """Read what stands before a block, once whole and several times with a part masked.

        `before` are the ids of the prompt and of the blocks before it, `first` is the position of its first token.

        Raises:
            ModelNotFound: the model is not on this machine.
        """
        spec = spec_as(ReplayMarkSpec, key)
        model, block = model_of(key), min(spec.block, spec.text_length - first)
        masks = [model.mask_id] * (spec.text_length - first)
        canvas = torch.tensor([[*before, *masks]], device=traits_of(model).device)
        canvases = canvas.repeat(spec.readings + 1, 1)
        for number, places in enumerate(left_out(key, len(before), first)):
            canvases[number, torch.from_numpy(places)] = model.mask_id
        start, stop = len(before), len(before) + block
        with torch.inference_mode():
            # one at a time, as the model's rounding may depend on the batch
            logits = torch.cat([open_session(model).begin(one[None], start, stop).double().cpu() for one in canvases])
        logs = torch.log_softmax(logits, -1)
        if not before:  # there is nothing to leave out
            return cls(key, first, logs[0] * 0, np.zeros(block, dtype=bool))
        one, other, split = _most_even(logs[:-1], torch.softmax(logs[-1] / spec.draw_temperature, -1))
        each = torch.arange(block)
        return cls(key, first, logs[other, each] - logs[one, each], (split > spec.least_split).numpy())

    @cached_property
    def wanted(self) -> Bool[np.ndarray, "block vocab"]:
        """Which tokens match at each place: those of the coin's sign, and where there is no contrast, by a coin."""
        places = self.first + np.arange(len(self.carriers))
        coins, ties = (_coins(self.key, use, places)[:, None] for use in ("sign", "tie"))
        contrast = self.contrast.numpy()
        above: Bool[np.ndarray, "block vocab"] = (contrast > 0) == coins
        return np.where(contrast == 0, ties, above)


def _most_even(
    logs: Float[Tensor, "readings block vocab"], shares: Float[Tensor, "block vocab"]
) -> tuple[Int[Tensor, " block"], Int[Tensor, " block"], Float[Tensor, " block"]]:
    """The two readings of each place whose contrasts split its tokens most evenly, and how evenly, from 0 to 1."""
    # the others together change a split by less than 1e-4 in a vocabulary of 50,000
    likely = (shares > _LEAST_SHARE).any(0)
    logs, shares = logs[..., likely], shares[:, likely]
    pairs = torch.combinations(torch.arange(len(logs)))
    splits = []
    for one, other in pairs.tolist():
        between = logs[other] - logs[one]
        splits.append(2 * torch.minimum((shares * (between > 0)).sum(-1), (shares * (between < 0)).sum(-1)))
    split, best = torch.stack(splits).max(0)
    return pairs[best, 0], pairs[best, 1], split


def left_out(key: WatermarkKey, columns: int, first: int) -> list[Int[np.ndarray, " places"]]:
    """Which of the `columns` tokens before a block at position `first` each of its readings leaves out.

    They are the nearest, the farthest, then the key's choices.
    """
    spec = spec_as(ReplayMarkSpec, key)
    count = min(max(_LEAST_LEFT_OUT, round(_LEFT_OUT * columns)), max(1, columns // 2), columns)
    numbers = np.arange(columns)
    choices = [numbers[columns - count :], numbers[:count]]
    for reading in range(2, spec.readings):
        state = states(HashKey.of(key, "replaymark/context"), np.array([first * spec.readings + reading]))
        choices.append(np.sort(np.argsort(uniform_bits(state, numbers), kind="stable")[:count]))
    return choices


def _coins(key: WatermarkKey, use: str, places: Int[np.ndarray, " block"]) -> Bool[np.ndarray, " block"]:
    state = states(HashKey.of(key, f"replaymark/{use}"), np.zeros(1, dtype=np.int64))
    coins: Bool[np.ndarray, " block"] = uniform_bits(state, places) % 2 == 1
    return coins


def lend(model: Denoiser, name: str = "") -> None:
    """Have keys of a model's vocabulary read with this model, so that it is not loaded twice.

    Args:
        model: the model; its number format may be another than the default one's, which moves some signs.
        name: the `reader` that keys name instead of their tokenizer.
    """
    _LENT[name or model.tokenizer.name] = model


def model_of(key: WatermarkKey) -> Denoiser:
    """The model that reads: the one that the key names, or that of its tokenizer, if it is not lent.

    Raises:
        ModelNotFound: the model is not on this machine.
    """
    name = spec_as(ReplayMarkSpec, key).reader or key.spec.tokenizer
    return _LENT.get(name) or _loaded(name)


_LENT: dict[str, Denoiser] = {}
_loaded = lru_cache(maxsize=1)(load_model)
