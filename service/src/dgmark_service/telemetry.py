"""Metrics for Prometheus, and the audit log of policy decisions. Neither holds a text, a prompt or a secret."""

import errno
import json
import logging
import os
import threading
import time
from datetime import UTC, datetime
from functools import partial
from logging.handlers import WatchedFileHandler
from pathlib import Path
from typing import IO, Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from dgmark.arguments.checks import as_path
from dgmark.errors import InputError

log = logging.getLogger("dgmark_service")
# rows of the audit log about refused requests without a valid token: anybody can send them without end
MAX_REFUSALS_A_MINUTE = 100
# a text may take 600 seconds
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)


class Metrics:
    """The counts of one service."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        counter, gauge = partial(Counter, registry=registry), partial(Gauge, registry=registry)
        histogram = partial(Histogram, registry=registry)
        by_request = "path", "method", "status"
        self.requests = counter("dgmark_requests", "Requests by path, method and status.", by_request)
        said = "Time from the end of a request's headers to its answer."
        self.seconds = histogram("dgmark_request_seconds", said, ("path",), buckets=_SECONDS)
        said = "Time from a request for a text to its first tokens, waiting included."
        self.first_token = histogram("dgmark_first_token_seconds", said, ("model",), buckets=_SECONDS)
        said = "Tokens a second of a finished text, from its first tokens on."
        self.speed = histogram("dgmark_text_tokens_per_second", said, ("model",), buckets=[2**n for n in range(13)])
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
        self.waiting = gauge("dgmark_waiting", "Requests that wait for a worker; texts that wait.", ("what",))


class AuditLog:
    """A file to which policy decisions are appended, a JSON object a line.

    A row that cannot be written stops no answer. It is counted, and the next row that can be written says how many are
    missing; the last one is kept, and tried again when it is asked whether the log works. A row also says how many
    refusals were left out of a minute that had too many from whoever has no valid token.

    Args:
        path: the file; None for no log.

    Raises:
        InputError: the file cannot be written.
    """

    def __init__(self, path: Path | None) -> None:
        self._lock = threading.Lock()
        self._lost = self._left_out = self._refused = 0
        self._minute = -1
        self._unwritten: dict[str, Any] | None = None
        try:
            self._file = None if path is None else _Rows(as_path(path, "the audit log"))
        except OSError as error:
            raise InputError(
                f"the audit log {path} cannot be written ({error.strerror}): choose another place"
            ) from error

    def write(self, decision: str, **fields: Any) -> None:
        """Append a decision, with the time."""
        with self._lock:
            if self._file is None or (decision == "refused" and not fields.get("token") and self._too_many()):
                return
            now = datetime.now(UTC).isoformat(timespec="milliseconds")
            self._put(self._file, {"time": now, "decision": decision, **fields})

    def works(self) -> bool:
        """Whether the last row is written. If not, it is tried again: a shorter one might fit where no other does."""
        with self._lock:
            if self._file is not None and self._unwritten is not None:
                self._lost -= 1
                self._put(self._file, self._unwritten)
            return self._unwritten is None

    def _put(self, file: "_Rows", row: dict[str, Any]) -> None:
        missing = {"rows_lost": self._lost, "refusals_left_out": self._left_out}
        line = json.dumps({**row, **{name: n for name, n in missing.items() if n}}, ensure_ascii=False)
        try:
            self._append(file.current(), f"{line}\n".encode())
        except OSError as error:
            if self._unwritten is None:
                log.error("the audit log cannot be written (%s): /readyz says so until it can be", error.strerror)
            self._unwritten = row
            self._lost += 1
        else:
            self._unwritten = None
            self._lost = self._left_out = 0

    def _too_many(self) -> bool:
        minute = int(time.monotonic() // 60)
        if minute != self._minute:
            self._minute, self._refused = minute, 0
        self._refused += 1
        if self._refused <= MAX_REFUSALS_A_MINUTE:
            return False
        self._left_out += 1
        return True

    @staticmethod
    def _append(file: IO[bytes], line: bytes) -> None:
        """Write a whole line, or nothing.

        Raises:
            OSError: it cannot be written.
        """
        written = file.write(line) or 0  # None from a pipe that is full
        if written < len(line):
            file.truncate(file.tell() - written)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()


class _Rows(WatchedFileHandler):
    """A file that is opened anew once another one stands at its path, without a buffer, which would write later."""

    def _open(self) -> IO[bytes]:  # type: ignore[override]
        return open(self.baseFilename, "ab", buffering=0, opener=_private)

    def current(self) -> IO[bytes]:
        """The file at the path, open; whoever configures `logging` closes all handlers.

        Raises:
            OSError: it cannot be opened.
        """
        self.reopenIfNeeded()
        if self.stream is None:
            self.stream = self._open()  # type: ignore[assignment]
        return self.stream  # type: ignore[return-value]


def _private(path: str, flags: int) -> int:
    """Open a file that, if it is new, its owner alone may read: the log holds names and addresses.

    Of a pipe nobody waits for the reader.
    """
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0), 0o600)
