"""Ratings of texts by a language model: the paper's "GPT-as-a-Judge" (appendix, Table 13), and comparisons of pairs.

The model is asked through any server with OpenAI's interface. Raw answers are kept, so that another reader can check
what was made of them.
"""

import json
import re
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from dgmark_lab.chat_endpoint import ChatEndpoint
from dgmark_lab.evaluate.estimates import Estimate, mean

CRITERIA = ("coherence", "clarity", "naturalness")
LOWEST, HIGHEST = 1.0, 5.0
# increased whenever the questions or the reading of answers change
QUESTION_VERSION = 1

_QUESTIONS = tomllib.loads(Path(__file__).with_name("questions.toml").read_text(encoding="utf-8"))
_OBJECT = re.compile(r"\{[^{}]*\}")

Problem = Literal["refused", "unparsable"]
Better = Literal["A", "B", "tie"]
_BETTER: dict[str, Better] = {"A": "A", "B": "B", "TIE": "tie"}


@dataclass(frozen=True)
class Rating:
    """What a language model makes of one text.

    Attributes:
        answer: its answer, as it came.
        scores: the scores of `CRITERIA`, 1 to 5, and their mean as "overall"; None if there are none.
        problem: why there are none.
    """

    answer: str
    scores: dict[str, float] | None
    problem: Problem | None = None


@dataclass(frozen=True)
class Preference:
    """Which of two texts a language model takes for the better one, in one order.

    Attributes:
        answer: its answer, as it came.
        better: "A" for the text that stands first; None if the answer does not say.
        problem: why it does not.
    """

    answer: str
    better: Better | None
    problem: Problem | None = None


@dataclass(frozen=True)
class Rater:
    """A language model that rates and compares texts.

    Attributes:
        endpoint: the server and its model.
        temperature: of the answers' draws; 0 takes the likeliest answer.
        max_tokens: most tokens of an answer.
    """

    endpoint: ChatEndpoint
    temperature: float = 0.0
    max_tokens: int = 128

    def rate(self, text: str, seed: int = 0) -> Rating:
        """Rate one text by the paper's question.

        Raises:
            ModelError: the server does not answer.
        """
        return Rating(*self._ask(_QUESTIONS["rate"] + text, seed, read_scores))

    def compare(self, first: str, second: str, seed: int = 0) -> dict[str, Any]:
        """Compare two texts twice: as A and B, and as B and A, since raters prefer a place.

        Returns "comparisons", the fields of both preferences, and "win", how far the first text is the better one.

        Raises:
            ModelError: the server does not answer.
        """
        questions = [_QUESTIONS["compare"] % order for order in ((first, second), (second, first))]
        pair = [Preference(*self._ask(question, seed, read_better)) for question in questions]
        return {"comparisons": [asdict(one) for one in pair], "win": win_of(*pair)}

    def _ask(self, question: str, seed: int, read: Callable[[str], Any]) -> tuple[str, Any, Problem | None]:
        """The answer to a question, what is read in it, and why that is nothing."""
        answer = self.endpoint.answer(question, max_tokens=self.max_tokens, temperature=self.temperature, seed=seed)
        if answer.refused:
            return answer.text, None, "refused"
        found = read(answer.text)
        return answer.text, found, None if found else "unparsable"


def read_scores(answer: str) -> dict[str, float] | None:
    """The scores in an answer, and their mean, which raters do not compute reliably; None if it has no such object."""
    for found in _objects(answer):
        scores = [found.get(name) for name in CRITERIA]
        numbers = [float(one) for one in scores if isinstance(one, int | float) and not isinstance(one, bool)]
        if len(numbers) == len(CRITERIA) and all(LOWEST <= one <= HIGHEST for one in numbers):
            return {**dict(zip(CRITERIA, numbers, strict=True)), "overall": sum(numbers) / len(numbers)}
    return None


def read_better(answer: str) -> Better | None:
    """The better text by an answer; None if it has no such object."""
    for found in _objects(answer):
        if better := _BETTER.get(str(found.get("better")).strip().upper()):
            return better
    return None


def _objects(answer: str) -> list[dict[str, object]]:
    """The JSON objects without inner objects in an answer, which may stand in a sentence or a code block."""
    found = []
    for match in _OBJECT.finditer(answer):
        try:
            found.append(json.loads(match.group()))
        except ValueError:
            continue
    return found


def win_of(in_order: Preference, swapped: Preference) -> float | None:
    """How far the first text is the better one: 1, 0, or .5 for a tie or where the answer follows the place.

    None if one of the answers could not be read.
    """
    if in_order.better is None or swapped.better is None:
        return None
    worth = {"A": 1.0, "tie": 0.5, "B": 0.0}
    return (worth[in_order.better] + 1 - worth[swapped.better]) / 2


def mean_scores(ratings: Sequence[Rating]) -> dict[str, Estimate]:
    """The mean of each criterion and of "overall" over the texts that have scores, with intervals; empty for none."""
    scored = [one.scores for one in ratings if one.scores]
    if not scored:
        return {}
    return {name: mean(np.array([scores[name] for scores in scored])) for name in (*CRITERIA, "overall")}
