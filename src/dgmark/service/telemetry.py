"""Metrics for Prometheus, and the audit log of policy decisions. Neither holds a text, a prompt or a secret."""

import json
import os
import threading
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import IO, Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from dgmark.errors import InputError


class Metrics:
    """The counts of one service."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        counter, gauge = partial(Counter, registry=registry), partial(Gauge, registry=registry)
        by_request = "path", "method", "status"
        self.requests = counter("dgmark_requests", "Requests by path, method and status.", by_request)
        self.seconds = Histogram(
            "dgmark_request_seconds",
            "Time from the end of a request's headers to its answer.",
            ("path",),
            buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
            registry=registry,
        )
        self.verdicts = counter("dgmark_verdicts", "Texts by verdict.", ("verdict",))
        self.lost = counter("dgmark_workers_lost", "Workers that ended before their work did.")
        self.held = gauge("dgmark_requests_held", "Requests that are checked or wait for a worker.")
        self.texts = counter(
            "dgmark_texts",
            "Texts asked for, by model, whether marked, and outcome (finished, refused, failed, cancelled).",
            ("model", "marked", "outcome"),
        )
        self.tokens = counter("dgmark_tokens", "Tokens of finished texts.", ("model", "marked"))
        self.writing = gauge("dgmark_texts_held", "Texts that are written or wait to be.")


class AuditLog:
    """A file to which policy decisions are appended, a JSON object a line.

    Args:
        path: the file; None for no log.

    Raises:
        InputError: the file cannot be written.
    """

    def __init__(self, path: Path | None) -> None:
        self._lock, self._path = threading.Lock(), path
        self._file = self._opened()

    def _opened(self) -> IO[str] | None:
        try:
            return None if self._path is None else open(self._path, "a", encoding="utf-8", opener=_private)
        except OSError as error:
            raise InputError(
                f"the audit log {self._path} cannot be written ({error.strerror}): choose another place"
            ) from error

    def reopen(self) -> None:
        """Open the file anew, since it may have been moved.

        Raises:
            InputError: the file cannot be written; the one that is open stays.
        """
        file = self._opened()
        with self._lock:
            self.close()
            self._file = file

    def write(self, decision: str, **fields: Any) -> None:
        """Append a decision, with the time."""
        if self._file is None:
            return
        row = {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), "decision": decision, **fields}
        with self._lock:
            self._file.write(json.dumps(row, ensure_ascii=False) + "\n")
            self._file.flush()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()


def _private(path: str, flags: int) -> int:
    """Open a file that, if it is new, its owner alone may read: the log holds names and addresses."""
    return os.open(path, flags, 0o600)
