"""The key and its file: bound to a model, private, never overwritten, and silent about the secret."""

import base64
import errno
import json
import os
import stat
import tempfile
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import example, given
from hypothesis import strategies as st

from dgmark.checkpoint.tokenizer import Tokenizer, wrap
from dgmark.detection.detector import Detector
from dgmark.errors import (
    DgmarkError,
    KeyFileError,
    KeyFileExists,
    KeyFileFormat,
    KeyFileNotFound,
    SettingsError,
    TokenizerMismatch,
    VocabularyMismatch,
)
from dgmark.report.signing import SigningKey
from dgmark.watermark.bigram import BigramSpec
from dgmark.watermark.key import WatermarkKey
from dgmark.watermark.key_file import KeyFilePermissionWarning
from dgmark.watermark.position import Grouping, PositionSpec, tables_of
from support.cases import cases, data
from support.command_line import run
from support.known_keys import builtin_tokenizer, known_key, known_spec
from support.odd_values import UNFIT_NAMES
from support.unchecked import unchecked

KEY = known_key("the key of these tests")
SECRET = bytes(KEY.secret or b"")
SECRET_BASE64 = base64.b64encode(SECRET).decode()
FIELDS = {
    "format", "version", "key_id", "name", "secret", "prf", "grouping", "modulus", "rotation", "table_size",
    "tokenizer", "tokenizer_fingerprint", "code_length", "rule", "fingerprint",
}  # fmt: skip


def written(path: Path, content: dict[str, Any]) -> Path:
    """A key file written by hand; a field whose value is `...` is left out."""
    path.write_text(json.dumps({name: value for name, value in content.items() if value is not ...}))
    path.chmod(0o600)
    return path


@dataclass(frozen=True)
class Model:
    """The parts of a model that a key needs."""

    tokenizer: Tokenizer
    vocab_size: int


def another_tokenizer() -> Tokenizer:
    vocabulary = {"a": 0, "b": 1, "c": 2, "?": 3}
    return wrap(tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="?")), "four words")


def tells(text: str, secret: bytes = SECRET) -> bool:
    """Whether `text` holds any 8 characters of the secret, in any of the usual notations."""
    notations = [
        secret.hex(),
        secret.hex().upper(),
        base64.b64encode(secret).decode(),
        base64.urlsafe_b64encode(secret).decode(),
        repr(secret)[2:-1],
        ", ".join(map(str, secret)),
    ]
    return any(whole[at : at + 8] in text for whole in notations for at in range(len(whole) - 7))


def test_the_search_for_the_secret_would_find_it() -> None:
    assert all(map(tells, (f"... {SECRET!r} ...", SECRET.hex()[8:24], SECRET_BASE64[:11], str(list(SECRET)))))
    assert not tells("secret")


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    """The key of these tests, saved."""
    path = tmp_path / "key.json"
    KEY.save(path)
    return path


@cache
def saved() -> dict[str, Any]:
    """The content of the saved key."""
    with tempfile.TemporaryDirectory() as folder:
        KEY.save(Path(folder, "key.json"))
        content: dict[str, Any] = json.loads(Path(folder, "key.json").read_text())
    return content


def shown_with_locals(error: BaseException) -> str:
    """A traceback with the variables of all frames, as collectors of errors record it, at any length."""
    trace = traceback.TracebackException.from_exception(error, capture_locals=True)
    return "".join(trace.format())


def refused(path: Path, message: str, error: type[DgmarkError] = KeyFileFormat) -> None:
    """Loading this key file is an error that shows nothing of the secret, in no frame of its traceback."""
    with pytest.raises(error, match=message) as caught:
        WatermarkKey.load(path)
    assert not tells(shown_with_locals(caught.value))


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# --- making keys ---------------------------------------------------------------------------------


def test_a_fresh_key_is_bound_to_tokenizer_and_padded_vocabulary() -> None:
    spec = tables_of(WatermarkKey.generate(Model(another_tokenizer(), 64), modulus=3, rotation=5)).spec
    assert (spec.modulus, spec.rotation, spec.grouping, spec.table_size) == (3, 5, "keyed", 64)
    assert (spec.tokenizer, spec.tokenizer_fingerprint) == ("four words", another_tokenizer().fingerprint)
    assert WatermarkKey.generate(code_length=0).spec == known_spec()  # of the built-in model by default


@pytest.mark.parametrize(("options", "code_length"), cases(__file__, "fresh"))
def test_a_fresh_key_marks_pairs_and_a_plain_one_of_positions_has_a_code_of_16(
    options: dict[str, Any], code_length: int
) -> None:
    spec = WatermarkKey.generate(**options).spec
    pairs = not options.keys() - {"subkeys"}
    if isinstance(spec, PositionSpec):
        assert (pairs, spec.code_length, spec.subkeys) == (False, code_length, 1)
    else:
        assert isinstance(spec, BigramSpec)
        assert pairs
        assert (spec.nearest, spec.farthest, spec.subkeys) == (1, 4, options.get("subkeys", 64))


def test_fresh_keys_have_secrets_and_ids_of_their_own() -> None:
    keys = [WatermarkKey.generate(Model(builtin_tokenizer(), 8192)) for _ in range(20)]
    assert len({key.secret for key in keys}) == len({key.key_id for key in keys}) == 20
    assert {len(key.secret or b"") for key in keys} == {32}


@pytest.mark.parametrize(
    ("grouping", "secret", "message"),
    [
        *(("keyed", bytes(length), f"{length} bytes instead of 32") for length in (0, 16, 31, 33)),
        ("keyed", None, "grouping keyed needs a secret"),
        ("keyed", "x" * 32, "the secret is of type str instead of bytes"),
        ("token-id", SECRET, "token-id takes none"),
    ],
)
def test_a_secret_that_does_not_fit_is_refused(grouping: Grouping, secret: Any, message: str) -> None:
    with unchecked(), pytest.raises(SettingsError, match=message):
        WatermarkKey(spec=known_spec(grouping=grouping), key_id="wrong", secret=secret)


# --- the file ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("options", "prf", "fingerprint"), cases(__file__, "written"))
def test_a_written_key_file_is_read(options: dict[str, Any], prf: str, fingerprint: str, tmp_path: Path) -> None:
    spec = known_spec(**{name: value for name, value in options.items() if name != "expected_match"})
    spec = replace(spec, tokenizer_fingerprint="0123456789abcdef", expected_match=options.get("expected_match"))
    content = {
        "format": "dgmark-key", "version": 1, "key_id": "00ff", "name": "Æther & Söhne",
        "secret": "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=", "prf": prf, "table_size": 8192,
        "tokenizer": "storyteller", "tokenizer_fingerprint": "0123456789abcdef",
        "fingerprint": fingerprint,
    }  # fmt: skip
    if spec.rule == "bigram":
        content |= {"rule": "bigram", "nearest": 1, "farthest": 4}
    else:
        content |= {"rule": "position", "grouping": "keyed", "modulus": 2, "rotation": 0, "code_length": 0}
    path = written(tmp_path / "key.json", {**content, **options})
    key = WatermarkKey.load(path)
    key.save(tmp_path / "again.json")
    assert json.loads((tmp_path / "again.json").read_text()) == json.loads(path.read_text())
    assert (key.spec, key.secret, key.key_id, key.fingerprint) == (spec, bytes(range(32)), "00ff", fingerprint)


@pytest.mark.parametrize("umask", [0o000, 0o777], ids=oct)
def test_a_key_file_has_mode_0600_whatever_the_umask(umask: int, tmp_path: Path) -> None:
    before = os.umask(umask)
    try:
        KEY.save(tmp_path / "key.json")
    finally:
        os.umask(before)
    assert oct(mode(tmp_path / "key.json")) == oct(0o600)


def test_a_key_file_needs_a_free_place_in_a_folder(key_file: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "target")
    before = key_file.read_bytes()
    for taken in (tmp_path, tmp_path / "link", key_file):
        with pytest.raises(KeyFileExists, match="never overwritten"):
            known_key("another").save(taken)
    assert not (tmp_path / "target").exists()
    assert key_file.read_bytes() == before
    with pytest.raises(KeyFileNotFound, match=r"the key file .*nowhere.* cannot be written"):
        KEY.save(tmp_path / "nowhere" / "key.json")


@pytest.mark.parametrize("failure", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()], ids=repr)
def test_a_failed_write_leaves_nothing_behind(
    failure: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_descriptor: int) -> None:
        raise failure

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises((OSError, DgmarkError, KeyboardInterrupt)):
        KEY.save(tmp_path / "key.json")
    assert list(tmp_path.iterdir()) == []


# --- reading what is not a key file --------------------------------------------------------------


@pytest.mark.parametrize("path", ["missing.json", "/dev/zero"])
def test_a_key_file_that_cannot_be_read_says_how_to_make_one(path: str, tmp_path: Path) -> None:
    with pytest.raises(KeyFileNotFound, match=r"the key file .* cannot be read .*dgmark keygen"):
        WatermarkKey.load(tmp_path / path)


def test_a_folder_in_place_of_a_key_file_is_called_one(tmp_path: Path) -> None:
    with pytest.raises(KeyFileNotFound, match=r"because it is a folder: give one file of it.*--keys FOLDER"):
        WatermarkKey.load(tmp_path)


def test_no_more_than_a_key_file_may_have_is_read(key_file: Path) -> None:
    key_file.write_text(" " * 10_000_000)
    with pytest.raises(KeyFileFormat, match="has more than 65536 bytes"):
        WatermarkKey.load(key_file)


@pytest.mark.parametrize(
    "content",
    [
        b"", b"[]", b"{}", b"[" * 60_000,
        b'{"secret": "' + SECRET_BASE64.encode(), SECRET_BASE64.encode(), b'"' + SECRET_BASE64.encode() + b'"',
    ],
    ids=lambda content: repr(content[:20]),
)  # fmt: skip
def test_what_is_no_key_file_is_refused_without_being_quoted(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "key.json"
    path.write_bytes(content)
    path.chmod(0o600)
    refused(path, r"key\.json is not a key file")


@pytest.mark.parametrize(("encoding", "named", "mark"), cases(__file__, "encodings"))
def test_a_key_file_in_another_encoding_is_refused_by_its_name(
    encoding: str, named: str, mark: str | None, key_file: Path
) -> None:
    key_file.write_bytes(f"{mark or ''}{key_file.read_text()}".encode(encoding))
    refused(key_file, rf"the key file .*key\.json is in {named}, .*save it as UTF-8 without a byte order mark")


@pytest.mark.parametrize(
    "changes",
    [
        *data(__file__, "damaged"),
        {"version": None},
        {"secret": None},
        {"extra": SECRET_BASE64},
        {"secret": SECRET_BASE64[:-1]},
        {"secret": SECRET_BASE64[:20] + "!" + SECRET_BASE64[21:]},
        {"secret": base64.b64encode(SECRET[:31]).decode()},
        {"grouping": SECRET_BASE64},
    ],
    ids=lambda changes: ", ".join(f"{name}={str(value)[-12:]!r}" for name, value in changes.items()),
)
def test_a_damaged_key_file_is_refused_without_being_quoted(changes: dict[str, Any], tmp_path: Path) -> None:
    changes = {name: ... if value == "..." else value for name, value in changes.items()}
    refused(written(tmp_path / "key.json", saved() | changes), r"key\.json is not a key file")


@pytest.mark.parametrize(
    ("field", "after"),
    [
        ("secret", ("B" if SECRET_BASE64[0] != "B" else "C") + SECRET_BASE64[1:]),
        ("modulus", 3),
        ("table_size", 8193),
        ("rotation", 7),
        ("tokenizer", "narrator"),
        *((name, "0" * 16) for name in ("tokenizer_fingerprint", "fingerprint")),
    ],
)
def test_a_field_that_was_changed_is_noticed(field: str, after: object, tmp_path: Path) -> None:
    """Each of these alone would mark all later texts with another key."""
    path = written(tmp_path / "key.json", saved() | {field: after})
    refused(path, "is damaged: its contents do not have the fingerprint")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(exclude_categories=())),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=4,
)


@given(field=st.sampled_from(sorted(FIELDS)), value=JSON)
@example(field="secret", value="é")
@example(field="secret", value="\ud800")
def test_a_field_of_any_value_is_either_read_or_refused(field: str, value: object) -> None:
    with tempfile.TemporaryDirectory() as folder:
        try:
            read = WatermarkKey.load(written(Path(folder, "key.json"), saved() | {field: value}))
        except KeyFileFormat:
            return
    content = {**saved(), "key_id": read.key_id, "name": read.name, **read.spec.to_fields()}
    assert content[field] == value


@pytest.mark.parametrize("field", ["name", "key_id"])
@pytest.mark.parametrize("name", UNFIT_NAMES, ids=ascii)
def test_a_name_that_cannot_be_shown_is_refused(field: str, name: str, tmp_path: Path) -> None:
    changes: Any = {field: name}
    with pytest.raises(SettingsError, match="1 to 80 visible characters"):
        replace(KEY, **changes)
    refused(written(tmp_path / "key.json", saved() | changes), "is not a key file")


def test_a_name_changes_nothing_that_a_key_does(tmp_path: Path) -> None:
    named = replace(known_key("named", subkeys=4), name="ACME")
    named.save(tmp_path / "key.json")
    assert WatermarkKey.load(tmp_path / "key.json") == named
    assert (named.fingerprint, named.subkey(3).name) == (known_key("named", subkeys=4).fingerprint, "ACME")


@pytest.mark.parametrize(("options", "model", "share"), cases(__file__, "expected"))
def test_a_new_key_expects_what_was_measured_at_the_models_block_length(
    options: dict[str, Any], model: str, share: float | None
) -> None:
    spec = WatermarkKey.generate(model, **options).spec
    assert (spec.expected_match, spec.to_fields().get("expected_match")) == (share, share)


# --- who may read it -----------------------------------------------------------------------------


@pytest.mark.parametrize("permissions", [0o644, 0o604], ids=oct)
def test_a_key_file_that_everybody_can_read_is_refused(permissions: int, key_file: Path) -> None:
    key_file.chmod(permissions)
    refused(key_file, f"mode {permissions:04o}.*chmod 600", KeyFileError)


@pytest.mark.parametrize(
    ("permissions", "allow_open", "warned"),
    [(0o600, False, 0), (0o400, False, 0), (0o640, False, 1), (0o602, False, 1), (0o644, True, 1)],
)
def test_a_key_file_that_others_can_use_is_read_with_a_warning(
    permissions: int, allow_open: bool, warned: int, key_file: Path
) -> None:
    key_file.chmod(permissions)
    with warnings.catch_warnings(record=True, action="always") as caught:
        assert WatermarkKey.load(key_file, allow_open=allow_open) == KEY
    assert [one.category for one in caught] == [KeyFilePermissionWarning] * warned


@pytest.mark.parametrize(("mode", "warned"), [(0o440, 0), (0o460, 1), (0o444, 1)])
def test_of_a_mounted_secret_no_mode_is_asked_that_cannot_be_set(
    mode: int, warned: int, key_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key_file.chmod(mode)
    monkeypatch.setattr(os, "geteuid", lambda: key_file.stat().st_uid + 1)  # the file is another user's
    if mode & 0o004:
        refused(key_file, f"mode {mode:04o}.*mode 0400.*or accept it with --allow-open-key", KeyFileError)
    with warnings.catch_warnings(record=True, action="always") as caught:
        assert WatermarkKey.load(key_file, allow_open=True) == KEY
    assert [one.category for one in caught] == [KeyFilePermissionWarning] * warned
    assert not any("chmod" in str(one.message) for one in caught)


def test_anybody_may_read_a_key_file_without_a_secret(tmp_path: Path) -> None:
    key = WatermarkKey(spec=known_spec(grouping="token-id"), key_id="open")
    key.save(tmp_path / "key.json")
    (tmp_path / "key.json").chmod(0o644)
    with warnings.catch_warnings(action="error"):
        assert WatermarkKey.load(tmp_path / "key.json") == key


# --- silence about the secret --------------------------------------------------------------------


def test_a_key_a_sub_key_the_tables_and_a_detector_do_not_print_the_secret() -> None:
    subkey = known_key("the key of these tests", subkeys=4).subkey(1)  # of the same secret
    text = f"{KEY} {[KEY, subkey]!r} {tables_of(KEY)!r} {Detector(KEY)!r}"
    assert KEY.key_id in text
    assert not tells(text)


@pytest.mark.parametrize("options", [["key", "show"], ["key", "show", "--json"]], ids=["table", "json"])
def test_key_show_shows_the_spec_and_not_the_secret(options: list[str], key_file: Path) -> None:
    result = run(*options, key_file, code=0)
    assert KEY.fingerprint in result.output
    assert KEY.spec.tokenizer_fingerprint in result.output
    assert not tells(result.output)


# --- binding to a model --------------------------------------------------------------------------


def test_another_tokenizer_is_refused_with_both_fingerprints() -> None:
    other = another_tokenizer()
    stale = replace(KEY, spec=replace(KEY.spec, tokenizer_fingerprint="0123456789abcdef"))
    with pytest.raises(TokenizerMismatch):
        Detector(stale).detect("any text")
    with pytest.raises(TokenizerMismatch):
        Detector(stale, tokenizer=builtin_tokenizer())
    named = f"{KEY.spec.tokenizer_fingerprint}.*four words.*{other.fingerprint}"
    for refuses in (
        KEY.check_tokenizer,
        lambda _: KEY.check_model(Model(other, 8192)),
        lambda _: Detector(KEY, tokenizer=other),
    ):
        with pytest.raises(TokenizerMismatch, match=named):
            refuses(other)
    KEY.check_model(Model(builtin_tokenizer(), 8192))


def test_a_model_padded_to_another_size_is_refused_with_both_sizes() -> None:
    with pytest.raises(VocabularyMismatch, match="8192 token ids, the model predicts 8200"):
        KEY.check_model(Model(builtin_tokenizer(), 8200))


@pytest.mark.parametrize("table_size", [8191, 100_000, 2**31 - 1])
def test_a_table_that_no_model_of_the_tokenizer_has_is_refused(table_size: int) -> None:
    """Before it is made: the last one would take six gigabytes."""
    key = replace(KEY, spec=replace(KEY.spec, table_size=table_size))
    with pytest.raises(VocabularyMismatch, match=f"groups for {table_size} token ids, its tokenizer .* has 8192"):
        Detector(key).detect("any text")


@pytest.mark.parametrize("call", ["save", "missing", "subkey", "tables", "readable", "signing"])
def test_no_frame_of_a_traceback_shows_the_secret_of_a_key(tmp_path: Path, call: str) -> None:
    many = known_key("traceback", subkeys=64)
    signer = SigningKey.generate()
    many.save(path := tmp_path / "key.json")
    path.chmod(0o644)
    calls: dict[str, Callable[[], object]] = {
        "save": lambda: many.save(path),
        "missing": lambda: many.save(tmp_path / "none" / "key.json"),
        "subkey": lambda: many.subkey(99),
        "tables": lambda: tables_of(many),
        "readable": lambda: WatermarkKey.load(path),
        "signing": lambda: signer.save(path),
    }
    with pytest.raises(DgmarkError) as caught:
        calls[call]()
    shown = shown_with_locals(caught.value)
    assert not tells(shown, bytes(many.secret or b""))
    assert str(signer._key.as_dict(private=True)["d"])[:16] not in shown
