"""The p-value holds its level on human-made text of every kind, including the kinds for which fair coins are wrong.

Each kind of text meets 1,000 keys of a setting (`make soak`: of each setting), one text a (text, key) pair, so the
pairs are independent. The share of p-values at or below alpha may exceed alpha by 4 standard errors. Texts and secrets
are seeded, so each check passes always or never.
How much that says: were the secrets drawn afresh, a p-value that holds its level exactly would fail the check
by chance with probability 8e-5 at alpha = .1, 2.7e-4 at .01 and 3.6e-3 at .001 (upper tails of Binomial(1000, alpha));
discreteness and paying for phases make the package's p-values smaller than that most of the time.
"""

from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from dgmark.detection.detector import Detector
from dgmark.detection.results.detection import Detection
from support.known_keys import builtin_tokenizer, known_key
from support.unchecked import unchecked
from support.unmarked_texts import KINDS, texts

PAIRS = 1000
ALPHAS = (0.1, 0.01, 0.001)
# keys, settings of their detector, and the longest texts: a rotating key has a table a segment, which takes its time
SETTINGS: dict[str, tuple[dict[str, Any], dict[str, Any], int | None]] = {
    "two groups": ({}, {}, None),
    "two groups, start": ({}, {"phase": "start"}, None),
    "four groups": ({"modulus": 4}, {}, None),
    "rotating": ({"rotation": 64}, {"max_crop": 8}, 120),
    "pairs": ({"rule": "bigram"}, {}, 180),
    "sub-keys": ({"subkeys": 16, "tokens": "words"}, {}, 180),
}


@cache
def detections(kind: str, name: str) -> list[Detection]:
    """The detection of each (text, key) pair; the texts of a kind take turns."""
    options, settings, longest = SETTINGS[name]
    turns = texts(kind, longest)
    with unchecked():
        keys = [known_key(f"level {number}", **options) for number in range(PAIRS)]
        return [
            Detector(key, tokenizer=builtin_tokenizer(), **settings).detect(turns[n % len(turns)])
            for n, key in enumerate(keys)
        ]


def p_values(kind: str, name: str) -> NDArray[np.float64]:
    return np.array([detection.p_value for detection in detections(kind, name)])


def allowed(alpha: float, pairs: int) -> float:
    return alpha + 4 * float(np.sqrt(alpha * (1 - alpha) / pairs))


def excesses(p: NDArray[np.float64]) -> dict[float, float]:
    """The levels that these p-values do not hold, each with the share of p-values at or below it."""
    shares = {alpha: float(np.mean(p <= alpha)) for alpha in ALPHAS}
    return {alpha: share for alpha, share in shares.items() if share > allowed(alpha, len(p))}


# a p-value that is always 1 would hold every level: these come near the level that they state
LEAST = {"two groups, start": 0.2, "pairs": 0.1, "sub-keys": 0.1}


@pytest.mark.slow
@pytest.mark.cover(1)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", SETTINGS)  # one after another: the package keeps the tables of the last 1,024 keys
def test_the_p_value_holds_its_level_and_is_not_too_large(kind: str, name: str) -> None:
    p = p_values(kind, name)
    assert len(p) >= PAIRS
    assert excesses(p) == {}
    assert np.mean(p <= 0.5) > LEAST.get(name, 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["CSV", "Markdown tables"])
def test_the_check_fails_for_the_normal_p_value_of_the_z_score(kind: str) -> None:
    z = np.array([detection.z_score for detection in detections(kind, "two groups, start")])
    assert set(excesses(stats.norm.sf(z))) >= {0.01, 0.001}


def test_the_stated_false_alarm_rates_of_the_check_hold() -> None:
    for alpha, stated in zip(ALPHAS, (8e-5, 2.7e-4, 3.6e-3), strict=True):
        most = np.floor(allowed(alpha, PAIRS) * PAIRS)
        assert stats.binom.sf(most, PAIRS, alpha) == pytest.approx(stated, rel=0.1)
