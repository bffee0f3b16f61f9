"""What a report says: numbers against oracles, tables as text, and one small store word for word."""

import csv
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lab_support import experiment_of, numbers_of
from scipy import stats

from dgmark.rows.item import Item
from dgmark.rows.sinks import RowFile
from dgmark.watermark.key import WatermarkKey
from dgmark.watermark.position import tables_of
from dgmark_lab.evaluate.estimates import auc
from dgmark_lab.experiments.cells import StoredRun
from dgmark_lab.experiments.figures import roc
from dgmark_lab.experiments.made_with import made_with
from dgmark_lab.experiments.report import section_of, write_report
from dgmark_lab.experiments.store import Store
from dgmark_lab.experiments.tables import Table, to_markdown
from support.known_keys import builtin_tokenizer, known_key

GOLDEN = Path(__file__).parents[2] / "tests" / "golden" / "experiment"

EXPERIMENT = experiment_of("golden")


def words(number: int, key: WatermarkKey | None) -> list[int]:
    """60 ids of ordinary words; with a key, ids that match, but for every fifth."""
    tokenizer = builtin_tokenizer()
    order = np.random.default_rng(number).permutation(np.arange(300, 8000)).tolist()
    ids: list[int] = []
    for one in order:
        matches = key is None or len(ids) % 5 == 4 or tables_of(key).matching(np.array([one]), np.array([len(ids)]))[0]
        if matches and tokenizer.encode(tokenizer.decode([*ids, one])) == [*ids, one]:
            ids.append(one)
        if len(ids) == 60:
            return ids
    raise AssertionError("the vocabulary is used up")


def golden_store(root: Path) -> tuple[Store, WatermarkKey]:
    """Two cells of known texts: one complete with a text that is too short, and one that lacks a text."""
    key, store = known_key("report"), Store(root)
    cells: dict[str, Any] = {}
    for name, count in (("unmarked", 8), ("dgmark k = 1", 3)):
        cell = next(one for one in EXPERIMENT.cells if one.name == name)
        marked = cell.key is not None
        recipe: dict[str, Any] = {
            "recipe": f"recipe of {name}",
            "model": "storyteller",
            "model_hash": "0123456789abcdef",
            "dtype": "float32",
            "key_fingerprint": key.fingerprint if marked else None,
        }
        ids = [f"{name}, text {n}" for n in range(8)]
        rows = []
        for n in range(count):
            tokens = words(n, key if marked else None)[: 10 if (name, n) == ("unmarked", 3) else 60]
            rows.append({
                "id": ids[n], "prompt": f"prompt {n}", "seed": n, "text": builtin_tokenizer().decode(tokens),
                "token_ids": tokens, **recipe, "versions": {"dgmark": "0.0", "numpy": "0.0"},
            })  # fmt: skip
        with RowFile(store.path("texts", recipe["recipe"]), {"recipe": recipe["recipe"]}) as file:
            file.append([(Item(row["id"]), row) for row in rows])
        with RowFile(store.path("perplexity", "judge"), {"judge": "judge"}) as file:
            file.append([(Item(ids[n]), {"id": ids[n], "nats": 60.0 + 10 * n, "tokens": 40}) for n in range(count)])
        cells[name] = {**recipe, "run_key": key.fingerprint, "rows": ids, "definition": cell.definition}
    store.write_plan("golden", {"length": None, "model": None, "judge": {"hash": "judge"}, "cells": cells})
    return store, key


def test_the_report_of_a_small_store_is_as_it_was(tmp_path: Path) -> None:
    store, key = golden_store(tmp_path / "runs")
    run = StoredRun.read(EXPERIMENT, store, "builtin", {key.fingerprint: key})
    write_report(run, section_of(run), tmp_path / "out")
    made = made_with("position", storyteller="01234567")
    golden_page = (GOLDEN / "report.md").read_text().replace("MADE WITH", made)
    assert (tmp_path / "out" / "report.md").read_text() == golden_page
    written, golden = (
        list(csv.reader((folder / "numbers.csv").read_text().splitlines())) for folder in (tmp_path / "out", GOLDEN)
    )
    assert [row[:2] for row in written] == [row[:2] for row in golden]
    for row, expected in zip(written[1:], golden[1:], strict=True):
        assert [float(one or "nan") for one in row[2:]] == pytest.approx(
            [float(one or "nan") for one in expected[2:]], rel=1e-9, nan_ok=True
        ), row[:2]


def test_texts_that_do_not_survive_retokenization_fail_the_exact_test(tmp_path: Path) -> None:
    store, key = golden_store(tmp_path)
    planned = store.read_plan("golden")["cells"]["dgmark k = 1"]
    plain = words(7, None)
    for row in store.read("texts", planned["recipe"], planned["rows"]).values():
        middle = len(row["token_ids"]) // 2
        row["text"] = builtin_tokenizer().decode([*row["token_ids"][:middle], plain[0], *row["token_ids"][middle:]])
        with RowFile(store.path("texts", planned["recipe"] + "-read-otherwise"), {"recipe": planned["recipe"]}) as file:
            file.append([(Item(row["id"]), row)])
    plan = store.read_plan("golden")
    plan["cells"]["dgmark k = 1"]["recipe"] += "-read-otherwise"
    store.write_plan("golden", plan)
    found = numbers_of(section_of(StoredRun.read(EXPERIMENT, store, "builtin", {key.fingerprint: key})))
    for way, percent in (("TPR p<=1%", 0.0), ("TPR deployed p<=1%", 0.0), ("TPR ids p<=1%", 100.0)):
        ours = found["dgmark k = 1", way]
        assert (ours.value, ours.count) == (percent, 3)


def test_unmarked_texts_are_scored_once_for_cells_of_one_key(tmp_path: Path) -> None:
    store, key = golden_store(tmp_path)
    context = StoredRun.read(EXPERIMENT, store, "builtin", {key.fingerprint: key})
    cell, null = context.cells["dgmark k = 1"], context.cells["unmarked"]
    found = context.null_scores(cell, null)
    assert [len(scores.p) for scores in found] == [7] * 4
    assert np.array_equal(found[0].p, cell.over(null.rows).score(null.ids).p)
    assert np.array_equal(found[2].z, cell.over(null.rows).score(null.ids, cell.null_keys(3)[1]).z)
    assert context.null_scores(replace(cell, rows=[]), null) is found
    other = known_key("another")
    under_other = cell.over(null.rows).score(null.ids, other).z.tolist()
    assert context.null_scores(replace(cell, keys=[other]), null)[0].z.tolist() == under_other
    assert context.null_scores(replace(cell, keys=[other]), null) is not found


def test_the_area_under_the_curve_is_the_mann_whitney_statistic() -> None:
    rng = np.random.default_rng(3)
    marked, unmarked = rng.integers(0, 9, 40).astype(float) + 2, rng.integers(0, 9, 30).astype(float)
    ours = auc(marked, unmarked)
    assert ours.value == pytest.approx(stats.mannwhitneyu(marked, unmarked).statistic / (40 * 30))
    assert ours.low < ours.value < ours.high
    assert auc(unmarked + 100, unmarked).low == 1.0
    assert auc(unmarked, unmarked).value == 0.5


def test_a_roc_goes_from_nothing_to_everything() -> None:
    yes, no = np.array([3.0, 2.0, 2.0]), np.array([1.0, 2.0, 0.0, 0.0])
    (line,) = roc({"z": (yes, no)}).axes[0].lines
    points = np.stack([np.asarray(line.get_xdata()), np.asarray(line.get_ydata())], axis=1)
    # below the first false positive the curve stands at half of one, as the axis has no zero
    assert points == pytest.approx(np.array([[0.125, 0], [0.125, 1 / 3], [0.25, 1], [0.5, 1], [1, 1]]))


def test_a_bar_in_a_cell_ends_no_column() -> None:
    assert "| a\\|b | 1 |" in to_markdown(Table("", ["", "x"], [["a|b", "1"]]))
