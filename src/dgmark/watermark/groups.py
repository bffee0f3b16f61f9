"""The position rule: which group each token belongs to, and which residue each position wants.

Knows nothing of models, texts or files. Paper section 3.3 (groups f, matching sets G_i), appendix (modulus m),
"Security considerations" (rotation). Position codes longer than the modulus are ours. The rule of pairs, and its
sub-keys, are in `bigrams.py`.
"""

import hashlib
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import pairwise

import numpy as np
from jaxtyping import Bool, Int, UInt8

from dgmark.errors import VocabularyMismatch
from dgmark.watermark.spec import PRF, PositionSpec

_CODE_DRAWS = 64
# group tables of all keys that are kept; one takes a byte a token id
_CACHED_TABLES = 1024


class Secret(bytes):
    """Secret bytes, which no repr shows: whoever records tracebacks may record the variables of their frames."""

    def __repr__(self) -> str:
        return f"<{len(self)} secret bytes>"

    __str__ = __repr__


@lru_cache(maxsize=_CACHED_TABLES)
def group_table(secret: bytes, modulus: int, table_size: int, segment: int = 0) -> UInt8[np.ndarray, " vocab"]:
    """Groups f(v, key, segment) in 0..modulus-1 for every token id v below `table_size`, read-only.

    One SHAKE-256 squeeze over (version, modulus, table size, segment, secret) gives 8 bytes a token id (little
    endian); tokens are ranked by them, ties by id; group = rank mod modulus. So group sizes differ by at most one
    for every key, and the table depends on nothing but these arguments. Without a secret, group = id mod modulus.
    """
    if secret:
        header = modulus.to_bytes(1, "little") + table_size.to_bytes(4, "little") + segment.to_bytes(8, "little")
        table = _balanced(b"groups", Secret(header + secret), table_size, modulus)
    else:
        table = (np.arange(table_size) % modulus).astype(np.uint8)
    table.setflags(write=False)
    return table


def position_code(secret: bytes, modulus: int, length: int) -> UInt8[np.ndarray, " length"]:
    """The residues r(0), ..., r(length - 1) that successive positions want. Each residue occurs equally often.

    Of 64 keyed draws (made like the group table) the one that agrees least with itself shifted, so that a loop of
    tokens is not rewarded whatever its period: compared by the largest number of agreements over all cyclic shifts,
    then the second largest, and so on; the first draw of equals.
    """
    header = modulus.to_bytes(1, "little") + length.to_bytes(1, "little")
    draws = [
        _balanced(b"code", Secret(header + draw.to_bytes(1, "little") + secret), length, modulus)
        for draw in range(_CODE_DRAWS)
    ]
    codes, places = np.stack(draws), np.arange(length)
    shifted = codes[:, (places + places[1:, None]) % length]  # draws, shifts, places
    agreements = -np.sort(-np.count_nonzero(codes[:, None] == shifted, axis=-1))
    code: UInt8[np.ndarray, " length"] = codes[np.lexsort(agreements.T[::-1])[0]]
    return code


def _balanced(domain: bytes, message: bytes, size: int, modulus: int) -> UInt8[np.ndarray, " size"]:
    stream = hashlib.shake_256(b"dgmark/" + domain + b"/" + PRF.encode() + b"\0" + message).digest(8 * size)
    order = np.argsort(np.frombuffer(stream, dtype="<u8"), kind="stable")
    residues = np.empty(size, dtype=np.uint8)
    residues[order] = np.arange(size, dtype=np.int64) % modulus
    return residues


@dataclass(eq=False)
class GroupTables:
    """The group tables of one key. A table is computed at its first use; those used last, of all keys, are kept."""

    spec: PositionSpec
    secret: bytes = field(repr=False)

    def table(self, segment: int = 0) -> UInt8[np.ndarray, " vocab"]:
        """Group of each token id in `segment`, read-only."""
        return group_table(self.secret, self.spec.modulus, self.spec.table_size, segment)

    def segment(self, positions: Int[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
        """Segment of each position: 0 throughout without rotation."""
        return positions // self.spec.rotation if self.spec.rotation else np.zeros_like(positions)

    @cached_property
    def code(self) -> UInt8[np.ndarray, " period"]:
        """The wanted residues of one period, read-only."""
        length, modulus = self.spec.code_length, self.spec.modulus
        code = position_code(self.secret, modulus, length) if length else np.arange(modulus, dtype=np.uint8)
        code.setflags(write=False)
        return code

    @cached_property
    def shifted_codes(self) -> UInt8[np.ndarray, "period period"]:
        """Row s holds the residues wanted from position s on: r(s), r(s + 1), ..."""
        place = np.arange(self.spec.period)
        rows: UInt8[np.ndarray, "period period"] = self.code[(place + place[:, None]) % self.spec.period]
        return rows

    def residues(self, positions: Int[np.ndarray, " n"]) -> UInt8[np.ndarray, " n"]:
        """The residue r(i) that each position wants."""
        wanted: UInt8[np.ndarray, " n"] = self.code[positions % self.spec.period]
        return wanted

    def groups(self, ids: Int[np.ndarray, " n"], positions: Int[np.ndarray, " n"]) -> UInt8[np.ndarray, " n"]:
        """Group of each token at its position.

        Raises:
            VocabularyMismatch: an id lies outside the table.
        """
        check_ids(ids, self.spec.table_size)
        groups: UInt8[np.ndarray, " n"]
        if not self.spec.rotation:
            groups = self.table()[ids]
            return groups
        segments = self.segment(positions)
        groups = np.empty(len(ids), dtype=np.uint8)
        runs = np.flatnonzero(np.diff(segments, prepend=-1, append=-1))
        for start, stop in pairwise(runs.tolist()):
            groups[start:stop] = self.table(int(segments[start]))[ids[start:stop]]
        return groups

    def matching(self, ids: Int[np.ndarray, " n"], positions: Int[np.ndarray, " n"]) -> Bool[np.ndarray, " n"]:
        """Whether each token is in its position's matching set: f(v, key) = r(i)."""
        matches: Bool[np.ndarray, " n"] = self.groups(ids, positions) == self.residues(positions)
        return matches


def check_ids(ids: Int[np.ndarray, " n"], table_size: int) -> None:
    """Refuse ids outside the group table. Scoring them would give a meaningless z near 0."""
    if len(ids) and (int(ids.min()) < 0 or int(ids.max()) >= table_size):
        wrong = int(ids.min()) if int(ids.min()) < 0 else int(ids.max())
        raise VocabularyMismatch(
            f"token id {wrong} lies outside the key's group table of {table_size} ids: "
            "these ids come from another tokenizer than the key's"
        )
