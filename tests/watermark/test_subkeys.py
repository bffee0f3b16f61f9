"""Sub-keys: their groups and codes are those of a plain reference, independent, and the same for ever.

`golden/subkeys.json` was written from the plain-Python references below, and is never written again: a text that is
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
from scipy.stats import chi2

from dgmark.errors import SettingsError, VocabularyMismatch
from dgmark.watermark.groups import MODULI, GroupTables, WatermarkSpec
from dgmark.watermark.key import subkey_of
from dgmark.watermark.subkeys import AT_ONCE, Subkeys, SubkeyTables
from support.known_keys import known_key, known_spec
from support.subkey_references import reference_chunk
from support.unchecked import unchecked

# groups: a digest of the groups of `TOKENS` under all sub-keys of a chunk, and their first groups, for debugging
GOLDEN: dict[str, list[dict[str, Any]]] = json.loads(
    (Path(__file__).parents[1] / "golden" / "subkeys.json").read_text()
)
SECRETS = (bytes(range(32)), hashlib.sha256(b"a golden secret").digest())
TOKENS = (0, 1, 2, 255, 256, 8191, 126_463)
CODES = ((2, 2), (2, 16), (2, 64), (3, 9), (4, 16), (16, 64))
FALSE_ALARM = 1e-7


def agreements(code: list[int]) -> list[int]:
    length = len(code)
    return sorted((sum(code[i] == code[i - shift] for i in range(length)) for shift in range(1, length)), reverse=True)


def reference_code(secret: bytes, modulus: int, length: int, subkey: int) -> list[int]:
    """The position code of a sub-key as docs/keys.md defines it."""
    head = b"dgmark/code/shake256-token-v2\0" + struct.pack("<BBI", modulus, length, subkey)
    words = struct.unpack(f"<{8 * length}Q", hashlib.shake_256(head + secret).digest(64 * length))
    draws = []
    for draw in range(8):
        mine = words[draw * length : (draw + 1) * length]
        code = [0] * length
        for rank, place in enumerate(sorted(range(length), key=lambda place: (mine[place], place))):
            code[place] = rank % modulus
        draws.append(code)
    return min(draws, key=agreements)


def subkeys_of(
    count: int = 4096,
    *,
    modulus: int = 2,
    table_size: int = 500,
    rotation: int = 0,
    code_length: int = 0,
    secret: bytes = SECRETS[0],
) -> Subkeys:
    spec = WatermarkSpec(
        modulus=modulus, table_size=table_size, rotation=rotation, code_length=code_length, subkeys=count
    )
    return Subkeys(spec, secret)


def all_groups(subkeys: Subkeys, ids: np.ndarray, segment: int = 0) -> np.ndarray:
    """(U, N) the groups of tokens under all sub-keys."""
    return np.concatenate([groups for _, groups in subkeys.chunks(ids, segment)], axis=1)


# --- the groups ----------------------------------------------------------------------------------


@pytest.mark.parametrize("modulus", MODULI)
def test_the_groups_are_those_of_the_plain_reference(modulus: int) -> None:
    """At most moduli but powers of two some words are rejected: at 11, half of the tokens have such a word."""
    ids = np.array([7, 499, 3, 0, 41, 42, 43, 44])
    subkeys = subkeys_of(8192, modulus=modulus)
    for segment in (0, 3):
        for chunk, (first, groups) in enumerate(subkeys.chunks(ids, segment)):
            assert first == 4096 * chunk
            expected = [reference_chunk(SECRETS[0], modulus, segment, chunk, token) for token in ids.tolist()]
            assert groups.tolist() == expected


@pytest.mark.parametrize("vector", GOLDEN["groups"], ids=lambda v: f"m{v['modulus']}-s{v['segment']}-{v['stretch']}")
def test_the_groups_are_the_golden_vector(vector: dict[str, Any]) -> None:
    subkeys = subkeys_of(65_536, modulus=vector["modulus"], table_size=126_464, secret=bytes.fromhex(vector["secret"]))
    groups = dict(subkeys.chunks(np.array(TOKENS), vector["segment"]))[AT_ONCE * vector["stretch"]]
    assert groups[0, :32].tolist() == vector["first"]
    assert hashlib.sha256(groups.tobytes()).hexdigest() == vector["sha256"]


@pytest.mark.parametrize("modulus", [2, 3, 4, 8, 16])
def test_a_column_is_that_of_the_chunk_alone_or_from_the_matrix(modulus: int) -> None:
    subkeys = subkeys_of(8192, modulus=modulus, table_size=300)
    for segment in (0, 9):
        groups = all_groups(subkeys, np.arange(300), segment)
        for subkey in (0, 1, 8191, 4095, 4096, 2, 3, 4097, 1):
            assert np.array_equal(subkeys.column(subkey, segment), groups[:, subkey])


def test_a_column_is_right_after_more_columns_and_matrices_than_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dgmark.watermark.subkeys._MATRIX_BYTES", 2 * 64 * 512)
    monkeypatch.setattr("dgmark.watermark.subkeys._COLUMN_BYTES", 10 * 64)
    subkeys = subkeys_of(8192, table_size=64)
    rng = np.random.default_rng(1)
    for _ in range(200):
        subkey, segment = int(rng.integers(8192)), int(rng.integers(4))
        assert np.array_equal(subkeys.column(subkey, segment), all_groups(subkeys, np.arange(64), segment)[:, subkey])


@pytest.mark.parametrize("modulus", [2, 4, 8, 11])
def test_fewer_sub_keys_are_the_first_of_more(modulus: int) -> None:
    ids = np.arange(60)
    more = all_groups(subkeys_of(8192, modulus=modulus), ids)
    for count in (2, 4, 64, 4096):
        assert np.array_equal(all_groups(subkeys_of(count, modulus=modulus), ids), more[:, :count])
        few = subkeys_of(count, modulus=modulus)
        assert np.array_equal(few.column(count - 1)[:60], more[:, count - 1])


@pytest.mark.parametrize("wrong", [-1, 500, 10**12])
def test_an_id_outside_the_vocabulary_is_refused(wrong: int) -> None:
    with pytest.raises(VocabularyMismatch, match=f"token id {wrong} lies outside"):
        next(subkeys_of().chunks(np.array([3, wrong])))


def within(statistic: float, degrees: float) -> bool:
    """Whether a chi-square statistic is one that independent groups exceed or fall short of once in 10 million."""
    law = chi2(degrees)
    return bool(law.ppf(FALSE_ALARM / 2) < statistic < law.isf(FALSE_ALARM / 2))


@pytest.mark.parametrize("modulus", [2, 3, 4, 16])
def test_groups_are_uniform(modulus: int) -> None:
    groups = all_groups(subkeys_of(modulus=modulus, table_size=1000), np.arange(1000))
    counts = np.bincount(groups.ravel(), minlength=modulus)
    expected = groups.size / modulus
    assert within(float(np.sum((counts - expected) ** 2) / expected), modulus - 1)


@pytest.mark.parametrize("modulus", [2, 3, 4])
@pytest.mark.parametrize("between", ["sub-keys", "tokens", "segments", "chunks"])
def test_groups_are_independent(between: str, modulus: int) -> None:
    """Chi-square on the joint groups of disjoint pairs, one table of m x m cells for each pair.

    Balanced tables would fail: there, the groups of the tokens under one sub-key are dependent.
    """
    ids, subkeys = np.arange(1024), subkeys_of(8192, modulus=modulus, table_size=1024)
    groups = all_groups(subkeys, ids)
    first, second = {
        "sub-keys": (groups[:, 0:4096:2], groups[:, 1:4096:2]),
        "tokens": (groups[0::2, :4096].T, groups[1::2, :4096].T),
        "segments": (groups[:, :4096], all_groups(subkeys, ids, 1)[:, :4096]),
        "chunks": (groups[:, :4096], groups[:, 4096:]),
    }[between]
    joint = modulus * first.astype(np.int64) + second  # (samples, pairs)
    cells = np.stack([np.count_nonzero(joint == cell, axis=0) for cell in range(modulus**2)])
    expected = len(joint) / modulus**2
    statistic = float(np.sum((cells - expected) ** 2) / expected)
    assert within(statistic, (modulus**2 - 1) * cells.shape[1])


def test_no_two_tokens_and_no_two_sub_keys_are_alike() -> None:
    """The largest of all correlations: |z| above 7.5 has chance 6e-14, and there are 1.1 million pairs: 7e-8."""
    signs = 2.0 * all_groups(subkeys_of(1024, table_size=1024), np.arange(1024)) - 1
    for table in (signs, signs.T):
        z = table @ table.T / np.sqrt(table.shape[1])
        assert np.abs(z[np.triu_indices(len(z), 1)]).max() < 7.5


# --- position codes ------------------------------------------------------------------------------


@settings(max_examples=40)
@given(secret=st.binary(min_size=32, max_size=32), shape=st.sampled_from(CODES), subkey=st.integers(0, 8191))
def test_a_code_is_the_plain_reference_and_balanced(secret: bytes, shape: tuple[int, int], subkey: int) -> None:
    modulus, length = shape
    subkeys = subkeys_of(8192, modulus=modulus, code_length=length, secret=secret)
    code = subkeys.codes_of(np.array([subkey]))[0].tolist()
    assert code == reference_code(secret, modulus, length, subkey)
    assert [code.count(residue) for residue in range(modulus)] == [length // modulus] * modulus


def test_codes_are_the_golden_vectors() -> None:
    for vector in GOLDEN["codes"]:
        modulus, code, secret = vector["modulus"], vector["code"], bytes.fromhex(vector["secret"])
        subkeys = subkeys_of(8192, modulus=modulus, code_length=len(code), secret=secret)
        assert subkeys.codes_of(np.array([vector["subkey"]]))[0].tolist() == code


@pytest.mark.parametrize(("modulus", "length"), CODES)
def test_all_codes_at_once_are_the_codes_of_each(modulus: int, length: int) -> None:
    codes = subkeys_of(64, modulus=modulus, code_length=length).codes
    assert codes.tolist() == [reference_code(SECRETS[0], modulus, length, subkey) for subkey in range(64)]


def test_without_a_code_every_sub_key_wants_residue_i_mod_m() -> None:
    assert subkeys_of(16, modulus=3).codes.tolist() == [[0, 1, 2]] * 16


@pytest.mark.parametrize("length", [0, 16])
def test_codes_are_read_only(length: int) -> None:
    key = known_key("read-only", subkeys=4, code_length=length)
    plain = known_key("read-only", code_length=length)
    assert not any(code.flags.writeable for code in (plain.tables.code, key.subkey(1).tables.code, key.subkeys.codes))


# --- requests ------------------------------------------------------------------------------------


@pytest.mark.parametrize("vector", GOLDEN["requests"], ids=lambda v: v["request_id"])
def test_the_sub_key_of_a_request_is_the_golden_vector(vector: dict[str, Any]) -> None:
    for count in (2, 64, 65_536):
        subkeys = subkeys_of(count, secret=bytes.fromhex(vector["secret"]))
        assert subkeys.of_request(vector["request_id"]) == vector["subkey"] % count


def test_requests_use_all_sub_keys_alike() -> None:
    key = known_key("requests", subkeys=64)
    counts = np.bincount([subkey_of(key, f"request-{index}") for index in range(6400)], minlength=64)
    assert within(float(np.sum((counts - 100.0) ** 2) / 100), 63)


# --- the spec and the key ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        *(({"subkeys": number}, f"subkeys {number} is not a power of two") for number in (0, -1, 3, 131_072)),
        *(({"subkeys": value}, "not a whole number") for value in (True, 2.0, "2")),
        ({"subkeys": 2, "grouping": "token-id"}, "no key to draw from"),
    ],
)
def test_a_wrong_number_of_sub_keys_is_refused(wrong: dict[str, Any], message: str) -> None:
    with unchecked(), pytest.raises(SettingsError, match=message):
        known_spec(**wrong)


def test_a_key_with_sub_keys_has_no_groups_of_its_own() -> None:
    key = known_key("whole", subkeys=4)
    with pytest.raises(SettingsError, match=r"has 4 sub-keys.*key\.subkey\(n\)"):
        key.tables  # noqa: B018
    with pytest.raises(SettingsError, match=r"key\.subkey\(n\)"):
        GroupTables(key.spec, key.secret or b"").table()


def test_a_sub_key_has_the_keys_name_and_its_own_groups() -> None:
    key = known_key("child", subkeys=8, code_length=16)
    one, other = key.subkey(3), key.subkey(4)
    assert (one.fingerprint, one.key_id, one.secret, one.spec) == (key.fingerprint, key.key_id, key.secret, key.spec)
    assert (one.number, other.number, key.number) == (3, 4, None)
    assert len({one, other, key, key.subkey(3)}) == 3
    assert np.array_equal(one.tables.table(), key.subkeys.column(3))
    assert np.array_equal(one.tables.code, key.subkeys.codes[3])
    assert one.subkeys is key.subkeys
    assert one.subkey(4) == other


@settings(max_examples=40)
@given(
    ids=st.lists(st.integers(0, 99), max_size=40),
    start=st.integers(0, 50),
    modulus=st.sampled_from([2, 3, 16]),
    rotation=st.sampled_from([0, 1, 7]),
    subkey=st.integers(0, 15),
)
def test_matching_under_a_sub_key_is_the_papers_definition(
    ids: list[int], start: int, modulus: int, rotation: int, subkey: int
) -> None:
    subkeys = subkeys_of(16, modulus=modulus, table_size=100, rotation=rotation)
    tables = SubkeyTables(subkeys.spec, subkeys.secret, subkeys=subkeys, number=subkey)
    positions = range(start, start + len(ids))
    expected = [
        reference_chunk(SECRETS[0], modulus, position // rotation if rotation else 0, 0, token)[subkey]
        == position % modulus
        for token, position in zip(ids, positions, strict=True)
    ]
    arguments = np.array(ids, dtype=np.int64), np.array(positions, dtype=np.int64)
    assert tables.matching(*arguments).tolist() == expected


def test_what_is_no_sub_key_is_refused() -> None:
    eight, plain = known_key("eight", subkeys=8), known_key("plain")
    for wrong in (-1, 8, 2**40):
        with pytest.raises(SettingsError, match=rf"sub-key {wrong} is not in 0\.\.7"):
            eight.for_text(wrong)
    for refused in (
        lambda: plain.subkey(0),
        lambda: plain.for_text(0),
        lambda: replace(plain, number=0),
        lambda: subkey_of(plain, "5"),
    ):
        with pytest.raises(SettingsError, match="this key has no sub-keys"):
            refused()
    assert plain.for_text() is plain
    with unchecked(), pytest.raises(SettingsError, match="a request id is a text, not a int"):
        subkey_of(eight, 5)  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match="a sub-key is not saved"):
        eight.subkey(1).save("key.json")


def test_the_key_of_a_text_is_drawn_anew_each_time() -> None:
    """Of 16 draws from 65,536 sub-keys, 8 or fewer are different with chance 1e-27 or so."""
    key = known_key("drawn", subkeys=65_536)
    assert len({key.for_text().number for _ in range(16)}) > 8
    assert key.for_text(5) == key.subkey(5)
    assert key.subkey(5).for_text() == key.subkey(5)


def test_a_key_with_sub_keys_hides_its_secret() -> None:
    key = known_key("hidden", subkeys=4)
    shown = repr([key, key.subkey(1), key.subkeys, key.subkey(1).tables])
    assert repr(bytes(key.secret or b"")) not in shown
    assert (key.secret or b"").hex() not in shown
