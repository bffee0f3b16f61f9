"""The position rule: which group each token belongs to, and which residue each position wants.

Knows nothing of models, texts or files. Paper section 3.3 (groups f, matching sets G_i), appendix (modulus m),
"Security considerations" (rotation). Position codes longer than the modulus are ours. The rule of pairs, and its
sub-keys, are in `bigram.py`.
"""

import dataclasses
import hashlib
from collections.abc import Iterator
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Any, ClassVar, Final, Literal

import numpy as np
from jaxtyping import Bool, Int, UInt8, UInt64
from pydantic import Field
from pydantic.dataclasses import dataclass

from dgmark.errors import SettingsError
from dgmark.watermark.secret import Secret
from dgmark.watermark.spec import MAX_INT, KeyLike, WatermarkSpec, Whole, check_ids, spec_as

Grouping = Literal["keyed", "token-id"]
PRF: Final = "shake256-rank-v1"
MODULI: Final = range(2, 17)
MAX_CODE_LENGTH: Final = 64
# i mod 2 rewards loops: as diverse, its texts have a higher perplexity (lab/docs/results/decoding.md)
DEFAULT_CODE: Final = 16
_CODE_DRAWS = 64
# group tables of all keys that are kept; one takes a byte a token id
_CACHED_TABLES = 1024
# up to so many tokens of a segment are ranked sooner one by one than by sorting the vocabulary
FEW_TOKENS = 32


@dataclass(frozen=True, kw_only=True)
class PositionSpec(WatermarkSpec):
    """The spec of rule "position": the group of a token must be the one that its position wants (the paper).

    Attributes:
        modulus: number of groups m, 2..16; position i wants group i mod m, or as the position code says.
        rotation: positions after which the groups change; 0 = never.
        grouping: "keyed" (groups from the secret), or "token-id" (group = id mod m, as in the paper's code; keyless).
        code_length: period of a keyed position code, a multiple of m up to 64; 0 = the paper's i mod m.
    """

    rule: Literal["position"] = "position"
    modulus: Whole = Field(
        default=2,
        ge=MODULI[0],
        le=MODULI[-1],
        description="in 2..16",
        json_schema_extra={"help": "Number of token groups, 2 to 16."},
    )
    rotation: Whole = Field(
        default=0,
        ge=0,
        le=MAX_INT,
        description=f"in 0..{MAX_INT}; 0 turns it off",
        json_schema_extra={"help": "Change the groups after so many positions.", "default_text": "never"},
    )
    grouping: Grouping = Field(
        default="keyed",
        description="one of: keyed, token-id",
        json_schema_extra={
            "help": "Groups by the secret key, or by token id (as in the paper's code, without a secret)."
        },
    )
    code_length: Whole = Field(
        default=0,
        json_schema_extra={
            "help": "Period of a secret code, a multiple of the modulus, up to 64; 0: the paper's position mod m.",
            "default_text": f"{DEFAULT_CODE}; 0 with a rotation, grouping token-id or another modulus",
        },
    )

    prf: ClassVar[str] = PRF

    @property
    def caution(self) -> str | None:
        """That groups by token id are no secret."""
        if self.keyed:
            return None
        return (
            "a token-id key has no secret: anybody can detect and forge its mark, and its p-values are not guaranteed"
        )

    @classmethod
    def defaults_of_new(cls, options: dict[str, Any]) -> dict[str, Any]:
        """The length of the code: 16 for a keyed key of two groups without rotation."""
        plain = {"modulus": 2, "rotation": 0, "grouping": "keyed"}
        # an option of a wrong type, such as an array, is refused later
        is_plain = all(
            type(options.get(name, value)) is type(value) and options.get(name, value) == value
            for name, value in plain.items()
        )
        return {"code_length": DEFAULT_CODE if is_plain else 0}

    def check(self) -> None:
        """Refuse a rotation or a code without a secret, and codes and vocabularies that do not fit the modulus."""
        super().check()
        if self.grouping == "token-id" and (self.rotation or self.code_length):
            raise SettingsError("grouping token-id has no key to draw from: use rotation 0 and code length 0")
        if not 0 <= self.code_length <= MAX_CODE_LENGTH or self.code_length % self.modulus:
            raise SettingsError(
                f"code length {self.code_length} is not a multiple of modulus {self.modulus} up to {MAX_CODE_LENGTH}; "
                "0 is the paper's position mod m"
            )
        if self.table_size < self.modulus:
            raise SettingsError(f"table size {self.table_size} is not in {self.modulus}..{MAX_INT}")

    @property
    def keyed(self) -> bool:
        """Whether the key has a secret."""
        return self.grouping == "keyed"

    @property
    def chance(self) -> float:
        """The share of the tokens that match by chance."""
        return 1 / self.modulus

    @property
    def period(self) -> int:
        """Positions after which the wanted residues repeat: the number of phases of a text without rotation."""
        return self.code_length or self.modulus


@lru_cache(maxsize=_CACHED_TABLES)
def group_table(secret: bytes, modulus: int, table_size: int, segment: int = 0) -> UInt8[np.ndarray, " vocab"]:
    """Groups f(v, key, segment) in 0..modulus-1 for every token id v below `table_size`, read-only.

    One SHAKE-256 squeeze over (version, modulus, table size, segment, secret) gives 8 bytes a token id (little
    endian); tokens are ranked by them, ties by id; group = rank mod modulus. So group sizes differ by at most one
    for every key, and the table depends on nothing but these arguments. Without a secret, group = id mod modulus.
    """
    if secret:
        table = _balanced(_group_numbers(secret, modulus, table_size, segment), modulus)
    else:
        table = (np.arange(table_size) % modulus).astype(np.uint8)
    table.setflags(write=False)
    return table


def groups_of_few(
    secret: bytes, modulus: int, table_size: int, segment: int, ids: Int[np.ndarray, " n"]
) -> UInt8[np.ndarray, " n"]:
    """The groups of a few token ids: what `group_table` has for them, without ranking all others."""
    if not secret:
        return (ids % modulus).astype(np.uint8)
    numbers = _group_numbers(secret, modulus, table_size, segment)
    ranks = [np.count_nonzero(numbers < numbers[i]) + np.count_nonzero(numbers[:i] == numbers[i]) for i in ids.tolist()]
    return (np.array(ranks, dtype=np.int64) % modulus).astype(np.uint8)


def position_code(secret: bytes, modulus: int, length: int) -> UInt8[np.ndarray, " length"]:
    """The residues r(0), ..., r(length - 1) that successive positions want. Each residue occurs equally often.

    Of 64 keyed draws (made like the group table) the one that agrees least with itself shifted, so that a loop of
    tokens is not rewarded whatever its period: compared by the largest number of agreements over all cyclic shifts,
    then the second largest, and so on; the first draw of equals.
    """
    header = modulus.to_bytes(1, "little") + length.to_bytes(1, "little")
    draws = [
        _balanced(_numbers(b"code", Secret(header + draw.to_bytes(1, "little") + secret), length), modulus)
        for draw in range(_CODE_DRAWS)
    ]
    codes, places = np.stack(draws), np.arange(length)
    shifted = codes[:, (places + places[1:, None]) % length]  # draws, shifts, places
    agreements = -np.sort(-np.count_nonzero(codes[:, None] == shifted, axis=-1))
    code: UInt8[np.ndarray, " length"] = codes[np.lexsort(agreements.T[::-1])[0]]
    return code


def _group_numbers(secret: bytes, modulus: int, table_size: int, segment: int) -> UInt64[np.ndarray, " vocab"]:
    """The numbers by which token ids are ranked in a segment."""
    header = modulus.to_bytes(1, "little") + table_size.to_bytes(4, "little") + segment.to_bytes(8, "little")
    return _numbers(b"groups", Secret(header + secret), table_size)


def _numbers(domain: bytes, message: bytes, size: int) -> UInt64[np.ndarray, " size"]:
    stream = hashlib.shake_256(b"dgmark/" + domain + b"/" + PRF.encode() + b"\0" + message).digest(8 * size)
    return np.frombuffer(stream, dtype="<u8")


def _balanced(numbers: UInt64[np.ndarray, " size"], modulus: int) -> UInt8[np.ndarray, " size"]:
    """The ranks of numbers, ties in their order, mod modulus."""
    residues = np.empty(len(numbers), dtype=np.uint8)
    residues[np.argsort(numbers, kind="stable")] = np.arange(len(numbers), dtype=np.int64) % modulus
    return residues


@dataclasses.dataclass(eq=False)
class GroupTables:
    """The group tables of one key. A table is computed at its first use; those used last, of all keys, are kept."""

    spec: PositionSpec
    secret: bytes = dataclasses.field(repr=False)

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

    def matching(
        self, ids: Int[np.ndarray, " n"], positions: Int[np.ndarray, " n"], *, once: bool = False
    ) -> Bool[np.ndarray, " n"]:
        """Whether each token is in its position's matching set: f(v, key) = r(i).

        With `once`, no tables are made of segments of few tokens, which is faster unless they are asked for again.
        """
        spec = self.spec
        check_ids(ids, spec.table_size)
        if not spec.rotation:
            groups = self.table()[ids]
        else:
            groups = np.empty(len(ids), dtype=np.uint8)
            for segment, places in self._by_segment(positions):
                own = ids[places]
                if once and len(own) <= FEW_TOKENS:
                    groups[places] = groups_of_few(self.secret, spec.modulus, spec.table_size, segment, own)
                else:
                    groups[places] = self.table(segment)[own]
        matches: Bool[np.ndarray, " n"] = groups == self.residues(positions)
        return matches

    def _by_segment(self, positions: Int[np.ndarray, " n"]) -> Iterator[tuple[int, Int[np.ndarray, " places"]]]:
        """Each segment once, with the places of its positions."""
        segments = self.segment(positions)
        order = np.argsort(segments, kind="stable")
        runs = np.flatnonzero(np.diff(segments[order], prepend=-1, append=-1))
        for start, stop in pairwise(runs.tolist()):
            yield int(segments[order[start]]), order[start:stop]


def tables_of(key: KeyLike) -> GroupTables:
    """The groups of a key of this rule; a key of another rule is a SettingsError."""
    return _tables(spec_as(PositionSpec, key), key.secret or b"")


@lru_cache(maxsize=_CACHED_TABLES)
def _tables(spec: PositionSpec, secret: bytes) -> GroupTables:
    return GroupTables(spec, secret)
