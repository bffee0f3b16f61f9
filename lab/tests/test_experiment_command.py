"""`dgmark-lab experiment` as a user meets it, on the built-in model."""

from pathlib import Path

import pytest
from lab_support import rows_of

from dgmark_lab.experiments.spec import experiment_names
from support.command_line import run
from support.known_keys import known_key
from support.toy_experiments import SMALL

EXPERIMENT = (
    SMALL.replace("[builtin]", 'null = "unmarked"\nnull_keys = 1\nperplexity = true\n[builtin]')
    .replace("[paper]", 'decoding = { cache = "dual", length = 16, block_length = 16 }\n[paper]')
    .replace('["one", "two"]', '["The king went to the", "The queen went to the"]')
    + '[[cells]]\nname = "dgmark k = 1"\nkey = { rule = "position" }\n[cells.paper]\nperplexity = 5.27\n'
)


def test_the_experiments_are_listed() -> None:
    shown = run("experiment", "list").stdout
    assert [line.split()[0] for line in shown.splitlines()[::2]] == list(experiment_names())
    assert "detectability  Table 2" in shown
    assert "builtin: 14 cells of 100 texts" in shown


@pytest.mark.slow
def test_an_experiment_is_run_and_reported(tmp_path: Path) -> None:
    file, runs, key = tmp_path / "quick.toml", tmp_path / "runs", tmp_path / "key.json"
    file.write_text(EXPERIMENT)
    known_key("experiment").save(key)
    base = ["--runs", runs, "--key", key]
    result = run("experiment", "run", file, *base, "--limit", 1, "--device", "cpu", "--dtype", "fp32", code=0)
    assert "dgmark k = 1: 1 of 1" in result.stderr
    assert "dgmark k = 1, perplexity: 1 of 1" in result.stderr
    result = run("experiment", "report", file, *base, code=0)
    assert "some texts are missing" in result.stderr
    page = (runs / "reports" / "small" / "report.md").read_text()
    assert "| dgmark k = 1 | 1 | 2 | incomplete |" in page
    assert str(runs / "reports" / "small" / "report.md") in result.stdout
    perplexity = next(line for line in page.splitlines() if line.startswith("| dgmark k = 1 |") and "5.27" in line)
    assert float(perplexity.split("|")[-3].split()[0]) > 1
    assert len(rows_of(*(runs / "texts").iterdir())) == 2
    head, _, row = run("experiment", "compare", file, "dgmark k = 1", "dgmark k = 1", *base).stdout.splitlines()
    assert head.startswith("| cell | texts | digits of the first | digits | ratio |")
    name, texts, first, digits, *_ = (part.strip() for part in row.split("|")[1:])
    assert (name, texts, first) == ("dgmark k = 1", "1", digits)
    result = run("experiment", "compare", file, "unmarked", "kgw", *base, code=2)
    assert "the run has no texts of 'kgw'; it has unmarked, " in result.stderr
    again = run("experiment", "run", file, *base, "--limit", 1, "--device", "cpu", "--dtype", "fp32")
    assert "dgmark k = 1, perplexity: 1 of 1" in again.stderr  # what there is counts, made now or before


@pytest.mark.parametrize(
    ("args", "code", "problem"),
    [
        (("run", "writing-prompts", "--prompts", "nowhere.jsonl"), 2, "--prompts nowhere.jsonl names no file"),
        (("report", "edits"), 4, "holds no run of edits"),
    ],
)
def test_mistakes_have_their_exit_codes(args: tuple[str, ...], code: int, problem: str, tmp_path: Path) -> None:
    assert problem in run("experiment", *args, "--runs", tmp_path, code=code).stderr
