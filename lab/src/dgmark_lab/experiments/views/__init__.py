"""Views of an experiment: each is a function from the rows of a run to numbers, tables and figures."""

from collections.abc import Callable

from dgmark_lab.experiments.cells import StoredRun
from dgmark_lab.experiments.spec import View
from dgmark_lab.experiments.tables import Section
from dgmark_lab.experiments.views.costs import benchmark, ratings, timing
from dgmark_lab.experiments.views.curves import area_under_curve, length_curve
from dgmark_lab.experiments.views.detection import detection
from dgmark_lab.experiments.views.frontier import frontier
from dgmark_lab.experiments.views.texts import lengths, perplexities, ratios, samples

VIEWS: dict[View, Callable[[StoredRun], Section]] = {
    "detection": detection,
    "auc": area_under_curve,
    "length-curve": length_curve,
    "ratios": ratios,
    "lengths": lengths,
    "perplexity": perplexities,
    "timing": timing,
    "benchmark": benchmark,
    "judge": ratings,
    "samples": samples,
    "frontier": frontier,
}
