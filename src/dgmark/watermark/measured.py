"""The share of matches that was measured in texts of the built-in models, by which new keys call short texts uncertain.

lab/docs/results/decoding.md has the texts. No p-value depends on these numbers.
"""

from collections.abc import Mapping

from dgmark.checkpoint.folder import BUILTIN
from dgmark.watermark.bigram import DISTANCES, BigramSpec
from dgmark.watermark.position import DEFAULT_CODE, PositionSpec
from dgmark.watermark.spec import WatermarkSpec

# by the positions of a block: the share of pairs at distances 1 to 4 of the storyteller's first 128 tokens at T = .55,
# and of tokens, in two groups with a code of 16, at T = .6
PAIRS: Mapping[int, float] = {4: 0.70, 8: 0.72, 16: 0.72, 32: 0.72, 64: 0.72}
TOKENS: Mapping[int, float] = {4: 0.72, 8: 0.80, 16: 0.86, 32: 0.91, 64: 0.92}
# what the shares exceed 1/2 by, over that of the storyteller: the narrator's, at T = .9 and .5, taken for all other
# models
_PAIRS_OF_OTHER_MODELS, _TOKENS_OF_OTHER_MODELS = 0.64, 0.75


def match_of_pairs(spec: BigramSpec, block_length: int) -> float | None:
    """The share of pairs that is expected to match in texts sampled in blocks of this length; None for shorter blocks.

    It falls with the sixth root of the number of distances (measured at distances 1 to 1, 1 to 4 and 1 to 8).
    """
    nearest, farthest = DISTANCES
    strength = float(((farthest - nearest + 1) / (spec.farthest - spec.nearest + 1)) ** (1 / 6))
    return _share(PAIRS, block_length, strength * _of_model(spec, _PAIRS_OF_OTHER_MODELS))


def match_of_tokens(spec: PositionSpec, block_length: int) -> float | None:
    """The share of tokens that is expected to match; None for shorter blocks, other groups or codes than measured."""
    if (spec.modulus, spec.code_length) != (2, DEFAULT_CODE):
        return None
    return _share(TOKENS, block_length, _of_model(spec, _TOKENS_OF_OTHER_MODELS))


def _of_model(spec: WatermarkSpec, other: float) -> float:
    return 1.0 if spec.tokenizer == BUILTIN else other


def _share(measured: Mapping[int, float], block_length: int, strength: float) -> float | None:
    """The share at the longest block that was measured up to this length, to two digits."""
    shares = [share for block, share in measured.items() if block <= block_length]
    return round(0.5 + (shares[-1] - 0.5) * strength, 2) if shares else None
