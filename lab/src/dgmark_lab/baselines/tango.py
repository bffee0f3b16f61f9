"""TANGO: tokens are coloured by a keyed projection of their embeddings, and pairs two places apart are to sum to 0.

Arabi, Weinberger, Goldblum and Cohen 2026 (arXiv 2609.35224). The rule is written from the paper; no code is published.
A token's colour is its class when the vocabulary is sorted along a keyed direction and cut into classes of equal size.
A pair of tokens at the lag matches if its colours sum to 0 modulo the number of classes.

The matches of a text are not independent over keys, since tokens with near embeddings share colours. So the test draws
directions anew and keeps the text; the published test takes the matches as independent.
"""

import math
from functools import lru_cache, partial

import numpy as np
from jaxtyping import Bool, Float32, Int, UInt8
from scipy.special import ndtri

from dgmark.errors import SettingsError
from dgmark.watermark.key import WatermarkKey
from dgmark.watermark.spec import spec_as
from dgmark_lab.baselines.pattern_mark import max_draws, redrawn_p
from dgmark_lab.baselines.prf import BITS, HashKey, states, uniform_bits
from dgmark_lab.baselines.published import NOTHING, Ids, PublishedTest, Score, binomial_p
from dgmark_lab.baselines.specs import TangoSpec

Colours = UInt8[np.ndarray, "tokens keys"]
# what the input embeddings are called in the checkpoints of the families
_TENSORS = ("embed_tokens.weight", "wte.weight", "word_embeddings.weight")
# the directions that the test draws are those of this hash key, a block at a time
_REDRAWN = HashKey(1, 2)
_BLOCK = 256


class TangoTest(PublishedTest):
    """The test of TANGO."""

    @classmethod
    def scored(cls, key: WatermarkKey, ids: Ids, positions: Ids, fpr: float) -> Score:
        """Count the distinct pairs that match. Published: the binomial test over all pairs, and its z."""
        spec = spec_as(TangoSpec, key)
        pairs = _pairs(ids, positions, spec.lag)
        if not pairs.shape[1]:
            return NOTHING
        colour, tokens = colour_of(key), np.unique(pairs)
        first, second = np.searchsorted(tokens, np.unique(pairs, axis=1))

        def matches(colours: Colours) -> Int[np.ndarray, " keys"]:
            counts: Int[np.ndarray, " keys"] = _match(spec.classes, colours[first], colours[second]).sum(0)
            return counts

        matched, redrawn = int(matches(colour[tokens, None])[0]), partial(_redrawn, spec, tokens)
        p_value, _ = redrawn_p(matched, lambda *keys: matches(redrawn(*keys)), most=max_draws(fpr, len(tokens)))
        chance, scored = 1 / spec.classes, len(first)
        every, hits = pairs.shape[1], int(_match(spec.classes, *colour[pairs]).sum())
        typical = math.ceil(scored * (1 + chance) / 2)
        return Score(
            scored=scored,
            matched=matched,
            z_score=(hits - every * chance) / math.sqrt(every * chance * (1 - chance)),
            p_value=p_value,
            p_published=binomial_p(hits, every, chance),
            detectable=p_value <= fpr or max(binomial_p(typical, scored, chance), chance ** len(tokens)) <= fpr,
        )


def _redrawn(spec: TangoSpec, tokens: Ids, first: int, count: int) -> Colours:
    """The colours of some tokens under random keys, which are the same for every text."""
    blocks = range(first // _BLOCK, -(-(first + count) // _BLOCK))
    parts = [_coloured(spec, _REDRAWN, number * _BLOCK, _BLOCK, tokens) for number in blocks]
    return np.concatenate(parts, axis=1)[:, first % _BLOCK :][:, :count]


def _coloured(spec: TangoSpec, hash_key: HashKey, first: int, count: int, tokens: Ids) -> Colours:
    """The colours of some tokens, each named once and in order, under so many keys of a series, from this one on."""
    if spec.colours == "hash":
        bits = uniform_bits(states(hash_key, first + np.arange(count)), tokens[:, None])
        return ((bits * spec.classes) >> BITS).astype(np.uint8)
    model = spec.embeddings or spec.tokenizer
    directions, bounds = _directions(model, spec.classes, hash_key, first, count)
    rows = unit_embeddings(model)
    projections = (rows if len(tokens) == len(rows) else rows[tokens]) @ directions  # all rows are not copied
    colours: Colours = (projections[:, None] >= bounds).sum(1).astype(np.uint8)
    return colours


def _match(classes: int, one: UInt8[np.ndarray, "*s"], other: UInt8[np.ndarray, "*s"]) -> Bool[np.ndarray, "*s"]:
    match: Bool[np.ndarray, "*s"] = (one + other) % classes == 0
    return match


def _pairs(ids: Ids, positions: Ids, lag: int) -> Int[np.ndarray, "2 pairs"]:
    """Return the tokens of each pair at the lag, the smaller id first, since the sum has no order."""
    placed = np.full(int(positions.max()) + 1 + lag, -1)
    placed[positions + lag] = ids
    left = placed[positions]
    return np.sort(np.stack([left, ids])[:, left >= 0], axis=0)


@lru_cache(maxsize=4)
def unit_embeddings(model: str) -> Float32[np.ndarray, "vocab width"]:
    """Return a model's input embeddings, each of length 1.

    Raises:
        ModelNotFound: the model is not on this machine.
        SettingsError: its weights have no input embeddings under a known name.
    """
    # here, so that colours by hash need no torch
    import torch
    from safetensors import safe_open

    from dgmark.models.load import find_with_weights

    checkpoint, _ = find_with_weights(model)
    for path in sorted(checkpoint.folder.glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            found = [name for name in file.keys() if name.endswith(_TENSORS)]  # noqa: SIM118 (no mapping)
            if found:
                rows = torch.nn.functional.normalize(file.get_tensor(found[0]).float(), dim=1).numpy()
                rows.flags.writeable = False
                return rows
    raise SettingsError(
        f"rule tango finds no input embeddings in the weights of {model} (a tensor whose name ends in "
        f"{', '.join(_TENSORS)}): name another model with option embeddings, or choose colours=hash"
    )


@lru_cache(maxsize=8)
def colour_of(key: WatermarkKey) -> UInt8[np.ndarray, " vocab"]:
    """Return the colour of each token of the key's vocabulary.

    Raises:
        SettingsError: the model's embeddings are not those of the key's vocabulary.
        ModelNotFound: the model is not on this machine.
    """
    spec, size = spec_as(TangoSpec, key), key.spec.table_size
    model = spec.embeddings or spec.tokenizer
    if spec.colours == "embeddings" and (known := len(unit_embeddings(model))) != size:
        raise SettingsError(
            f"{model} has embeddings of {known} tokens, and the key is for {size}: name the model of the key with "
            "option embeddings"
        )
    return _coloured(spec, HashKey.of(key, "tango"), 0, 1, np.arange(size))[:, 0]


@lru_cache(maxsize=128)
def _directions(
    model: str, classes: int, hash_key: HashKey, first: int, count: int
) -> tuple[Float32[np.ndarray, "width keys"], Float32[np.ndarray, "bounds keys"]]:
    """Return normal directions of some keys, and the projections at which their classes begin, without the first."""
    rows = unit_embeddings(model)
    bits = uniform_bits(states(hash_key, first + np.arange(count)), np.arange(rows.shape[1])[:, None])
    directions = ndtri(((bits >> 1) + 0.5) / 2.0 ** (BITS - 1)).astype(np.float32)
    cuts = [len(rows) * number // classes for number in range(1, classes)]
    return directions, np.partition(rows @ directions, cuts, axis=0)[cuts]
