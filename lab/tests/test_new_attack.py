"""The attack of lab/docs/evaluation.md as it stands there: a package of its own, by command and in an experiment."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from lab_support import numbers_of, rows_of, write_rows

from dgmark.errors import MissingExtra
from dgmark_lab import attacks
from dgmark_lab.experiments.report import to_page
from dgmark_lab.experiments.spec import Experiment
from dgmark_lab.toml_files import parse_toml
from support.command_line import run
from support.installed import install
from support.toy_experiments import report_toy, run_toy

PAGE = (Path(__file__).parents[1] / "docs" / "evaluation.md").read_text()
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", PAGE.partition("### An attack of your own")[2], re.DOTALL)
(_, CODE), (_, PROJECT), (_, EXPERIMENT), *_ = BLOCKS


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The package as pip would install it: the file of its code."""
    (tmp_path / "typing_errors.py").write_text(CODE)
    install(tmp_path, "typing-errors", attacks.GROUP, PROJECT.partition('attacks"]')[2].replace('"', ""))
    monkeypatch.syspath_prepend(tmp_path)
    attacks._added.cache_clear()
    yield tmp_path / "typing_errors.py"
    attacks._added.cache_clear()
    sys.modules.pop("typing_errors", None)


def test_the_attack_of_the_page_is_listed_and_changes_texts(code: Path, tmp_path: Path) -> None:
    assert "typos  Swap two neighbouring letters" in run("attack", "--list").stdout
    text = "the old man and the sea"
    texts = write_rows(tmp_path / "texts.jsonl", [{"id": "a", "text": text}])
    run("attack", "typos", texts, "--budget", ".5", "--out", tmp_path / "out.jsonl", code=0)
    (row,) = rows_of(tmp_path / "out.jsonl")
    changed = [pair for pair in zip(row["text"].split(), text.split(), strict=True) if pair[0] != pair[1]]
    assert len(changed) == 3
    assert all(sorted(one) == sorted(other) for one, other in changed)


def test_the_experiment_of_the_page_says_what_the_attack_leaves_and_draws_its_point(code: Path, tmp_path: Path) -> None:
    more = '[[cells]]\nname = "of the setup"\nkey = { rule = "kgw" }\n'
    content = EXPERIMENT.replace('cache = "dual"', 'cache = "dual", temperature = 0.7')
    experiment = parse_toml(content + more, Experiment, "the page")
    store = run_toy(experiment, tmp_path / "runs", length=32)
    made, section = report_toy(experiment, store)
    name = "dgmark, 256 sub-keys, T = 0.6"
    assert numbers_of(section)["of the setup, T = 0.7", "found, as written"].count == 2
    assert numbers_of(section)[name, "found, typos 0.2"].count == 2
    page = to_page(made, section)
    assert "| found, typos 0.1, % | found, typos 0.2, % |" in page
    assert f"| {name} | 2 | 24 | incomplete | 0 to 1 |" in page
    assert "No picture: it is drawn over the perplexity" in page
    judged = {row["id"]: {"nats": 20.0, "tokens": 10} for cell in made.present for row in cell.rows}
    store.complete("perplexity", "made-up", {"judge": "x"}, judged, list)
    store.write_plan("typos", {**store.read_plan("typos"), "judge": {"hash": "made-up"}})
    _, section = report_toy(experiment, store)
    (picture,) = section.figures.values()
    assert [[np.size(line.get_xdata()) for line in axes.lines] for axes in picture.axes] == [[1, 1], [1, 1]]


def test_a_package_that_does_not_work_is_named(code: Path) -> None:
    code.write_text("Typos = 3")
    with pytest.raises(MissingExtra, match="attack typos of typing_errors:Typos cannot be used"):
        attacks.attack("typos")
    assert attacks.attack("wrap")("text", np.random.default_rng()) == "text"
    listed = run("attack", "--list").stdout
    assert "typos  attack typos of typing_errors:Typos cannot be used" in listed
    assert "wrap" in listed
