"""The model worker as the service sees it: a process that is started, given jobs, watched, and started again.

It is called as long as there is anything to do, each time for a moment. Needs no torch.
"""

import asyncio
import logging
import logging.config
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from dgmark.errors import DgmarkError, ModelError
from dgmark.rows.processes import Worker, WorkerLost, in_thread
from dgmark_service import jobs
from dgmark_service.error_answers import Busy, ErrorAnswer, smoothed
from dgmark_service.settings import ServiceSettings

log = logging.getLogger("dgmark_service")
PAUSE = 5.0  # seconds before a model is loaded again that could not be loaded
_LOADING = "the model is being loaded: try again in a few seconds"
_NOT_LOADED = "the model could not be loaded; the operator finds the reason in the service's log"
_STOPPING = "the service is being stopped, so this text is not finished: ask again"


class Writer:
    """What writes in the process of the models, by the service's settings."""

    def __init__(self, settings: ServiceSettings) -> None:
        self.settings = settings

    def load(self) -> Mapping[str, jobs.ModelFacts]:
        """Load the models, and return what is known of each.

        Raises:
            DgmarkError: they cannot be loaded.
        """
        if self.settings.logging is not None:
            logging.config.dictConfig(self.settings.logging)
        # torch, which the process that serves does not need
        from dgmark.models.load import load_model
        from dgmark_service.model_worker import ModelWorker

        models = {one.name: load_model(**one.loading) for one in self.settings.models}
        self._worker = ModelWorker(models, self.settings.rows)
        return self._worker.facts

    def work(self, messages: Sequence[jobs.ToWorker]) -> tuple[bool, list[jobs.FromWorker]]:
        """See `ModelWorker.work`."""
        return self._worker.work(messages)


class _Held(NamedTuple):
    """A job that is under way or waits: what comes of it, when it began, and what ends it when its time is up."""

    outcomes: asyncio.Queue[jobs.Outcome]
    began: float
    limit: asyncio.TimerHandle


@dataclass
class ModelProcess:
    """A process that writes texts.

    Attributes:
        launch: starts the process, which shares a `Writer`.
        settings: the service's settings, which have the most texts that are written at once, how many may wait, and the
            longest that a job may take, waiting included. A process that says nothing for half of that while it has
            work is taken to hang, and another one takes its place.
        on_lost: called when the process ends by itself.
        on_failed: called with the reason if the models cannot be loaded at the start. If they cannot be loaded again
            later, it is tried again after a pause.
        facts: what is known of each model; empty until they are loaded.
    """

    launch: Callable[[], Worker]
    settings: ServiceSettings
    on_lost: Callable[[], object]
    on_failed: Callable[[DgmarkError], object]
    facts: Mapping[str, jobs.ModelFacts] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._was_ready = self._stopping = False
        self._held: dict[str, _Held] = {}
        self._messages: list[jobs.ToWorker] = []
        self._wake = asyncio.Event()
        self._mean, self._patience = 1.0, self.settings.text_seconds / 2
        self._failure = _LOADING
        self._watching: asyncio.Future[None] | None = None

    @property
    def ready(self) -> bool:
        """Whether it can write."""
        return bool(self.facts) and not self._stopping

    @property
    def held(self) -> int:
        """The number of jobs that are under way or wait."""
        return len(self._held)

    def start(self) -> None:
        """Start the process; it loads the models after that. It is called in the event loop."""
        self._loop = asyncio.get_running_loop()
        self._process = self.launch()
        self._watching = asyncio.ensure_future(self._watch())
        self._watching.add_done_callback(lambda one: one.cancelled() or one.result())  # the event loop logs a fault

    async def _watch(self) -> None:
        """Let the process work, and start another one when it ends, unless the models cannot be loaded at the start."""
        while True:
            error: Exception
            try:
                await self._work()
            except Exception as one:
                error = one
            self._process.kill()
            was_ready, self.facts, self._messages = bool(self.facts), {}, []
            self._give_up(WorkerLost("the process that runs the model ended, so this text is not finished: ask again"))
            if not was_ready:
                log.error("the model could not be loaded: %s", error)
            if not self._was_ready:
                self._failure = _NOT_LOADED
                self.on_failed(error if isinstance(error, DgmarkError) else ModelError(repr(error)))
                return
            if isinstance(error, TimeoutError):
                log.error("the process that runs the model said nothing for %g seconds: it is ended", self._patience)
            fault = None if isinstance(error, DgmarkError | TimeoutError) else error
            log.error("the process that runs the model ended; another one takes its place", exc_info=fault)
            self.on_lost()
            await asyncio.sleep(0 if was_ready else PAUSE)
            self._process = self.launch()

    async def _work(self) -> None:
        """Let the process load its models, and then work whenever there is anything to do.

        Raises:
            TimeoutError: it hangs.
            DgmarkError: the models cannot be loaded, or the process has ended.
        """
        process = self._process
        in_thread(process.wait_ended).add_done_callback(lambda _: self._loop.call_soon_threadsafe(self._wake.set))
        self.facts = await asyncio.wrap_future(process.submit(Writer.load))
        self._was_ready = True
        while True:
            await self._wake.wait()
            messages, self._messages = self._messages, []
            work = process.submit(Writer.work, messages, seconds=self._patience)
            busy, said = await asyncio.wrap_future(work)
            for job, outcome in said:
                if isinstance(outcome, jobs.Finished | DgmarkError):
                    self._end(job, outcome)
                elif job in self._held:  # not dropped
                    self._held[job].outcomes.put_nowait(outcome)
            if not busy and not self._messages and process.alive:
                self._wake.clear()

    def check_room(self, number: int) -> None:
        """Refuse so many jobs if the process cannot take all of them now.

        Raises:
            ErrorAnswer: no model is loaded (yet), the service ends, or there is no room to wait.
        """
        if self._stopping:
            raise ErrorAnswer(503, _STOPPING)
        if not self.facts:
            raise ErrorAnswer(503, self._failure, headers={"retry-after": "5"})
        if self.held + number > self.settings.rows + self.settings.queue:
            raise Busy(self.held * self._mean / self.settings.rows)

    def take(self, job: jobs.Job) -> asyncio.Queue[jobs.Outcome]:
        """Give the process a job, and return the queue of what comes of it; whoever needs no more of it drops the job.

        Raises:
            DgmarkError: see `check_room`.
        """
        self.check_room(1)
        limit = self._loop.call_later(self.settings.text_seconds, self._out_of_time, job.id)
        self._held[job.id] = held = _Held(asyncio.Queue(), time.monotonic(), limit)
        self._send(job)
        return held.outcomes

    def _out_of_time(self, job: str) -> None:
        outcomes, seconds = self._held[job].outcomes, self.settings.text_seconds
        self.drop(job)
        detail = f"the text was not finished within {seconds:g} seconds, waiting included, which is all that a text "
        detail += "may take here: ask for a shorter one, or again when the service has less to do"
        outcomes.put_nowait(ErrorAnswer(503, detail))

    def drop(self, job: str) -> None:
        """Let a job go, unless it has ended."""
        if job in self._held:
            self._held.pop(job).limit.cancel()
            self._send(job)

    def _send(self, message: jobs.ToWorker) -> None:
        self._messages.append(message)
        self._wake.set()

    def _end(self, job: str, outcome: jobs.Outcome) -> None:
        """Tell whoever waits for a job the last that comes of it."""
        if held := self._held.pop(job, None):
            held.limit.cancel()
            held.outcomes.put_nowait(outcome)
            self._mean = smoothed(self._mean, time.monotonic() - held.began)

    def _give_up(self, error: DgmarkError) -> None:
        for job in list(self._held):
            self._end(job, error)

    def stop(self) -> None:
        """Take no more jobs, and give up those that are under way."""
        self._stopping = True
        if self._watching is not None:
            self._watching.cancel()
        self._give_up(ErrorAnswer(503, _STOPPING))

    def close(self) -> None:
        """End the process."""
        self.stop()
        if self._watching is not None:
            self._process.kill()
