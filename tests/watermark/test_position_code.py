"""Position codes: keyed, balanced, unlike their own shifts; marked and found in every mode; the same for ever.

`golden/codes.json` was written from the plain-Python reference below and is never written again.
"""

import hashlib
import itertools
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dgmark.detection.detector import Detector
from dgmark.detection.match_null import MatchNull, residue_counts
from dgmark.watermark.groups import position_code
from dgmark.watermark.key import WatermarkKey
from support.known_keys import known_key, position_of

GOLDEN: list[dict[str, Any]] = json.loads((Path(__file__).parents[1] / "golden" / "codes.json").read_text())
SECRETS = (bytes(32), bytes(range(32)), hashlib.sha256(b"a golden secret").digest())
SHAPES = ((2, 2), (2, 8), (2, 16), (2, 32), (2, 64), (3, 9), (4, 16), (5, 40), (16, 16), (16, 64))


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


def coded_key(name: str, length: int, modulus: int = 2, rotation: int = 0) -> WatermarkKey:
    return known_key(name, modulus=modulus, rotation=rotation, code_length=length)


def matching_ids(key: WatermarkKey, length: int, rate: float, seed: int) -> np.ndarray:
    """Random ids of which a share `rate` is made to match; the rest is left to chance."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(4, key.spec.table_size, length)
    for position in range(length):
        while rng.random() < rate and not key.tables.matching(ids[position, None], np.array([position]))[0]:
            ids[position] = rng.integers(4, key.spec.table_size)
    return ids


@settings(max_examples=60)
@given(secret=st.binary(min_size=32, max_size=32), shape=st.sampled_from(SHAPES))
def test_the_code_is_the_plain_reference_and_balanced(secret: bytes, shape: tuple[int, int]) -> None:
    modulus, length = shape
    code = position_code(secret, modulus, length).tolist()
    assert code == reference_code(secret, modulus, length)
    assert [code.count(residue) for residue in range(modulus)] == [length // modulus] * modulus


@pytest.mark.parametrize("vector", GOLDEN, ids=lambda v: f"{v['secret'][-4:]}-m{v['modulus']}-L{len(v['code'])}")
def test_the_code_is_the_golden_vector(vector: dict[str, Any]) -> None:
    code = position_code(bytes.fromhex(vector["secret"]), vector["modulus"], len(vector["code"]))
    assert code.tolist() == vector["code"]


@pytest.mark.parametrize("length", [16, 32, 64])
def test_no_shift_of_a_long_code_agrees_with_it_as_the_papers_code_does(length: int) -> None:
    """The paper's code agrees everywhere with its even shifts, which rewards loops."""
    for seed in range(50):
        code = position_code(hashlib.sha256(bytes([seed])).digest(), 2, length).tolist()
        assert agreements(code)[0] <= 0.75 * length
    assert agreements([0, 1] * (length // 2))[0] == length


def test_with_a_code_residues_repeat_after_its_length() -> None:
    tables = coded_key("repeats", 24, modulus=3).tables
    assert tables.residues(np.arange(60)).tolist() == (tables.code.tolist() * 3)[:60]


# --- detection -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("modulus", "length", "rotation"), [(2, 8, 0), (2, 32, 0), (4, 16, 0), (3, 63, 0), (2, 16, 50)]
)
@pytest.mark.parametrize("missing", [0, 1, 40])
def test_the_mark_is_found_wherever_its_text_begins(modulus: int, length: int, rotation: int, missing: int) -> None:
    key = coded_key("crop", length, modulus, rotation)
    found = Detector(key).detect(matching_ids(key, 240, 0.75, seed=missing)[missing:])
    assert found.verdict == "watermarked"
    assert position_of(found).shift == (missing if rotation else missing % length)
    assert rotation or position_of(found).shifts_tested == length


def test_the_phases_are_paid_for() -> None:
    key = coded_key("paid", 32)
    ids = matching_ids(key, 200, 0.6, seed=3)
    any_phase, start = Detector(key).detect(ids), Detector(key, phase="start").detect(ids)
    assert position_of(any_phase).shift == 0
    assert any_phase.p_value == pytest.approx(32 * start.p_value)


@pytest.mark.parametrize("shift", [0, 1, 5])
def test_the_null_at_a_phase_is_that_of_all_group_assignments(shift: int) -> None:
    """Enumerates every way to give groups to the distinct tokens of a short text, the code held fixed."""
    key = coded_key("enumerated", 8)
    ids = np.array([10, 11, 10, 12, 13, 10, 11, 14, 14, 10, 15])
    wanted = key.tables.residues(np.arange(len(ids)) + shift)
    null = MatchNull.of(residue_counts(ids, wanted, 2))
    distinct, token = np.unique(ids, return_inverse=True)
    counts = [
        int(np.count_nonzero(np.array(groups)[token] == wanted))
        for groups in itertools.product((0, 1), repeat=len(distinct))
    ]
    for matched in range(len(ids) + 1):
        assert null.tail(matched) == pytest.approx(np.mean([count >= matched for count in counts]))


def test_a_loop_of_two_tokens_earns_half_of_its_matches_only() -> None:
    """The purpose of the code: under the paper's rule, a lucky pair of tokens matches for ever."""
    loop = np.array([100, 200] * 64)
    shares = []
    for name in range(40):
        tables = coded_key(f"loop-{name}", 32).tables
        shares.append(max(np.mean(tables.matching(loop, np.arange(128) + shift)) for shift in range(32)))
    assert max(shares) <= 0.75
    plain = [
        max(np.mean(known_key(f"loop-{name}").tables.matching(loop, np.arange(128) + s)) for s in (0, 1))
        for name in range(40)
    ]
    assert max(plain) == 1.0
