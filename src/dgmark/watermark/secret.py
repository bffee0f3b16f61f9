"""`Secret`: bytes that no message, log or traceback shows."""


class Secret(bytes):
    """Secret bytes, which no repr shows: whoever records tracebacks may record the variables of their frames."""

    def __repr__(self) -> str:
        return f"<{len(self)} secret bytes>"

    __str__ = __repr__
