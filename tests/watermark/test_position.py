"""The groups and the position code of a key: balanced, the same for ever, and compared by the paper's rule.

`golden/groups.json` and `golden/codes.json` were written from the plain-Python references below, and are never written
again: a text that is marked today must be found with the groups and codes of today.
"""

import hashlib
import json
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dgmark.errors import VocabularyMismatch
from dgmark.watermark import position
from dgmark.watermark.position import (
    MODULI,
    Grouping,
    GroupTables,
    PositionSpec,
    group_table,
    groups_of_few,
    position_code,
)
from dgmark.watermark.spec import check_ids
from support.known_keys import known_spec

FOLDER = Path(__file__).parents[1] / "golden"
# arguments, the digest of the table, and its first groups, for debugging
GOLDEN: list[dict[str, Any]] = json.loads((FOLDER / "groups.json").read_text())
GOLDEN_CODES: list[dict[str, Any]] = json.loads((FOLDER / "codes.json").read_text())
SHAPES = ((2, 2), (2, 8), (2, 16), (2, 32), (2, 64), (3, 9), (4, 16), (5, 40), (16, 16), (16, 64))


def reference_groups(secret: bytes, modulus: int, table_size: int, segment: int) -> bytes:
    """The groups as the key file's PRF "shake256-rank-v1" defines them, without numpy: one byte a token id."""
    head = b"dgmark/groups/shake256-rank-v1\0" + struct.pack("<BIQ", modulus, table_size, segment)
    numbers = struct.unpack(f"<{table_size}Q", hashlib.shake_256(head + secret).digest(8 * table_size))
    groups = bytearray(table_size)
    for rank, token in enumerate(sorted(range(table_size), key=lambda token: (numbers[token], token))):
        groups[token] = rank % modulus
    return bytes(groups)


def agreements(code: list[int]) -> list[int]:
    """How often a code agrees with itself shifted, over all cyclic shifts, most first."""
    length = len(code)
    return sorted(
        (sum(code[i] == code[(i + shift) % length] for i in range(length)) for shift in range(1, length)), reverse=True
    )


def reference_code(secret: bytes, modulus: int, length: int) -> list[int]:
    """The code as docs/keys.md defines it, without numpy."""
    draws = []
    for draw in range(64):
        head = b"dgmark/code/shake256-rank-v1\0" + struct.pack("<BBB", modulus, length, draw)
        numbers = struct.unpack(f"<{length}Q", hashlib.shake_256(head + secret).digest(8 * length))
        code = [0] * length
        for rank, place in enumerate(sorted(range(length), key=lambda place: (numbers[place], place))):
            code[place] = rank % modulus
        draws.append(code)
    return min(draws, key=agreements)


def named(vector: dict[str, Any]) -> str:
    return f"{vector['secret'][-4:]}-m{vector['modulus']}-v{vector['table_size']}-s{vector['segment']}"


def tables_of(spec: PositionSpec, name: str = "groups") -> GroupTables:
    return GroupTables(spec, b"" if spec.grouping == "token-id" else hashlib.sha256(name.encode()).digest())


# --- the table -----------------------------------------------------------------------------------


@settings(max_examples=50)
@given(
    secret=st.binary(min_size=32, max_size=32),
    modulus=st.sampled_from(list(MODULI)),
    extra=st.integers(0, 3000),
    segment=st.integers(0, 2**63),
)
def test_the_table_is_the_plain_reference_and_its_groups_are_of_one_size(
    secret: bytes, modulus: int, extra: int, segment: int
) -> None:
    table = group_table(secret, modulus, modulus + extra, segment)
    assert table.tobytes() == reference_groups(secret, modulus, modulus + extra, segment)
    sizes = np.bincount(table, minlength=modulus)
    assert len(sizes) == modulus
    assert sizes.max() - sizes.min() <= 1


@pytest.mark.parametrize("vector", GOLDEN, ids=named)
def test_the_table_is_the_golden_vector(vector: dict[str, Any]) -> None:
    table = group_table(
        bytes.fromhex(vector["secret"]), vector["modulus"], vector["table_size"], segment=vector["segment"]
    )
    assert table[:32].tolist() == vector["first"]
    assert hashlib.sha256(table.tobytes()).hexdigest() == vector["sha256"]


# --- lookup --------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(
    tokens=st.dictionaries(st.integers(0, 80), st.integers(0, 199), max_size=40),
    modulus=st.sampled_from([2, 3, 5, 16]),
    grouping_and_rotation=st.sampled_from([("keyed", 0), ("keyed", 1), ("keyed", 3), ("keyed", 20), ("token-id", 0)]),
)
def test_matching_is_the_papers_definition(
    tokens: dict[int, int], modulus: int, grouping_and_rotation: tuple[Grouping, int]
) -> None:
    """Of tokens by their positions, which may have gaps."""
    grouping, rotation = grouping_and_rotation
    spec = replace(known_spec(modulus=modulus, rotation=rotation, grouping=grouping), table_size=200)
    tables = tables_of(spec)
    positions = np.array(sorted(tokens), dtype=np.int64)
    ids = np.array([tokens[position] for position in sorted(tokens)], dtype=np.int64)

    def group(token: int, position: int) -> int:
        if grouping == "token-id":
            return token % modulus
        return reference_groups(tables.secret, modulus, 200, position // rotation if rotation else 0)[token]

    expected = [group(tokens[position], position) == position % modulus for position in sorted(tokens)]
    assert tables.matching(ids, positions).tolist() == expected
    assert tables.matching(ids, positions, once=True).tolist() == expected
    back = np.concatenate([positions[::-1], positions])
    again = np.concatenate([ids[::-1], ids])
    assert tables.matching(again, back).tolist() == expected[::-1] + expected
    assert tables.matching(again, back, once=True).tolist() == expected[::-1] + expected


@given(
    secret=st.sampled_from([b"", bytes(32)]),
    modulus=st.sampled_from(list(MODULI)),
    size=st.integers(16, 300),
    segment=st.integers(0, 9),
    ties=st.booleans(),
    data=st.data(),
)
def test_a_few_groups_are_those_of_the_table(
    secret: bytes, modulus: int, size: int, segment: int, ties: bool, data: st.DataObject
) -> None:
    ids = np.array(data.draw(st.lists(st.integers(0, size - 1), max_size=20)), dtype=np.int64)
    with pytest.MonkeyPatch.context() as patch:
        if ties:  # of 64 bits there are none
            drawn = np.random.default_rng(segment).integers(0, 9, size).astype(np.uint64)
            patch.setattr(position, "_group_numbers", lambda *_: drawn)
        table = group_table.__wrapped__(secret, modulus, size, segment)
        assert groups_of_few(secret, modulus, size, segment, ids).tolist() == table[ids].tolist()


@pytest.mark.parametrize("wrong", [-1, 8192, 10**12, -(10**12)])
@pytest.mark.parametrize("rotation", [0, 4])
def test_an_id_outside_the_table_is_refused_by_name(wrong: int, rotation: int) -> None:
    tables = tables_of(known_spec(rotation=rotation))
    with pytest.raises(VocabularyMismatch, match=f"token id {wrong} lies outside .* 8192"):
        tables.matching(np.array([5, wrong, 6]), np.arange(3))
    with pytest.raises(VocabularyMismatch, match=f"token id {wrong} lies outside .* 8192"):
        tables.matching(np.array([5, wrong, 6]), np.arange(3), once=True)
    check_ids(np.array([0, 8191]), 8192)


# --- the position code ---------------------------------------------------------------------------


@settings(max_examples=60)
@given(secret=st.binary(min_size=32, max_size=32), shape=st.sampled_from(SHAPES))
def test_the_code_is_the_plain_reference_and_balanced(secret: bytes, shape: tuple[int, int]) -> None:
    modulus, length = shape
    code = position_code(secret, modulus, length).tolist()
    assert code == reference_code(secret, modulus, length)
    assert [code.count(residue) for residue in range(modulus)] == [length // modulus] * modulus


@pytest.mark.parametrize("vector", GOLDEN_CODES, ids=lambda v: f"{v['secret'][-4:]}-m{v['modulus']}-L{len(v['code'])}")
def test_the_code_is_the_golden_vector(vector: dict[str, Any]) -> None:
    code = position_code(bytes.fromhex(vector["secret"]), vector["modulus"], len(vector["code"]))
    assert code.tolist() == vector["code"]
