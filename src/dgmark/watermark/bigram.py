"""The bigram rule: a keyed bit for each pair of tokens near each other, so that no position matters.

A pair is two tokens of a text, the second a number of places after the first that lies in the key's range of distances
(a skip-bigram); it matches if its bit is 1. At distance 0 it is a token with itself, which stays where others move. An
insertion or a deletion changes few pairs. The bits are those of SipHash-2-4 over (left, right, sub-key), so the bits of
different pairs, and of one pair under different sub-keys, are independent. Ours. Other marks for diffusion models that
hash neighbours bias the logits (Gloaguen et al. 2025; LR-DWM).
"""

import hashlib
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Annotated, Any, Final, Literal

import numpy as np
from jaxtyping import Bool, Int, UInt8
from pydantic import AfterValidator, Field
from pydantic.dataclasses import dataclass

from dgmark.checkpoint.tokenizer import Tokenizer
from dgmark.errors import SettingsError
from dgmark.watermark.hashes import KEY_BYTES, SipHashKey, Words, siphash
from dgmark.watermark.spec import KeyLike, WatermarkSpec, Whole, spec_as
from dgmark.watermark.word_classes import WordClasses

BIGRAM_PRF: Final = "siphash24-pairs-v1"
WORDS_PRF: Final = "siphash24-word-pairs-v1"
MAX_DISTANCE: Final = 64
# of a new key: evidence and quality of text were best among 1 to 1, 2, 3, 4, 8 and 16 (lab/docs/results/decoding.md)
DISTANCES: Final = (1, 4)
MAX_SUBKEYS: Final = 65_536
# of a new key: the fewest at which a hundred texts let no thief without a bias forge 1 in 20 (docs/security.md)
DEFAULT_SUBKEYS: Final = 64
# ids fill 24 bits of the hashed word, and the number of a sub-key without its last six bits the 16 bits above them
MAX_TABLE: Final = 2**24
_ID_BITS, _OUTPUT_BITS = 24, 64
# hashes at once, which fit a core's cache
_HASHES_AT_ONCE = 2**14
# hashes of several texts that are computed together and kept until the texts are tested
_HASHES_TOGETHER = 2**20
# pairs whose weights, up to 2^12, are summed in 32-bit floats without rounding
_WEIGHTS_AT_ONCE = 2**12


def _power_of_two(value: int) -> int:
    if value < 1 or value & (value - 1):
        raise ValueError
    return value


@dataclass(frozen=True, kw_only=True)
class BigramSpec(WatermarkSpec):
    """The spec of rule "bigram": the bit of a pair of nearby tokens must be 1.

    Attributes:
        nearest: the smallest distance of a pair, in tokens; at 0 each token is a pair with itself, too.
        farthest: the largest, up to 64.
        tokens: "words": the bits are those of pairs of classes of words, which `word_classes` names; "exact": of ids.
        subkeys: number of sub-keys, a power of two up to 65,536; each text is marked with one of them. 1 = all texts
            are marked alike.
    """

    rule: Literal["bigram"] = "bigram"
    nearest: Whole = Field(
        json_schema_extra={"help": "Smallest distance of a pair, in tokens; 0: each token is a pair with itself, too."}
    )
    farthest: Whole = Field(json_schema_extra={"help": f"Largest distance of a pair, up to {MAX_DISTANCE}."})
    tokens: Literal["words", "exact"] = Field(
        default="exact",
        description="one of: words, exact",
        json_schema_extra={
            "help": "words: tokens that read as the same word, whatever its case and the white space around it, are "
            "marked alike, so that the mark survives such changes; exact: every token id is different."
        },
    )
    subkeys: Annotated[Whole, AfterValidator(_power_of_two)] = Field(
        default=1,
        le=MAX_SUBKEYS,
        description=f"a power of two from 1 to {MAX_SUBKEYS}; 1 marks all texts alike",
        json_schema_extra={
            "help": "Mark each text with one of this many sub-keys, drawn at random: a power of two up to "
            f"{MAX_SUBKEYS}; 1: all texts are marked alike.",
        },
    )

    @property
    def prf(self) -> str:  # type: ignore[override] # no constant here
        """Name and version of the function that makes bits of pairs from the secret."""
        return WORDS_PRF if self.tokens == "words" else BIGRAM_PRF

    @classmethod
    def defaults_of_new(cls, options: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG003 (the base class's)
        """The distances, and the number of sub-keys."""
        return {"nearest": DISTANCES[0], "farthest": DISTANCES[1], "subkeys": DEFAULT_SUBKEYS}

    @classmethod
    def bound_to(cls, tokenizer: Tokenizer, fields: dict[str, Any]) -> dict[str, Any]:
        """The tokenizer, and its classes of words for a key of words."""
        words = fields.get("tokens") == "words"
        classes = {"word_classes": WordClasses.of(tokenizer).fingerprint} if words else {}
        return super().bound_to(tokenizer, fields) | classes

    def to_fields(self) -> dict[str, Any]:
        """The fields of key files; "exact" is left out, as in files from before there were classes."""
        fields = super().to_fields()
        if self.tokens == "exact":
            del fields["tokens"]
        return fields

    def check(self) -> None:
        """Refuse distances that are not a range, and too large vocabularies."""
        super().check()
        if not (0 <= self.nearest <= self.farthest and 1 <= self.farthest <= MAX_DISTANCE):
            raise SettingsError(
                f"the distances of pairs are {self.nearest} to {self.farthest}: farthest must be 1 to {MAX_DISTANCE}, "
                "and nearest 0 to farthest"
            )
        if self.table_size > MAX_TABLE:
            raise SettingsError(f"rule bigram takes vocabularies of up to {MAX_TABLE} ids, not {self.table_size}")
        if (self.tokens == "words") != (self.word_classes is not None):
            raise SettingsError(
                "a key has tokens words and the hash of its classes, or neither: WatermarkKey.generate makes such keys"
            )

    @property
    def caution(self) -> str | None:
        """That all texts share the bit of each word, where they do."""
        if self.nearest or self.subkeys > 1:
            return None
        return (
            "at distance 0 without sub-keys a word has the same bit in all texts, so that frequent words give some "
            "keys more false alarms than others: take sub-keys, or check the key on much traffic"
        )

    @property
    def typical_match(self) -> float:
        """The share of the different pairs of a typical text that match; .65 if the key does not say it."""
        return self.expected_match or 0.65


@lru_cache(maxsize=256)
def hash_key(secret: bytes, nearest: int, farthest: int, prf: str = BIGRAM_PRF) -> SipHashKey:
    """The key of the hash: 16 bytes of SHAKE-256 over (version, distances, secret)."""
    message = b"dgmark/pairs/" + prf.encode() + b"\0" + bytes([nearest, farthest]) + secret
    return SipHashKey.of(hashlib.shake_256(message).digest(KEY_BYTES))


def pair_key(key: KeyLike) -> SipHashKey:
    """The key of the hash of pairs, of a key of this rule; a key of another rule is a SettingsError."""
    spec = spec_as(BigramSpec, key)
    return hash_key(key.secret or b"", spec.nearest, spec.farthest, spec.prf)


def pairs_of(
    positions: Int[np.ndarray, " n"], nearest: int, farthest: int
) -> tuple[Int[np.ndarray, " pairs"], Int[np.ndarray, " pairs"]]:
    """The indices of the left and of the right token of each pair, in the order of the right tokens.

    Args:
        positions: positions of the scored tokens in the text, ascending: one that is not scored takes its place.
        nearest: the smallest distance of a pair, in positions.
        farthest: the largest.
    """
    back = np.arange(min(nearest, 1), farthest + 1)
    right = np.repeat(np.arange(len(positions)), len(back))
    left = right - np.tile(back, len(positions))
    left, right = left[left >= 0], right[left >= 0]
    distance = positions[right] - positions[left]
    near = (nearest <= distance) & (distance <= farthest)
    return left[near], right[near]


def pair_words(left: Words, right: Words) -> Words:
    """One 64-bit word for each pair of token ids, int64 arrays or tensors; equal pairs have equal words.

    Under a key of words the ids are those of classes (`class_ids`).
    """
    words: Words = left | right << _ID_BITS
    return words


def matching_pairs(
    words: Words,
    key: SipHashKey | tuple[Words, Words],
    number: Any = 0,
    hashed: Callable[[Words, Any], Words] = siphash,
) -> Words:
    """Whether each pair matches under one sub-key: booleans, of the kind of the words.

    Args:
        words: the pairs as `pair_words`.
        key: the key of the hash.
        number: the number of the sub-key, or of each pair's; 0 for a key without sub-keys.
        hashed: computes the hash.
    """
    # a shift and a mask, as divisions of arrays take long
    hashes = hashed(words | number >> 6 << 2 * _ID_BITS, key)
    matches: Words = (hashes >> (number & _OUTPUT_BITS - 1)) & 1 == 1
    return matches


class PairHashes:
    """The hashes of the pairs of a text, each computed once; one answers for 64 sub-keys.

    Args:
        words: the pairs as `pair_words`.
        key: the key of the hash.
    """

    def __init__(self, words: Int[np.ndarray, " n"], key: SipHashKey) -> None:
        self.words, self.key = words, key
        # of which blocks of 64 sub-keys they were computed together with those of other texts
        self._blocks, self._known = range(0), np.zeros((0, len(words)), np.int64)

    @classmethod
    def compute_together(cls, several: "Sequence[PairHashes]", subkeys: range) -> None:
        """Compute the hashes of several texts under the same key at once: of a short array each element costs more.

        Args:
            several: the hashes of the texts.
            subkeys: the sub-keys that will be asked for. Where these are so many hashes that nothing is won and much
                is kept, nothing is computed.
        """
        blocks = range(subkeys.start // _OUTPUT_BITS, -(-subkeys.stop // _OUTPUT_BITS))
        pairs = sum(len(hashes.words) for hashes in several)
        if not pairs or len(blocks) * pairs > _HASHES_TOGETHER:
            return
        words = np.concatenate([hashes.words for hashes in several])
        computed = siphash(_above_pairs(blocks)[:, None] | words, several[0].key)
        ends = np.cumsum([len(hashes.words) for hashes in several])
        for hashes, end in zip(several, ends.tolist(), strict=True):
            hashes._blocks, hashes._known = blocks, computed[:, end - len(hashes.words) : end]

    def matches(self, number: int) -> Bool[np.ndarray, " n"]:
        """Whether each pair matches under one sub-key, see `matching_pairs`."""
        block, bit = divmod(number, _OUTPUT_BITS)
        (hashes,) = self.of_blocks(range(block, block + 1))
        matches: Bool[np.ndarray, " n"] = (hashes >> bit) & 1 == 1
        return matches

    def of_blocks(self, blocks: range) -> Int[np.ndarray, "blocks n"]:
        """The hashes for some blocks of 64 sub-keys."""
        first = self._blocks.start
        if first <= blocks.start and blocks.stop <= self._blocks.stop:
            return self._known[blocks.start - first : blocks.stop - first]
        return siphash(_above_pairs(blocks)[:, None] | self.words, self.key)


def _above_pairs(blocks: range) -> Int[np.ndarray, " blocks"]:
    """The bits of the hashed words above a pair, for each block of 64 sub-keys."""
    return np.arange(blocks.start, blocks.stop) << 2 * _ID_BITS


def sums_by_subkey(
    hashes: PairHashes,
    subkeys: int,
    order: Int[np.ndarray, " n"] | None = None,
    sizes: Int[np.ndarray, " parts"] | None = None,
    weights: Int[np.ndarray, " n"] | None = None,
) -> Int[np.ndarray, "parts subkeys"]:
    """How many of the pairs of each part match under each of the sub-keys 0, 1, ..., or the weight of those that do.

    Args:
        hashes: the hashes of the pairs.
        subkeys: the number of sub-keys.
        order: the pairs, part after part; by default all of them in their order.
        sizes: how many pairs each part has; all are one part by default.
        weights: the weight of each of these pairs; each counts 1 by default.
    """
    count, blocks = len(hashes.words) if order is None else len(order), -(-subkeys // _OUTPUT_BITS)
    ends = [count] if sizes is None else np.cumsum(sizes).tolist()
    sums = np.zeros((len(ends), blocks, _OUTPUT_BITS), dtype=np.int64)
    blocks_at_once = max(1, _HASHES_AT_ONCE // max(1, count))
    for first in range(0, blocks, blocks_at_once):
        some = range(first, min(first + blocks_at_once, blocks))
        chosen = hashes.of_blocks(some)
        if order is not None:
            chosen = chosen[:, order]
        octets = np.ascontiguousarray(chosen, "<i8").view(np.uint8).reshape(len(chosen), count, 8)
        for part, (begin, end) in enumerate(pairwise([0, *ends])):
            own = octets[:, begin:end]
            counts = _sums_of_bits(own) if weights is None else _weighted_sums(own, weights[begin:end])
            sums[part, some.start : some.stop] = counts
    return sums.reshape(len(ends), -1)[:, :subkeys]


def _sums_of_bits(hashes: UInt8[np.ndarray, "blocks n 8"]) -> Int[np.ndarray, "blocks 64"]:
    """For each of the 64 bits, lowest first, in how many hashes of a block it is set."""
    total = np.zeros((len(hashes), _OUTPUT_BITS), dtype=np.int64)
    for begin in range(0, hashes.shape[1], 255):  # sums of up to 255 bits fit a byte
        bits = np.unpackbits(hashes[:, begin : begin + 255], axis=-1, bitorder="little")
        total += bits.sum(axis=1, dtype=np.uint8)
    return total


def _weighted_sums(
    hashes: UInt8[np.ndarray, "blocks n 8"], weights: Int[np.ndarray, " n"]
) -> Int[np.ndarray, "blocks 64"]:
    """For each of the 64 bits, lowest first, the weights of those hashes of a block in which it is set."""
    total = np.zeros((len(hashes), _OUTPUT_BITS), dtype=np.int64)
    for begin in range(0, hashes.shape[1], _WEIGHTS_AT_ONCE):
        some = slice(begin, begin + _WEIGHTS_AT_ONCE)
        bits = np.unpackbits(hashes[:, some], axis=-1, bitorder="little").astype(np.float32)
        total += (weights[some].astype(np.float32) @ bits).astype(np.int64)
    return total
