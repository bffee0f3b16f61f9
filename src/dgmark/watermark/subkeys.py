"""The groups of a key with sub-keys: one squeeze of SHAKE-256 for each token gives its groups under 4,096 sub-keys.

Each text is marked with one sub-key, so that 1 in N pairs of texts share their groups; a detector tries them all.
The groups of different tokens, and of one token under different sub-keys, are independent and uniform. Knows nothing
of who draws the sub-key of a text. Ours.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, Literal

import numpy as np
from jaxtyping import Int, UInt8, UInt16

from dgmark.errors import SettingsError, whole
from dgmark.watermark.bigrams import BIGRAM_PRF
from dgmark.watermark.groups import PRF, ArrayCache, GroupTables, Secret, WatermarkSpec, check_ids, least_like_itself

Prf = Literal["shake256-rank-v1", "shake256-token-v2", "siphash24-pairs-v1"]
SUBKEY_PRF: Final = "shake256-token-v2"
# sub-keys of one chunk of the stream
AT_ONCE = 4096
_CODE_DRAWS = 8
# tokens squeezed, and codes drawn, at a time: this bounds what is in memory beside the result
_TOKENS_AT_ONCE = 1024
_CODES_AT_ONCE = 4096
_MATRIX_BYTES = 2**27
_COLUMN_BYTES = 2**26


def prf_of(spec: WatermarkSpec) -> Prf:
    """The name of the function that gives the groups of this spec, as key files state it."""
    if spec.rule == "bigram":
        return BIGRAM_PRF
    return SUBKEY_PRF if spec.subkeys > 1 else PRF


@dataclass(eq=False)
class Subkeys:
    """The groups and position codes of all sub-keys of one key.

    The squeezes of a chunk for the whole vocabulary are kept in memory, at most 128 MB of them. They are never
    written to a file: such a file would be as secret as the key, and takes longer to protect than to make.
    """

    spec: WatermarkSpec
    secret: bytes = field(repr=False)
    _matrices: ArrayCache = field(default_factory=lambda: ArrayCache(_MATRIX_BYTES), repr=False)
    _columns: ArrayCache = field(default_factory=lambda: ArrayCache(_COLUMN_BYTES), repr=False)

    def __post_init__(self) -> None:
        if self.spec.subkeys == 1:
            raise SettingsError(
                "this key has no sub-keys: make one that has, with `dgmark keygen --subkeys` or "
                "WatermarkKey.generate(subkeys=...)"
            )

    def chunks(
        self, ids: Int[np.ndarray, " distinct"], segment: int = 0
    ) -> Iterator[tuple[int, UInt8[np.ndarray, "distinct count"]]]:
        """The groups of tokens under all sub-keys, 4,096 sub-keys at a time.

        Args:
            ids: token ids; each costs one squeeze, so repeat none.
            segment: the segment of their positions.

        Yields:
            The number of the first sub-key, and the group of each token under this sub-key and those that follow it.

        Raises:
            VocabularyMismatch: an id lies outside the key's vocabulary.
        """
        check_ids(ids, self.spec.table_size)
        count = min(AT_ONCE, self.spec.subkeys)
        for first in range(0, self.spec.subkeys, AT_ONCE):
            yield first, self._groups(ids, segment, first // AT_ONCE, count)

    def column(self, subkey: int, segment: int = 0) -> UInt8[np.ndarray, " vocab"]:
        """The group of each token id under one sub-key, read-only."""
        return self._columns.get((subkey, segment), self.spec.table_size, lambda: self._made(subkey, segment))

    def _made(self, subkey: int, segment: int) -> UInt8[np.ndarray, " vocab"]:
        """A column that is not in memory, from the squeezes of its chunk if these fit into memory."""
        ids, chunk = np.arange(self.spec.table_size), subkey // AT_ONCE
        size = -(-min(AT_ONCE, self.spec.subkeys) * _bits(self.spec.modulus) // 8)
        if not size or size * len(ids) > _MATRIX_BYTES:
            return self._column(ids, segment, subkey)
        matrix = self._matrices.get(
            (segment, chunk), size * len(ids), lambda: self._squeezes(ids, segment, chunk, size)
        )
        return _taken(matrix, self.spec.modulus, subkey % AT_ONCE)

    def groups(self, ids: Int[np.ndarray, " n"], subkey: int, segment: int = 0) -> UInt8[np.ndarray, " n"]:
        """The groups of a text's tokens under one sub-key; only their distinct ids are squeezed."""
        distinct, place = np.unique(ids, return_inverse=True)
        groups: UInt8[np.ndarray, " n"] = self._column(distinct, segment, subkey)[place]
        return groups

    @cached_property
    def codes(self) -> UInt8[np.ndarray, "subkeys period"]:
        """The position code of each sub-key: the wanted residues of one period, read-only."""
        codes = self.codes_of(np.arange(self.spec.subkeys))
        codes.setflags(write=False)
        return codes

    def codes_of(self, numbers: Int[np.ndarray, " n"]) -> UInt8[np.ndarray, "n period"]:
        """The position codes of some sub-keys.

        Each is the one of 8 draws that agrees least with itself shifted, as in `position_code`.
        """
        spec = self.spec
        if not spec.code_length:
            return np.tile(np.arange(spec.modulus, dtype=np.uint8), (len(numbers), 1))
        codes = np.empty((len(numbers), spec.code_length), dtype=np.uint8)
        for start in range(0, len(numbers), _CODES_AT_ONCE):
            some = numbers[start : start + _CODES_AT_ONCE]
            codes[start : start + len(some)] = least_like_itself(self._code_draws(some))
        return codes

    def of_request(self, request_id: str) -> int:
        """The sub-key that belongs to a request's id: a number that nobody can tell from random without the key.

        Raises:
            SettingsError: the id is no text.
        """
        if not isinstance(request_id, str):
            raise SettingsError(f"a request id is a text, not a {type(request_id).__name__}")
        message = Secret(_domain("request") + request_id.encode("utf-8", "surrogatepass") + self.secret)
        return int.from_bytes(hashlib.shake_256(message).digest(8), "little") % self.spec.subkeys

    def check(self, subkey: int) -> None:
        """Refuse a number that no sub-key has.

        Raises:
            SettingsError: it is not in 0..N-1.
        """
        if not 0 <= whole("sub-key", subkey) < self.spec.subkeys:
            raise SettingsError(f"sub-key {subkey} is not in 0..{self.spec.subkeys - 1}, the sub-keys of this key")

    def _groups(self, ids: Int[np.ndarray, " n"], segment: int, chunk: int, count: int) -> UInt8[np.ndarray, "n count"]:
        """The groups of tokens under the first `count` sub-keys of a chunk."""
        bits, modulus = _bits(self.spec.modulus), self.spec.modulus
        if bits:
            squeezed = self._squeezes(ids, segment, chunk, -(-count * bits // 8))
            groups = np.unpackbits(squeezed, axis=1, count=count * bits, bitorder="little")
            weights = (1 << np.arange(bits)).astype(np.uint8)
            return groups.reshape(len(ids), count, bits) @ weights if bits > 1 else groups
        groups = np.empty((len(ids), count), dtype=np.uint8)
        for start in range(0, len(ids), _TOKENS_AT_ONCE):
            some = ids[start : start + _TOKENS_AT_ONCE]
            words = self._squeezes(some, segment, chunk, 2 * count).view("<u2")
            for row in np.flatnonzero((words >= _limit(modulus)).any(axis=1)).tolist():
                words[row] = self._accepted(some[[row]], segment, chunk, words[row])
            groups[start : start + len(some)] = words % modulus
        return groups

    def _column(self, ids: Int[np.ndarray, " n"], segment: int, subkey: int) -> UInt8[np.ndarray, " n"]:
        """The groups of tokens under one sub-key."""
        chunk, place = divmod(subkey, AT_ONCE)
        column = np.empty(len(ids), dtype=np.uint8)
        for start in range(0, len(ids), _TOKENS_AT_ONCE):
            some = slice(start, start + _TOKENS_AT_ONCE)
            column[some] = self._groups(ids[some], segment, chunk, place + 1)[:, place]
        return column

    def _accepted(
        self, token: Int[np.ndarray, " one"], segment: int, chunk: int, words: UInt16[np.ndarray, " count"]
    ) -> UInt16[np.ndarray, " count"]:
        """The words of a token; those that would favour some groups are replaced by words behind the chunk."""
        limit, more = _limit(self.spec.modulus), 64
        rejected, behind = np.flatnonzero(words >= limit), words[:0]
        while len(behind) < len(rejected):
            further = self._squeezes(token, segment, chunk, 2 * (AT_ONCE + more)).view("<u2")[0, AT_ONCE:]
            behind, more = further[further < limit], 2 * more
        replaced = words.copy()
        replaced[rejected] = behind[: len(rejected)]
        return replaced

    def _squeezes(self, ids: Int[np.ndarray, " n"], segment: int, chunk: int, size: int) -> UInt8[np.ndarray, "n size"]:
        """The first `size` bytes of each token's squeeze."""
        place = bytes([self.spec.modulus]) + segment.to_bytes(8, "little") + chunk.to_bytes(4, "little")
        return _squeezes(_domain("groups") + place, ids, self.secret, size)

    def _code_draws(self, numbers: Int[np.ndarray, " n"]) -> UInt8[np.ndarray, "n draws period"]:
        modulus, length = self.spec.modulus, self.spec.code_length
        head = _domain("code") + bytes([modulus, length])
        words = _squeezes(head, numbers, self.secret, 8 * _CODE_DRAWS * length).view("<u8")
        order = np.argsort(words.reshape(len(numbers), _CODE_DRAWS, length), axis=-1, kind="stable")
        draws = np.empty(order.shape, dtype=np.uint8)
        np.put_along_axis(draws, order, (np.arange(length) % modulus).astype(np.uint8)[None, None], axis=-1)
        return draws


@dataclass(eq=False)
class SubkeyTables(GroupTables):
    """The group tables of one sub-key. The key caches them for all its sub-keys, so that many take bounded memory."""

    subkeys: Subkeys = field(kw_only=True, repr=False)
    number: int = field(kw_only=True)

    def table(self, segment: int = 0) -> UInt8[np.ndarray, " vocab"]:
        """Group of each token id in `segment`, read-only."""
        return self.subkeys.column(self.number, segment)

    @cached_property
    def code(self) -> UInt8[np.ndarray, " period"]:
        """The wanted residues of one period, read-only."""
        code: UInt8[np.ndarray, " period"] = self.subkeys.codes_of(np.array([self.number]))[0]
        code.setflags(write=False)
        return code

    def groups_in(self, ids: Int[np.ndarray, " n"], segment: int) -> UInt8[np.ndarray, " n"]:
        """Group of each token in one segment; the ids are not checked."""
        return self.subkeys.groups(ids, self.number, segment)


def _domain(name: str) -> bytes:
    """What the messages of one use of SHAKE-256 begin with."""
    return f"dgmark/{name}/{SUBKEY_PRF}\0".encode()


def _limit(modulus: int) -> int:
    """Words of 16 bits from here on would favour some groups."""
    return 2**16 // modulus * modulus


def _squeezes(head: bytes, numbers: Int[np.ndarray, " n"], secret: bytes, size: int) -> UInt8[np.ndarray, "n size"]:
    """`size` bytes of SHAKE-256 for each number."""
    squeezed = np.empty((len(numbers), size), dtype=np.uint8)
    for start in range(0, len(numbers), _TOKENS_AT_ONCE):
        some = numbers[start : start + _TOKENS_AT_ONCE].tolist()
        stream = b"".join([hashlib.shake_256(head + n.to_bytes(4, "little") + secret).digest(size) for n in some])
        squeezed[start : start + len(some)] = np.frombuffer(stream, dtype=np.uint8).reshape(len(some), size)
    return squeezed


def _bits(modulus: int) -> int:
    """Bits of a group, if the modulus is a power of two; else 0."""
    return modulus.bit_length() - 1 if modulus & (modulus - 1) == 0 else 0


def _taken(squeezed: UInt8[np.ndarray, "n size"], modulus: int, place: int) -> UInt8[np.ndarray, " n"]:
    """The group at one place of each squeeze; the modulus is a power of two."""
    byte, bit = divmod(place * _bits(modulus), 8)
    taken = squeezed[:, byte] >> bit
    if bit + _bits(modulus) > 8:
        taken |= squeezed[:, byte + 1] << (8 - bit)
    groups: UInt8[np.ndarray, " n"] = taken & (modulus - 1)
    return groups
