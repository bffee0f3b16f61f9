"""One step of the mark on the device: from logits to the positions to commit, for rows with keys of their own.

Every function here has fixed shapes and never waits for the device (but `propose_block` does with top-p), so an engine
may capture it in a CUDA graph or compile it. It knows no engine, no request and no key file, and calls
the same functions as the decoding loop (`decode/`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from dgmark.decode.config import DecodeConfig
from dgmark.decode.marks.key_store import Keys, KeyStore
from dgmark.decode.marks.rules import Places, Window
from dgmark.decode.steps.draws import check_seed
from dgmark.decode.steps.proposals import KeyedDraw, Proposals, filter_weights, keyed_draw, propose
from dgmark.decode.steps.selection import choose, lossless_edits
from dgmark.errors import InputError, SettingsError
from dgmark.watermark.key import WatermarkKey

# logits that are read at a time, however large the batch: 0.5 GB without draws, 0.8 GB with them
_LOGITS_AT_ONCE, _DRAWN_AT_ONCE = 2**26, 2**25


@dataclass(frozen=True)
class Block:
    """The block of each row of a batch, and the keys of the rows.

    Attributes:
        masked: positions not yet committed, and not of the prompt.
        positions: 0-based, counted from the row's first generated token; in the prompt they are negative.
        keys: the keys of the rows.
        tokens: for rule "bigram", the committed tokens up to the end of the block: its own columns, and before them at
            least as many as a pair reaches, or all there are. The more, the more pairs are known to be in the text
            already. -1 where none is committed; masked positions and those of the prompt are not read.

    Raises:
        SettingsError: the keys are of rule "bigram", and `tokens` is missing or narrower than the block.
    """

    masked: Bool[Tensor, "batch block"]
    positions: Int[Tensor, "batch block"]
    keys: Keys
    tokens: Int[Tensor, "batch columns"] | None = None

    @property
    def window(self) -> Window:
        """The block with the committed tokens to its left, without those of the prompt."""
        block, tokens = self.masked.shape[1], self.tokens
        if tokens is None and not self.keys.side.reach():
            tokens = self.positions  # no token is looked at
        if tokens is None or tokens.shape[1] < block:
            raise SettingsError(
                "these keys look at the tokens beside a candidate: give the committed `tokens` up to the end "
                "of the block"
            )
        start = tokens.shape[1] - block
        at = self.positions[:, :1] + torch.arange(-start, block, device=tokens.device)
        hidden = (at < 0) | torch.nn.functional.pad(self.masked, (start, 0))
        ids = tokens.long().masked_fill(hidden, -1)
        return Window(ids, start, self.positions, (0, start + block), -1, self.keys.rows)

    def rows(self, some: slice) -> "Block":
        """Some of the rows."""
        tokens = None if self.tokens is None else self.tokens[some]
        return Block(self.masked[some], self.positions[some], Keys(self.keys.side, self.keys.rows[some]), tokens)

    def keyed(self, config: DecodeConfig) -> KeyedDraw | None:
        """The keyed draw at its masked places; None if draws are plain."""
        side, masked = self.keys.side, self.masked.flatten()
        return keyed_draw(side, config, Places.all_of(self.window), masked, fixed_shapes=True)


def check_loop(
    config: DecodeConfig,
    store: KeyStore,
    keys: Sequence[WatermarkKey | None],
    seeds: Sequence[int] | None = None,
    *,
    rows: int,
) -> None:
    """Refuse, before the first step of a loop of your own, what it would do otherwise than it says.

    Args:
        config: the settings of the steps.
        store: holds the keys.
        keys: the key of each row, or None.
        seeds: the seed of each row; None if it has random numbers of its own.
        rows: how many rows the canvas has.

    Raises:
        SettingsError: there are not as many keys or seeds as rows, a seed is no whole number, the settings leave no
            mark with these keys, or a setting is of a part that only dgmark's own loop has.
    """
    for name, some in (("keys", keys), ("seeds", seeds)):
        if some is not None and len(some) != rows:
            raise SettingsError(f"there are {len(some)} {name} for {rows} rows: give one for each row")
    for seed in seeds or ():
        check_seed(seed)
    if config.length % config.block_length:
        raise SettingsError(
            f"length {config.length} is not a multiple of the block length {config.block_length}, and the loop writes "
            "whole blocks: choose one that is"
        )
    for name, off in (("cache", "none"), ("edit_threshold", None), ("edits", "replace"), ("lookahead", 1)):
        if getattr(config, name) != off:
            raise SettingsError("is for dgmark's own loop, and does nothing here: leave it out", field=name)
    if any(key is not None for key in keys):
        store.side.check_config(config)


def check_prompt(masked: Bool[Tensor, "batch block"], positions: Int[Tensor, "batch block"]) -> None:
    """Refuse a prompt that holds the mask, where a loop would write, with an InputError; this waits for the device.

    Positions are counted from the row's first generated token; in the prompt they are negative.
    """
    if bool((masked & (positions < 0)).any()):
        raise InputError("the prompt holds the id of the mask, which is no text: leave it out of the prompt")


def propose_block(
    logits: Float[Tensor, "batch block vocab"],
    forbidden: Int[Tensor, " f"],
    config: DecodeConfig,
    uniforms: Float[Tensor, "batch block 2"] | None = None,
    *,
    block: Block | None = None,
    tempered: bool = False,
) -> Proposals:
    """A candidate and its reward for every place of every block, masked or not, as the decoding loop proposes them.

    Args:
        logits: the model's logits; not written to.
        forbidden: ids that no position may take: the mask id, and rows of padding.
        config: `strategy`, `temperature`, `top_k`, `top_p`, `alpha` and `bias` are read. Top-p waits for the device, so
            it is for loops that may.
        uniforms: numbers in [0, 1) (`uniform_draws`); None is enough at temperature 0, unless the strategy is random.
        block: the block, for keyed draws at its masked places; None for plain draws.
        tempered: take the reward from the sampled distribution (Dream, LLaDA 2) instead of the model's own (LLaDA).

    Returns:
        The candidates and their rewards in float32 or better, each (batch, block); `mark` takes them.
    """
    batch, places, vocab = logits.shape
    if uniforms is None:
        uniforms = torch.zeros(batch, places, 2, device=logits.device)
    # a draw takes twelve times the memory of its logits in bf16; each kernel is launched once for rows read together
    most = _LOGITS_AT_ONCE if config.greedy and not config.bias else _DRAWN_AT_ONCE
    at_once = max(1, most // (places * vocab))
    parts = []
    for low in range(0, batch, at_once):
        some = slice(low, low + at_once)
        flat = logits[some].flatten(0, 1), uniforms[some].flatten(0, 1)
        keyed = None if block is None else block.rows(some).keyed(config)
        parts.append(propose(*flat, forbidden, config, tempered=tempered, keyed=keyed))
    columns = zip(*((part.tokens, part.rewards, part.scores) for part in parts), strict=True)
    return Proposals(*(torch.cat(column).view(batch, places) for column in columns))


def keyed_logits(
    logits: Float[Tensor, "batch block vocab"], block: Block, config: DecodeConfig
) -> tuple[Float[Tensor, "batch block vocab"], Float[Tensor, "batch block vocab"]]:
    """What an engine draws from that takes logits alone: the logarithms of the probabilities before and after the bits.

    Args:
        logits: the model's logits; not written to.
        block: the block; at its masked places draws are keyed.
        config: `temperature`, `top_k`, `top_p`, `alpha` and `bias` are read.

    Returns:
        Two logits, to draw at temperature 1 without filters, or to take the best of.
    """
    weights = torch.softmax(logits.flatten(0, 1).float() / (config.temperature or 1.0), -1)
    if not config.greedy:
        weights = filter_weights(weights, config.top_k, config.top_p)
    before, keyed = weights.log(), block.keyed(config)
    if keyed is not None:
        keyed.apply(weights, weights.sum(-1))
    return before.view_as(logits), weights.log().view_as(logits)


def mark(
    proposals: Proposals,
    block: Block,
    quota: Int[Tensor, " batch"] | int = 1,
    *,
    config: DecodeConfig,
    readable: Bool[Tensor, "batch block"] | None = None,
) -> Bool[Tensor, "batch block"]:
    """Choose the positions to commit in this step: what the decoding loop would choose, and in rows without a mark
    what the same settings choose by confidence alone.

    Args:
        proposals: the candidates, as `propose_block` makes them; those of positions that are not masked have no effect.
        block: the block.
        quota: how many positions each row commits under commit "quota", and the fewest under commit "threshold",
            which finds its own number. A row with fewer masked positions commits them all.
        config: `commit`, `threshold`, `min_relative_reward` and `strategy` are read.
        readable: whether the candidate survives re-tokenization (`RoundTrip`); None if no candidate goes last.

    Returns:
        The positions to commit, all of them masked.
    """
    masked, keys = block.masked, block.keys
    matched = keys.side.matched(proposals.tokens, block.window, None)
    least = quota if isinstance(quota, Tensor) else torch.full_like(keys.rows, quota)
    choice = choose(keys.side, keys.rows, proposals.rewards, masked, matched, config, quota=least, readable=readable)
    return choice.places(proposals.scores, masked)


def mark_edits(
    edits: Bool[Tensor, "batch block"],
    candidates: Int[Tensor, "batch block"],
    block: Block,
    *,
    fixed_shapes: bool = True,
) -> Bool[Tensor, "batch block"]:
    """Of the edits of committed tokens that a loop would make, those that lose no match; in rows without a mark all.

    The edits are taken from left to right, each unless the text with those before it would lose by it; so give only
    edits that will be made if they may be.

    Args:
        edits: places of the response whose committed token the loop would replace.
        candidates: the tokens that would replace them.
        block: the block with its committed tokens.
        fixed_shapes: look at every place, without waiting for the device; else at those alone that have an edit.
    """
    columns = None if fixed_shapes else edits.any(0).nonzero()[:, 0].tolist()
    return lossless_edits(edits, candidates, block.window, block.keys.side, columns)
