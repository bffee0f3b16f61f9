"""The model worker as the service sees it: a process that is started, given jobs, watched, and started again.

The event loop never waits for it: threads read its messages, and write those to it. Needs no torch.
"""

import asyncio
import logging
import logging.config
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any

from dgmark.errors import DgmarkError
from dgmark.rows.processes import ChildProcess, WorkerLost, in_thread
from dgmark_service import jobs
from dgmark_service.error_answers import Busy, ErrorAnswer, smoothed
from dgmark_service.settings import ServiceSettings

log = logging.getLogger("dgmark_service")
PAUSE = 5.0  # seconds before a model is loaded again that could not be loaded
_LOADING = "the model is being loaded: try again in a few seconds"
_NOT_LOADED = "the model could not be loaded; the operator finds the reason in the service's log"
_STOPPING = "the service is being stopped, so this text is not finished: ask again"


@dataclass
class _Held:
    """A job that is under way or waits.

    Attributes:
        job: the job.
        outcomes: what comes of it.
        began: when it came.
        limit: ends it when its time is up.
        steps: how many of its steps are told.
        again: whether it was given to a second process, as the first one ended.
    """

    job: jobs.Job
    outcomes: asyncio.Queue[jobs.Outcome]
    began: float
    limit: asyncio.TimerHandle
    steps: int = 0
    again: bool = False


@dataclass
class ModelProcess:
    """A process that writes texts.

    Attributes:
        launch: starts the process, which does `work`.
        settings: the service's settings, which have the most texts that are written at once, how many may wait, and the
            longest that a job may take, waiting included. A process that is told to drop a job and says nothing for
            half of that time is taken to hang, and another one takes its place.
        on_lost: called when the process ends by itself.
        on_failed: called with the reason if the models cannot be loaded at the start. If they cannot be loaded again
            later, it is tried again after a pause.
        facts: what is known of each model; empty until they are loaded.
    """

    launch: Callable[[], ChildProcess]
    settings: ServiceSettings
    on_lost: Callable[[], object]
    on_failed: Callable[[DgmarkError], object]
    facts: Mapping[str, jobs.ModelFacts] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._last_message = time.monotonic()
        self._was_ready = self._stopping = False
        self._held: dict[str, _Held] = {}
        self._sender = ThreadPoolExecutor(1, "dgmark-send")
        self._mean = 1.0
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
        """Wait until the process ends, and start another one, unless the models could not be loaded at the start."""
        while True:
            await asyncio.wrap_future(in_thread(self._receive, self._process))
            was_ready, self.facts = bool(self.facts), {}
            lost = WorkerLost("the process that runs the model ended, so this text is not finished: ask again")
            # one of these jobs may have ended the process, so that each gets a second one and no third
            self._give_up(lost, [job for job, held in self._held.items() if held.again or not was_ready])
            if self._failure == _LOADING and not was_ready:
                self._not_loaded(WorkerLost("the process that runs the model ended before the model was loaded"))
            if not self._was_ready:
                return
            log.error("the process that runs the model ended; another one takes its place")
            self._failure = _LOADING
            self.on_lost()
            await asyncio.sleep(0 if was_ready else PAUSE)
            self._process = self.launch()
            for held in self._held.values():
                held.again = True
                self._send(held.job)

    def check_room(self, number: int, caller: str) -> None:
        """Refuse so many jobs of a caller if the process cannot take all of them now.

        Raises:
            ErrorAnswer: no model is loaded (yet), the service ends, or there is no room to wait: neither free, nor of
                the share that the caller has when all of it is divided among those who have jobs here.
        """
        if self._stopping:
            raise ErrorAnswer(503, _STOPPING)
        if not self.facts:
            raise ErrorAnswer(503, self._failure, headers={"retry-after": "5"})
        room, callers = self.settings.rows + self.settings.queue, [held.job.caller for held in self._held.values()]
        share = room // len({*callers, caller})
        if self.held + number > room and callers.count(caller) + number > share:
            raise Busy(self.held * self._mean / self.settings.rows)

    def take(self, job: jobs.Job) -> asyncio.Queue[jobs.Outcome]:
        """Give the process a job, and return the queue of what comes of it; whoever needs no more of it drops the job.

        Raises:
            DgmarkError: see `check_room`.
        """
        self.check_room(1, job.caller)
        limit = self._loop.call_later(self.settings.text_seconds, self._out_of_time, job.id)
        self._held[job.id] = held = _Held(job, asyncio.Queue(), time.monotonic(), limit)
        self._send(job)
        return held.outcomes

    def _out_of_time(self, job: str) -> None:
        outcomes, seconds = self._held[job].outcomes, self.settings.text_seconds
        self.drop(job)
        detail = f"the text was not finished within {seconds:g} seconds, waiting included, which is all that a text "
        detail += "may take here: ask for a shorter one, or again when the service has less to do"
        outcomes.put_nowait(ErrorAnswer(503, detail))

    def drop(self, job: str) -> None:
        """Let a job go, unless it has ended. The process answers to that, so one that says nothing for long hangs."""
        if job not in self._held:
            return
        self._held.pop(job).limit.cancel()
        self._send(job)
        asked, process, silence = time.monotonic(), self._process, self.settings.text_seconds / 2

        def check() -> None:
            """End the process if it has said nothing since."""
            if self._last_message < asked and self._process is process and bool(self.facts) and not self._stopping:
                log.error("the process that runs the model said nothing for %g seconds: it is ended", silence)
                process.kill()

        self._loop.call_later(silence, check)

    def stop(self) -> None:
        """Take no more jobs, and give up those that are under way."""
        self._stopping = True
        if self._watching is not None:
            self._watching.cancel()
        self._give_up(ErrorAnswer(503, _STOPPING), list(self._held))

    def close(self) -> None:
        """End the process."""
        self.stop()
        if self._watching is not None:
            self._process.kill()
        self._sender.shutdown(wait=False, cancel_futures=True)

    def _send(self, message: jobs.ToWorker) -> None:
        process = self._process

        def send() -> None:
            with suppress(WorkerLost):  # `_watch` informs whoever waits
                process.send(message)

        self._sender.submit(send)

    def _receive(self, process: ChildProcess) -> None:
        """Read what the process says until it ends, in a thread."""
        with suppress(WorkerLost, RuntimeError):  # the latter if the event loop has ended
            while True:
                self._loop.call_soon_threadsafe(self._on_message, process.receive())

    def _on_message(self, message: jobs.FromWorker) -> None:
        self._last_message = time.monotonic()
        job, outcome = message
        if isinstance(outcome, Mapping):
            self.facts, self._was_ready = outcome, True
        elif job is None and isinstance(outcome, DgmarkError):
            self._not_loaded(outcome)
        elif job is not None and isinstance(outcome, jobs.Finished | DgmarkError):
            self._end(job, outcome)
        elif outcome is not None and job in self._held:  # not dropped
            held = self._held[job]
            if isinstance(outcome, jobs.Stepped):
                if outcome.step < held.steps:  # told by the process before
                    return
                held.steps += 1
            held.outcomes.put_nowait(outcome)

    def _end(self, job: str, outcome: jobs.Outcome) -> None:
        """Tell whoever waits for a job the last that comes of it."""
        if held := self._held.pop(job, None):
            held.limit.cancel()
            held.outcomes.put_nowait(outcome)
            self._mean = smoothed(self._mean, time.monotonic() - held.began)

    def _not_loaded(self, why: DgmarkError) -> None:
        self._failure = _NOT_LOADED
        log.error("the model could not be loaded: %s", why)
        self._give_up(ErrorAnswer(503, _NOT_LOADED), list(self._held))
        if not self._was_ready:
            self.on_failed(why)

    def _give_up(self, error: DgmarkError, ids: Iterable[str]) -> None:
        for job in ids:
            self._end(job, error)


def work(
    inbox: "SimpleQueue[jobs.ToWorker]",
    send: Callable[[jobs.FromWorker], None],
    log_config: dict[str, Any] | None,
    models: Mapping[str, Mapping[str, Any]],
    rows: int,
) -> None:
    """What the process does, as the main function of a `ChildProcess`; see `serve_jobs`."""
    if log_config is not None:
        logging.config.dictConfig(log_config)
    from dgmark_service.model_worker import serve_jobs  # torch, which the process that serves does not need

    serve_jobs(inbox, send, models, rows)
