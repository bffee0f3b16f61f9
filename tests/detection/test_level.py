"""The p-value holds its level on human-made text of every kind, including the kinds for which fair coins are wrong.

Each kind of text meets 2,000 keys, one text a (text, key) pair, so the pairs are independent. The share of p-values at
or below alpha may exceed alpha by 4 standard errors. Texts and secrets are seeded, so each check passes always or
never. How much that says: were the secrets drawn afresh, a p-value that holds its level exactly would fail the check
by chance with probability 6e-5 at alpha = .1, 2e-4 at .01 and 1e-3 at .001 (upper tails of Binomial(2000, alpha));
discreteness and paying for phases make the package's p-values smaller than that most of the time.
"""

from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from dgmark.detection.detector import Detector
from dgmark.detection.finding import Phase
from dgmark.detection.result import Detection
from dgmark.watermark.key import WatermarkKey
from support.known_keys import builtin_tokenizer, known_key
from support.unchecked import unchecked
from support.unmarked_texts import KINDS, texts

PAIRS = 2000
ALPHAS = (0.1, 0.01, 0.001)
# modulus, rotation, phase; the rotating key's p-value allows for CROP missing tokens
SETTINGS: list[tuple[int, int, Phase]] = [
    (2, 0, "any"),
    (2, 0, "start"),
    (4, 0, "any"),
    (4, 0, "start"),
    (2, 64, "any"),
]
CROP = 8


@cache
def keys(modulus: int, rotation: int) -> list[WatermarkKey]:
    return [known_key(f"level {number}", modulus=modulus, rotation=rotation) for number in range(PAIRS)]


@cache
def detections(kind: str, modulus: int, rotation: int, phase: Phase) -> list[Detection]:
    """The detection of each (text, key) pair; the texts of a kind take turns."""
    turns = texts(kind, 180 if rotation else None)  # a rotating key has a table a segment, which takes its time
    crop: Any = {"max_crop": CROP} if rotation else {}
    with unchecked():
        return [
            Detector(key, tokenizer=builtin_tokenizer(), phase=phase, **crop).detect(turns[n % len(turns)])
            for n, key in enumerate(keys(modulus, rotation))
        ]


def p_values(kind: str, modulus: int, rotation: int, phase: Phase) -> NDArray[np.float64]:
    return np.array([detection.p_value for detection in detections(kind, modulus, rotation, phase)])


def allowed(alpha: float, pairs: int) -> float:
    return alpha + 4 * float(np.sqrt(alpha * (1 - alpha) / pairs))


def excesses(p: NDArray[np.float64]) -> dict[float, float]:
    """The levels that these p-values do not hold, each with the share of p-values at or below it."""
    shares = {alpha: float(np.mean(p <= alpha)) for alpha in ALPHAS}
    return {alpha: share for alpha, share in shares.items() if share > allowed(alpha, len(p))}


@pytest.mark.slow
@pytest.mark.parametrize(("modulus", "rotation", "phase"), SETTINGS, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_the_p_value_holds_its_level(kind: str, modulus: int, rotation: int, phase: Phase) -> None:
    p = p_values(kind, modulus, rotation, phase)
    assert len(p) >= PAIRS
    assert excesses(p) == {}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_p_value_is_not_too_large(kind: str) -> None:
    """A p-value that is always 1 would hold every level; this one comes near the level that it states."""
    assert np.mean(p_values(kind, 2, 0, "start") <= 0.5) > 0.2


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["CSV", "Markdown tables"])
def test_the_check_fails_for_the_normal_p_value_of_the_z_score(kind: str) -> None:
    z = np.array([detection.z_score for detection in detections(kind, 2, 0, "start")])
    assert set(excesses(stats.norm.sf(z))) >= {0.01, 0.001}


def test_the_check_fails_for_p_values_that_are_three_tenths_too_small() -> None:
    uniform = (np.arange(PAIRS) + 0.5) / PAIRS
    assert excesses(uniform) == {}
    assert excesses(uniform * 0.7) == {0.1: pytest.approx(1 / 7, abs=1e-3)}


def test_the_stated_false_alarm_rates_of_the_check_hold() -> None:
    for alpha, stated in zip(ALPHAS, (6e-5, 2e-4, 1e-3), strict=True):
        most = np.floor(allowed(alpha, PAIRS) * PAIRS)
        assert stats.binom.sf(most, PAIRS, alpha) == pytest.approx(stated, rel=0.1)


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_has_texts_of_several_lengths(kind: str) -> None:
    lengths = [len(ids) for ids in texts(kind, None)]
    assert min(lengths) > 60
    assert len(set(lengths)) >= 3
