"""All statistics of one text, for the tables of `level.py` and `robustness.py`."""

from dataclasses import dataclass
from functools import cache

import numpy as np
from jaxtyping import Float, Int

from dgmark.detection.detector import KeyTest
from dgmark.detection.edit_test import aligned_test, window_statistic
from dgmark.detection.exact_test import ExactTest, z_score
from dgmark.detection.reader import ScoredIds
from dgmark.watermark.groups import SECRET_BYTES, WatermarkSpec
from dgmark.watermark.key import WatermarkKey

WINDOWS = (8, 16, 32)


@dataclass(frozen=True)
class Scores:
    """Statistics of one text. Marked text has larger z and windows, and smaller p-values."""

    z: float
    windows: tuple[float, ...]
    p_intact: float
    p_edited: float
    p_auto: float


def score(key: WatermarkKey, ids: Int[np.ndarray, " n"]) -> Scores:
    """Score ids that start at position 0. The paper's statistics assume this phase; ours find it."""
    positions = np.arange(len(ids))
    matched = key.tables.matching(ids, positions)
    best = min(ExactTest(key.tables, "any", 0).hypotheses(ids, positions), key=lambda h: h.p_value)
    return Scores(
        z=abs(z_score(int(matched.sum()), len(ids), key.spec.modulus)),
        windows=tuple(float(window_statistic(matched, key.spec.modulus, w)) for w in WINDOWS),
        p_intact=best.p_value,
        p_edited=aligned_test(key.tables, ids, positions, "any", intact=False)[0],
        p_auto=KeyTest(key).score(ScoredIds(ids, positions)).p_value,
    )


def random_key(spec: WatermarkSpec, number: int) -> WatermarkKey:
    """Return key `number` of a fixed series."""
    return WatermarkKey(spec, f"bench-{number}", np.random.default_rng([5, number]).bytes(SECRET_BYTES))


@cache
def fair_window_draws(length: int, window: int) -> Float[np.ndarray, " draws"]:
    """Draw 20,000 values of the window statistic over fair coins, sorted."""
    coins = np.random.default_rng([length, window]).random((length, 20_000), dtype=np.float32) < 0.5
    return np.sort(window_statistic(coins, 2, window))
