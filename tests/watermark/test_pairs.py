"""Keys whose sub-keys are pairs: their groups are those of a plain reference and the same for ever; their key file.

`golden/pairs_v3.json` was written by this file, run as a script, from the plain-Python reference below. It is never
written again.
"""

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any, TypedDict, cast

import numpy as np
import pytest

from dgmark.errors import KeyFileFormat, SettingsError
from dgmark.watermark.groups import WatermarkSpec
from dgmark.watermark.key import WatermarkKey, subkey_of
from dgmark.watermark.pairs import PairedSubkeys
from dgmark.watermark.subkeys import PAIR_PRF
from support.known_keys import known_key, known_spec
from support.subkey_references import reference_request, reference_stretch, written

GOLDEN = Path(__file__).parents[1] / "golden" / "pairs_v3.json"
SECRETS = (bytes(range(32)), hashlib.sha256(b"a golden secret").digest())
TOKENS = [*range(40), 255, 256, 8191]
MANY, MOST = 2**24, 2**32


class GoldenPair(TypedDict):
    """The groups of `TOKENS` under one sub-key, and their classes."""

    secret: str
    modulus: int
    subkeys: int
    subkey: int
    classes: list[int]
    groups: list[int]


def reference_class(secret: bytes, token: int) -> int:
    """A token's class as docs/keys.md defines it."""
    message = b"dgmark/class/shake256-pair-v3\0" + token.to_bytes(4, "little") + secret
    return hashlib.shake_256(message).digest(1)[0] & 1


def reference_group(secret: bytes, modulus: int, subkeys: int, subkey: int, token: int) -> int:
    """A token's group under a sub-key that is a pair, as docs/keys.md defines it."""
    numbers = {MANY: 4096, MOST: 65_536}[subkeys]
    number = [subkey % numbers, subkey // numbers][reference_class(secret, token)]
    return reference_stretch(secret, modulus, 0, number // 4096, token)[number % 4096]


def golden_vectors() -> list[GoldenPair]:
    """All golden vectors, computed by the reference."""
    return [
        GoldenPair(
            secret=secret.hex(),
            modulus=modulus,
            subkeys=subkeys,
            subkey=subkey,
            classes=[reference_class(secret, token) for token in TOKENS],
            groups=[reference_group(secret, modulus, subkeys, subkey, token) for token in TOKENS],
        )
        for secret in SECRETS
        for modulus in (2, 3, 16)
        for subkeys in (MANY, MOST)
        for subkey in (0, 4097, subkeys - 2)
    ]


def stored() -> list[GoldenPair]:
    """The committed vectors; none before they were first written."""
    return cast(list[GoldenPair], json.loads(GOLDEN.read_text(encoding="utf-8"))) if GOLDEN.exists() else []


@pytest.mark.parametrize("vector", stored(), ids=lambda v: f"m{v['modulus']}-{v['subkeys']}-{v['subkey']}")
def test_the_groups_are_the_golden_vector(vector: GoldenPair) -> None:
    spec = WatermarkSpec(modulus=vector["modulus"], table_size=8192, subkeys=vector["subkeys"])
    subkeys, ids = PairedSubkeys(spec, bytes.fromhex(vector["secret"])), np.array(TOKENS)
    assert subkeys.classes(ids).tolist() == vector["classes"]
    assert subkeys.groups(ids[::-1], vector["subkey"]).tolist() == vector["groups"][::-1]


def test_there_are_golden_vectors() -> None:
    assert len(stored()) == 36


@pytest.mark.parametrize("subkeys", [MANY, MOST])
def test_a_table_has_the_groups_of_the_reference(subkeys: int) -> None:
    """Once from squeezes, then from the column in memory, for tokens that repeat, in any order."""
    key = known_key("table", subkeys=subkeys)
    ids = np.array([5, 300, 5, 8000, 4, 299, 300])
    expected = [reference_group(key.secret or b"", 2, subkeys, subkeys - 5, token) for token in ids.tolist()]
    tables = key.subkey(subkeys - 5).tables
    assert tables.groups(ids, np.arange(7)).tolist() == expected
    assert tables.table()[ids].tolist() == expected
    assert tables.groups(ids, np.arange(7)).tolist() == expected
    assert not tables.table().flags.writeable


def test_half_of_the_tokens_are_in_each_class() -> None:
    """By luck outside with chance below 1e-7."""
    classes = PairedSubkeys(known_spec(subkeys=MOST), SECRETS[1]).classes(np.arange(8192))
    assert abs(classes.mean() - 0.5) < 5.4 * 0.5 / np.sqrt(8192)


def test_sub_keys_that_share_a_number_share_the_groups_of_one_class_and_no_more() -> None:
    key = known_key("sharing", subkeys=MANY)
    subkeys = cast(PairedSubkeys, key.subkeys)
    first, second = subkeys.places(np.arange(8192))
    one, other = (key.subkey(number).tables.table() for number in (7 + 4096 * 9, 7 + 4096 * 10))
    assert np.array_equal(one[first], other[first])
    assert abs(np.mean(one[second] == other[second]) - 0.5) < 5.4 * 0.5 / np.sqrt(len(second))


def test_the_sub_key_of_a_request_uses_all_of_them() -> None:
    key = known_key("request", subkeys=MOST)
    numbers = [subkey_of(key, f"request {n}") for n in range(64)]
    assert numbers == [reference_request(key.secret or b"", f"request {n}", MOST) for n in range(64)]
    assert max(numbers) > MOST // 2  # by luck not, with chance 2^-64


def test_their_groups_are_not_listed() -> None:
    with pytest.raises(SettingsError, match="too many to list"):
        next(known_key("list", subkeys=MANY).subkeys.stretches(np.arange(3)))


def test_a_sub_key_that_there_is_not_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"not in 0\.\.4294967295"):
        known_key("missing", subkeys=MOST).subkey(MOST)


@pytest.mark.parametrize("more", [{"rotation": 16}, {"code_length": 4}])
def test_pairs_go_without_rotation_and_position_code(more: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match="goes without rotation and position code"):
        replace(known_spec(subkeys=MANY), **more)


# --- the key file --------------------------------------------------------------------------------

VERSION_4 = (
    '{"format": "dgmark-key", "version": 4, "key_id": "00ff", '
    '"secret": "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=",'
    '"prf": "shake256-pair-v3", "scheme": "keyed", "modulus": 2, "rotation": 0, "table_size": 8192,'
    '"tokenizer": "storyteller", "tokenizer_fingerprint": "v2-0123456789abcdef", "code_length": 0, '
    '"subkeys": 4294967296, "fingerprint": "9d939321105adf9c"}'
)


def test_a_file_of_version_4_is_read_for_ever(tmp_path: Path) -> None:
    key = WatermarkKey.load(written(tmp_path / "key.json", json.loads(VERSION_4)))
    assert key.secret == SECRETS[0]
    assert key.spec == replace(known_spec(subkeys=MOST), tokenizer_fingerprint="v2-0123456789abcdef")
    groups = key.subkey(70_000).tables.groups(np.arange(9), np.arange(9))
    assert groups.tolist() == [reference_group(SECRETS[0], 2, MOST, 70_000, token) for token in range(9)]


def test_a_key_is_written_as_version_4_and_read_as_written(tmp_path: Path) -> None:
    key = known_key("file", subkeys=MANY)
    key.save(tmp_path / "key.json")
    content = json.loads((tmp_path / "key.json").read_text())
    assert (content["version"], content["prf"], content["subkeys"]) == (4, PAIR_PRF, MANY)
    assert set(content) == set(json.loads(VERSION_4))
    assert WatermarkKey.load(tmp_path / "key.json") == key


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"subkeys": 2**30},
            "subkeys 1073741824 is not a power of two from 1 to 65536, and not 16777216 or 4294967296",
        ),
        ({"subkeys": 65_536}, "states version 4, but .* version 3"),
        ({"version": 3}, "states version 3, but .* version 4"),
        ({"version": 5}, "its version is 5, which a newer dgmark wrote"),
        ({"prf": "shake256-token-v2"}, "states prf shake256-token-v2, but a key with subkeys 4294967296 has"),
        ({"rotation": 16}, "goes without rotation"),
        ({"subkeys": 2**24}, "do not have the fingerprint"),
        ({"fingerprint": ...}, "states no fingerprint, which every file of version 4 does"),
    ],
    ids=str,
)
def test_a_file_whose_fields_do_not_fit_is_refused(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = written(tmp_path / "key.json", {**json.loads(VERSION_4), **change})
    with pytest.raises(KeyFileFormat, match=message):
        WatermarkKey.load(path)


if __name__ == "__main__":
    if GOLDEN.exists():
        raise SystemExit(f"{GOLDEN} exists; golden vectors are written once")
    GOLDEN.write_text("[\n" + ",\n".join(map(json.dumps, golden_vectors())) + "\n]\n", encoding="utf-8")
