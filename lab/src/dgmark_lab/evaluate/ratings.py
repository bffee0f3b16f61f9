"""Ratings of texts by a language model, with the paper's prompt and reply format (GPT-as-a-judge, appendix C).

The prompt rates one text at a time, so no order of texts can bias it. The paper does not say where the text goes;
here the prompt is the system message, and the text is the user's message.
"""

import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dgmark.checkpoint.tokenizer import well_formed
from dgmark_lab.endpoint import Endpoint, EndpointError, ask, connect
from dgmark_lab.evaluate.intervals import Bootstrap, Interval

# The paper's prompt, word for word ("GPT-as-a-judge Prompt").
PROMPT = """\
You are an impartial expert evaluator of linguistic text quality.

The given text is a continuation generated from a truncated C4 sample. It may start or end abruptly because the \
generation length is fixed. Do NOT penalize truncation or incompleteness.

Evaluate ONLY linguistic quality on these criteria:
- Coherence: logical flow of ideas
- Clarity: easy to understand
- Naturalness: how fluent / human-written the text appears

Rate each from 1 (poor) to 5 (excellent). Compute "overall" as the average of the three.

Return only a JSON object in exactly the following structure:
{
"coherence": number,
"clarity": number,
"naturalness": number,
"overall": number
}"""

CRITERIA = ("coherence", "clarity", "naturalness", "overall")
_FENCE = re.compile(r"\A\s*```(?:json)?\s*\n(.*?)\n?\s*```\s*\Z", re.DOTALL)


class Rating(BaseModel):
    """The model's reply for one text, each from 1 to 5. `overall` is the model's own average, not recomputed."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    coherence: float = Field(ge=1, le=5, strict=True)
    clarity: float = Field(ge=1, le=5, strict=True)
    naturalness: float = Field(ge=1, le=5, strict=True)
    overall: float = Field(ge=1, le=5, strict=True)


def read_rating(text: str) -> Rating:
    """Read the rating in a reply: one JSON object of exactly the four numbers, with or without a code fence.

    Raises:
        ValueError: the reply has any other form.
    """
    fenced = _FENCE.match(text)
    try:
        return Rating.model_validate_json(fenced[1] if fenced else text)
    except ValidationError as error:
        first = error.errors()[0]
        raise ValueError(f"{'.'.join(map(str, first['loc'])) or 'the reply'}: {first['msg']}") from None


def rate_texts(texts: Sequence[str], endpoint: Endpoint, *, workers: int = 4) -> list[Rating | EndpointError]:
    """Have a language model rate texts, and return the rating of each, or the reason why it has none.

    Args:
        texts: the texts, without their prompts, as in the paper. They are sent to the endpoint.
        endpoint: the endpoint to ask.
        workers: how many questions are asked at once.

    Raises:
        SettingsError: no API key is set.
    """
    with connect(endpoint) as client, ThreadPoolExecutor(workers) as pool:
        return list(pool.map(lambda text: _rate(client, endpoint, text), texts))


def mean_ratings(ratings: Sequence[Rating]) -> dict[str, Interval]:
    """Compute the mean of some ratings, at least one, by criterion."""
    return {name: Bootstrap().mean(np.array([getattr(one, name) for one in ratings])) for name in CRITERIA}


def _rate(client: Any, endpoint: Endpoint, text: str) -> Rating | EndpointError:
    messages = [{"role": "system", "content": PROMPT}, {"role": "user", "content": well_formed(text)}]
    try:
        return ask(client, endpoint, messages, read_rating)
    except EndpointError as error:
        return error
