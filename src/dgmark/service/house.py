"""What the routes of one service share: settings, keys, workers, callers, records."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dgmark.detection.detector import Detector
from dgmark.detection.keyring import named_keys
from dgmark.documents.reading import MB, Limits
from dgmark.errors import DgmarkError
from dgmark.service.callers import Callers
from dgmark.service.checking import Answer, Checker
from dgmark.service.model_process import ModelProcess
from dgmark.service.policy import Offer, offers_of
from dgmark.service.pool import WorkerPool
from dgmark.service.records import Audit, Metrics
from dgmark.service.settings import ServiceSettings
from dgmark.watermark.key import WatermarkKey


@dataclass
class House:
    """What the routes of one service share.

    Attributes:
        settings: its settings.
        keys: its keys by name.
        metrics: its counts.
        audit: its log of decisions.
        callers: tells who asks.
        offers: its models by name.
        pool: its workers, while it runs.
        writer: its model worker, while it runs; None without models.
        failure: why its models could not be loaded at the start; None if they could.
        on_failure: called when that is known.
        given_up: the texts that were not finished when it was stopped.
        cut_off: whether it ended before all that it had accepted was answered.
    """

    settings: ServiceSettings
    keys: dict[str, WatermarkKey]
    metrics: Metrics
    audit: Audit
    callers: Callers
    offers: dict[str, Offer]
    pool: WorkerPool | None = None
    writer: ModelProcess | None = None
    failure: DgmarkError | None = None
    on_failure: Callable[[], object] = lambda: None
    given_up: int = 0
    cut_off: bool = False

    @classmethod
    def of(cls, settings: ServiceSettings) -> "House":
        """Read the keys and tokens that the settings name.

        Raises:
            KeyFileError: a key or the file of tokens cannot be used, or there is no key.
            SettingsError: a key cannot be looked for, or a model has no key.
            ModelNotFound: a model, or a key's tokenizer, is unavailable.
            InputError: the file of tokens is none, or the audit log cannot be written.
        """
        audit = Audit(settings.audit)
        keys = named_keys(settings.keys, allow_open=settings.allow_open_keys)
        for key in keys.values():
            Detector(key, tokenizer=settings.tokenizer).tokenizer  # noqa: B018 (an error now, not at each request)
        return cls(settings, keys, Metrics(), audit, Callers(settings, audit), offers_of(settings, keys))

    def open_pool(self) -> WorkerPool:
        """Make the pool of workers, which is not started."""
        settings = self.settings
        limits = Limits(
            file_bytes=settings.body_bytes,
            unpacked_bytes=8 * settings.body_bytes,
            text_bytes=4 * settings.max_chars,
            seconds=settings.seconds / 2,
            memory_bytes=min(1024 * MB, settings.worker_bytes),
        )
        checker = Checker(
            self.keys,
            tokenizer=settings.tokenizer,
            max_chars=settings.max_chars,
            max_texts=settings.max_texts,
            limits=limits,
        )
        self.pool = WorkerPool(
            checker,
            Checker.warm,
            workers=settings.workers,
            queue=settings.queue,
            seconds=settings.seconds,
            tasks=settings.tasks,
            memory=settings.worker_bytes,
            on_lost=self.metrics.lost.inc,
        )
        self.metrics.held.set_function(lambda: self.pool.held if self.pool else 0)
        return self.pool

    def check_room(self) -> None:
        """Refuse a request before its body is read, if it could not even wait.

        Raises:
            Busy: there is no room to wait.
        """
        assert self.pool is not None
        self.pool.check_room()

    def open_writer(self) -> ModelProcess | None:
        """Make the model worker, which is not started; None without models."""
        settings = self.settings
        if not self.offers:
            return None
        self.writer = ModelProcess(
            {name: offer.source.loading for name, offer in self.offers.items()},
            {name: key for offer in self.offers.values() for name, key in offer.keys.items()},
            rows=settings.rows,
            batches=settings.batches,
            queue=settings.queue,
            seconds=settings.text_seconds,
            on_lost=self.metrics.lost.inc,
            on_failed=self._fail,
        )
        self.metrics.writing.set_function(lambda: self.writer.held if self.writer else 0)
        return self.writer

    @property
    def tuned(self) -> bool:
        """Whether a model has a settings file."""
        return any(offer.source.tuned is not None for offer in self.offers.values())

    @property
    def ready(self) -> bool:
        """Whether the service can do everything that it was started for."""
        checks = self.pool is not None and self.pool.ready
        return checks and (not self.offers or (self.writer is not None and self.writer.ready))

    def _fail(self, why: DgmarkError) -> None:
        self.failure = why
        self.on_failure()

    def stop_writing(self) -> None:
        """Give up the texts that are being written: the service ends."""
        if self.writer is not None:
            self.given_up += self.writer.held
            self.writer.stop()

    async def check(self, work: Callable[..., Answer], *arguments: Any) -> Answer:
        """The answer of one of the workers; see `WorkerPool.run`."""
        assert self.pool is not None
        answer: Answer = await self.pool.run(work, *arguments)
        return answer
