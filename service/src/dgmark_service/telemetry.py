"""Metrics for Prometheus, and the audit log of policy decisions. Neither holds a text, a prompt or a secret."""

import errno
import json
import logging
import os
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import partial
from logging.handlers import WatchedFileHandler
from pathlib import Path
from typing import Any

from fastapi import Request
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from dgmark.arguments.checks import as_path
from dgmark.errors import InputError
from dgmark.watermark.key import WatermarkKey
from dgmark_service.moving_window import MovingWindow

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


class AuditLog(WatchedFileHandler):
    """A file to which policy decisions are appended, a JSON object a line; another file at its path is followed.

    A row that cannot be written stops no answer. It is counted, and the next row that can be written says how many are
    missing; the last one is kept, and tried again when it is asked whether the log works. A row also says how many
    refusals were left out of a minute that had too many from whoever has no valid token.

    Args:
        path: the file; None for no log.

    Raises:
        InputError: the file cannot be written.
    """

    def __init__(self, path: Path | None) -> None:
        self._lost = self._left_out = 0
        self._refusals = MovingWindow(MAX_REFUSALS_A_MINUTE, 60)
        self._unwritten: dict[str, Any] | None = None
        self._kept = path is not None
        try:
            super().__init__(as_path(path or os.devnull, "the audit log"), delay=not self._kept)
        except OSError as error:
            raise InputError(
                f"the audit log {path} cannot be written ({error.strerror}): choose another place"
            ) from error

    def write(self, decision: str, **fields: Any) -> None:
        """Append a decision, with the time."""
        if not self._kept:
            return
        if decision == "refused" and not fields.get("token"):
            if self._refusals.wait(None):
                self._left_out += 1
                return
            self._refusals.spend(None, 1)
        self._put({"time": datetime.now(UTC).isoformat(timespec="milliseconds"), "decision": decision, **fields})

    def note(self, request: Request, decision: str, keys: Iterable[WatermarkKey] = (), **fields: Any) -> None:
        """Append what was done for a request, with who asked it, and the keys that were tried or used."""
        state, address = request.state, request.client.host if request.client else "unknown"
        token = state.caller.name if hasattr(state, "caller") else None
        who = {"request": state.request_id, "client_request": state.client_id, "token": token, "address": address}
        who |= getattr(state, "about", {})
        self.write(decision, **who, key_fingerprints=[key.fingerprint for key in keys], **fields)

    def works(self) -> bool:
        """Whether the last row is written. If not, it is tried again: a shorter one might fit where no other does."""
        if self._unwritten is not None:
            self._lost -= 1
            self._put(self._unwritten)
        return self._unwritten is None

    def _put(self, row: dict[str, Any]) -> None:
        missing = {"rows_lost": self._lost, "refusals_left_out": self._left_out}
        line = json.dumps({**row, **{name: n for name, n in missing.items() if n}}, ensure_ascii=False)
        try:
            self.reopenIfNeeded()
            self.stream = self.stream or self._open()  # whoever configures `logging` closes all handlers
            self._append(self.stream, f"{line}\n".encode())
        except OSError as error:
            if self._unwritten is None:
                log.error("the audit log cannot be written (%s): /readyz says so until it can be", error.strerror)
            self._unwritten = row
            self._lost += 1
        else:
            self._unwritten = None
            self._lost = self._left_out = 0

    @staticmethod
    def _append(file: Any, line: bytes) -> None:
        """Write a whole line, or nothing, which is an `OSError`."""
        written = file.write(line) or 0  # None from a pipe that is full
        if written < len(line):
            file.truncate(file.tell() - written)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _open(self) -> Any:  # without a buffer, which would write later
        return open(self.baseFilename, "ab", buffering=0, opener=_private)


def _private(path: str, flags: int) -> int:
    """Open a file that, if it is new, its owner alone may read: the log holds names and addresses.

    Of a pipe nobody waits for the reader.
    """
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0), 0o600)
