"""Messages between the service and its model worker: jobs there, and back what becomes of them.

Plain data, so that the process that serves needs no torch. `MessageQueue` keeps a job's messages for its reader.
"""

import asyncio
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from dgmark.errors import DgmarkError, SettingsError
from dgmark.watermark.key import WatermarkKey


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
class Job:
    """One text to write.

    Attributes:
        id: its id, which no other job has.
        model: the name of the model.
        prompt: a text, or token ids, to continue; for an infilling, a text with [mask:N] in it, or its parts; for a
            chat, role and content of each message.
        chat: put the messages into the model's chat template.
        key: the name of the key to mark with; None for no mark.
        subkey: the number of the sub-key; None for a key without sub-keys.
        seed: seed of the text.
        max_tokens: the most tokens that it may have; None for the service's own limit.
        settings: decoding settings that the request names.
        own: the service's own, for those that it does not name; what is in neither is the model's.
        enforced: whether it must be long enough for a mark.
        fill_from: for an infilling, where positions are counted from; None to continue the prompt.
    """

    id: str
    model: str
    prompt: Any = field(repr=False)
    chat: bool
    key: str | None
    subkey: int | None = field(repr=False)
    seed: int = field(repr=False)
    max_tokens: int | None
    settings: Mapping[str, Any]
    own: Mapping[str, Any] = field(default_factory=dict)
    enforced: bool = False
    fill_from: Literal["text", "hole"] | None = None

    @property
    def size(self) -> int:
        """The characters of the prompt, or its ids and the tokens of its holes."""
        if self.chat:
            return sum(len(content) for _, content in self.prompt)
        parts = self.prompt if isinstance(self.prompt, list) else [self.prompt]
        return sum(len(part) if isinstance(part, str) else part if self.fill_from else 1 for part in parts)

    @property
    def prompt_param(self) -> str:
        """The field of the request that has the prompt."""
        if self.fill_from is not None:
            return "text" if isinstance(self.prompt, str) else "parts"
        return "messages" if self.chat else "prompt"


@dataclass(frozen=True)
class ModelFacts:
    """What the service says about a model that is loaded.

    Attributes:
        context_length: tokens of prompt and response together.
        block_length: tokens of a block, unless a request says otherwise.
        chat: whether it has a chat template.
    """

    context_length: int
    block_length: int
    chat: bool


@dataclass(frozen=True)
class Started:
    """A job is accepted; it may still have to wait. `weakened`: fields of the request that weaken the mark."""

    length: int
    block_length: int
    prompt_tokens: int
    settings: Mapping[str, Any]
    weakened: list[str] = field(default_factory=list)


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
class Finished:
    """A job is done; an infilling has the characters [start, end) of its holes."""

    text: str = field(repr=False)
    ended: bool
    tokens: int
    steps: int
    spans: list[tuple[int, int]] | None = None


class JobFailed(DgmarkError):
    """The worker could not do a job, for no reason that concerns whoever asked; it has logged why."""


Outcome = Started | Stepped | Finished | DgmarkError
# the id of a job, and what becomes of it: None once it is let go, as was asked, which says that the worker lives. None
# in place of the id: what is known of each model once all are loaded, or why they cannot be
FromWorker = tuple[str | None, Outcome | Mapping[str, ModelFacts] | None]
# a job, the id of one that nobody waits for any more, or the keys by name that the jobs after it have
ToWorker = Job | str | Mapping[str, WatermarkKey]

MAX_STEPS = 64  # that wait for their reader; those that come then are joined into one


class MessageQueue(asyncio.Queue[Outcome]):
    """The messages about one job, in order, for a reader who may be slower than the model.

    A reader who falls behind costs no more than `MAX_STEPS` steps and one that holds all further ones, and gets every
    token all the same.
    """

    _queue: deque[Outcome]

    def _put(self, message: Outcome) -> None:
        last = self._queue[-1] if len(self._queue) > MAX_STEPS else None
        if isinstance(last, Stepped) and isinstance(message, Stepped):
            self._queue[-1] = _joined(last, message)
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
