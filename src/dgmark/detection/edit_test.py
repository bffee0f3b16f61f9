"""The test for text that may have been edited, by alignment, and the paper's sliding windows for comparison.

Its statistic is a likelihood ratio (`importance_sampling.py`). Keys are drawn from a proposal and not
at random, so that many of them do as well as the real key, and each counts by the ratio of its chance at random to its
chance of being drawn. With the real key among them, the sum is a valid p-value for any number of draws (Harrison 2012).
The draws depend on the text only. Knows tokens and their positions only.
"""

import math

import numpy as np
from jaxtyping import Bool, Float, Int, UInt8

from dgmark.detection.exact_test import MIN_P, bonferroni_p
from dgmark.detection.hidden_markov import HiddenMarkovModel, states_of
from dgmark.detection.importance_sampling import DeterministicDraws, Proposal, weighted_rank
from dgmark.detection.result import Phase
from dgmark.watermark.groups import GroupTables, WatermarkSpec

# Keys drawn for one text: as many as the work (keys x tokens x states) allows.
MAX_DRAWS, MIN_DRAWS, WORK = 1000, 100, 2**22
# The screening test: a p-value above SCREEN, by the rank of the block statistic among a few random keys, is final.
SCREEN, SCREEN_DRAWS = 0.2, 63
# Only the first scored tokens of a text are aligned: at most MAX_TOKENS, and at most MAX_CELLS tokens x states.
MAX_TOKENS, MAX_CELLS = 16_384, 2**18
# The block statistic's shortest blocks, and the strengths of the mark that it averages over.
MIN_BLOCK = 8
STRENGTHS = (0.4, 0.8)
DEFAULT_WINDOW = 8
# matches in memory at once
_AT_ONCE = 2**22


def aligned_tokens(spec: WatermarkSpec) -> int:
    """How many scored tokens at the front of a text are aligned: the more hidden states, the fewer tokens."""
    return min(MAX_TOKENS, MAX_CELLS // states_of(spec))


def sees_all(spec: WatermarkSpec, phase: Phase, max_crop: int, scored: int) -> bool:
    """Whether alignment covers all that the exact test tries: the whole text, and every shift."""
    crops = bool(spec.rotation and phase == "any" and max_crop)
    return not crops and scored <= aligned_tokens(spec)


def draws_of(model: HiddenMarkovModel) -> int:
    """How many keys are drawn for a text. It depends on its length and the key's spec alone."""
    return max(MIN_DRAWS, min(MAX_DRAWS, WORK // max(1, model.wanted.size)))


def front_model(
    tables: GroupTables, ids: Int[np.ndarray, " n"], positions: Int[np.ndarray, " n"], phase: Phase
) -> HiddenMarkovModel:
    """The alignment of the first `aligned_tokens` of a text."""
    longest = aligned_tokens(tables.spec)
    return HiddenMarkovModel.of(ids[:longest], positions[:longest], tables, phase)


def aligned_test(
    tables: GroupTables,
    ids: Int[np.ndarray, " n"],
    positions: Int[np.ndarray, " n"],
    phase: Phase,
    *,
    intact: bool = True,
    constant_work: bool = False,
) -> tuple[float, int]:
    """Test scored `ids` at `positions`, allowing for edits.

    Two p-values are at hand, each valid by itself: that of the screening test, reported if above `SCREEN`, and
    otherwise the one from drawn keys. This adds no error: for a level at or below `SCREEN` only the second counts, and
    for one above it, whatever is reported at or below the level has a rank at or below it.

    Args:
        tables: the key's groups and position code.
        ids: scored token ids; only the first `aligned_tokens` are used.
        positions: their positions, counted from the first token of the text.
        phase: "start" if the text is taken to begin at position 0.
        intact: whether the proposal also allows for text that nobody edited.
        constant_work: draw the keys whatever the rank, so that the time does not tell it.

    Returns:
        The p-value, which is the chance that a random key aligns as well with this very text, and the number of drawn
        keys.
    """
    if not len(ids):
        return 1.0, 0
    model = front_model(tables, ids, positions, phase)
    key = model.groups(tables)[:, None]
    balance = model.balance(tables.spec)
    random = DeterministicDraws("screen/v3", ids, positions).groups(len(key), SCREEN_DRAWS, model.modulus)
    statistics = block_statistics(model, np.concatenate([key, random], axis=1))
    rank = weighted_rank(statistics, np.ones(1 + SCREEN_DRAWS))
    screened = rank > SCREEN
    if screened and not constant_work:
        return bonferroni_p(rank, balance), SCREEN_DRAWS
    draws = draws_of(model)
    sample = Proposal(model, intact).sample(key, draws, DeterministicDraws("draws/v3", ids, positions))
    p_value = weighted_rank(sample.statistics, sample.weights)
    if screened:
        return bonferroni_p(rank, balance), SCREEN_DRAWS
    return max(MIN_P, bonferroni_p(p_value, balance)), draws


def edited_fraction(
    tables: GroupTables, ids: Int[np.ndarray, " n"], positions: Int[np.ndarray, " n"], phase: Phase
) -> float:
    """Expected jumps of the phase per token if the mark is present: tokens inserted or deleted."""
    model = front_model(tables, ids, positions, phase)
    jumps, _ = model.posterior(model.groups(tables))
    return float(jumps.mean())


def block_statistics(
    model: HiddenMarkovModel,
    groups: UInt8[np.ndarray, "rows keys"],
    wanted: UInt8[np.ndarray, "n states keys"] | None = None,
) -> Float[np.ndarray, " keys"]:
    """Natural logarithm of the block statistic under each of several keys, for the screening test and to rank keys.

    The text is cut into blocks, in each of which the phase is taken to be constant. The statistic is the likelihood
    ratio of that, averaged over the phases of each block, over a few lengths of the blocks, and over two strengths.

    Args:
        model: the hidden Markov model of the text.
        groups: each key's group of each row of `model.distinct`.
        wanted: each key's own residues, if the keys' position codes differ; `model.wanted` by default.
    """
    size = max(1, _AT_ONCE // max(1, model.wanted.size))
    parts = []
    for begin in range(0, groups.shape[1], size):
        part = slice(begin, begin + size)
        residues = model.wanted[..., None] if wanted is None else wanted[..., part]
        parts.append(_of_matches(groups[:, part][model.items] == residues, model.modulus))
    return np.concatenate(parts) if parts else np.zeros(0)


def _of_matches(matched: Bool[np.ndarray, "n states keys"], modulus: int) -> Float[np.ndarray, " keys"]:
    """The block statistic from each token's matches."""
    n = len(matched)
    if not n:
        return np.zeros(matched.shape[2])
    counts = np.add.reduceat(matched, np.arange(0, n, MIN_BLOCK), axis=0, dtype=np.int32)
    logs = []
    while True:
        for strength in STRENGTHS:
            missed = np.log1p(-strength)
            gain = np.log1p((modulus - 1) * strength) - missed
            logs.append(log_mean_over_states(counts * gain).sum(axis=0) + missed * n)
        if len(counts) == 1:
            break
        counts = np.add.reduceat(counts, np.arange(0, len(counts), 2), axis=0)
    total: Float[np.ndarray, " keys"] = np.logaddexp.reduce(logs, axis=0) - np.log(len(logs))
    return total


def log_mean_over_states(values: Float[np.ndarray, "blocks states keys"]) -> Float[np.ndarray, "blocks keys"]:
    """Logarithm of the mean over the states."""
    best = values.max(axis=1)
    return np.asarray(np.log(np.exp(values - best[:, None]).mean(axis=1)) + best)


def window_statistic(
    matched: Bool[np.ndarray, "n *keys"], modulus: int, window: int = DEFAULT_WINDOW
) -> Float[np.ndarray, " *keys"]:
    """The paper's z_win: the mean squared z-score of the n - window + 1 windows; 1, its mean under fair coins, if none.

    Args:
        matched: whether each token matches.
        modulus: number of groups m.
        window: tokens of each window.
    """
    if len(matched) < window:
        return np.ones(matched.shape[1:])
    counts = np.cumsum(matched, axis=0, dtype=np.int64)
    sums = counts[window - 1 :].copy()
    sums[1:] -= counts[:-window]
    chance = 1 / modulus
    scores = (sums - window * chance) / math.sqrt(window * chance * (1 - chance))
    return np.asarray(np.square(scores).sum(axis=0) / len(scores))
