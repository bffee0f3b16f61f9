"""Messages between the service and its model worker: jobs there, and back what becomes of them.

Plain data, so that the process that serves needs no torch. `Job` also says which of the service's own settings fit
beside those of the request: what a request does not name is no fault of its sender's, so the service's block, steps
and limits follow the text's length and the request's settings.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from dgmark.decode.config import DecodeConfig, setting_fields
from dgmark.errors import DgmarkError, SettingsError
from dgmark.watermark.key import WatermarkKey

# the settings that requests do not name as they are: max_tokens and num_denoising_steps stand for the first two
_OWN = ("length", "steps", "schedule", "cache", "round_trip_check")
REQUEST_SETTINGS = tuple(one.name for one in setting_fields() if one.name not in _OWN)
# what a request may choose where every text must be marked
FREE_SETTINGS = ("temperature", "top_p", "top_k", "edit_threshold")
# settings that say how a mark is made, and their values in a text that has none
OFF_WITHOUT_MARK = {"alpha": 0.0, "bias": 0.0, "min_relative_reward": 0.0, "lookahead": 1}
# tokens of a text that must be marked; the model's block if that is shorter
MIN_MARKED_TOKENS = 32


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
        caller: who asks for it; each caller has a share of the worker.
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
    caller: str
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
        """The service's own settings that go together with those of the request: `DecodeConfig` refuses the others."""
        fitting: dict[str, Any] = {}
        for name, value in self.own.items():
            # whether the steps fit the text's length is not asked here: they follow it
            settings = {**fitting, name: value, **self.settings, "length": 1, "block_length": 1}
            with suppress(SettingsError):
                DecodeConfig(**settings | ({} if settings.get("steps") is None else {"steps": 1}))
                fitting[name] = value
        return {name: value for name, value in fitting.items() if name not in self.settings}


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
    """So many tokens of a text that is to be marked are weighed or filled in, of all that will be."""

    done: int
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


Outcome = Started | Stepped | Marked | Finished | DgmarkError
# the id of a job, and what becomes of it: None once it is let go, as was asked, which says that the worker lives. None
# in place of the id: what is known of each model once all are loaded, or why they cannot be
FromWorker = tuple[str | None, Outcome | Mapping[str, ModelFacts] | None]
# a job, or the id of one that nobody waits for any more
ToWorker = Job | str
