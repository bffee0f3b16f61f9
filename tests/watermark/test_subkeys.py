"""Sub-keys of a key: which one marks a text, and what is none. Their bits are tested in `test_bigram.py`."""

import hashlib
from dataclasses import replace

import pytest

from dgmark.errors import SettingsError
from dgmark.watermark.key import WatermarkKey, subkey_of
from support.known_keys import known_key, known_spec
from support.unchecked import unchecked


@pytest.mark.parametrize(("request_id", "subkey"), [("", 22157), ("request-8a31", 46207), ("Zürich \ud83d 🦭", 19268)])
def test_the_sub_key_of_a_request_is_the_same_for_ever(request_id: str, subkey: int) -> None:
    """The numbers were computed from the message in docs/keys.md, as here."""
    message = b"dgmark/request/siphash24-pairs-v1\0" + request_id.encode("utf-8", "surrogatepass") + bytes(range(32))
    assert int.from_bytes(hashlib.shake_256(message).digest(8), "little") % 65_536 == subkey
    for count in (2, 64, 65_536):
        assert subkey_of(WatermarkKey(known_spec(subkeys=count), "id", bytes(range(32))), request_id) == subkey % count


def test_a_sub_key_has_the_keys_name_and_its_own_number() -> None:
    key = known_key("child", subkeys=8)
    one, other = key.subkey(3), key.subkey(4)
    assert (one.fingerprint, one.key_id, one.secret, one.spec) == (key.fingerprint, key.key_id, key.secret, key.spec)
    assert (one.number, other.number, key.number) == (3, 4, None)
    assert len({one, other, key, key.subkey(3)}) == 3
    assert one.subkey(4) == other


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
    with unchecked(), pytest.raises(SettingsError, match="a request id is a text or a whole number, not a float"):
        subkey_of(eight, 5.0)  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match="a sub-key is not saved"):
        eight.subkey(1).save("key.json")


def test_the_key_of_a_text_is_drawn_anew_each_time() -> None:
    """Of 16 draws from 65,536 sub-keys, 8 or fewer are different with chance 1e-27 or so."""
    key = known_key("drawn", subkeys=65_536)
    assert len({key.for_text().number for _ in range(16)}) > 8
    assert key.for_text(5) == key.subkey(5)
    assert key.subkey(5).for_text() == key.subkey(5)
