"""Messages between the service and its model worker: jobs there, and back what becomes of them.

Plain data, so that the process that serves needs no torch. `Job` also says which of the service's own settings fit
beside those of the request: what a request does not name is no fault of its sender's, so the service's block, steps
and limits follow the text's length and the request's settings. `MessageQueue` keeps a job's messages for its reader.
"""

import asyncio
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from dgmark.decode.config import DecodeConfig
from dgmark.errors import DgmarkError, SettingsError
from dgmark.watermark.key import WatermarkKey

# the settings of `DecodeConfig` that a request names as they are; it names `steps` num_denoising_steps
REQUEST_SETTINGS = (
    *("temperature", "top_p", "top_k", "alpha", "bias", "block_length", "strategy", "commit", "threshold"),
    *("edit_threshold", "lookahead", "min_relative_reward", "noise"),
)
# what a request may choose where every text must be marked
FREE_SETTINGS = ("temperature", "top_p", "top_k", "edit_threshold")
# settings that say how a mark is made, and their values in a text that has none
OFF_WITHOUT_MARK = {"alpha": 0.0, "bias": 0.0, "min_relative_reward": 0.0, "lookahead": 1}
# tokens of a text that must be marked; the model's block if that is shorter
MIN_MARKED_TOKENS = 32


class FieldError(SettingsError):
    """A field of a request cannot be as it is.

    Args:
        detail: what is wrong, and what to do.
        param: the field.
        code: OpenAI's word for it; None if it has none.
    """

    # a process that receives it calls it with the message alone
    def __init__(self, detail: str, param: str = "", code: str | None = None) -> None:
        super().__init__(detail)
        self.param, self.code = param, code


@dataclass(frozen=True)
class ModelFacts:
    """What the service knows about a model that is loaded.

    Attributes:
        context_length: tokens of prompt and response together.
        block_length: tokens of a block, unless a request says otherwise.
        chat: whether it has a chat template.
    """

    context_length: int
    block_length: int
    chat: bool


@dataclass(frozen=True)
class Job:
    """One text to write.

    Attributes:
        id: its id, which no other job has.
        model: the name of the model.
        prompt: a text, or token ids, to continue; for an infilling, a text with [mask:N] in it, or its parts; for a
            chat, role and content of each message.
        chat: put the messages into the model's chat template.
        key: the key to mark with, or one of its sub-keys; None for no mark.
        seed: seed of the text.
        max_tokens: the most tokens that it may have; None for the service's own limit.
        settings: decoding settings that the request names.
        own: the service's own, for those that it does not name; what is in neither is the model's.
        enforced: whether it must be long enough for a mark.
        fills: whether the holes of the prompt are filled; else the prompt is continued.
        remask: for a text whose holes are to be chosen, the arguments of `infill` that say how; else None.
        place: which of several prompts of a request it is; None for the only one.
        limit_param: the field of the request that has max_tokens.
        check: look for the mark in the text as soon as it is written.
        seconds: the longest that the text may take.
    """

    id: str
    model: str
    prompt: Any = field(repr=False)
    chat: bool
    key: WatermarkKey | None = field(repr=False)
    seed: int = field(repr=False)
    max_tokens: int | None
    settings: Mapping[str, Any]
    own: Mapping[str, Any] = field(default_factory=dict)
    enforced: bool = False
    fills: bool = False
    remask: Mapping[str, Any] | None = None
    place: int | None = None
    limit_param: str = "max_tokens"
    check: bool = False
    seconds: float = 600

    @property
    def size(self) -> int:
        """The characters of the prompt, or its ids and the tokens of its holes."""
        if self.chat:
            return sum(len(content) for _, content in self.prompt)
        parts = self.prompt if isinstance(self.prompt, list) else [self.prompt]
        return sum(len(part) if isinstance(part, str) else part if self.fills else 1 for part in parts)

    @property
    def prompt_param(self) -> str:
        """The field of the request that has the prompt."""
        if self.fills:
            return "text" if isinstance(self.prompt, str) else "parts"
        return "messages" if self.chat else "prompt" if self.place is None else f"prompt.{self.place}"

    def own_block(self, facts: ModelFacts) -> int:
        """The tokens of a block, unless the request says otherwise."""
        return int(self.own.get("block_length") or facts.block_length)

    def text_settings(self, facts: ModelFacts, room: int) -> dict[str, Any]:
        """The settings of a text.

        Args:
            facts: what is known of the model.
            room: the most tokens that fit beside the prompt.
        """
        own = self._fitting_own()
        length = self.max_tokens or min(own.get("length", DecodeConfig.length), room)
        block = self.settings.get("block_length") or self.own_block(facts)
        if own.get("steps") is not None:
            # as many tokens a step as in a text of the service's own length, as nearly as may be
            in_block = round(own["steps"] * block / self.own.get("length", DecodeConfig.length))
            fewest = 1 if self.key is None else min(2, block)
            own["steps"] = -(-length // block) * min(block, max(fewest, in_block))
        return {**own, **self.settings, "length": length, "block_length": block}

    def infill_settings(self) -> dict[str, Any]:
        """The settings of an infilling, whose holes set its length and steps."""
        own = {name: value for name, value in self._fitting_own().items() if name not in ("length", "steps")}
        return {**own, **self.settings}

    def _fitting_own(self) -> dict[str, Any]:
        """The service's own settings that make sense beside those of the request."""
        strategy = self.settings.get("strategy", "confidence")
        without = set(self.settings)
        if self.settings.get("temperature") == 0:
            without |= {"top_k", "top_p"}
        if self.settings.get("commit", "quota") != "quota":
            without.add("steps")
        if "steps" in self.settings or strategy != "confidence":
            without |= {"commit", "threshold"}
        if strategy != "confidence":
            without.add("edit_threshold")
        if strategy in ("random", "left_to_right"):
            without |= {"min_relative_reward", "lookahead"}
        return {name: value for name, value in self.own.items() if name not in without}


@dataclass(frozen=True)
class Started:
    """A job is accepted, with these settings; it may still have to wait."""

    prompt_tokens: int
    settings: Mapping[str, Any]


@dataclass(frozen=True)
class Stepped:
    """One step committed tokens of a job.

    `added` is what became readable by it: the text from the beginning to the first gap, of `joined` tokens, is that of
    the steps before and this. The whole text stands in `Finished` alone, so that a step costs no more than its tokens.
    """

    step: int
    block: int
    positions: list[int]
    tokens: list[int]
    pieces: list[str]
    added: str = field(repr=False)
    joined: int


@dataclass(frozen=True)
class Marked:
    """So many of the tokens of a text that are to be masked are filled in."""

    filled: int
    of: int


@dataclass(frozen=True)
class Finished:
    """A job is done; an infilling has the characters [start, end) of its holes, and figures if they were chosen.

    `choices` is the number of tokens that had a choice, and `check` the fields of the `Check` that the job asked for.
    """

    text: str = field(repr=False)
    ended: bool
    tokens: int
    steps: int
    spans: list[tuple[int, int]] | None = None
    figures: Mapping[str, float | None] = field(default_factory=dict)
    choices: int | None = None
    check: Mapping[str, Any] | None = None


class JobFailed(DgmarkError):
    """The worker could not do a job, for no reason that concerns whoever asked; it has logged why."""


Outcome = Started | Stepped | Marked | Finished | DgmarkError
# the id of a job, and what becomes of it: None once it is let go, as was asked, which says that the worker lives. None
# in place of the id: what is known of each model once all are loaded, or why they cannot be
FromWorker = tuple[str | None, Outcome | Mapping[str, ModelFacts] | None]
# a job, or the id of one that nobody waits for any more
ToWorker = Job | str

MAX_WAITING_STEPS = 64  # those that come then are joined into one


class MessageQueue(asyncio.Queue[Outcome]):
    """The messages about one job, in order, for a reader who may be slower than the model.

    A reader who falls behind costs no more than `MAX_WAITING_STEPS` steps and one that holds all further ones, and gets
    every token all the same.
    """

    _queue: deque[Outcome]

    def _put(self, message: Outcome) -> None:
        last = self._queue[-1] if len(self._queue) > MAX_WAITING_STEPS else None
        if isinstance(last, Stepped) and isinstance(message, Stepped):
            self._queue[-1] = _joined(last, message)
        elif isinstance(last, Marked) and isinstance(message, Marked):
            self._queue[-1] = message
        else:
            self._queue.append(message)


def _joined(first: Stepped, second: Stepped) -> Stepped:
    """Two steps as one, which has the number of the later one."""
    return replace(
        second,
        positions=first.positions + second.positions,
        tokens=first.tokens + second.tokens,
        pieces=first.pieces + second.pieces,
        added=first.added + second.added,
    )
