"""`ServiceState`: what the routes of one service share: settings, keys, processes, access, metrics."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial

from dgmark.detection.detector import Detector
from dgmark.detection.keyring import named_keys
from dgmark.documents.reading import MB, Limits
from dgmark.errors import DgmarkError
from dgmark.service.auth import Authenticator
from dgmark.service.detection_worker import Checker
from dgmark.service.jobs import ModelFacts
from dgmark.service.model_process import ModelProcess, launch_worker
from dgmark.service.policy import Offer, offers_of
from dgmark.service.settings import ServiceSettings
from dgmark.service.telemetry import AuditLog, Metrics
from dgmark.service.worker_pool import WorkerPool
from dgmark.watermark.key import WatermarkKey


@dataclass
class ServiceState:
    """What the routes of one service share.

    Attributes:
        settings: its settings.
        keys: its keys by name.
        metrics: its metrics.
        audit: its audit log.
        auth: tells who asks.
        offers: its models by name.
        failure: why its models could not be loaded at the start; None if they could.
        on_failure: called when that is known.
        given_up: the texts that were not finished when it was stopped.
    """

    settings: ServiceSettings
    keys: dict[str, WatermarkKey]
    metrics: Metrics
    audit: AuditLog
    auth: Authenticator
    offers: dict[str, Offer]
    failure: DgmarkError | None = None
    on_failure: Callable[[], object] = lambda: None
    given_up: int = 0

    @classmethod
    def of(cls, settings: ServiceSettings) -> "ServiceState":
        """Read the keys and tokens that the settings name.

        Raises:
            KeyFileError: a key or the file of tokens cannot be used, or there is no key.
            SettingsError: a key cannot be looked for, or a model has no key.
            ModelNotFound: a model, or a key's tokenizer, is unavailable.
            InputError: the file of tokens is none, or the audit log cannot be written.
        """
        audit = AuditLog(settings.audit)
        keys = named_keys(settings.keys, allow_open=settings.allow_open_keys)
        for key in keys.values():
            Detector(key, tokenizer=settings.tokenizer).tokenizer  # noqa: B018 (an error now, not at each request)
        return cls(settings, keys, Metrics(), audit, Authenticator(settings, audit), offers_of(settings, keys))

    @cached_property
    def workers(self) -> WorkerPool:
        """The processes that check texts."""
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
        pool = WorkerPool(
            checker,
            Checker.warm,
            workers=settings.workers,
            queue=settings.queue,
            seconds=settings.seconds,
            memory=settings.worker_bytes,
            on_lost=self.metrics.lost.inc,
        )
        self.metrics.held.set_function(lambda: pool.held)
        return pool

    @cached_property
    def model_process(self) -> ModelProcess | None:
        """The process that writes texts; None without models."""
        settings = self.settings
        if not self.offers:
            return None
        models = {name: offer.source.loading for name, offer in self.offers.items()}
        keys = {name: key for offer in self.offers.values() for name, key in offer.keys.items()}
        process = ModelProcess(
            partial(launch_worker, models, keys, settings.rows),
            rows=settings.rows,
            queue=settings.queue,
            seconds=settings.text_seconds,
            on_lost=self.metrics.lost.inc,
            on_failed=self._fail,
        )
        self.metrics.writing.set_function(lambda: process.held)
        return process

    async def start(self) -> None:
        """Start the processes, and wait until texts can be checked; models are loaded after that."""
        if self.model_process is not None:
            await self.model_process.start()
        await self.workers.start()

    def close(self) -> None:
        """End the processes and the log."""
        self.workers.close()
        if self.model_process is not None:
            self.model_process.close()
        self.audit.close()

    @property
    def ready(self) -> bool:
        """Whether the service can do everything that it was started for."""
        return self.workers.ready and (self.model_process is None or self.model_process.ready)

    def model_facts(self, model: str) -> ModelFacts | None:
        """What is known of a model; None until it is loaded."""
        return None if self.model_process is None else self.model_process.facts.get(model)

    def _fail(self, why: DgmarkError) -> None:
        self.failure = why
        self.on_failure()

    def stop_generation(self) -> None:
        """Give up the texts that are being written: the service ends."""
        if self.model_process is not None:
            self.given_up += self.model_process.held
            self.model_process.stop()
