"""The groups of a key: balanced, reproducible for ever, and looked up by the paper's rule.

`golden/groups.json` was written from the plain-Python reference below, and is never written again: a text that is
marked today must be found with the groups of today.
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

from dgmark.errors import SettingsError, VocabularyMismatch
from dgmark.watermark.groups import GroupTables, check_ids, group_table
from dgmark.watermark.spec import MODULI, Grouping, PositionSpec
from support.known_keys import known_spec
from support.unchecked import unchecked

# arguments, the digest of the table, and its first groups, for debugging
GOLDEN: list[dict[str, Any]] = json.loads((Path(__file__).parents[1] / "golden" / "groups.json").read_text())
SECRETS = (bytes(32), bytes(range(32)), hashlib.sha256(b"a golden secret").digest())


def reference_groups(secret: bytes, modulus: int, table_size: int, segment: int) -> bytes:
    """The groups as the key file's PRF "shake256-rank-v1" defines them, without numpy: one byte a token id."""
    head = b"dgmark/groups/shake256-rank-v1\0" + struct.pack("<BIQ", modulus, table_size, segment)
    numbers = struct.unpack(f"<{table_size}Q", hashlib.shake_256(head + secret).digest(8 * table_size))
    groups = bytearray(table_size)
    for rank, token in enumerate(sorted(range(table_size), key=lambda token: (numbers[token], token))):
        groups[token] = rank % modulus
    return bytes(groups)


def named(vector: dict[str, Any]) -> str:
    return f"{vector['secret'][-4:]}-m{vector['modulus']}-v{vector['table_size']}-s{vector['segment']}"


def tables_of(spec: PositionSpec, name: str = "groups") -> GroupTables:
    return GroupTables(spec, b"" if spec.grouping == "token-id" else hashlib.sha256(name.encode()).digest())


# --- the table -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"modulus": 1}, "modulus 1 is not in"),
        ({"modulus": 17}, "modulus 17 is not in"),
        ({"rotation": -1}, "rotation -1 is not in"),
        ({"grouping": "token-id", "rotation": 8}, "no key to draw from"),
        ({"grouping": "token-id", "code_length": 8}, "no key to draw from"),
        ({"grouping": "parity"}, "grouping is not one of: keyed, token-id"),
        ({"table_size": 1}, "table size 1 is not in"),
        *(
            (
                {"modulus": modulus, "code_length": length},
                f"code length {length} is not a multiple of modulus {modulus}",
            )
            for modulus, length in [(2, 3), (2, 66), (2, -2), (16, 8)]
        ),
    ],
    ids=str,
)
def test_an_invalid_spec_is_refused(wrong: dict[str, Any], message: str) -> None:
    with unchecked(), pytest.raises(SettingsError, match=message):
        replace(known_spec(), **wrong)


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


@pytest.mark.parametrize(
    ("secret", "modulus", "table_size", "segment"),
    [
        (SECRETS[2], 4, 4096, 3),
        (SECRETS[1], 8, 4096, 3),
        (SECRETS[1], 4, 4097, 3),
        (SECRETS[1], 4, 4096, 4),
        (bytes([SECRETS[1][0] ^ 1]) + SECRETS[1][1:], 4, 4096, 3),
    ],
    ids=["secret", "modulus", "table size", "segment", "one bit of the secret"],
)
def test_another_argument_gives_an_unrelated_table(secret: bytes, modulus: int, table_size: int, segment: int) -> None:
    one = group_table(SECRETS[1], 4, 4096, 3)
    other = group_table(secret, modulus, table_size, segment)[:4096] % 4
    # over 4096 ids the share of equal groups is 1/4 with a standard deviation of .007
    assert 0.21 < (one == other).mean() < 0.29


# --- lookup --------------------------------------------------------------------------------------


def test_tables_are_right_after_more_segments_than_are_kept() -> None:
    tables = tables_of(replace(known_spec(rotation=1), table_size=16))
    first = tables.table(0).copy()
    for segment in range(1, 1500):
        tables.table(segment)
    assert group_table.cache_info().currsize <= 1024
    assert np.array_equal(tables.table(0), first)


def test_the_keyless_grouping_takes_the_token_id_modulo_m() -> None:
    tables = tables_of(known_spec(modulus=5, grouping="token-id"))
    assert tables.table().tolist() == [token % 5 for token in range(8192)]


@settings(max_examples=60)
@given(
    ids=st.lists(st.integers(0, 199), max_size=40),
    start=st.integers(0, 50),
    modulus=st.sampled_from([2, 3, 5, 16]),
    grouping_and_rotation=st.sampled_from([("keyed", 0), ("keyed", 1), ("keyed", 3), ("keyed", 20), ("token-id", 0)]),
)
def test_matching_is_the_papers_definition(
    ids: list[int], start: int, modulus: int, grouping_and_rotation: tuple[Grouping, int]
) -> None:
    grouping, rotation = grouping_and_rotation
    spec = replace(known_spec(modulus=modulus, rotation=rotation, grouping=grouping), table_size=200)
    tables = tables_of(spec)
    positions = range(start, start + len(ids))

    def group(token: int, position: int) -> int:
        if grouping == "token-id":
            return token % modulus
        return reference_groups(tables.secret, modulus, 200, position // rotation if rotation else 0)[token]

    expected = [group(token, position) == position % modulus for token, position in zip(ids, positions, strict=True)]
    matching = tables.matching(np.array(ids, dtype=np.int64), np.array(positions, dtype=np.int64))
    assert matching.tolist() == expected


def test_positions_may_have_gaps() -> None:
    tables = tables_of(replace(known_spec(rotation=4), table_size=64))
    ids, positions = np.arange(20), np.arange(20)
    kept = np.array([1, 2, 7, 13, 19])
    assert np.array_equal(tables.matching(ids[kept], positions[kept]), tables.matching(ids, positions)[kept])


@pytest.mark.parametrize("wrong", [-1, 8192, 10**12, -(10**12)])
@pytest.mark.parametrize("rotation", [0, 4])
def test_an_id_outside_the_table_is_refused_by_name(wrong: int, rotation: int) -> None:
    tables = tables_of(known_spec(rotation=rotation))
    with pytest.raises(VocabularyMismatch, match=f"token id {wrong} lies outside .* 8192"):
        tables.matching(np.array([5, wrong, 6]), np.arange(3))
    check_ids(np.array([0, 8191]), 8192)
