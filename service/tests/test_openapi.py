"""What /openapi.json promises, held to requests that schemathesis makes of it, right ones and wrong ones."""

import re
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from starlette.testclient import TestClient

from dgmark.report.signing import SigningKey
from dgmark_service.app import create_app
from dgmark_service.error_answers import ErrorAnswer
from dgmark_service.model_process import ModelProcess
from dgmark_service.settings import ModelSource, ServiceSettings
from support.services import bearer, key_folder, listening

schemathesis = pytest.importorskip("schemathesis")
# not first in a test: pytest rewrites it, and Python 3.11 fails if another thread compiles at the same time
pytest.importorskip("schemathesis.specs.openapi.schemas")
pytestmark = pytest.mark.slow
FORM = "multipart/form-data"
STORYTELLER = ModelSource({"name_or_path": "storyteller", "device": "cpu"})


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, dict[str, Any]]]:
    """The service's address, and its description of itself."""
    keys = key_folder(tmp_path_factory.mktemp("openapi"), "one")
    app = create_app(ServiceSettings(keys=keys, workers=1, signer=SigningKey.generate()))
    with listening(app) as address:
        yield address, app.openapi()


def bodies_of(document: dict[str, Any], *, forms: bool) -> dict[str, Any]:
    """The description with one kind of bodies only, and with the paths that have bodies of this kind."""
    kept = deepcopy(document)
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            content = operation.get("requestBody", {"content": {}})["content"]
            there = {kind: body for kind, body in content.items() if (kind == FORM) == forms}
            if there:
                kept["paths"][path][method]["requestBody"]["content"] = there
            elif forms or content:
                del kept["paths"][path]
    return kept


POSITIVE, NEGATIVE = schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE


def few(examples: int) -> settings:
    """So many examples, the same in each run."""
    return settings(
        max_examples=examples, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck)
    )


def ask(address: str, document: dict[str, Any], mode: Any, examples: int) -> tuple[int, list[int]]:
    """Ask each operation so many times, and hold the answers to the description.

    Returns:
        The number of operations, and the status of each answer.
    """
    schema, statuses = schemathesis.openapi.from_dict(document), list[int]()
    # a schema cannot say which keys there are, that a document can be read, nor that a text fits the model
    unsaid = [schemathesis.checks.CHECKS.get_one("positive_data_acceptance")]

    def holds(case: Any) -> None:
        statuses.append(case.call_and_validate(base_url=address, excluded_checks=unsaid).status_code)

    operations = [result.ok() for result in schema.get_all_operations()]
    for operation in operations:
        # without a body, and where any bytes are one, nothing can be asked wrongly
        if mode is POSITIVE or any(body.media_type != "application/octet-stream" for body in operation.body):
            few(examples)(given(case=operation.as_strategy(generation_mode=mode))(holds))()
    return len(operations), statuses


@pytest.mark.parametrize(
    ("forms", "mode", "examples"),
    [
        (False, POSITIVE, 5),
        (False, NEGATIVE, 12),
        (True, POSITIVE, 5),  # schemathesis makes no wrong forms with files
    ],
)
def test_answers_are_as_described(served: tuple[str, dict[str, Any]], forms: bool, mode: Any, examples: int) -> None:
    address, document = served
    operations, statuses = ask(address, bodies_of(document, forms=forms), mode, examples)
    assert operations >= 2
    assert len(statuses) >= 2 * examples


def test_wrong_requests_for_texts_are_refused_as_described(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ModelProcess, "start", lambda _: None)  # what reached it would have a 503, which is a fault
    app = create_app(ServiceSettings(keys=key_folder(tmp_path, "one"), workers=1, models=(STORYTELLER,)))
    paths = ("/v1/generate", "/v1/infill", "/v1/completions", "/v1/chat/completions")
    document = deepcopy(app.openapi())
    document["paths"] = {path: document["paths"][path] for path in paths}
    with listening(app) as address:
        operations, statuses = ask(address, document, NEGATIVE, 4)
    assert operations == len(paths)
    assert len(statuses) >= 4 * operations
    assert 200 not in statuses


# no schema knows the service's keys and models, nor what stands last in a list or is equal in two fields
UNSAID = re.compile(
    "there is no (model|key)|the keys are|the models: |has no sub-keys|without a mark|this text is to have none"
    "|is no option of rule|lies outside the key's|the last message is a user's|more than 1,000,000 characters"
    "|the value of n|holds no (readable )?text|cannot be read|no text that can be read|not recognised|packed archive"
    "|nothing under|holds no signature of dgmark|not a JSON report of a text|the name of a text|is no JSON"
    "|is a picture|is an Office file|the text is empty"
    "|seed: it must be below"  # which a number with a point may round up to
)


def test_what_the_description_allows_is_refused_only_for_what_no_schema_can_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def accepted(*_: object) -> None:
        raise ErrorAnswer(503, "accepted")

    monkeypatch.setattr(ModelProcess, "start", lambda _: None)
    monkeypatch.setattr(ModelProcess, "check_room", accepted)
    fields: Any = {"workers": 1, "models": (STORYTELLER,), "signer": SigningKey.generate()}
    app = create_app(ServiceSettings(key_folder(tmp_path, "one"), **fields))
    answers: dict[int, list[str]] = {}
    with listening(app) as address:
        for forms in (False, True):
            schema = schemathesis.openapi.from_dict(bodies_of(app.openapi(), forms=forms))
            for operation in (result.ok() for result in schema.get_all_operations()):

                def asked(case: Any) -> None:
                    answer = case.call(base_url=address)
                    if answer.content:
                        answers.setdefault(answer.status_code, []).append(answer.text)

                few(12)(given(case=operation.as_strategy(generation_mode=POSITIVE))(asked))()
    assert len(answers[200]) > 20
    assert len(answers[503]) > 20  # the texts that are asked for
    refused = [text for status, texts in answers.items() if 400 <= status < 500 for text in texts]
    assert [text for text in refused if not UNSAID.search(text)] == []
    assert 500 not in answers


@pytest.mark.parametrize("access", [{}, {"public": True}, {"tokens": True}, {"tokens": True, "public": True}])
def test_who_may_ask_what_is_described(tmp_path: Path, access: dict[str, Any]) -> None:
    scopes: list[Any] = ["detect", "detect:full", "generate", "admin"]
    headers = {scope: bearer(tmp_path / "tokens.json", scope.replace(":", "-"), scope) for scope in scopes}
    if "tokens" in access:
        access = {**access, "tokens": tmp_path / "tokens.json"}
    settings: Any = {"models": (STORYTELLER,), "signer": SigningKey.generate(), **access}
    app = create_app(ServiceSettings(key_folder(tmp_path, "one"), **settings))
    document, client = app.openapi(), TestClient(app, "http://localhost", raise_server_exceptions=False)
    assert list(document["components"]["securitySchemes"]) == ["accessToken"]
    described = set()
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            named = [wanted for wanted in operation.get("security", []) if wanted]
            refused = client.request(method, path.replace("{name}", "storyteller")).status_code in (401, 403)
            assert refused == (named != [] and {} not in operation["security"]), (path, access)
            if not named or "tokens" not in access:
                continue
            described.add(path)
            (wanted,) = named[0].values()
            for scope, header in headers.items():
                answer = client.request(method, path.replace("{name}", "storyteller"), headers=header)
                enough = {*wanted} <= {scope, *(["detect"] if scope == "detect:full" or "public" in access else [])}
                assert (answer.status_code == 403) is not enough, (path, scope)
    assert "tokens" not in access or described >= {"/v1/about", "/v1/detect", "/v1/completions", "/metrics"}
