"""`ServiceState`: what the routes of one service share: settings, keys, processes, access, metrics."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from dgmark.detection.detector import Detector
from dgmark.detection.keyring import named_keys
from dgmark.detection.statistics.rules import check_weighs
from dgmark.errors import DgmarkError
from dgmark.rows.processes import ChildProcess, in_thread
from dgmark.watermark.commitment import load_commitments
from dgmark.watermark.key import WatermarkKey
from dgmark_service.auth import Authenticator
from dgmark_service.detection_worker import Checker
from dgmark_service.model_process import ModelProcess, work
from dgmark_service.offers import Offer, offers_of
from dgmark_service.settings import ServiceSettings
from dgmark_service.telemetry import AuditLog, Metrics
from dgmark_service.worker_pool import WorkerPool

log = logging.getLogger("dgmark_service")
RELOAD_SECONDS = 60.0  # in which keys must be read again


class ServiceState:
    """What the routes of one service share: at first its settings, and the keys and tokens that they name.

    Attributes:
        settings: its settings.
        audit: its audit log.
        auth: tells who asks.
        metrics: its metrics.
        workers: the processes that check texts.
        model_process: the process that writes texts, which is started if there are models.
        offers: its models by name.
        failure: why its models could not be loaded at the start; None if they could.
        on_failure: called when that is known.
        given_up: the texts that were not finished when it was stopped.

    Raises:
        KeyFileError: a key or the file of tokens cannot be used, or there is no key.
        SettingsError: a key cannot be looked for, or a model has no key.
        ModelNotFound: a model, or a key's tokenizer, is unavailable.
        InputError: the file of tokens or a commitment is none, a key does not meet its commitment, or the audit log
            cannot be written.
    """

    def __init__(self, settings: ServiceSettings) -> None:
        self.settings = settings
        self.audit = AuditLog(settings.audit)
        checker, self.offers = _read_keys(settings)
        self.auth = Authenticator(settings)
        self.metrics = Metrics()
        self.workers = pool = WorkerPool(checker, settings, self.metrics.lost.inc)
        self.metrics.held.set_function(lambda: pool.held)
        self.metrics.waiting.labels("checks").set_function(lambda: max(0, pool.held - pool.places))
        models = {name: offer.source.loading for name, offer in self.offers.items()}
        launch = partial(ChildProcess, work, settings.logging, models, settings.rows)
        self.model_process = process = ModelProcess(launch, settings, self.metrics.lost.inc, self._fail)
        self.metrics.writing.set_function(lambda: process.held)
        self.metrics.waiting.labels("texts").set_function(lambda: max(0, process.held - settings.rows))
        self.failure: DgmarkError | None = None
        self.on_failure: Callable[[], object] = lambda: None
        self.given_up = 0
        self._changing = asyncio.Lock()

    @property
    def keys(self) -> Mapping[str, WatermarkKey]:
        """Its keys by name."""
        keys: Mapping[str, WatermarkKey] = self.workers.shared.keys
        return keys

    async def start(self) -> None:
        """Start the processes, and wait until texts can be checked; models are loaded after that."""
        async with self._changing:
            if self.offers:
                self.model_process.start()
            rates = [rate for rate in await self.workers.start() if rate is not None]
            self.workers.shared.chars_per_second = min(rates, default=None)

    async def reload(self) -> None:
        """Read the keys again; if that fails, all stays as it was, and the log says why.

        What is being checked or written ends under the keys that it began with.
        """
        async with self._changing:
            # a thread that waits for a disk for ever holds up neither a later reload nor the end of the process
            reading = asyncio.wrap_future(in_thread(_read_keys, self.settings))
            try:
                checker, self.offers = await asyncio.wait_for(reading, RELOAD_SECONDS)
            except (DgmarkError, TimeoutError) as error:
                why = str(error) or f"they were not read within {RELOAD_SECONDS:g} seconds"
                log.error("the keys stay as they were: %s", why)
                return
            checker.chars_per_second = self.workers.shared.chars_per_second  # the model stays
            self.workers.renew(checker)
        log.warning("the keys are now: %s", ", ".join(self.keys))

    def close(self) -> None:
        """End the processes and the log."""
        self.workers.close()
        self.model_process.close()
        self.audit.close()

    @property
    def ready(self) -> bool:
        """Whether the service can do everything that it was started for, and leave evidence of it."""
        return self.workers.ready and self.audit.works() and (self.model_process.ready or not self.offers)

    def _fail(self, why: DgmarkError) -> None:
        self.failure = why
        self.on_failure()

    def stop_generation(self) -> None:
        """Give up the texts that are being written: the service ends."""
        self.given_up += self.model_process.held
        self.model_process.stop()


def _read_keys(settings: ServiceSettings) -> tuple[Checker, dict[str, Offer]]:
    """What checks texts under the keys, and the models that are marked with them.

    See `ServiceState` for what is raised.
    """
    keys = named_keys(settings.keys, allow_open=settings.allow_open_keys)
    for key in keys.values():
        Detector(key, tokenizer=settings.tokenizer).tokenizer  # noqa: B018 (an error now, not at each request)
        if settings.surprisal_model is not None:
            check_weighs(key)
    commitments = load_commitments(settings.commitments, keys.values()) if settings.commitments else {}
    # no process that checks needs to know the other secrets
    return Checker(replace(settings, signer=None, api_token=None), keys, commitments), offers_of(settings, keys)
