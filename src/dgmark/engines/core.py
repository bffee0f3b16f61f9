"""One step of the mark on the device: from logits to the positions to commit, for rows with keys of their own.

Every function here has fixed shapes and never waits for the device (but `propose_block` does with top-p), so an engine
may capture it in a CUDA graph or compile it. It knows no engine, no request and no key file; the rules are those of the
decoding loop (`decode/`).
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from dgmark.decode.config import DecodeConfig
from dgmark.decode.matching import Keys, matching
from dgmark.decode.pair_levels import lossless_edits, pair_levels
from dgmark.decode.proposals import propose
from dgmark.decode.selection import levels_and_quota, preferences, select_positions
from dgmark.decode.steering import Window
from dgmark.errors import SettingsError
from dgmark.watermark.splitmix64 import STEP, mix, shifted

_MANTISSA = 53
# logits that are read in float32 at a time: they take this memory twice (0.5 GB), however large the batch
_LOGITS_AT_ONCE = 2**26


def mark(
    confidence: Float[Tensor, "batch block"],
    masked: Bool[Tensor, "batch block"],
    candidates: Int[Tensor, "batch block"],
    positions: Int[Tensor, "batch block"],
    keys: Keys,
    quota: Int[Tensor, " batch"] | int = 1,
    *,
    config: DecodeConfig,
    tokens: Int[Tensor, "batch columns"] | None = None,
    readable: Bool[Tensor, "batch block"] | None = None,
) -> Bool[Tensor, "batch block"]:
    """Choose the positions to commit in this step: what the decoding loop would choose, and in rows without a mark
    what the same rule chooses by confidence alone.

    Args:
        confidence: the rewards r_j in float32 or better; those of positions that are not masked have no effect.
        masked: positions not yet committed, and not of the prompt.
        candidates: the tokens v_j that would be committed.
        positions: 0-based, counted from the row's first generated token; in the prompt they are negative.
        keys: the keys of the rows.
        quota: how many positions each row commits under commit "quota", and the fewest under commit "threshold" and
            "factor", which find their own number. A row with fewer masked positions commits them all.
        config: the rule: `commit`, `threshold`, `factor`, `guard` and `strategy` are read.
        tokens: the committed tokens up to the end of the block: its own columns, and before them at least as many as
            a pair reaches, or all there are. -1 where none is committed; masked positions and those of the prompt are
            not read. None for a store without keys of rule "bigram".
        readable: whether the candidate survives re-tokenization (`RoundTrip`); None if no candidate goes last.

    Returns:
        The positions to commit, all of them masked.

    Raises:
        SettingsError: the store takes keys of rule "bigram", and `tokens` is missing or narrower than the block.
    """
    levels, quota = mark_levels(
        confidence, masked, candidates, positions, keys, quota, config=config, tokens=tokens, readable=readable
    )
    return select_positions(confidence, masked, levels, quota, readable)


def mark_levels(
    confidence: Float[Tensor, "batch block"],
    masked: Bool[Tensor, "batch block"],
    candidates: Int[Tensor, "batch block"],
    positions: Int[Tensor, "batch block"],
    keys: Keys,
    quota: Int[Tensor, " batch"] | int = 1,
    *,
    config: DecodeConfig,
    tokens: Int[Tensor, "batch columns"] | None = None,
    readable: Bool[Tensor, "batch block"] | None = None,
) -> tuple[Int[Tensor, "batch block"], Int[Tensor, " batch"]]:
    """By which levels `mark`, with the same arguments, chooses, and how many positions each row commits."""
    block = masked.shape[1]
    levels, links = matching(candidates, positions, keys).to(torch.int32), None
    if keys.pairs is not None:
        pairs = keys.pairs.of_rows(keys.rows)
        of_pairs, links = pair_levels(candidates, _window(tokens, masked, positions), pairs)
        levels = torch.where(pairs.steers[:, None], of_pairs, levels)
    levels, pool = preferences(confidence, masked, levels, config, readable)
    levels = levels.masked_fill((keys.rows < 0)[:, None], 1)  # a guard of the mark has nothing to say without one
    # as many rounds as there may be renewed commits, as nobody asks the device how many there are
    rounds = (min(quota, block) if isinstance(quota, int) else block) - 1
    least = quota if isinstance(quota, Tensor) else torch.full_like(keys.rows, quota)
    return levels_and_quota(confidence, pool, levels, links, least, config, rounds)[:2]


def mark_edits(
    edits: Bool[Tensor, "batch block"],
    tokens: Int[Tensor, "batch columns"],
    candidates: Int[Tensor, "batch block"],
    positions: Int[Tensor, "batch block"],
    keys: Keys,
) -> Bool[Tensor, "batch block"]:
    """Of the edits of committed tokens that a loop would make, those that lose no match; in rows without a mark all.

    Under the bigram rule the edits are taken from left to right, each unless the text with those before it would lose
    level by it; so give only edits that will be made if they may be.

    Args:
        edits: places whose committed token the loop would replace.
        tokens: the committed tokens up to the end of the block, as `mark` takes them, with -1 at masked places.
        candidates: the tokens that would replace them.
        positions: 0-based, counted from the row's first generated token.
        keys: the keys of the rows.
    """
    block = edits.shape[1]
    before = tokens[:, tokens.shape[1] - block :]
    kept = edits & (matching(candidates, positions, keys) | ~matching(before, positions, keys))
    if keys.pairs is None:
        return kept
    pairs = keys.pairs.of_rows(keys.rows)
    of_pairs = lossless_edits(edits, candidates, _window(tokens, before < 0, positions), pairs)
    return torch.where(pairs.steers[:, None], of_pairs, kept)


def _window(tokens: Tensor | None, masked: Tensor, positions: Tensor) -> Window:
    """The block and the committed tokens to its left; those of the prompt are none."""
    block = masked.shape[1]
    if tokens is None or tokens.shape[1] < block:
        raise SettingsError(
            "keys of rule bigram look at the tokens beside a candidate: give the committed `tokens` up to the end of "
            "the block, or make the KeyStore without distances"
        )
    start = tokens.shape[1] - block
    at = positions[:, :1] + torch.arange(-start, block, device=tokens.device)
    hidden = (at < 0) | torch.nn.functional.pad(masked, (start, 0))
    return Window(tokens.long().masked_fill(hidden, -1), start, masked, (0, start + block), -1)


def propose_block(
    logits: Float[Tensor, "batch block vocab"],
    forbidden: Int[Tensor, " f"],
    config: DecodeConfig,
    uniforms: Float[Tensor, "batch block 2"] | None = None,
    *,
    tempered: bool = False,
) -> tuple[Int[Tensor, "batch block"], Float[Tensor, "batch block"]]:
    """A candidate and its reward for every place of every block, masked or not, as the decoding loop proposes them.

    Args:
        logits: the model's logits; not written to.
        forbidden: ids that no position may take: the mask id, and rows of padding.
        config: `strategy`, `temperature`, `top_k` and `top_p` are read. Top-p waits for the device, so it is for loops
            that may.
        uniforms: numbers in [0, 1) (`uniform_draws`); None is enough at temperature 0, unless the strategy is random.
        tempered: take the reward from the sampled distribution (Dream, LLaDA 2) instead of the model's own (LLaDA).

    Returns:
        The candidates, and their rewards in float32 or better.
    """
    batch, block, vocab = logits.shape
    if uniforms is None:
        uniforms = torch.zeros(batch, block, 2, device=logits.device)
    # a draw takes twelve times the memory of its logits in bf16: row by row
    at_once = max(1, _LOGITS_AT_ONCE // (block * vocab)) if config.greedy else 1
    tokens, rewards = [], []
    for low in range(0, batch, at_once):
        some = slice(low, low + at_once)
        flat = logits[some].flatten(0, 1), uniforms[some].flatten(0, 1)
        proposals = propose(*flat, forbidden, config, tempered=tempered)
        tokens.append(proposals.tokens)
        rewards.append(proposals.rewards)
    return torch.cat(tokens).view(batch, block), torch.cat(rewards).view(batch, block)


def uniform_draws(
    seeds: Int[Tensor, " batch"], steps: Int[Tensor, " batch"], positions: Int[Tensor, "batch block"]
) -> Float[Tensor, "batch block 2"]:
    """Two numbers in [0, 1) for each place, which follow from seed, step and position alone.

    Every rank of a tensor-parallel engine computes the same ones, and neither batch nor device changes them.

    Args:
        seeds: 64 random bits for each row.
        steps: the number of forwards that the row has had, or any other number that never repeats at a position.
        positions: the places' positions.
    """
    seed = _mixed(_mixed(seeds) + steps)[:, None, None]
    place = 2 * positions[:, :, None] + torch.arange(2, device=positions.device)
    bits = shifted(_mixed(seed + _mixed(place)), 64 - _MANTISSA)
    return bits.to(torch.float64) * 2.0**-_MANTISSA


def _mixed(state: Tensor) -> Tensor:
    """One output of SplitMix64 for each state."""
    return mix(state + STEP)
