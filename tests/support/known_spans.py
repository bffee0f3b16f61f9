"""Detectors that find given parts of a text as its spans, to test what is shown of spans."""

import pytest

from dgmark.detection.detector import Detector
from dgmark.detection.reader import TextOrIds
from dgmark.detection.result import Span

SPAN_P = 1e-9


def find(monkeypatch: pytest.MonkeyPatch, *parts: str, subkey: int | None = None) -> None:
    """Let every detector find these parts of texts, each with a p-value of 1e-9."""

    def spans(_self: Detector, content: TextOrIds) -> tuple[Span, ...]:
        text = content if isinstance(content, str) else ""
        places = sorted((text.index(part), len(part)) for part in parts if part in text)
        return tuple(Span(start, start + length, length // 5, SPAN_P, subkey) for start, length in places)

    monkeypatch.setattr(Detector, "finds_spans", True)
    monkeypatch.setattr(Detector, "spans", spans)
