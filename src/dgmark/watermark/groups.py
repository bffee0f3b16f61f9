"""The watermark's rule: which group each token belongs to, and which residue each position wants.

Knows nothing of models, texts or files. Paper section 3.3 (groups f, matching sets G_i), appendix (modulus m),
"Security considerations" (rotation). Position codes longer than the modulus are ours. The rule of pairs, and its
sub-keys, are in `bigrams.py`.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, Final, Literal, get_args

import numpy as np
from jaxtyping import Bool, Int, UInt8

from dgmark.arguments import number, whole
from dgmark.errors import SettingsError, VocabularyMismatch
from dgmark.watermark.bigrams import BIGRAM_PRF, MAX_DISTANCE, MAX_TABLE

Rule = Literal["position", "bigram"]
Grouping = Literal["keyed", "token-id"]
Prf = Literal["shake256-rank-v1", "siphash24-pairs-v1"]
PRF: Final = "shake256-rank-v1"
SECRET_BYTES = 32
MODULI = range(2, 17)
MAX_CODE_LENGTH = 64
# i mod 2 rewards loops: as diverse, its texts have a higher perplexity (lab/docs/results/decoding.md)
DEFAULT_CODE = 16
MAX_SUBKEYS = 65_536
# what has a meaning under one rule only; the rule itself is left out where it is the paper's
_POSITION_FIELDS, _PAIR_FIELDS = ("modulus", "rotation", "grouping", "code_length"), ("nearest", "farthest")
_CODE_DRAWS = 64
_CACHED_BYTES = 2**28
_MAX_INT = 2**31 - 1


class Secret(bytes):
    """Secret bytes, which no repr shows: whoever records tracebacks may record the variables of their frames."""

    def __repr__(self) -> str:
        return f"<{len(self)} secret bytes>"

    __str__ = __repr__


@dataclass(frozen=True)
class WatermarkSpec:
    """What generator and detector must agree on. All of it is public.

    Attributes:
        modulus: number of groups m, 2..16; position i wants group i mod m, or as the position code says.
        rotation: positions after which the groups change (segment = position // rotation); 0 = never.
        grouping: "keyed" (groups from the secret), or "token-id" (group = id mod m, as in the paper's code; keyless).
        table_size: the padded vocabulary; every id below it has a group.
        tokenizer: name of the tokenizer, by which the detector loads it.
        tokenizer_fingerprint: hash of its vocabulary; a tokenizer with another hash is an error.
        code_length: period of a keyed position code, a multiple of m up to 64; 0 = the paper's i mod m.
        subkeys: rule "bigram": number of sub-keys, a power of two up to 65,536; each text is marked with one of them.
            1 = all texts are marked alike.
        rule: "position": the group of a token must be the one that its position wants (the paper). "bigram": the bit of
            a pair of nearby tokens must be 1.
        nearest: rule "bigram": the smallest distance of a pair, in tokens; 0 with rule "position".
        farthest: rule "bigram": the largest, up to 64; 0 with rule "position".
        expected_match: share of the different pairs, or of the tokens, that match in a typical text of the key's model,
            by which short texts are "uncertain"; None if it is not known. No p-value depends on it.
    """

    modulus: int = 2
    rotation: int = 0
    grouping: Grouping = "keyed"
    table_size: int = 0
    tokenizer: str = ""
    tokenizer_fingerprint: str = ""
    code_length: int = 0
    subkeys: int = 1
    rule: Rule = "position"
    nearest: int = 0
    farthest: int = 0
    expected_match: float | None = None

    def __post_init__(self) -> None:
        for name in ("modulus", "rotation", "code_length", "table_size", "subkeys", "nearest", "farthest"):
            object.__setattr__(self, name, whole(name.replace("_", " "), getattr(self, name)))
        if not isinstance(self.rule, str) or self.rule not in get_args(Rule):
            raise SettingsError(f"rule {self.rule!r} is not one of: {', '.join(get_args(Rule))}")
        if self.modulus not in MODULI:
            raise SettingsError(f"modulus {self.modulus} is not in 2..16")
        if not 0 <= self.rotation <= _MAX_INT:
            raise SettingsError(f"rotation {self.rotation} is not in 0..{_MAX_INT}; 0 turns it off")
        if not isinstance(self.grouping, str) or self.grouping not in get_args(Grouping):
            raise SettingsError(f"grouping {self.grouping!r} is not one of: keyed, token-id")
        if self.grouping == "token-id" and (self.rotation or self.code_length):
            raise SettingsError("grouping token-id has no key to draw from: use rotation 0 and code length 0")
        if not 0 <= self.code_length <= MAX_CODE_LENGTH or self.code_length % self.modulus:
            raise SettingsError(
                f"code length {self.code_length} is not a multiple of modulus {self.modulus} up to {MAX_CODE_LENGTH}; "
                "0 is the paper's position mod m"
            )
        if not self.modulus <= self.table_size <= _MAX_INT:
            raise SettingsError(f"table size {self.table_size} is not in {self.modulus}..{_MAX_INT}")
        if not 1 <= self.subkeys <= MAX_SUBKEYS or self.subkeys & (self.subkeys - 1):
            raise SettingsError(
                f"subkeys {self.subkeys} is not a power of two from 1 to {MAX_SUBKEYS}; 1 marks all texts alike"
            )
        self._check_rule()
        if self.expected_match is None:
            return
        object.__setattr__(self, "expected_match", float(number("expected match", self.expected_match)))
        if not 1 / self.modulus < self.expected_match < 1:
            raise SettingsError(
                f"expected match {self.expected_match} is not between {1 / self.modulus:.2g}, which is chance, and 1: "
                "give the share of the pairs or tokens of a typical text that match"
            )

    def _check_rule(self) -> None:
        """Refuse what has no meaning under the spec's rule."""
        if self.rule == "position":
            if self.nearest or self.farthest:
                raise SettingsError("distances of pairs have a meaning under rule bigram only: leave them out")
            if self.subkeys > 1:
                raise SettingsError("rule position has no sub-keys: choose rule bigram, or leave subkeys out")
            return
        if (self.modulus, self.rotation, self.code_length, self.grouping) != (2, 0, 0, "keyed"):
            raise SettingsError(
                "rule bigram has neither groups nor positions: leave modulus, rotation, code length and scheme out, or "
                "choose rule position"
            )
        if not 1 <= self.nearest <= self.farthest <= MAX_DISTANCE:
            raise SettingsError(
                f"the distances of pairs, {self.nearest} to {self.farthest}, are not a range in 1..{MAX_DISTANCE}"
            )
        if self.table_size > MAX_TABLE:
            raise SettingsError(f"rule bigram takes vocabularies of up to {MAX_TABLE} ids, not {self.table_size}")

    def to_fields(self) -> dict[str, Any]:
        """The fields of key files and of `dgmark key show` under the spec's rule; the grouping is called "scheme".

        An expected match that is not known is left out.
        """
        fields = asdict(self)
        if self.expected_match is None:
            del fields["expected_match"]
        for name in _PAIR_FIELDS if self.rule == "position" else _POSITION_FIELDS:
            del fields[name]
        return {("scheme" if name == "grouping" else name): value for name, value in fields.items()}

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> "WatermarkSpec":
        """The spec that `to_fields` wrote."""
        return cls(**{("grouping" if name == "scheme" else name): value for name, value in fields.items()})

    def check_secret(self, secret: bytes | None) -> None:
        """Refuse a secret that does not fit this spec.

        Raises:
            SettingsError: the secret is missing, superfluous, not of bytes, or of the wrong length.
        """
        if (secret is None) != (self.grouping == "token-id"):
            raise SettingsError("grouping keyed needs a secret, and token-id takes none")
        if secret is not None and not isinstance(secret, bytes):
            raise SettingsError(f"the secret is of type {type(secret).__name__} instead of bytes")
        if secret is not None and len(secret) != SECRET_BYTES:
            raise SettingsError(f"the secret has {len(secret)} bytes instead of {SECRET_BYTES}")

    @property
    def period(self) -> int:
        """Positions after which the wanted residues repeat: the number of phases of a text without rotation."""
        return self.code_length or self.modulus

    @property
    def prf(self) -> Prf:
        """The name of the function that gives the groups, or the bits of pairs, as key files state it."""
        return BIGRAM_PRF if self.rule == "bigram" else PRF

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
    return _balanced(b"groups", Secret(header + secret), table_size, modulus)


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


class ArrayCache:
    """The arrays that were used last, read-only, up to a number of bytes; the latest is kept whatever its size."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._arrays: OrderedDict[Hashable, UInt8[np.ndarray, ...]] = OrderedDict()

    def get(self, name: Hashable, size: int, make: Callable[[], UInt8[np.ndarray, "..."]]) -> UInt8[np.ndarray, "..."]:
        """The array of this name; one that is not kept is made, and takes `size` bytes."""
        if name not in self._arrays:
            while self._arrays and sum(array.nbytes for array in self._arrays.values()) + size > self._max_bytes:
                self._arrays.popitem(last=False)
            self._arrays[name] = make()
            self._arrays[name].flags.writeable = False
        self._arrays.move_to_end(name)
        return self._arrays[name]


@dataclass(eq=False)
class GroupTables:
    """The group tables of one key. A table is computed at its first use; the most recent segments are cached."""

    spec: WatermarkSpec
    secret: bytes = field(repr=False)
    _cache: ArrayCache = field(default_factory=lambda: ArrayCache(_CACHED_BYTES), repr=False)

    def table(self, segment: int = 0) -> UInt8[np.ndarray, " vocab"]:
        """Group of each token id in `segment`, read-only."""
        return self._cache.get(segment, self.spec.table_size, lambda: self._made(segment))

    def _made(self, segment: int) -> UInt8[np.ndarray, " vocab"]:
        if self.spec.grouping == "token-id":
            return (np.arange(self.spec.table_size) % self.spec.modulus).astype(np.uint8)
        return group_table(self.secret, self.spec.modulus, self.spec.table_size, segment)

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
        if not self.spec.rotation:
            return self.groups_in(ids, 0)
        segments = self.spec.segment(positions)
        groups = np.empty(len(ids), dtype=np.uint8)
        runs = np.flatnonzero(np.diff(segments, prepend=-1, append=-1))
        for start, stop in pairwise(runs.tolist()):
            groups[start:stop] = self.groups_in(ids[start:stop], int(segments[start]))
        return groups

    def groups_in(self, ids: Int[np.ndarray, " n"], segment: int) -> UInt8[np.ndarray, " n"]:
        """Group of each token in one segment; the ids are not checked."""
        groups: UInt8[np.ndarray, " n"] = self.table(segment)[ids]
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
