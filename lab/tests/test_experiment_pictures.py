"""Pictures: one style, names that do not touch, and what a shortened run shows."""

from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dgmark.errors import InputError
from dgmark_lab.evaluate.estimates import Estimate
from dgmark_lab.experiments.figures import UNMARKED, Line, Panel, chart, colours_of
from dgmark_lab.experiments.report import draw_again
from dgmark_lab.experiments.spec import load_experiment
from dgmark_lab.experiments.tables import Quantity, read_csv, to_csv
from dgmark_lab.experiments.views.drawn import About, figures_of

RESULTS = Path(__file__).parents[1] / "docs" / "results"
NAMES = (
    "dgmark, 256 sub-keys",
    "dgmark, one key",
    "DMark, delta 2",
    "KGW, delta 2",
    "LR-DWM, delta 2",
    "TANGO, delta 5",
)


def points_of(axes: Any) -> list[float]:
    """The x of each point of the lines."""
    return [float(x) for line in axes.lines for x in np.asarray(line.get_xdata())]


def test_names_and_labels_do_not_touch() -> None:
    lines = [
        Line(name, [(Estimate(1.0), Estimate(50.0 + n)), (Estimate(2.0), Estimate(90.0 + n / 2))], ["0.7", "0.9"])
        for n, name in enumerate(NAMES)
    ]
    figure = chart(
        [Panel("one", lines), Panel("two", lines)],
        question="Which?",
        caption="n = 3",
        x="x",
        y="y",
        better="lower left",
    )
    figure.draw_without_rendering()
    for axes in figure.axes:
        texts = [text for text in axes.texts if text.get_text()]
        assert set(NAMES) <= {text.get_text() for text in texts}
        for one, other in combinations(texts, 2):
            # what is written, without the arrow of an annotation
            first, second = (super(type(text), text).get_window_extent() for text in (one, other))
            shared = first.intersection(first, second)
            assert shared is None or min(shared.width, shared.height) < 3, (one.get_text(), other.get_text())
        assert axes.get_ylim()[0] == 0


def test_a_watermark_has_its_colour_in_every_picture() -> None:
    for names in (NAMES, NAMES[::-1], ("unmarked, T = 0.9", *NAMES)):
        found = colours_of(names)
        assert len(set(found.values())) == len(names)
        assert {name: found[name] for name in NAMES} == colours_of(NAMES)
    assert colours_of(["no mark"]) == {"no mark": UNMARKED}
    two = colours_of(["dgmark k = 1, w = 8", "dgmark k = 1, w = 16", "green, delta 3"])
    assert len(set(two.values())) == 3


@pytest.mark.parametrize(("length", "last"), [(None, 256), (64, 64)])
def test_a_shortened_run_draws_no_points_beyond_its_length_and_says_so(length: int | None, last: int) -> None:
    experiment = load_experiment("generation-length")
    quantities = [
        Quantity(cell.name, "TPR p<=1%", Estimate(50.0, 40.0, 60.0, 7)) for cell in experiment.cells if cell.at
    ]
    (figure,) = figures_of(experiment, quantities, About("storyteller; prompts: story", length)).values()
    (axes,) = figure.axes
    assert max(points_of(axes)) == last
    title, caption = figure.get_suptitle(), figure.get_supxlabel()
    assert title.endswith("?" if length is None else "(shortened to 64 tokens)")
    assert caption.startswith("n = 7 texts per point; model: storyteller; prompts: story.")


def test_pictures_are_drawn_again_from_stored_numbers(tmp_path: Path) -> None:
    numbers = RESULTS / "rivals" / "numbers.csv"
    assert to_csv(read_csv(numbers)) == numbers.read_text()
    (path,) = draw_again(load_experiment("rivals"), "builtin", numbers, tmp_path)
    assert path.name == "rivals.png"
    assert path.read_bytes().startswith(b"\x89PNG")
    with pytest.raises(InputError, match="no number that a picture of edits shows was measured"):
        draw_again(load_experiment("edits"), "builtin", numbers, tmp_path)
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match="holds no numbers of a report"):
        read_csv(tmp_path / "other.csv")
