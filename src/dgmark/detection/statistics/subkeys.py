"""Which of a key's sub-keys marked a text: their ranking, and how sure the likeliest is. Ours."""

import numpy as np
from jaxtyping import Int

from dgmark.detection.statistics.evidence import Evidence
from dgmark.watermark.bigram import PairHashes

# strengths of the mark that the confidence in a sub-key averages over: twice the share of matching pairs, less 1
STRENGTHS = (0.1, 0.3, 0.5)
# sub-keys are ranked by the counts of runs of blocks of this many tokens
_BLOCK_TOKENS = 32
# sub-keys whose spans are looked for
_SUBKEYS_WITH_SPANS = 16


def ranked_subkeys(evidence: Evidence, hashes: PairHashes, subkeys: int) -> list[int]:
    """The sub-keys with the best counts over any run of 1, 2, 4, ... blocks or the whole text, the best first."""
    pairs, best = evidence.pairs, np.full(subkeys, -np.inf)
    block_of = pairs.right[pairs.first] // _BLOCK_TOKENS
    blocks, order = max(1, -(-len(pairs.tokens.ids) // _BLOCK_TOKENS)), block_of.argsort(kind="stable")
    in_block = evidence.sums_by_subkey(hashes, subkeys, order, np.bincount(block_of, minlength=blocks))
    # of all blocks before each
    heads = np.concatenate([np.zeros((1, subkeys), dtype=np.int64), in_block.cumsum(axis=0)])
    total, squares = (
        np.concatenate([[0], np.bincount(block_of, evidence.values**power, minlength=blocks).cumsum()])
        for power in (1, 2)
    )
    length = 1
    while length < 2 * blocks:
        run = min(length, blocks)
        of_run, spread = (np.maximum(sums[run:] - sums[:-run], 1)[:, None] for sums in (total, squares))
        scores = (2.0 * (heads[run:] - heads[:-run]) - of_run) / np.sqrt(spread)
        best = np.maximum(best, scores.max(axis=0))
        length *= 2
    first: list[int] = np.argsort(-best, kind="stable")[:_SUBKEYS_WITH_SPANS].tolist()
    return first


def confidence_in(
    subkey: int, evidence: Evidence, hashes: PairHashes, subkeys: int, inside: Int[np.ndarray, " some"]
) -> float:
    """The probability that some pairs of a marked text have the mark of this sub-key and of no other of the key.

    By Bayes, the sub-keys equally likely before. With weights, the odds of a match grow with the weight of a pair, and
    the strength is that of a pair of mean weight.
    """
    (heads,) = evidence.sums_by_subkey(hashes, subkeys, inside)
    logs = np.logaddexp.reduce(evidence.log_ratios(heads, inside, STRENGTHS), axis=0)
    return float(np.exp(logs[subkey] - np.logaddexp.reduce(logs)))
