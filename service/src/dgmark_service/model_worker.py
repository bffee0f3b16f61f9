"""What the model worker does: load the models, batch the jobs that wait, and advance the batches step by step.

A batch is made of jobs that wait when there is room for one; a text whose holes are chosen is one by itself. Batches
take turns, a step each: the next step is for the caller for whom the least time was spent, and a caller of whom nothing
is written begins beside all others. So no caller waits for the end of another one's texts. Runs in a process of its
own, the only one of the service that needs torch.
"""

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from operator import methodcaller
from queue import Empty, SimpleQueue
from typing import Any

from dgmark.decode.config import DecodeConfig
from dgmark.decode.marks.keyed_side import decode_side
from dgmark.decode.steps.canvas import BatchEvents, BlockFinished, Canvas, Committed, Completed, mapped
from dgmark.decode.steps.settled import SettledBlocks
from dgmark.decode.texts.growing import GrowingText
from dgmark.decode.texts.holes import holed_text, holes_in
from dgmark.decode.texts.infilling import config_of_remasking, remask_steps
from dgmark.decode.texts.own_check import TextChecker
from dgmark.decode.texts.prepared import BatchKind, Prepared, batches_of, check_marking, encode_prompt
from dgmark.decode.texts.remasking import Remasker
from dgmark.decode.texts.requests import Request
from dgmark.detection.reading.reader import Ranges
from dgmark.errors import DgmarkError, InputError, ModelError, PromptTooLong, SettingsError
from dgmark.models.chat import chat_prompt, template_of
from dgmark.models.denoiser import Denoiser, encode_text, traits_of
from dgmark.models.load import load_model
from dgmark.watermark.key import WatermarkKey
from dgmark_service import jobs
from dgmark_service.error_answers import ErrorAnswer

log = logging.getLogger("dgmark_service")
Send = Callable[[jobs.FromWorker], None]


@dataclass
class ModelWorker:
    """Writes the texts of jobs with loaded models.

    Attributes:
        models: the models by name.
        send: is given what becomes of the jobs.
        rows: the most texts that are written at once, beside one of each caller of whom none would be.
        batches: the most batches that take turns, with the same exception.
        clock: seconds, by which callers have equal shares.
        facts: what the service knows of each model.
    """

    models: Mapping[str, Denoiser]
    send: Send
    rows: int
    batches: int = 4
    clock: Callable[[], float] = time.perf_counter
    facts: Mapping[str, jobs.ModelFacts] = field(init=False)

    def __post_init__(self) -> None:
        self.facts = {name: _facts(model) for name, model in self.models.items()}
        self._waiting: deque[_Text | _Marking] = deque()
        self._running: deque[_Batch | _Marking] = deque()
        # seconds of the steps of each caller of whom something is written
        self._spent: dict[str, float] = {}
        # seconds for each token of a text that is marked, by the model and the share, as last measured
        self._speeds: dict[tuple[str, float], float] = {}

    @property
    def busy(self) -> bool:
        """Whether there is anything to do."""
        return bool(self._waiting or self._running)

    def take(self, message: jobs.ToWorker) -> None:
        """Accept a job, or let one go."""
        if isinstance(message, str):
            self._waiting = deque(text for text in self._waiting if text.job.id != message)
            for batch in self._running:
                batch.drop(message)
            self.send((message, None))
            return
        try:
            text = self._prepared(message)
        except PromptTooLong:
            most = self.models[message.model].context_length
            detail = f"the text and what is to be written have more than {most} tokens in all, which is all that the "
            detail += "model holds: shorten the text, or ask for less"
            self._fail([message], ErrorAnswer(400, detail, param=message.prompt_param, code="context_length_exceeded"))
        except InputError as error:
            self._fail([message], ErrorAnswer(400, str(error), param=message.prompt_param))
        except Exception as error:
            self._fail([message], error)
        else:
            self._waiting.append(text)
            self.send((message.id, text.started))

    def advance(self) -> None:
        """Begin a batch if one may begin, and do one step of the batch whose turn it is."""
        self._begin()
        if not self._running:
            return
        batch = self._next()
        callers, began = {job.caller for job in batch.left}, self.clock()
        try:
            for message in batch.step():
                self.send(message)
        except Exception as error:
            # the others go on: a decode shares nothing with the next one
            self._fail(batch.left, error)
            return
        seconds = self.clock() - began
        for caller in callers:  # who share a batch have equal parts of it, however many texts they have there
            self._spent[caller] += seconds / len(callers)
        if batch.left:
            self._running.append(batch)

    def _next(self) -> "_Batch | _Marking":
        """Take the batch of the caller for whom the least time was spent; of several, the one that waits longest.

        A caller who comes begins with the least that was spent for anyone, and one who goes is forgotten.
        """
        callers = {job.caller for batch in self._running for job in batch.left}
        least = min((spent for caller, spent in self._spent.items() if caller in callers), default=0.0)
        self._spent = {caller: self._spent.get(caller, least) for caller in callers}
        batch = min(self._running, key=lambda one: min((self._spent[job.caller] for job in one.left), default=0.0))
        self._running.remove(batch)
        return batch

    def _remask(self, job: jobs.Job, config: DecodeConfig) -> Iterator[jobs.Outcome]:
        """Choose the holes of a text and fill them.

        The p-value is that of the whole key, as a checker does not know the sub-key.
        """
        model, request = self.models[job.model], Request(job.prompt, job.seed, job.key)
        began = time.perf_counter()
        remasker = Remasker(model, request.whole_key, config, **(job.remask or {}))
        steps = remask_steps(remasker, request, TextChecker(model.tokenizer) if job.check else None)
        made = yield from mapped(steps, lambda step: jobs.Marked(step.done, step.of))
        self._speeds[_marked_as(job)] = (time.perf_counter() - began) / len(made.token_ids)
        tokens = sum(end - start for start, end in made.holes)
        _check_length(job, self.facts[job.model], tokens)
        yield jobs.Started(len(made.token_ids) - tokens, config.to_dict())
        figures = {name: getattr(made.remasking, name) for name in ("masked", "changed", "expected_p", "p_value")}
        number = len(set(made.trace.step))
        own: dict[str, Any] = {"choices": made.choices, "check": made.check and asdict(made.check)}
        yield jobs.Finished(made.text, False, tokens, number, made.spans, figures, **own)

    def _check_marking(self, job: jobs.Job, tokens: int) -> None:
        """Refuse to mark a text of so many tokens that would take longer than a text may."""
        each = self._speeds.get(_marked_as(job), 0.0)
        if each * tokens > job.seconds:
            most = int(len(job.prompt) * job.seconds / (each * tokens))
            detail = f"marking this text would take about {each * tokens:.0f} seconds, and a text may take "
            detail += f"{job.seconds:g}: mark it in parts of up to {most:,} characters"
            raise ErrorAnswer(400, detail, param=job.prompt_param)

    def _begin(self) -> None:
        """Begin a batch with the first text that may begin, if there is one."""
        room, waiting = self.rows - sum(len(batch.left) for batch in self._running), list(self._waiting)
        if room < 1 or len(self._running) >= self.batches:
            served = {job.caller for batch in self._running for job in batch.left}
            room, waiting = max(1, room), [text for text in waiting if text.job.caller not in served]
        if not waiting:
            return
        if isinstance(waiting[0], _Marking):
            self._waiting.remove(waiting[0])
            self._running.append(waiting[0])
            return
        texts = [text for text in waiting if isinstance(text, _Text)]
        members = [texts[number] for number in batches_of([text.kind for text in texts])[0][:room]]
        self._waiting = deque(text for text in self._waiting if text not in members)
        try:
            self._running.append(_Batch(members))
        except Exception as error:
            self._fail([text.job for text in members], error)

    def _fail(self, failed: Iterable[jobs.Job], error: Exception) -> None:
        if not isinstance(error, DgmarkError):
            log.error("jobs %s failed", ", ".join(job.id for job in failed), exc_info=error)
            error = DgmarkError("the model could not write this text")
        for job in failed:
            self.send((job.id, error))

    def _prepared(self, job: jobs.Job) -> "_Text | _Marking":
        """Check and encode a job."""
        model, facts = self.models[job.model], self.facts[job.model]
        if job.remask is not None:
            config, tokens = config_of_remasking(model, job.infill_settings()), len(encode_text(model, job.prompt))
            if job.key is not None:
                _check_mark(model, job.key, job, config, config.block_length)
            self._check_marking(job, tokens)
            masked = round(job.remask["share"] * tokens)
            return _Marking(job, jobs.Started(tokens - masked, config.to_dict()), self._remask(job, config))
        encode: Callable[[Any], Canvas] | None = None
        if job.fills:
            encode = methodcaller("canvas", model.mask_id)
            holed = holed_text(model, holes_in(job.prompt) if isinstance(job.prompt, str) else job.prompt)
            config = DecodeConfig.of(model, **job.infill_settings())
            length = sum(end - start for start, end in holed.holes)
            request, tokens = Request(holed, job.seed, job.key), len(holed.ids) - length
        else:
            ids = encode_prompt(model, chat_prompt(model, job.prompt) if job.chat else job.prompt, 1)
            room = facts.context_length - len(ids)
            if job.max_tokens is not None and job.max_tokens > room:
                detail = f"the model has room for {room} tokens behind this prompt: ask for {room} at most, or shorten "
                raise ErrorAnswer(400, f"{detail}the prompt", param=job.limit_param, code="context_length_exceeded")
            config = DecodeConfig.of(model, **job.text_settings(facts, room))
            length, request, tokens = config.length, Request(ids, job.seed, job.key), len(ids)
        if job.key is not None:
            _check_mark(model, job.key, job, config, length)
        _check_length(job, facts, length)
        started = jobs.Started(tokens, config.to_dict())
        return _Text(job, model, Prepared.of(model, [request], config, encode=encode), started)


def _check_mark(model: Denoiser, key: WatermarkKey, job: jobs.Job, config: DecodeConfig, tokens: int) -> None:
    """Refuse settings that leave no mark in a text of so many tokens."""
    block = min(config.block_length, tokens)
    try:
        check_marking(model, key, config)
    except SettingsError as error:
        raise ErrorAnswer(400, str(error), param=error.field if error.field in job.settings else None) from None
    # one token at a time leaves no choice of order, and tokens of one step complete no pair together
    at_once = config.steps is not None and config.steps <= -(-tokens // config.block_length)
    by_order = decode_side([key]).marks_by_order
    if (by_order and block == 1 < tokens) or (at_once and block > 1):
        detail = "these settings leave hardly any mark: use a block length above 1 and more steps than blocks, or turn "
        param = "block_length" if block == 1 else "num_denoising_steps"
        raise ErrorAnswer(400, f"{detail}the watermark off", param=param)


def _check_length(job: jobs.Job, facts: jobs.ModelFacts, tokens: int) -> None:
    """Refuse a text of so many tokens where every text must be marked and these are too few."""
    fewest = min(jobs.MIN_MARKED_TOKENS, job.own_block(facts))
    if job.enforced and tokens < fewest:
        detail = f"every text of this service is marked, and {tokens} tokens are too few for that: ask for {fewest} or "
        param = job.limit_param if job.max_tokens is not None else job.prompt_param
        raise ErrorAnswer(400, f"{detail}more", param=param)


@dataclass(eq=False)
class _Text:
    """A job that can be decoded, and what is written of it."""

    job: jobs.Job
    model: Denoiser
    prepared: Prepared  # with one request
    started: jobs.Started
    steps: int = 0

    @cached_property
    def growing(self) -> GrowingText:
        """What can be read of it."""
        return GrowingText(self.model, self.prepared.config)

    @cached_property
    def kind(self) -> BatchKind:
        """What decides which texts it is decoded together with."""
        own = self.prepared.kind(0)
        return own._replace(layout=(self.job.model, self.prepared.config, own.layout))

    def add(self, event: Committed) -> jobs.Stepped:
        """Note the commits of one step."""
        self.steps += 1
        self.growing.commit(event)
        return jobs.Stepped(
            step=self.steps - 1,
            block=min(event.positions) // self.prepared.config.block_length,
            positions=event.positions,
            tokens=event.token_ids,
            pieces=[self.model.tokenizer.decode([token]) for token in event.token_ids],
            added=self.growing.read_on(),
            joined=len(self.growing.joined),
        )

    def finished(self, event: Completed) -> jobs.Finished:
        """That the job is done."""
        ids, tokenizer, trace = event.response.token_ids, self.model.tokenizer, event.response.trace
        steps = len(set(trace.step))
        if not self.job.fills:
            text = tokenizer.decode(ids)
            own: dict[str, Any] = {"choices": trace.choices(len(ids)), "check": self._check(text)}
            return jobs.Finished(text, event.response.ended, len(ids), steps, **own)
        holed = self.prepared.requests[0].prompt
        filled, tokens = holed.filled(tokenizer, ids), sum(end - start for start, end in holed.holes)
        own = {"choices": trace.choices(), "check": self._check(filled.text, filled.spans)}
        return jobs.Finished(filled.text, False, tokens, steps, filled.spans, **own)

    def _check(self, text: str, only: Ranges | None = None) -> dict[str, Any] | None:
        """The check of the text under the whole key, as a checker does not know the sub-key; None without one."""
        if not self.job.check:
            return None
        check = TextChecker(self.model.tokenizer)(self.job.key, text, only)
        return None if check is None else asdict(check)


class _Batch:
    """Texts that are decoded together."""

    def __init__(self, texts: list[_Text]) -> None:
        prepared = Prepared.joined([text.prepared for text in texts])
        (batch,) = prepared.batches(range(len(texts)))
        self._texts, self._dropped = texts, set[int]()
        self._steps = prepared.steps(batch, self._dropped)
        self._events = BatchEvents(batch.canvas, batch.rows, prepared.model.end_ids)
        self._settled = SettledBlocks(prepared.config.inserts)

    @property
    def left(self) -> list[jobs.Job]:
        """The jobs that are not done."""
        return [text.job for row, text in enumerate(self._texts) if row not in self._dropped]

    def drop(self, job: str) -> None:
        """Write this job no further."""
        self._dropped.update(row for row, text in enumerate(self._texts) if text.job.id == job)

    def step(self) -> Iterator[jobs.FromWorker]:
        """Do one step, and tell what came of it."""
        if not self.left:
            return
        for event in self._settled.of(self._events.of(next(self._steps))):
            if isinstance(event, Committed):
                yield self._texts[event.row].job.id, self._texts[event.row].add(event)
            elif isinstance(event, BlockFinished):
                for row in event.rows:
                    self._texts[row].growing.settle()
            elif isinstance(event, Completed):
                finished = self._texts[event.row].finished(event)
                self._dropped.add(event.row)
                yield self._texts[event.row].job.id, finished


class _Marking:
    """A text whose holes are chosen, a step at a time; how many tokens are masked is known at its end."""

    def __init__(self, job: jobs.Job, started: jobs.Started, steps: Iterator[jobs.Outcome]) -> None:
        self.job, self.started, self.left, self._steps = job, started, [job], steps

    def drop(self, job: str) -> None:
        """Mark this text no further."""
        if job == self.job.id:
            self._steps = iter(())
            self.left = []

    def step(self) -> Iterator[jobs.FromWorker]:
        """Do one step, and tell what came of it."""
        for outcome in self._steps:
            yield self.job.id, outcome
            return
        self.left = []


def _marked_as(job: jobs.Job) -> tuple[str, float]:
    """What the time of marking depends on, beside the text's length."""
    return job.model, (job.remask or {}).get("share", 0.0)


def serve_jobs(
    inbox: "SimpleQueue[jobs.ToWorker]", send: Send, models: Mapping[str, Mapping[str, Any]], rows: int
) -> None:
    """Load the models, by their names and the arguments that load them, and do jobs for ever; see `ModelWorker`."""
    try:
        loaded = {name: load_model(**arguments) for name, arguments in models.items()}
    except Exception as error:
        known = error if isinstance(error, DgmarkError) else ModelError(f"{type(error).__name__}: {error}")
        send((None, known))
        return
    worker = ModelWorker(loaded, send, rows)
    send((None, worker.facts))
    while True:
        if not worker.busy:
            worker.take(inbox.get())
        try:
            while True:
                worker.take(inbox.get_nowait())
        except Empty:
            worker.advance()


def _facts(model: Denoiser) -> jobs.ModelFacts:
    try:
        chat = bool(template_of(model))
    except SettingsError:
        chat = False
    block = traits_of(model).defaults.get("block_length", DecodeConfig.block_length)
    return jobs.ModelFacts(model.context_length, block, chat)
