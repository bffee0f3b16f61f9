"""`/v1/tuning` and the page Tune: who sees what the models' settings files hold, and where there is nothing to see."""

import re
from dataclasses import replace
from pathlib import Path

from starlette.testclient import TestClient

from dgmark.decode.settings_file import TunedSettings
from dgmark.service.app import create_app
from dgmark.service.settings import ModelSource, ServiceSettings
from support.searches import searched
from support.services import bearer, key_folder

PLAIN = ModelSource({"name_or_path": "storyteller", "device": "cpu"})
FILES = ("/tune", "/tune.js", "/frontier.js")


def client_of(keys: Path, tuned: TunedSettings | None, tokens: Path | None = None) -> TestClient:
    """A client of a service that is never started."""
    settings = ServiceSettings(keys, tokens=tokens, models=(replace(PLAIN, tuned=tuned),), workers=1)
    return TestClient(create_app(settings), "http://localhost", raise_server_exceptions=False)


def links(client: TestClient) -> list[str]:
    return re.findall(r'<a href="(/\w*)"[^>]*>\w+</a>', client.get("/about").text)


def test_what_a_settings_file_holds_is_told_to_those_who_write(tmp_path: Path) -> None:
    keys, tokens = key_folder(tmp_path, "one"), tmp_path / "tokens.json"
    bearer(tokens, "first", "admin")
    client, tuned = client_of(keys, searched(code_length=0), tokens), searched(code_length=0)
    assert client.get("/v1/tuning").status_code == 401
    assert client.get("/v1/tuning", headers=bearer(tokens, "reader", "detect:full")).status_code == 403
    (told,) = client.get("/v1/tuning", headers=bearer(tokens, "writer", "generate")).json()["models"]
    held = tuned.model_dump(exclude={"format", "version", "model"})
    assert told == {"name": "storyteller", **held}
    assert links(client) == ["/", "/write", "/guess", "/tune", "/about"]
    assert [client.get(path).status_code for path in FILES] == [200] * 3
    assert "0.97" not in client.get("/tune").text  # the page has no figures before it has asked


def test_without_a_settings_file_there_is_no_page_and_an_old_file_has_no_points(tmp_path: Path) -> None:
    keys = key_folder(tmp_path, "one")
    plain = client_of(keys, None)
    assert [plain.get(path).status_code for path in (*FILES, "/v1/tuning")] == [404] * 4
    assert "/tune" not in links(plain)
    old = TunedSettings(version=1, model="storyteller", code_length=0, decoding={"temperature": 0.6})
    (told,) = client_of(keys, old).get("/v1/tuning").json()["models"]
    assert told["frontier"] is None


def test_where_the_judge_lies_is_not_told(tmp_path: Path) -> None:
    keys, tuned = key_folder(tmp_path, "one"), searched(code_length=0)
    for judge, told in (("/home/a/judge", "judge"), ("../judge", "judge"), ("org/judge", "org/judge")):
        judged = tuned.model_copy(update={"measured": {**tuned.measured, "judge": judge}})
        (model,) = client_of(keys, judged).get("/v1/tuning").json()["models"]
        assert model["measured"] == {**tuned.measured, "judge": told}
