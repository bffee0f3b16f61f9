"""Curves at equal diversity against a curve known in closed form; sweeps; the frontier's report on the toy model."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from lab_support import experiment_of, numbers_of, rows_of, write_rows

from dgmark_lab.evaluate.estimates import Estimate
from dgmark_lab.experiments.conditions import EDITS
from dgmark_lab.experiments.matched_curves import Measured, matched
from dgmark_lab.experiments.store import Store
from dgmark_lab.experiments.views.frontier import EDITED, tokens_needed
from support.toy_experiments import report_toy, run_toy

TEXTS, RATIO = 400, "perplexity ratio"
EFFORT = np.random.default_rng(5).normal(size=TEXTS)  # how diverse each prompt's texts are, whatever the scheme


def cell(temperature: float, cost: float = 1.0, noise: float = 0.02, seed: int = 0) -> Measured:
    """Texts of diversity T / 2 and perplexity cost * exp(2 T) on average, so that diversity .3 has cost * exp(1.2)."""
    dice = np.random.default_rng([seed, round(100 * temperature), round(100 * cost)])
    tokens = np.full(TEXTS, 100.0)
    diversity = temperature / 2 + 0.02 * EFFORT + noise * dice.normal(size=TEXTS)
    log_perplexity = np.log(cost) + 2 * temperature + 0.2 * EFFORT + noise * dice.normal(size=TEXTS)
    return Measured(
        temperature, diversity, log_perplexity * tokens, tokens, {"bits": np.full(TEXTS, 2 - temperature)}, {}
    )


def at_diversity(curve: list[Measured], reference: Measured) -> dict[str, Estimate]:
    """What `matched` finds, which is something."""
    found = matched(curve, reference)
    assert found is not None
    return found


def test_a_curve_is_read_at_the_diversity_of_the_reference() -> None:
    reference = cell(0.6)
    found = at_diversity([cell(0.4, 1.5), cell(1.0, 1.5), cell(0.8, 1.5)], reference)
    # closed form: diversity is T / 2 for both, so T = .6 and the ratio is the cost, 1.5; the interval is 4 s.e. wide
    assert found["temperature"].value == pytest.approx(0.6, abs=0.02)
    assert found[RATIO].value == pytest.approx(1.5, rel=0.02)
    assert found["bits"].value == pytest.approx(1.4, abs=0.02)
    assert found[RATIO].low < found[RATIO].value < found[RATIO].high
    assert found[RATIO].high - found[RATIO].low < 0.1


def test_prompts_are_drawn_together_so_what_they_differ_in_cancels_out() -> None:
    curve = [cell(0.4, 1.5, noise=0.001), cell(0.8, 1.5, noise=0.001)]
    paired = at_diversity(curve, cell(0.6, noise=0.001))
    order = np.random.default_rng(1).permutation(TEXTS)
    other = cell(0.6, noise=0.001)
    shuffled = Measured(0.6, other.diversity[order], other.nats[order], other.tokens, {}, {})
    apart = at_diversity(curve, shuffled)
    assert apart[RATIO].high - apart[RATIO].low > 5 * (paired[RATIO].high - paired[RATIO].low)


@pytest.mark.soak
def test_the_interval_covers_the_truth_as_often_as_it_says() -> None:
    # 100 intervals of 95 %; fewer than 81 cover with probability 8e-8 (binomial), if they hold what they say
    hits = 0
    for seed in range(1, 101):
        found = at_diversity([cell(0.4, 1.5, 0.1, seed), cell(0.8, 1.5, 0.1, seed)], cell(0.6, 1.0, 0.1, 1000 + seed))
        hits += found[RATIO].low <= 1.5 <= found[RATIO].high
    assert hits >= 81


def test_a_diversity_outside_the_curve_has_no_figures() -> None:
    assert matched([cell(0.7), cell(1.0)], cell(0.6)) is None
    assert matched([cell(0.4), cell(0.5)], cell(0.6)) is None
    assert matched([cell(0.6)], cell(0.6)) is None


def test_shares_stay_within_their_range_and_keep_some_doubt() -> None:
    ends = [replace(one, found={"found": np.full(TEXTS, 100.0)}) for one in (cell(0.4), cell(0.8))]
    found = at_diversity(ends, cell(0.6))
    sure = found["found"]
    # Wilson's interval of 400 of 400; every draw of the bootstrap is 100 %
    assert (sure.value, sure.high) == (100, 100)
    assert sure.low == pytest.approx(99.05, abs=0.01)
    steep = [replace(ends[0], found={"found": np.zeros(TEXTS)}), ends[1]]
    edge = at_diversity(steep, cell(0.79, noise=0.1))
    assert 0 <= edge["found"].low < edge["found"].high <= 100


def test_draws_far_outside_a_flat_curve_give_wide_but_finite_intervals() -> None:
    middle = cell(0.6)
    ends = [
        replace(middle, temperature=at, diversity=middle.diversity + way / 1e5, nats=middle.nats + 450 * way)
        for at, way in ((0.5, -1), (0.7, 1))
    ]
    noise = np.random.default_rng(2).normal(size=TEXTS)
    found = at_diversity(ends, replace(middle, diversity=middle.diversity + 0.3 * (noise - noise.mean())))
    assert found[RATIO].value == pytest.approx(1)
    assert 0 < found[RATIO].low < 1e-9 < 1e9 < found[RATIO].high < np.inf


def test_cells_over_different_prompts_are_refused() -> None:
    one = cell(0.8)
    half = Measured(0.8, one.diversity[:9], one.nats[:9], one.tokens[:9], {}, {})
    with pytest.raises(ValueError, match="over the same prompts"):
        matched([cell(0.4), half], cell(0.6))


SWEPT = experiment_of("swept")


def test_a_sweep_is_one_cell_a_temperature_in_the_order_of_the_file() -> None:
    assert [cell.name for cell in SWEPT.cells] == ["plain, T = 1", "dgmark, T = 0.5", "dgmark, T = 2"]
    hot = SWEPT.cells[2]
    assert (hot.group, hot.at, hot.decoding) == ("dgmark", 2.0, {"min_relative_reward": 0.1, "temperature": 2.0})
    assert (hot.rule, hot.options) == ("position", {"code_length": 4})


def with_words(store: Store, plan: str, words: dict[str, int]) -> None:
    """Replace the texts of each cell by 32 draws of so many words; the toy itself hardly repeats one."""
    for name, cell in store.read_plan(plan)["cells"].items():
        path = store.path("texts", cell["recipe"])
        dice = np.random.default_rng(words[name])
        new = [{**row, "text": " ".join(f"w{i}" for i in dice.integers(words[name], size=32))} for row in rows_of(path)]
        write_rows(path, new)


def judged(store: Store, plan: str) -> None:
    """Give every text of the store a made-up perplexity: exp(2) for cells of T <= 1, exp(3) for hotter ones."""
    content = store.read_plan(plan)
    nats = {
        row_id: 20.0 if cell["settings"]["temperature"] <= 1 else 30.0
        for cell in content["cells"].values()
        for row_id in cell["rows"]
    }
    store.complete(
        "perplexity", "made-up", {"judge": "x"}, nats, lambda some: [{"nats": n, "tokens": 10} for n in some]
    )
    store.write_plan(plan, {**content, "judge": {"hash": "made-up"}})


def test_the_report_compares_schemes_at_equal_diversity(tmp_path: Path) -> None:
    store = run_toy(SWEPT, tmp_path, limit=6, length=32)
    with_words(store, "swept", {"dgmark, T = 0.5": 3, "plain, T = 1": 6, "dgmark, T = 2": 12})
    judged(store, "swept")
    _, section = report_toy(SWEPT, store)
    shown = numbers_of(section)
    assert shown["dgmark, T = 2", "perplexity"].value == pytest.approx(np.exp(3))
    low, high = (shown[f"dgmark, T = {t}", "distinct-2"].value for t in ("0.5", "2"))
    share = (shown["plain, T = 1", "distinct-2"].value - low) / (high - low)
    assert 0 < share < 1
    assert shown["dgmark, as diverse as plain, T = 1", "perplexity ratio"].value == pytest.approx(np.exp(share))
    titles = ["What it cost", "How many tok", "What survive", "At equal div"]
    assert [table.title[:12] for table in section.tables if table] == titles
    assert max(len(table.columns) for table in section.tables if table) <= 6
    assert set(section.figures) == {"perplexity-by-diversity"}
    edited = [shown["dgmark, T = 2", name].value for name in EDITS]
    assert shown["dgmark, T = 2", EDITED].value == pytest.approx(np.mean(edited))


def test_the_tokens_needed_are_those_of_the_shortest_beginning_that_is_found(tmp_path: Path) -> None:
    experiment = SWEPT.model_copy(update={"keys": 2})
    made, section = report_toy(experiment, run_toy(experiment, tmp_path, limit=6, length=64))
    cell = made.cells["dgmark, T = 2"]
    p = {first: cell.score([ids[:first] for ids in cell.ids], deployed=True).p for first in (16, 32, 48, 64)}
    needed = [next((first for first in p if p[first][text] <= 1e-4), np.inf) for text in range(6)]
    assert tokens_needed(cell).tolist() == needed
    assert len(set(needed)) > 1
    assert numbers_of(section)["dgmark, T = 2", "tokens for 50 %"].value == sorted(needed)[2]


def test_cells_without_all_texts_or_perplexities_are_left_out_of_the_curves(tmp_path: Path) -> None:
    store = run_toy(SWEPT, tmp_path, limit=5, length=8)
    _, unjudged = report_toy(SWEPT, store)
    assert {"distinct-2", "bits", "none"} < {q.name for q in unjudged.quantities}
    assert "perplexity" not in {q.name for q in unjudged.quantities}
    judged(store, "swept")
    _, section = report_toy(SWEPT, store)
    assert {q.ours.count for q in section.quantities if q.name == "perplexity" and q.ours} == {5}
    assert [table.title[:12] for table in section.tables if table] == ["What it cost", "How many tok", "What survive"]
