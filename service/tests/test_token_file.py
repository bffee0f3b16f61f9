"""Tokens, scopes, the public form and its limits, and the log of what was decided."""

import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import pytest
from starlette.testclient import TestClient

from dgmark.detection.detector import DEFAULT_FPR
from dgmark.detection.statistics.expected import tokens_needed
from dgmark.errors import InputError, KeyFileNotFound, SettingsError
from dgmark_service.app import create_app
from dgmark_service.auth import network
from dgmark_service.schemas import PublicAnswer
from dgmark_service.settings import ServiceSettings
from dgmark_service.telemetry import MAX_REFUSALS_A_MINUTE, AuditLog
from dgmark_service.token_file import API_TOKEN, PREFIX, TokenFile, environment_token, find
from support.command_line import run
from support.known_keys import known_key
from support.marked_texts import marked_text
from support.odd_values import UNFIT_NAMES
from support.services import bearer, key_folder, service

MARKED = marked_text(known_key("one", rule="bigram"), 300)


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tokens") / "tokens.json"
    TokenFile(path).add("first", ["admin"])
    return path


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory, tokens: Path) -> Iterator[TestClient]:
    folder = tmp_path_factory.mktemp("service")
    audit = tokens.with_name("audit.jsonl")
    with service(folder, "one", tokens=tokens, audit=audit, public_rate="50 per minute") as client:
        yield client


def test_a_header_that_cannot_be_read_is_not_taken_for_none(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.json"
    secret = bearer(tokens, "one", "detect:full")["authorization"].removeprefix("Bearer ").encode()
    with service(tmp_path, "one", tokens=tokens, public=True) as client:

        def ask(*values: bytes) -> tuple[int, str]:
            answer = client.get("/v1/about", headers=[(b"authorization", value) for value in values])
            assert (answer.headers.get("www-authenticate") == "Bearer") == (answer.status_code == 401)
            return answer.status_code, answer.text

        for good in (b"Bearer " + secret, b"bearer  " + secret):
            assert ask(good)[0] == 200
        for wrong in (b"", b"Bearer", b"Bearer ", secret, b"Basic " + secret, b"Bearer " + secret + b"\xa0"):
            status, text = ask(wrong)
            assert (status, "cannot be read" in text) == (401, True), wrong
        for wrong in (b"Bearer " + secret + b" x", b"Bearer\t" + secret, b"\xa0Bearer " + secret):
            assert ask(wrong)[0] == 401
        assert ask(b"Bearer " + secret, b"Bearer " + secret)[0] == 401
        status, text = ask(b"Bearer " + secret + b"x")
        assert (status, "not valid here" in text) == (401, True)
        assert ask()[0] == 200  # the public form


def test_where_everybody_may_check_a_token_never_takes_that_away(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.json"
    TokenFile(tokens).add("first", ["admin"])
    with service(tmp_path, "one", tokens=tokens, public=True) as client:
        for scope in ("generate", "admin", "detect", "detect:full"):
            headers = bearer(tokens, scope.replace(":", "-"), scope)
            about = client.get("/v1/about", headers=headers).json()
            assert about["form"] == ("full" if scope == "detect:full" else "public")
            assert client.post("/v1/detect", json={"text": "a"}, headers=headers).json()["form"] == about["form"]


def test_the_public_form_has_no_numbers(client: TestClient, tokens: Path) -> None:
    headers = bearer(tokens, "public-form", "detect")
    answer = client.post("/v1/detect", json={"text": MARKED, "spans": True}, headers=headers).json()
    PublicAnswer.model_validate(answer)
    assert (answer["verdict"], answer["form"]) == ("watermarked", "public")
    assert not {"p_value", "z_score", "num_tokens_matched", "figures", "summary", "rarity"} & set(answer)
    assert "1 in 10,000" in answer["sentence"]
    for field, value in (("fpr", 0.5), ("phase", "start"), ("token_ids", [5]), ("normalise", ["nfc"])):
        body = {field: value} if field == "token_ids" else {"text": MARKED, field: value}
        refused = client.post("/v1/detect", json=body, headers=headers)
        assert refused.status_code == 403
        assert refused.json()["errors"][0]["param"] == field


def test_naming_keys_is_no_choice_of_the_rate_in_the_public_form(tmp_path: Path) -> None:
    with service(tmp_path, "one", "two", public=True) as public:
        both = public.post("/v1/detect", json={"text": MARKED}).json()
        one = public.post("/v1/detect", json={"text": MARKED, "key": "one"}).json()
    # the same level for each key: a share of one half of 1e-4
    assert "1 in 10,000" in both["sentence"]
    assert "1 in 20,000" in one["sentence"]


def test_a_token_from_the_environment_may_do_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(API_TOKEN, "x" * 32)
    token = environment_token()
    assert API_TOKEN not in os.environ
    assert environment_token() is None
    with service(tmp_path, "one", api_token=token, public=True) as client:
        headers = {"authorization": f"Bearer {'x' * 32}"}
        forms = [client.get("/v1/about", headers=each).json() for each in ({}, headers)]
        assert [(about["form"], about["takes_tokens"]) for about in forms] == [("public", True), ("full", False)]
        needed = tokens_needed(known_key("one", rule="bigram").spec, DEFAULT_FPR)
        assert [(key["expected_match"], key["tokens_needed"]) for key in forms[0]["keys"]] == [(None, needed)]
        assert client.get("/metrics", headers=headers).status_code == 200
        assert client.get("/metrics", headers={"authorization": "Bearer y"}).status_code == 401
    for unfit, why in (("short", "could be guessed"), ("x" * 32 + "\n", "a header"), ("two words" * 4, "a header")):
        monkeypatch.setenv(API_TOKEN, unfit)
        with pytest.raises(SettingsError, match=why):
            environment_token()


def test_a_removed_token_is_refused_at_once(client: TestClient, tokens: Path) -> None:
    headers = bearer(tokens, "leaver", "detect:full")
    assert client.get("/v1/about", headers=headers).status_code == 200
    TokenFile(tokens).remove("leaver")
    assert client.get("/v1/about", headers=headers).status_code == 401


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda text: text[:-3], "EOF while parsing"),
        (lambda text: text.replace('"detect"', '"read"'), "tokens.0.scopes.0: Input should be 'detect'"),
    ],
)
def test_tokens_stay_valid_while_their_file_has_a_mistake(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: Callable[[str], str], why: str
) -> None:
    tokens = tmp_path / "tokens.json"
    headers = bearer(tokens, "one", "detect")
    with service(tmp_path, "one", tokens=tokens) as client:
        assert client.get("/v1/about", headers=headers).status_code == 200
        tokens.write_text(damage(tokens.read_text()))
        for _ in range(2):
            assert client.get("/v1/about", headers=headers).status_code == 200
        assert client.get("/v1/about", headers={"authorization": "Bearer other"}).status_code == 401
    (said,) = [record.message for record in caplog.records if str(tokens) in record.message]
    assert why in said
    with pytest.raises(InputError, match=re.escape(why)):
        TokenFile(tokens).tokens()


def test_a_time_without_a_zone_is_one_of_utc(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.json"
    headers = bearer(tokens, "one", "detect")
    content = json.loads(tokens.read_text())
    with service(tmp_path, "one", tokens=tokens) as client:
        for year, status in ((2999, 200), (2001, 401)):
            content["tokens"][0]["expires"] = f"{year}-01-01T00:00:00"
            tokens.write_text(json.dumps(content))
            assert client.get("/v1/about", headers=headers).status_code == status


def test_a_file_of_tokens_that_is_gone_is_no_fault_of_who_asks_and_tells_no_path(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tokens = tmp_path / "tokens.json"
    headers = bearer(tokens, "one", "detect")
    app = create_app(ServiceSettings(key_folder(tmp_path, "one"), tokens=tokens, workers=1))
    client = TestClient(app, "http://localhost", raise_server_exceptions=False)
    assert client.get("/v1/about", headers=headers).status_code == 200
    tokens.unlink()
    answer = client.get("/v1/about", headers=headers)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "60")
    assert "access tokens cannot be checked" in answer.text
    assert str(tokens) not in answer.text
    assert str(tokens) in caplog.text  # where the operator finds it


def test_the_log_has_decisions_and_no_text_prompt_or_secret(client: TestClient, tokens: Path) -> None:
    full = bearer(tokens, "logged", "detect:full")
    client.post("/v1/detect", json={"text": "Nobody shall read this."}, headers={**full, "x-request-id": "logged-1"})
    client.post("/v1/detect", json={"text": "Nobody shall read this."}, headers={"x-request-id": "logged-2"})
    assert tokens.with_name("audit.jsonl").stat().st_mode & 0o777 == 0o600
    public, elsewhere = bearer(tokens, "logged-public", "detect"), {"origin": "https://elsewhere.example"}
    for number, headers in ((3, public), (4, {**full, **elsewhere})):
        wanted = {"text": "Nobody shall read this.", "fpr": 0.5}
        client.post("/v1/detect", json=wanted, headers={**headers, "x-request-id": f"logged-{number}"})
    text = tokens.with_name("audit.jsonl").read_text()
    rows = {row["client_request"]: row for row in map(json.loads, text.splitlines())}
    checked = rows["logged-1"]
    assert (checked["decision"], checked["token"], checked["form"]) == ("check", "logged", "full")
    assert checked["key_fingerprints"] == [known_key("one", rule="bigram").fingerprint]
    assert len(checked["request"]) == 16
    for number, status in ((2, 401), (3, 403), (4, 403)):
        assert (rows[f"logged-{number}"]["decision"], rows[f"logged-{number}"]["status"]) == ("refused", status)
    assert (rows["logged-3"]["token"], rows["logged-3"]["path"]) == ("logged-public", "/v1/detect")
    assert "Nobody" not in text
    assert full["authorization"].removeprefix("Bearer ") not in text


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no full disk here")
def test_a_full_disk_stops_no_answer_but_readiness(tmp_path: Path) -> None:
    audit, disk = tmp_path / "audit.jsonl", tmp_path / "disk.jsonl"
    audit.symlink_to("/dev/full")
    with service(tmp_path, "one", audit=audit) as client:
        assert client.get("/readyz").status_code == 200
        for status in (200, 421):
            headers = {"host": "elsewhere.example"} if status == 421 else {}
            assert client.post("/v1/detect", json={"text": "a"}, headers=headers).status_code == status
            assert client.get("/readyz").status_code == 503
        audit.unlink()
        audit.symlink_to(disk)
        assert client.get("/readyz").status_code == 200
    (row,) = map(json.loads, disk.read_text().splitlines())
    assert (row["decision"], row["status"], row["rows_lost"]) == ("refused", 421, 1)


def test_readiness_follows_the_last_real_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, append, room = AuditLog(tmp_path / "audit.jsonl"), AuditLog._append, 120

    def bounded(file: IO[bytes], line: bytes) -> None:
        if len(line) > room:
            raise OSError("no room")
        append(file, line)

    monkeypatch.setattr(AuditLog, "_append", staticmethod(bounded))
    for _ in range(3):
        log.write("detect", request="x" * 100)
        assert not log.works()
    room = 300
    assert log.works()
    log.close()
    (row,) = map(json.loads, (tmp_path / "audit.jsonl").read_text().splitlines())
    assert (row["request"], row["rows_lost"]) == ("x" * 100, 2)


def test_refused_tokens_write_no_rows_without_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    log = AuditLog(tmp_path / "audit.jsonl")
    for _ in range(MAX_REFUSALS_A_MINUTE + 500):
        log.write("refused", token=None)
    log.write("refused", token="known")
    now = 60.0
    log.write("refused", token=None)
    log.close()
    rows = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    assert [row["token"] for row in rows[MAX_REFUSALS_A_MINUTE:]] == ["known", None]
    assert [row.get("refusals_left_out") for row in rows[MAX_REFUSALS_A_MINUTE:]] == [500, None]


def test_the_public_form_is_limited_by_address_and_by_token(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.json"
    one, two, full = (
        bearer(tokens, name, scope) for name, scope in (("a", "detect"), ("b", "detect"), ("c", "detect:full"))
    )
    with service(tmp_path, "one", tokens=tokens, public=True, public_rate="3 per hour") as client:

        def ask(headers: dict[str, str]) -> int:
            answer = client.post("/v1/detect", json={"text": "a"}, headers=headers)
            if answer.status_code == 429:
                assert 3000 < int(answer.headers["retry-after"]) <= 3600
            return answer.status_code

        assert [ask({}) for _ in range(4)] == [200, 200, 200, 429]
        assert ask(one) == ask(two) == 429  # the same address
        assert [ask(full) for _ in range(5)] == [200] * 5
        assert client.get("/v1/about").json()["form"] == "public"
        network = [("2001:db8::1", 200), ("2001:db8::2", 200), ("2001:db8::ffff:3", 200), ("2001:db8::4", 429)]
        for address, status in (*network, ("2001:db8:0:1::1", 200)):
            neighbour = TestClient(client.app, "http://localhost", client=(address, 50000))
            assert neighbour.post("/v1/detect", json={"text": "a"}).status_code == status
        # as a socket for both versions writes IPv4 addresses, which are those of as many clients
        for place in range(8):
            other = TestClient(client.app, "http://localhost", client=(f"::ffff:198.51.{place}.7", 50000))
            assert other.post("/v1/detect", json={"text": "a"}).status_code == 200
        same = TestClient(client.app, "http://localhost", client=("198.51.7.7", 50000))
        assert [same.post("/v1/detect", json={"text": "a"}).status_code for _ in range(3)] == [200, 200, 429]
        # with a token nobody gets less than without one, whoever else has it
        assert {from_address(client, f"192.0.2.{place}", one) for place in range(8)} == {200}
        assert client.get("/metrics").status_code == 403
    (tmp_path / "other").mkdir()
    with service(tmp_path / "other", "one", tokens=tokens, public_rate="3 per hour") as client:
        asked = [from_address(client, f"192.0.2.{place}", one) for place in range(4)]
        assert (asked, from_address(client, "192.0.2.9", two)) == ([200, 200, 200, 429], 200)


def from_address(client: TestClient, address: str, headers: dict[str, str]) -> int:
    """The status of a check that is asked for from this address."""
    other = TestClient(client.app, "http://localhost", client=(address, 50000))
    return other.post("/v1/detect", json={"text": "a"}, headers=headers).status_code


@pytest.mark.parametrize(
    ("address", "one"),
    [
        ("198.51.100.7", "198.51.100.7"),
        ("::ffff:198.51.100.7", "198.51.100.7"),
        ("::FFFF:c633:6407", "198.51.100.7"),
        ("64:ff9b::198.51.100.7", "198.51.100.7"),
        ("64:ff9b:1::7", "64:ff9b:1::/64"),
        ("2001:db8::ffff:198.51.100.7", "2001:db8::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("a socket", "a socket"),
    ],
)
def test_which_addresses_are_one_client(address: str, one: str) -> None:
    assert network(address) == one


def test_what_is_no_token_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    with pytest.raises(KeyFileNotFound, match="dgmark access keygen"):
        TokenFile(path).tokens()
    for content in ("", "{}x", '{"format": "other"}', '{"tokens": [{}]}', "[" * 9999, " " * 2**21):
        path.write_text(content)
        with pytest.raises(InputError, match="not a file of access tokens"):
            TokenFile(path).tokens()
    path.unlink()
    for scopes in (["root"], []):
        with pytest.raises(SettingsError, match="scopes"):
            TokenFile(path).add("a", scopes)
    for name in UNFIT_NAMES:
        with pytest.raises(SettingsError, match="1 to 80 visible characters"):
            TokenFile(path).add(name, ["detect"])
    for place in (tmp_path, Path("/"), Path("."), Path(".."), Path("a\0b")):
        with pytest.raises(SettingsError):
            TokenFile(place)
    assert not path.exists()
    TokenFile(path).add("a", ["detect"])
    content = path.read_text()
    for name in UNFIT_NAMES:
        path.write_text(content.replace('"a"', json.dumps(name)))
        with pytest.raises(InputError, match="not a file of access tokens"):
            TokenFile(path).tokens()
    path.write_text(content)
    with pytest.raises(SettingsError, match="already"):
        TokenFile(path).add("a", ["detect"])
    with pytest.raises(SettingsError, match="no token 'b'"):
        TokenFile(path).remove("b")


def test_the_commands_make_list_and_remove_tokens(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    made = run("access", "keygen", path, "alice", "--scope", "detect", "--scope", "admin", code=0)
    secret = made.stdout.strip()
    assert secret.startswith(PREFIX)
    assert len(secret) > 40
    assert secret not in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600
    found = find(secret, TokenFile(path).tokens())
    assert found is not None
    assert (found.name, found.scopes) == ("alice", ("detect", "admin"))
    assert find(secret + "x", [found]) is find("", [found]) is None
    assert run("access", "list", path).stdout.split()[:3] == ["alice", "detect", "admin"]
    assert run("access", "remove", path, "alice").exit_code == 0
    assert run("access", "list", path).stdout == ""
