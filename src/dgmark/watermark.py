"""The watermark's rule: which group each token belongs to, and which residue each position wants.

Knows nothing of models, texts or files. Paper section 3.3 (groups f, matching sets G_i), appendix (modulus m),
"Security considerations" (rotation).
"""

import hashlib
from collections import OrderedDict
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

import numpy as np
from jaxtyping import Bool, Int, UInt8

from dgmark.errors import SettingsError, VocabularyMismatch

SchemeName = Literal["keyed", "token-id"]
PRF = "shake256-rank-v1"
SECRET_BYTES = 32
MODULI = range(2, 17)
_CACHED_BYTES = 2**28
_LARGEST = 2**31 - 1


@dataclass(frozen=True)
class WatermarkSpec:
    """What generator and detector must agree on, all of it public.

    Attributes:
        modulus: number of groups m, 2..16; position i wants group i mod m.
        rotation: positions after which the groups change (segment = position // rotation); 0 = never.
        scheme: "keyed" (groups from the secret), or "token-id" (group = id mod m, as in the paper's code; keyless).
        table_size: the padded vocabulary; every id below it has a group.
        tokenizer: name of the tokenizer, to find it again.
        tokenizer_fingerprint: hash of its vocabulary; another one is an error.
    """

    modulus: int = 2
    rotation: int = 0
    scheme: SchemeName = "keyed"
    table_size: int = 0
    tokenizer: str = ""
    tokenizer_fingerprint: str = ""

    def __post_init__(self) -> None:
        if self.modulus not in MODULI:
            raise SettingsError(f"modulus {self.modulus} is not in 2..16")
        if not 0 <= self.rotation <= _LARGEST:
            raise SettingsError(f"rotation {self.rotation} is not in 0..{_LARGEST}; 0 is none")
        if self.scheme not in ("keyed", "token-id"):
            raise SettingsError(f"scheme {self.scheme!r} is not one of: keyed, token-id")
        if self.scheme == "token-id" and self.rotation:
            raise SettingsError("scheme token-id has no key, so its groups cannot rotate; use rotation 0")
        if not self.modulus <= self.table_size <= _LARGEST:
            raise SettingsError(f"table size {self.table_size} is not in {self.modulus}..{_LARGEST}")

    def segment(self, positions: Int[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
        """Segment of each position: 0 throughout without rotation."""
        return positions // self.rotation if self.rotation else np.zeros_like(positions)


def group_table(secret: bytes, modulus: int, table_size: int, segment: int = 0) -> UInt8[np.ndarray, " vocab"]:
    """Groups f(v, key, segment) in 0..modulus-1 for every token id v below `table_size`.

    One SHAKE-256 squeeze over (version, modulus, table size, segment, secret) gives 8 bytes a token id (little
    endian); tokens are ranked by them, ties by id; group = rank mod modulus. So group sizes differ by at most one
    for every key, and the table depends on nothing but these arguments.
    """
    header = modulus.to_bytes(1, "little") + table_size.to_bytes(4, "little") + segment.to_bytes(8, "little")
    stream = hashlib.shake_256(b"dgmark/groups/" + PRF.encode() + b"\0" + header + secret).digest(8 * table_size)
    order = np.argsort(np.frombuffer(stream, dtype="<u8"), kind="stable")
    groups = np.empty(table_size, dtype=np.uint8)
    groups[order] = np.arange(table_size, dtype=np.int64) % modulus
    return groups


@dataclass(eq=False)
class GroupTables:
    """The group tables of one key, computed when first asked for; the most recent segments are kept."""

    spec: WatermarkSpec
    secret: bytes = field(repr=False)
    _cache: "OrderedDict[int, UInt8[np.ndarray, ' vocab']]" = field(default_factory=OrderedDict, repr=False)

    def table(self, segment: int = 0) -> UInt8[np.ndarray, " vocab"]:
        """Group of each token id in `segment`, read-only."""
        if segment in self._cache:
            self._cache.move_to_end(segment)
            return self._cache[segment]
        if self.spec.scheme == "token-id":
            table = (np.arange(self.spec.table_size) % self.spec.modulus).astype(np.uint8)
        else:
            table = group_table(self.secret, self.spec.modulus, self.spec.table_size, segment)
        table.flags.writeable = False
        self._cache[segment] = table
        if len(self._cache) * self.spec.table_size > _CACHED_BYTES:
            self._cache.popitem(last=False)
        return table

    def groups(self, ids: Int[np.ndarray, " n"], positions: Int[np.ndarray, " n"]) -> UInt8[np.ndarray, " n"]:
        """Group of each token at its position.

        Raises:
            VocabularyMismatch: an id lies outside the table.
        """
        check_ids(ids, self.spec.table_size)
        if not self.spec.rotation:
            plain: UInt8[np.ndarray, " n"] = self.table()[ids]
            return plain
        segments = self.spec.segment(positions)
        groups = np.empty(len(ids), dtype=np.uint8)
        runs = np.flatnonzero(np.diff(segments, prepend=-1, append=-1))
        for start, stop in pairwise(runs.tolist()):
            groups[start:stop] = self.table(int(segments[start]))[ids[start:stop]]
        return groups

    def matching(self, ids: Int[np.ndarray, " n"], positions: Int[np.ndarray, " n"]) -> Bool[np.ndarray, " n"]:
        """Whether each token stands in its position's matching set: f(v, key) = i (mod m)."""
        matches: Bool[np.ndarray, " n"] = self.groups(ids, positions) == positions % self.spec.modulus
        return matches


def check_ids(ids: Int[np.ndarray, " n"], table_size: int) -> None:
    """Refuse ids that the group table does not cover; scoring them would give a meaningless z near 0."""
    if len(ids) and (int(ids.min()) < 0 or int(ids.max()) >= table_size):
        wrong = int(ids.min()) if int(ids.min()) < 0 else int(ids.max())
        raise VocabularyMismatch(
            f"token id {wrong} lies outside the key's group table of {table_size} ids: "
            "these ids come from another tokenizer than the key's"
        )
