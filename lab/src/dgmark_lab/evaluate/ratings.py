"""Ratings of texts by a language model, with the paper's prompt and reply format (GPT-as-a-judge, appendix C).

The prompt rates one text at a time, so no order of texts can bias it. The paper does not say where the text goes;
here the prompt is the system message, and the text is the user's message.
"""

import json
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dgmark.checkpoint.tokenizer import well_formed
from dgmark.errors import InputError
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


@dataclass(frozen=True)
class RatedText:
    """The rating of one text, or the reason why it has none."""

    rating: Rating | None
    error: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {"error": self.error} if self.rating is None else self.rating.model_dump()


@dataclass(frozen=True)
class Ratings:
    """A language model's ratings of some texts.

    Attributes:
        means: mean by criterion, over the texts that have a rating.
        texts: the single texts, in order.
        model: the model's name.
        failed: texts without a rating.
    """

    means: dict[str, Interval]
    texts: tuple[RatedText, ...]
    model: str

    @property
    def failed(self) -> int:
        """Number of texts without a rating."""
        return sum(text.rating is None for text in self.texts)

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values, without the single texts."""
        means = {name: interval.to_dict() for name, interval in self.means.items()}
        return {"model": self.model, "means": means, "num_texts": len(self.texts), "failed": self.failed}


def read_rating(text: str) -> Rating:
    """Read the rating in a reply: one JSON object of exactly the four numbers, with or without a code fence.

    Raises:
        ValueError: the reply has any other form.
    """
    fenced = _FENCE.match(text)
    try:
        return Rating.model_validate(json.loads(fenced[1] if fenced else text))
    except ValidationError as error:
        first = error.errors()[0]
        raise ValueError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    except RecursionError:
        raise ValueError("nested too deeply") from None


def rate_texts(
    texts: Sequence[str],
    endpoint: Endpoint | None = None,
    *,
    workers: int = 4,
) -> Ratings:
    """Have a language model rate texts. The texts are sent to the endpoint.

    Args:
        texts: the texts, without their prompts, as in the paper.
        endpoint: the endpoint to ask.
        workers: how many questions are asked at once.

    Raises:
        InputError: there is no text.
        EndpointError: no text could be rated.
        SettingsError: no API key is set.
    """
    if not texts:
        raise InputError("there is no text to rate")
    endpoint = endpoint or Endpoint()
    return summarise_ratings(rate_each(texts, endpoint, workers=workers), endpoint.model)


def rate_each(texts: Sequence[str], endpoint: Endpoint, *, workers: int = 4) -> tuple[RatedText, ...]:
    """Have a language model rate texts, without a summary; the arguments and errors are those of `rate_texts`.

    A text that could not be rated is no error here.
    """
    with connect(endpoint) as client, ThreadPoolExecutor(workers) as pool:
        return tuple(pool.map(lambda text: _rate(client, endpoint, text), texts))


def summarise_ratings(rated: Sequence[RatedText], model: str) -> Ratings:
    """Compute the means of the ratings of some texts, at least one, by the model of this name.

    Raises:
        EndpointError: no text has a rating.
    """
    known = [text.rating for text in rated if text.rating is not None]
    if not known:
        raise EndpointError(str(rated[0].error))
    means = {name: Bootstrap().mean(np.array([getattr(rating, name) for rating in known])) for name in CRITERIA}
    return Ratings(means, tuple(rated), model)


def _rate(client: Any, endpoint: Endpoint, text: str) -> RatedText:
    messages = [{"role": "system", "content": PROMPT}, {"role": "user", "content": well_formed(text)}]
    try:
        return RatedText(ask(client, endpoint, messages, read_rating))
    except EndpointError as error:
        return RatedText(None, str(error))
