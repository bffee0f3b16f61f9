"""What /openapi.json promises, held to requests that schemathesis makes of it, right ones and wrong ones."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from dgmark.models.toy import ToyDenoiser
from dgmark.report.signing import SigningKey
from dgmark.service.app import create_app
from dgmark.service.jobs import FromWorker, Job, MessageQueue, ModelFacts
from dgmark.service.model_worker import ModelWorker
from dgmark.service.settings import ModelSource, ServiceSettings
from dgmark.service.state import ServiceState
from support.known_keys import bound_key
from support.services import key_folder, listening

schemathesis = pytest.importorskip("schemathesis")
# not first in a test: pytest rewrites it, and Python 3.11 fails if another thread compiles at the same time
pytest.importorskip("schemathesis.specs.openapi.schemas")
pytestmark = pytest.mark.slow
FORM = "multipart/form-data"


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

    few = settings(
        max_examples=examples,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    operations = [result.ok() for result in schema.get_all_operations()]
    for operation in operations:
        # without a body, and where any bytes are one, nothing can be asked wrongly
        if mode is POSITIVE or any(body.media_type != "application/octet-stream" for body in operation.body):
            few(given(case=operation.as_strategy(generation_mode=mode))(holds))()
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
    assert operations >= 3
    assert len(statuses) >= 3 * examples


class ToyWriter:
    """A model worker in this process, with a toy in place of the model; it writes each text at once."""

    ready, held = True, 0

    async def start(self) -> None:
        toy, self.messages = ToyDenoiser(), list[FromWorker]()
        self.facts = {"storyteller": ModelFacts(toy.context_length, 32, chat=False)}
        keys = {"one": bound_key("one", toy)}
        self.writer = ModelWorker({"storyteller": toy}, keys, self.messages.append, rows=1, batches=1)

    def close(self) -> None:
        pass

    @asynccontextmanager
    async def run(self, job: Job) -> AsyncIterator[MessageQueue]:
        answers = MessageQueue()
        self.writer.take(job)
        while self.writer.busy:
            self.writer.advance()
        for _, outcome in self.messages:
            answers.put_nowait(outcome)  # type: ignore[arg-type] # nothing is cancelled
        self.messages.clear()
        yield answers


PROMPTS = {
    "/v1/generate": {"prompt": {"type": "string", "pattern": "^w[0-9]( w[0-9]){0,3}$"}},
    "/v1/completions": {"prompt": {"type": "string", "pattern": "^w[0-9]( w[0-9]){0,3}$"}},
    "/v1/infill": {"text": {"type": "string", "pattern": r"^w[0-9] \[mask:[2-8]\] w[0-9]$"}},
}
SIZES = {"max_tokens": {"type": "integer", "minimum": 2, "maximum": 40}}
FREE = ("temperature", "seed", "stream", "stop", "top_p")


def with_short_texts(document: dict[str, Any]) -> dict[str, Any]:
    """The description with such requests only as the toy can do: for short texts, with fields that go together."""
    narrow, components = deepcopy(document), document["components"]["schemas"]
    narrow["paths"] = {path: narrow["paths"][path] for path in PROMPTS}
    for path, prompt in PROMPTS.items():
        content = narrow["paths"][path]["post"]["requestBody"]["content"]["application/json"]
        schema = content["schema"] = deepcopy(components[content["schema"]["$ref"].rpartition("/")[2]])
        fields_ = {name: field for name, field in schema["properties"].items() if name in FREE}
        sizes = {name: field for name, field in SIZES.items() if name in schema["properties"]}
        schema["properties"] = {**fields_, **sizes, **prompt}
        schema["required"] = [*prompt, *sizes]
    return narrow


def test_texts_are_as_described(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ServiceState, "model_process", ToyWriter())
    source = ModelSource({"name_or_path": "storyteller", "device": "cpu"})
    app = create_app(ServiceSettings(keys=key_folder(tmp_path, "one"), workers=1, models=(source,)))
    whole = deepcopy(app.openapi())
    whole["paths"] = {path: whole["paths"][path] for path in (*PROMPTS, "/v1/chat/completions")}
    with listening(app) as address:
        operations, statuses = ask(address, with_short_texts(whole), POSITIVE, 6)
        assert operations == len(PROMPTS)
        assert set(statuses) <= {200, 400}  # 400: a temperature of 0 beside top_p
        assert statuses.count(200) >= len(statuses) / 2
        operations, statuses = ask(address, whole, NEGATIVE, 4)
        assert operations == len(PROMPTS) + 1
        assert len(statuses) >= 4 * operations
        assert 200 not in statuses
