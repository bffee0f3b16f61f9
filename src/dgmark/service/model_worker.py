"""What the model worker does: load the models, batch the jobs that wait, and advance the batches step by step.

A batch is made of jobs that wait when there is room for one; batches take turns, a step each, so that a new job does
not wait for the end of the one before it. Runs in a process of its own, the only one of the service that needs torch.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any

from dgmark.decode.config import DecodeConfig
from dgmark.decode.infilling import holed_text, holes_in
from dgmark.decode.prompts import Prepared, Request, encode_prompt, key_of_text
from dgmark.decode.round_trip import RoundTrips
from dgmark.decode.streaming import BatchEvents, Committed, Completed
from dgmark.errors import DgmarkError, ModelError, PromptTooLong, SettingsError
from dgmark.models.chat import template_of
from dgmark.models.denoiser import Denoiser, traits_of
from dgmark.models.load import load_model
from dgmark.service import jobs
from dgmark.service.job_settings import check_marked, config_of_filling, config_of_text, weakened
from dgmark.watermark.key import WatermarkKey

log = logging.getLogger("dgmark.service")
Send = Callable[[jobs.FromWorker], None]
# of a character that is not whole yet
_UNFINISHED = "\ufffd"


class Writer:
    """Writes the texts of jobs with loaded models.

    Args:
        models: the models by name.
        keys: the keys by name.
        send: is given what becomes of the jobs.
        rows: the most texts that are written at once.
        batches: the most batches that take turns.
    """

    def __init__(
        self,
        models: Mapping[str, Denoiser],
        keys: Mapping[str, WatermarkKey],
        send: Send,
        *,
        rows: int,
        batches: int,
    ) -> None:
        self._models, self._keys, self._send = models, keys, send
        self._rows, self._batches = rows, batches
        self._guards = {
            name: RoundTrips(model.tokenizer, model.mask_id, model.end_ids) for name, model in models.items()
        }
        self._waiting: deque[_Ready] = deque()
        self._running: deque[_Running] = deque()

    @property
    def busy(self) -> bool:
        """Whether there is anything to do."""
        return bool(self._waiting or self._running)

    def take(self, message: jobs.ToWorker) -> None:
        """Accept a job, or let one go."""
        if isinstance(message, jobs.Cancel):
            self._waiting = deque(ready for ready in self._waiting if ready.job.id != message.id)
            for running in self._running:
                running.drop([message.id])
            self._send(jobs.Dropped(message.id))
            return
        try:
            ready = self._prepared(message)
        except PromptTooLong:
            most = self._models[message.model].context_length
            detail = f"the text and what is to be written have more than {most} tokens in all, which is all that the "
            detail += "model holds: shorten the text, or ask for less"
            self._fail([message.id], jobs.WrongField(detail, message.prompt_param, "context_length_exceeded"))
            return
        except Exception as error:
            self._fail([message.id], error)
            return
        self._waiting.append(ready)
        config, weak = ready.config, ready.weakened
        self._send(jobs.Started(message.id, config.length, config.block_length, ready.tokens, config.to_dict(), weak))

    def advance(self) -> None:
        """Begin a batch if there is room, and do one step of the batch whose turn it is."""
        self._begin()
        if not self._running:
            return
        running = self._running.popleft()
        try:
            for message in running.step():
                self._send(message)
        except Exception as error:
            # the others go on: a decode shares nothing with the next one
            self._fail(running.left, error)
            return
        if running.left:
            self._running.append(running)

    def _begin(self) -> None:
        room = self._rows - sum(len(running.left) for running in self._running)
        if not self._waiting or room < 1 or len(self._running) >= self._batches:
            return
        kind = self._waiting[0].kind
        members = [ready for ready in self._waiting if ready.kind == kind][:room]
        self._waiting = deque(ready for ready in self._waiting if ready not in members)
        try:
            self._running.append(_Running(members))
        except Exception as error:
            self._fail([ready.job.id for ready in members], error)

    def _fail(self, ids: Iterable[str], error: Exception) -> None:
        known = error if isinstance(error, DgmarkError) else None
        if known is None:
            log.error("jobs %s failed", ", ".join(ids), exc_info=error)
        for job in ids:
            self._send(jobs.Failed(job, known))

    def _prepared(self, job: jobs.Job) -> "_Ready":
        """Check and encode a job.

        Raises:
            DgmarkError: it cannot be done.
        """
        model = self._models[job.model]
        key = None if job.key is None else key_of_text(self._keys[job.key], job.subkey)
        if job.fill_from is not None:
            return _with_holes(model, job, key, self._guards[job.model])
        assert not isinstance(job.prompt, list) or all(isinstance(token, int) for token in job.prompt)
        ids = encode_prompt(model, job.prompt, job.max_tokens or 1, chat=job.chat)  # type: ignore[arg-type]
        config = config_of_text(model, job, model.context_length - len(ids))
        prepared = Prepared.of(model, [Request(ids, job.seed, key)], config, guards=self._guards[job.model])
        return _Ready(job, model, prepared, len(ids), _checked(model, job, config, config.length))


def _checked(model: Denoiser, job: jobs.Job, config: DecodeConfig, tokens: int) -> list[str]:
    """The fields that weaken the mark of a text, once it is known that it can carry one."""
    if job.key is None:
        return []
    check_marked(model, job, config, tokens)
    return weakened(model, job, tokens)


def _with_holes(model: Denoiser, job: jobs.Job, key: WatermarkKey | None, guards: RoundTrips) -> "_Ready":
    origin = job.fill_from
    assert origin is not None
    text = holed_text(model, holes_in(job.prompt) if isinstance(job.prompt, str) else job.prompt)
    config = config_of_filling(model, job)
    holes = sum(end - start for start, end in text.holes)
    weak = _checked(model, job, config, holes)
    request = Request(text, job.seed, key)
    prepared = Prepared.of(
        model, [request], config, encode=lambda one: one.canvas(model.mask_id, origin), guards=guards
    )
    return _Ready(job, model, prepared, len(text.ids) - holes, weak)


@dataclass(frozen=True, eq=False)
class _Ready:
    """A job that can be decoded: one prepared request, whose prompt has so many tokens; the fields that weaken it."""

    job: jobs.Job
    model: Denoiser
    prepared: Prepared
    tokens: int
    weakened: list[str]

    @property
    def config(self) -> DecodeConfig:
        """Its decoding settings."""
        return self.prepared.config

    @property
    def request(self) -> Request:
        """What is decoded."""
        return self.prepared.requests[0]

    @property
    def kind(self) -> Any:
        """Jobs of one kind are decoded together."""
        return self.job.model, self.config, self.prepared.kind(0)


def readable_after(told: str, text: str) -> str:
    """What can be told of a text whose end may still change, after what was told: whole characters."""
    return text.rstrip(_UNFINISHED).removeprefix(told) if text.startswith(told) else ""


@dataclass
class _Written:
    """What is written of one job."""

    ready: _Ready
    tokens: dict[int, int] = field(default_factory=dict)
    steps: int = 0
    joined: list[int] = field(default_factory=list)
    told: str = ""

    def add(self, event: Committed) -> jobs.Stepped:
        """Note the commits of one step."""
        self.steps += 1
        self.tokens.update(zip(event.positions, event.token_ids, strict=True))
        tokenizer, ends, before = self.ready.model.tokenizer, self.ready.model.end_ids, len(self.joined)
        while (token := self.tokens.get(len(self.joined))) is not None and token not in ends:
            self.joined.append(token)
        added = readable_after(self.told, tokenizer.decode(self.joined)) if len(self.joined) > before else ""
        self.told += added
        return jobs.Stepped(
            id=self.ready.job.id,
            step=self.steps - 1,
            block=min(event.positions) // self.ready.config.block_length,
            positions=event.positions,
            tokens=event.token_ids,
            pieces=[tokenizer.decode([token]) for token in event.token_ids],
            added=added,
            joined=len(self.joined),
        )


class _Running:
    """A batch under way.

    Args:
        members: its jobs, of one kind.

    Attributes:
        left: the ids of the jobs that are not done.
    """

    def __init__(self, members: list[_Ready]) -> None:
        prepared = Prepared.joined([ready.prepared for ready in members])
        (batch,) = prepared.batches(range(len(members)))
        self._dropped: set[int] = set()
        self._steps = prepared.steps(batch, self._dropped)
        self._events = BatchEvents(batch.canvas, batch.rows, prepared.model.end_ids)
        self._rows = {ready.job.id: row for row, ready in enumerate(members)}
        self._written = [_Written(ready) for ready in members]

    @property
    def left(self) -> list[str]:
        return [job for job, row in self._rows.items() if row not in self._dropped]

    def drop(self, ids: Iterable[str]) -> None:
        """Write these jobs no further."""
        self._dropped.update(self._rows[job] for job in ids if job in self._rows)

    def step(self) -> Iterator[jobs.FromWorker]:
        """Do one step, and tell what came of it."""
        if not self.left:
            return
        for event in self._events.of(next(self._steps)):
            if isinstance(event, Committed):
                yield self._written[event.row].add(event)
            elif isinstance(event, Completed):
                self._dropped.add(event.row)
                yield self._finished(event)

    def _finished(self, event: Completed) -> jobs.Finished:
        written, ids = self._written[event.row], event.response.token_ids
        ready, tokenizer = written.ready, written.ready.model.tokenizer
        if ready.job.fill_from is not None:
            filled = ready.request.prompt.filled(tokenizer, ids)
            count = len(event.response.trace.token_id)
            return jobs.Finished(ready.job.id, filled.text, False, count, written.steps, filled.spans)
        return jobs.Finished(ready.job.id, tokenizer.decode(ids), event.response.ended, len(ids), written.steps)


def serve_jobs(
    inbox: "SimpleQueue[jobs.ToWorker]",
    send: Send,
    models: Mapping[str, Mapping[str, Any]],
    keys: Mapping[str, WatermarkKey],
    rows: int,
    batches: int,
) -> None:
    """Load the models, and do jobs for ever.

    Args:
        inbox: jobs as they come.
        send: is given what becomes of them.
        models: by the name of each model, the arguments that load it.
        keys: the keys by name.
        rows: see `Writer`.
        batches: see `Writer`.
    """
    try:
        loaded = {name: load_model(**arguments) for name, arguments in models.items()}
    except Exception as error:
        known = isinstance(error, DgmarkError)
        send(jobs.NotLoaded(error if known else ModelError(f"{type(error).__name__}: {error}")))  # type: ignore[arg-type]
        return
    send(jobs.Loaded({name: _facts(model) for name, model in loaded.items()}))
    writer = Writer(loaded, keys, send, rows=rows, batches=batches)
    while True:
        if not writer.busy:
            writer.take(inbox.get())
        try:
            while True:
                writer.take(inbox.get_nowait())
        except Empty:
            writer.advance()


def _facts(model: Denoiser) -> jobs.ModelFacts:
    try:
        chat = bool(template_of(model))
    except SettingsError:
        chat = False
    block = traits_of(model).defaults.get("block_length", DecodeConfig.block_length)
    return jobs.ModelFacts(model.context_length, block, chat)
