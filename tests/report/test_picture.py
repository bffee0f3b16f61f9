"""The pictures show the given numbers."""

import sys

import numpy as np
import pytest

from dgmark.detection.edit_test import window_z_scores
from dgmark.errors import MissingExtra
from dgmark.report.picture import match_strip
from dgmark_lab.experiments.figures import roc


def test_the_strip_has_a_mark_a_token_a_curve_of_windows_and_the_spans() -> None:
    matched = np.random.default_rng(0).random(60) < 0.7
    strip, curve = match_strip(matched, 2, spans=[(10, 30)], title="a text").axes
    above, below = strip.collections
    assert (len(above.get_paths()), len(below.get_paths())) == (matched.sum(), (~matched).sum())
    assert curve.lines[1].get_ydata() == pytest.approx(window_z_scores(matched, 2, 8))
    assert len(curve.patches) == 1
    assert strip.get_title() == "a text"


@pytest.mark.parametrize("length", [0, 3])
def test_a_short_text_has_a_strip_too(length: int) -> None:
    assert len(match_strip(np.ones(length, dtype=bool), 2).axes) == 2


def test_a_roc_goes_from_nothing_to_everything() -> None:
    yes, no = np.array([3.0, 2.0, 2.0]), np.array([1.0, 2.0, 0.0, 0.0])
    (line,) = roc({"z": (yes, no)}).axes[0].lines
    points = np.stack([np.asarray(line.get_xdata()), np.asarray(line.get_ydata())], axis=1)
    # below the first false positive the curve stands at half of one, as the axis has no zero
    assert points == pytest.approx(np.array([[0.125, 0], [0.125, 1 / 3], [0.25, 1], [0.5, 1], [1, 1]]))


def test_without_matplotlib_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtra, match=r"\[report\]"):
        match_strip(np.ones(3, dtype=bool), 2)
