"""What is said of wrong fields: words about the field, never pydantic's, whatever is sent."""

import json
import re
from typing import Any, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types import chat
from openai.types.chat.completion_create_params import CompletionCreateParamsBase as ChatParams
from openai.types.completion_create_params import CompletionCreateParamsBase as CompletionParams

from dgmark_service import generation_schemas, openai_schemas, schemas
from dgmark_service.error_answers import ErrorAnswer
from dgmark_service.generation_schemas import Message
from dgmark_service.json_fields import fields_of
from dgmark_service.schemas import RequestFields

MODELS: tuple[type[RequestFields], ...] = (
    *(schemas.DetectRequest, schemas.ReportRequest, generation_schemas.GenerateRequest),
    *(generation_schemas.InfillRequest, openai_schemas.CompletionRequest, openai_schemas.ChatRequest),
)
# words of pydantic, and names of its types
FOREIGN = re.compile(
    r"[Ii]nput|[Vv]alid |[Ss]hould|[Ff]ield required|Value error|Dictionary|constrained|nullable|Tag\b"
)
SECRET = "a text of somebody"
INNER = ("role", "content", "type")
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 2**70)
    | st.floats()
    | st.just(SECRET)
    | st.sampled_from(["", "a" * 300]),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.sampled_from(INNER), inner),
    max_leaves=8,
)


def errors_of(model: type[RequestFields], body: Any) -> list[dict[str, str]]:
    """What is said of this body; nothing if it is right."""
    try:
        fields_of(body if isinstance(body, bytes) else json.dumps(body).encode(), model)
    except ErrorAnswer as error:
        return [{"param": str(error.param), "message": error.detail}]
    return []


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
@settings(max_examples=300)
@given(data=st.data())
def test_a_wrong_field_is_named_in_plain_words(model: type[RequestFields], data: st.DataObject) -> None:
    names = st.sampled_from([*model.model_fields, "colour"])
    body = data.draw(st.dictionaries(names, JSON, max_size=3) | JSON)
    errors = errors_of(model, body)
    for one in errors:
        assert not FOREIGN.search(one["message"]), one
        assert SECRET not in one["message"]
        assert one["param"].partition(".")[0] in ("body", *model.model_fields, "colour", *INNER)


@pytest.mark.parametrize(
    ("body", "errors"),
    [
        (b"{", {"body": "the body is no JSON"}),
        (b'{"prompt": "\xff"}', {"body": "the body is no JSON in UTF-8"}),
        (b"[]", {"body": "it must be an object"}),
        ({"prompt": [1, "a"]}, {"prompt.1": "it must be a whole number"}),
        ({"prompt": ["a", 1]}, {"prompt.1": "it must be a text or a list"}),
        ({"prompt": ["a", [1, -1]]}, {"prompt.1.1": "it must be at least 0"}),
        ({"prompt": 5}, {"prompt": "it must be a text, or a list of texts or of token ids"}),
        ({"prompt": None}, {"prompt": "it must be a text, or a list of texts or of token ids"}),
        ({"prompt": "a", "seed": 2**70}, {"seed": "it must be below 9,223,372,036,854,775,808"}),
        ({"prompt": "a", "watermark": "yes"}, {"watermark": "it must be true or false or an object"}),
        ({"prompt": "a", "strategy": "best"}, {"strategy": "it must be "}),
        ({"prompt": "a", "best_of": "all", "x": 1}, {"best_of": "leave it out"}),
        ({"prompt": "a", "stop": ["a", ""], "x": 1}, {"stop.1": "must not be empty"}),
    ],
)
def test_what_is_wrong_is_said_of_the_type_that_was_meant(body: Any, errors: dict[str, str]) -> None:
    found = {one["param"]: one["message"] for one in errors_of(openai_schemas.CompletionRequest, body)}
    assert set(found) == set(errors)
    for param, words in errors.items():
        assert words in found[param]


@pytest.mark.parametrize(
    ("model", "params", "needed"),
    [
        (openai_schemas.ChatRequest, ChatParams, {"messages": [{"role": "user", "content": "a"}]}),
        (openai_schemas.CompletionRequest, CompletionParams, {"prompt": "a"}),
        (Message, chat.ChatCompletionUserMessageParam, {"role": "user", "content": "a"}),
        (Message, chat.ChatCompletionSystemMessageParam, {"role": "system", "content": "a"}),
        (Message, chat.ChatCompletionAssistantMessageParam, {"role": "assistant", "content": "a"}),
    ],
)
def test_every_field_that_openais_client_knows_is_known_and_may_be_null(
    model: type[RequestFields], params: Any, needed: dict[str, Any]
) -> None:
    fields = set(get_type_hints(params)) - set(needed)
    assert len(fields) > 0
    assert errors_of(model, {**needed, **dict.fromkeys(fields)}) == []


def test_a_whole_number_may_be_written_with_a_point() -> None:
    body = {"prompt": [[5.0, 6.0], [7]], "max_tokens": 16.0, "n": 2.0, "seed": -3.0, "temperature": 1}
    asked = fields_of(json.dumps(body).encode(), openai_schemas.CompletionRequest)
    assert (asked.prompts, asked.max_tokens, asked.n, asked.seed) == ([[5, 6], [7]], 16, 2, -3)
    assert errors_of(openai_schemas.CompletionRequest, {"prompt": "a", "max_tokens": 16.5, "n": 1e300}) == [
        {"param": "max_tokens", "message": "the request is invalid: max_tokens: it must be a whole number"},
    ]
