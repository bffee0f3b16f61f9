"""An e-value for edited text: the winnings of a bettor who bets on the key's groups before they are revealed.

The groups of a text's tokens are revealed in batches, frequent tokens first. Before each batch the bettor divides the
stake among the groups by the posterior of the phases given the groups revealed so far. A random key's groups are
uniform, so the winnings have mean 1 over random keys, on any text and with any betting rule. By Markov's inequality
1/winnings is a valid p-value, however small (docs/statistics.md). Knows the alignment model only. Ours.
"""

import numpy as np
from jaxtyping import Float, Int, UInt8

from dgmark.detection.alignment import Alignment
from dgmark.detection.hidden_phase import emissions

FIRST_BATCH = 2
# the share of each bet that is divided evenly among all groups, which bounds the loss of a wrong bet
EVEN = 0.05


def log_e_value(alignment: Alignment, groups: UInt8[np.ndarray, " rows"]) -> float:
    """Natural logarithm of the winnings on `groups`. The winnings have mean 1 over random keys."""
    order, pair_row, pair_of = _order(alignment)
    known = np.zeros(len(groups), dtype=bool)
    total = 0.0
    begin, size = 0, FIRST_BATCH
    while begin < len(order):
        batch = order[begin : begin + size]
        bets = _bets(alignment, alignment.posterior(groups, known).states, pair_row, pair_of)
        total += float(np.log(alignment.modulus * bets[batch, groups[batch]]).sum())
        known[batch] = True
        begin += size
        size = begin
    return total


def _order(
    alignment: Alignment,
) -> tuple[Int[np.ndarray, " rows"], Int[np.ndarray, " pairs"], Int[np.ndarray, "n width"]]:
    """The rows in betting order, the row of each distinct (token, row) pair, and the pair of each entry of `items`."""
    rows = len(alignment.distinct)
    places = np.arange(len(alignment.items))[:, None] * rows + alignment.items
    pairs, pair_of = np.unique(places, return_inverse=True)
    counts = np.bincount(pairs % rows, minlength=rows) if rows else np.empty(0, dtype=np.int64)
    return np.argsort(-counts, kind="stable"), pairs % max(rows, 1), pair_of.reshape(alignment.items.shape)


def _bets(
    alignment: Alignment,
    posterior: Float[np.ndarray, "n states"],
    pair_row: Int[np.ndarray, " pairs"],
    pair_of: Int[np.ndarray, "n width"],
) -> Float[np.ndarray, "rows modulus"]:
    """The bettor's distribution over the groups of each row."""
    modulus = alignment.modulus
    missed, gain = (float(x.mean()) for x in emissions(modulus))
    gained = np.zeros((len(pair_row), modulus))
    pairs = np.broadcast_to(pair_of, alignment.wanted.shape)
    np.add.at(gained, (pairs, alignment.wanted), posterior * gain)
    share = np.bincount(pairs.ravel(), posterior.ravel(), len(pair_row))[:, None]
    logs = np.zeros((len(alignment.distinct), modulus))
    np.add.at(logs, pair_row, np.log(1 + share * (missed - 1) + gained))
    bets: Float[np.ndarray, "rows modulus"] = np.exp(logs - logs.max(axis=1, keepdims=True))
    bets /= bets.sum(axis=1, keepdims=True)
    bets *= 1 - EVEN
    bets += EVEN / modulus
    return bets
