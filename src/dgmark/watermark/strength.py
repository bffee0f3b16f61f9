"""How much of a typical marked text matches: the share of its different pairs, or of its tokens (position rule).

Measured on sampled texts of the built-in models (lab/docs/results/decoding.md). Knows nothing of texts.
"""

from dgmark.checkpoint.folder import BUILTIN
from dgmark.watermark.bigrams import DISTANCES
from dgmark.watermark.groups import DEFAULT_CODE, WatermarkSpec

# Of the storyteller's first 128 tokens, at T = .55 for pairs and .6 for tokens.
# Positions of a block: share of pairs at distances 1 to 4; share of tokens in two groups with a code of 16.
MEASURED = {4: (0.70, 0.72), 8: (0.72, 0.80), 16: (0.72, 0.86), 32: (0.72, 0.91), 64: (0.72, 0.92)}
# What the shares of pairs and of tokens exceed 1/2 by, over that of the storyteller: the narrator's, at T = .9 and .5.
# Taken for all models but the storyteller.
OTHERS = (0.64, 0.75)
# where nothing was measured
TYPICAL_PAIRS = 0.65


def expected_match(spec: WatermarkSpec, block_length: int) -> float | None:
    """The share that is expected of texts that a model samples in blocks of this length.

    The share of pairs at other distances than 1 to 4 follows from a law: what it exceeds 1/2 by falls with the sixth
    root of their number (measured at distances 1 to 1, 1 to 4 and 1 to 8).

    Returns:
        The share, to two digits, or None for shorter blocks, and for keys with other groups or codes, than were
        measured.
    """
    measured = [shares for block, shares in MEASURED.items() if block <= block_length]
    if not measured:
        return None
    of_pairs, of_tokens = measured[-1]
    strength, of_tokens_strength = (1.0, 1.0) if spec.tokenizer == BUILTIN else OTHERS
    if spec.rule == "position":
        known = (spec.modulus, spec.code_length) == (2, DEFAULT_CODE)
        return round(0.5 + (of_tokens - 0.5) * of_tokens_strength, 2) if known else None
    nearest, farthest = DISTANCES
    strength *= ((farthest - nearest + 1) / (spec.farthest - spec.nearest + 1)) ** (1 / 6)
    return round(0.5 + (of_pairs - 0.5) * float(strength), 2)


def typical_match(spec: WatermarkSpec) -> float:
    """The share that matches in a typical text of a key.

    It is what the key expects of its model; else .65 of the pairs, or half of the tokens that chance misses.
    """
    if spec.expected_match is not None:
        return spec.expected_match
    return TYPICAL_PAIRS if spec.rule == "bigram" else (1 + 1 / spec.modulus) / 2
