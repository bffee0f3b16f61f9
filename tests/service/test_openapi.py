"""What /openapi.json promises, held to requests that schemathesis makes of it, right ones and wrong ones."""

from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from pydantic import BaseModel
from starlette.testclient import TestClient

from dgmark.service import fields
from dgmark.service.app import create_app
from dgmark.service.settings import ModelSource, ServiceSettings
from support.services import key_folder, listening

schemathesis = pytest.importorskip("schemathesis")
pytestmark = pytest.mark.slow
FORM = "multipart/form-data"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, dict[str, Any]]]:
    """The service's address, and its description of itself."""
    app = create_app(ServiceSettings(keys=key_folder(tmp_path_factory.mktemp("openapi"), "one"), workers=1))
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


@pytest.mark.parametrize(
    ("forms", "mode", "examples"),
    [
        (False, schemathesis.GenerationMode.POSITIVE, 5),
        (False, schemathesis.GenerationMode.NEGATIVE, 12),
        (True, schemathesis.GenerationMode.POSITIVE, 5),  # schemathesis makes no wrong forms with files
    ],
)
def test_answers_are_as_described(served: tuple[str, dict[str, Any]], forms: bool, mode: Any, examples: int) -> None:
    address, document = served
    schema = schemathesis.openapi.from_dict(bodies_of(document, forms=forms))
    # a schema cannot say which keys there are, nor that a document can be read
    unsaid = [schemathesis.checks.CHECKS.get_one("positive_data_acceptance")]
    asked = 0

    def holds(case: Any) -> None:
        nonlocal asked
        case.call_and_validate(base_url=address, excluded_checks=unsaid)
        asked += 1

    few = settings(
        max_examples=examples,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    operations = [result.ok() for result in schema.get_all_operations()]
    for operation in operations:
        if mode is schemathesis.GenerationMode.POSITIVE or operation.body:  # others cannot be asked wrongly
            few(given(case=operation.as_strategy(generation_mode=mode))(holds))()
    assert len(operations) >= 3
    assert asked >= 3 * examples


def test_wrong_requests_for_texts_are_answered_as_described(tmp_path: Path) -> None:
    source = ModelSource({"name_or_path": "storyteller", "device": "cpu"})
    app = create_app(ServiceSettings(keys=key_folder(tmp_path, "one"), workers=1, models=(source,)))
    document = app.openapi()
    # not started, so that what is not refused as wrong is refused as not ready
    client = TestClient(app, "http://localhost", raise_server_exceptions=False)
    for path, methods in document["paths"].items():
        if "post" in methods and not path.startswith(("/v1/detect", "/v1/report")):
            answer = client.post(path, content=b"{", headers={"content-type": "application/json"})
            described = methods["post"]["responses"]["4XX"]["content"]
            assert answer.status_code == 400
            assert list(described) == [answer.headers["content-type"]]
            (schema,) = described.values()
            name = schema["schema"]["$ref"].rpartition("/")[2]
            models: dict[str, type[BaseModel]] = {"Problem": fields.Problem, "OpenAIProblem": fields.OpenAIProblem}
            models[name].model_validate(answer.json())
