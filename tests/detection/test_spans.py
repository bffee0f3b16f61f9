"""Spans: found where they are, and in unmarked text no more often than the rate."""

import numpy as np
import pytest

from dgmark.detection.detector import Detector
from dgmark.detection.reader import ScoredIds
from dgmark.detection.scan_statistic import scan
from dgmark.detection.spans import SpanSearch, windows_of
from dgmark.errors import SettingsError
from support.known_keys import builtin_tokenizer, known_key
from support.marked_texts import marked_text, whole_words
from support.unchecked import unchecked
from support.unmarked_texts import PROSE, texts

WILLOWS = (PROSE / "willows.txt").read_text(encoding="utf-8")


def detector_of(name: str = "words", fpr: float = 1e-3) -> Detector:
    return Detector(known_key(name), tokenizer=builtin_tokenizer(), fpr=fpr)


def pasted(length: int = 80, at: int = 700) -> tuple[str, str]:
    """A paragraph of a book with marked words put into it, and the marked words."""
    marked = marked_text(known_key("words"), length)
    return WILLOWS[:at] + "\n" + marked + "\n" + WILLOWS[at : at + 900], marked


@pytest.mark.parametrize(("length", "p_value"), [(80, 1e-8), (50, 1e-4)])
def test_a_marked_paragraph_is_found_where_it_is(length: int, p_value: float) -> None:
    text, marked = pasted(length)
    (span,) = detector_of().spans(text)
    start = text.index(marked)
    assert abs(span.start - start) < 30
    assert abs(span.end - start - len(marked)) < 60
    assert not any(text[place - 1 : place + 1].isalnum() for place in (span.start, span.end))
    assert span.p_value < p_value
    assert length - 10 <= span.num_tokens_scored <= length + 15


def test_two_paragraphs_are_two_spans_in_order() -> None:
    one, marked = pasted(60)
    text = one + "\n" + marked + "\n" + WILLOWS[1600:2400]
    first, second = detector_of().spans(text)
    assert first.end < second.start
    assert text[first.start : first.end] in one


def test_a_wholly_marked_text_is_one_span_of_all_its_characters() -> None:
    text = marked_text(known_key("words"), 100)
    (span,) = detector_of().spans(text)
    assert text[span.start : span.end] == text.strip()


def test_a_cut_within_a_span_does_not_end_it() -> None:
    key = known_key("words")
    table = key.tables.table()
    words = [word for word in whole_words() if table[word] in (0, 1)]
    dice = np.random.default_rng(0)
    ids = [int(dice.choice([w for w in words if table[w] == i % 2])) for i in range(121)]
    del ids[60]
    (span,) = detector_of().spans(ids)
    assert (span.start, span.end) == (0, 120)


@pytest.mark.parametrize("content", ["", "a", WILLOWS, "sir, " * 300])
def test_text_without_the_mark_has_no_span(content: str) -> None:
    assert detector_of().spans(content) == ()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["CSV", "looped text", "prose"])
def test_unmarked_text_rarely_has_a_span_over_keys(kind: str) -> None:
    """At a family-wise rate of .2, of 150 keys at most .2 + 4 standard errors report any stretch.

    On prose a third of the rate at least is used: fewer than 10 of 150 at .2 have probability 2e-6.
    """
    turns = texts(kind, 150)
    with unchecked():
        hits = sum(bool(detector_of(f"span {k}", 0.2).spans(turns[k % len(turns)])) for k in range(150))
    assert hits / 150 <= 0.2 + 4 * np.sqrt(0.2 * 0.8 / 150)
    assert kind != "prose" or hits / 150 >= 0.2 / 3


def test_a_text_too_long_for_a_coded_key_is_refused() -> None:
    detector = Detector(known_key("coded", code_length=64), tokenizer=builtin_tokenizer())
    with pytest.raises(SettingsError, match="cut the text to 32768 at most"):
        detector.spans(np.full(32_769, 300))


def test_the_windows_with_bets_cover_the_text_and_share_the_stake() -> None:
    for n in (8, 15, 16, 100, 513):
        windows, shares = windows_of(n)
        assert shares.sum() == pytest.approx(1)
        covered = np.zeros(n, dtype=bool)
        for window in windows:
            covered[window] = True
        assert covered.mean() > 0.85


def test_the_p_value_of_a_stretch_pays_for_all_stretches() -> None:
    """The p-value of the best stretch against the share of 1,500 random keys with a stretch as good."""
    ids = np.random.default_rng(1).integers(300, 8000, 96)
    tables = known_key("all stretches").tables
    with unchecked():
        search = SpanSearch(tables, ScoredIds(ids, np.arange(96)))
        model, grids = search.model, search.grids
        random = np.random.default_rng(2).integers(0, 2, (len(model.distinct), 1500), dtype=np.uint8)
        best = scan(model, grids, random).max(axis=0)
        drawn = search._drawn
    for place in np.quantile(best, [0.8, 0.95, 0.99]):
        share, counted = np.mean(best >= place), drawn.weights * (drawn.best >= place)
        error = np.hypot(np.sqrt(share / 1500), counted.std() / np.sqrt(len(counted)))
        assert abs(counted.mean() - share) < 5 * error
