"""What the service logs to stderr, of which what anybody can cause without end is logged once a minute."""

import logging
from collections import Counter
from typing import Any

from dgmark_service.moving_window import MovingWindow

# whoever can connect causes these messages: requests that are none, refused connections, no file left for a connection
_CAUSED_BY_ANYBODY = ("uvicorn.error", "asyncio")


class OnceAMinute(logging.Filter):
    """Lets a message of such a logger pass once a minute, with the number of those like it that did not pass.

    What uvicorn says at its start and end, which is all information that it logs, always passes.
    """

    def __init__(self) -> None:
        super().__init__()
        self._passed, self._left_out = MovingWindow(1, 60), Counter[tuple[str, str]]()

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record passes."""
        kind = record.name, str(record.msg).partition("\n")[0]
        debugs = kind[1].startswith("Executing ")  # asyncio, of what holds the event loop
        if record.name not in _CAUSED_BY_ANYBODY or record.levelno < logging.WARNING or debugs:
            return True
        if self._passed.wait(kind):
            self._left_out[kind] += 1
            return False
        self._passed.spend(kind, 1)
        if left_out := self._left_out.pop(kind, 0):
            record.msg, record.args = f"{record.getMessage()} (and {left_out} more like this before)", None
        return True


def log_config(level: str = "info", *, access: bool = False) -> dict[str, Any]:
    """The argument of `logging.config.dictConfig` for the processes of the service.

    Args:
        level: the least level of messages of dgmark and uvicorn; other packages have warnings and errors only.
        access: log each request, as a JSON object a line.
    """
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "filters": {"once a minute": {"()": OnceAMinute}},
        "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(message)s"}},
        "handlers": {
            "stderr": {"class": "logging.StreamHandler", "formatter": "line", "filters": ["once a minute"]},
            "access": {"class": "logging.StreamHandler", "stream": "ext://sys.stdout"},
        },
        "root": {"level": "WARNING", "handlers": ["stderr"]},
        "loggers": {
            "uvicorn": {"level": level.upper(), "propagate": True},
            "dgmark": {"level": level.upper()},
            "dgmark.access": {"level": "INFO" if access else "CRITICAL", "handlers": ["access"], "propagate": False},
        },
    }
