"""The experiments' TOML files: all are valid, mistakes are named, and the paper's numbers stand in them."""

import re
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from lab_support import CASES

from dgmark.errors import NoTexts, SettingsError
from dgmark_lab.experiments.prompt_sets import fetch_prompts, load_prompts, named_files, stored_prompts
from dgmark_lab.experiments.spec import PROMPT_SETS, Cell, Experiment, PromptSet, experiment_names, load_experiment
from dgmark_lab.experiments.store import digest
from dgmark_lab.toml_files import parse_toml
from support.toy_experiments import SMALL

PAGE = (Path(__file__).parents[1] / "docs" / "experiments.md").read_text()


@pytest.mark.parametrize("name", experiment_names())
def test_every_file_is_an_experiment_whose_marked_cells_have_unmarked_ones_with_the_same_prompts(name: str) -> None:
    experiment = load_experiment(name)
    assert experiment.name == name
    assert experiment.cells_of("builtin")
    assert experiment.cells_of("paper")
    for setup in ("builtin", "paper"):
        for one in (one for one in experiment.cells_of(setup) if one.key is not None):
            null = next(other for other in experiment.cells if other.name == experiment.null_of(one))
            assert null.key is None
            assert setup in null.setups
            assert (null.prompts, null.model) == (one.prompts, one.model)
            # a view that compares prompt by prompt needs all texts
            assert experiment.view != "frontier" or not experiment.min_tokens_of(one, setup)
            if experiment.view not in ("frontier", "rivals", "answers"):  # they compare with other cells than the null
                for shared in ("temperature", "length", "block_length", "commit", "steps", "cache"):
                    assert null.decoding.get(shared) == one.decoding.get(shared)


@pytest.mark.parametrize(("change", "problem"), CASES["refused lines of experiments"])
def test_invalid_fields_are_named(change: str, problem: str) -> None:
    content = SMALL.replace('view = "detection"', 'view = "pie"') if problem == "there is no" else SMALL + change
    expected = "view: Input should be" if problem == "there is no" else problem
    with pytest.raises(SettingsError, match=re.escape(expected)):
        parse_toml(content, Experiment, "small.toml")


def test_files_that_are_not_toml_or_not_experiments_are_refused() -> None:
    with pytest.raises(SettingsError, match=r"small\.toml is not valid TOML"):
        parse_toml("name = ", Experiment, "small.toml")
    with pytest.raises(SettingsError, match="there is no experiment 'nothing'"):
        load_experiment("nothing")
    with pytest.raises(SettingsError, match=r"no-such-file\.toml cannot be read"):
        load_experiment("no-such-file.toml")


@pytest.mark.parametrize(("text", "fields"), CASES["cells written out"])
def test_a_cell_is_written_out_as_settings(text: str, fields: dict[str, Any]) -> None:
    made = Cell.parse(text)
    assert made.name == text
    expected = {"key": None, **fields}
    assert {name: getattr(made, name) for name in expected} == expected


@pytest.mark.parametrize(("text", "problem"), CASES["refused cells"])
def test_a_cell_of_unknown_form_is_refused(text: str, problem: str) -> None:
    with pytest.raises(SettingsError, match=problem):
        Cell.parse(text)


def test_prompts_that_do_not_come_with_the_package_need_a_file(tmp_path: Path) -> None:
    c4 = PROMPT_SETS["c4"]
    with pytest.raises(NoTexts, match=r"news-like subset of C4.*give --prompts c4=FILE.*'text'.*300 characters"):
        load_prompts("c4", c4, 5, {})
    file = tmp_path / "c4.jsonl"
    file.write_text(f'{{"id": "short", "text": "too short"}}\n{{"id": "long", "text": "{"abc" * 200}"}}\n')
    prompts = load_prompts("c4", c4, 5, named_files([f"c4={file}"]))
    assert [(one.prompt_id, one.text, one.seed) for one in prompts] == [("long", "abc" * 100, 0)]
    with pytest.raises(NoTexts, match="holds no row with the field 'prompt'"):
        load_prompts("c4", PromptSet(dataset="stories"), 5, {"c4": file})


def test_prompts_are_fetched_from_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Any, ...]] = []

    def load_dataset(*names: str, **options: Any) -> list[dict[str, str]]:
        asked.append((*names, options))
        return [{"text": "too short"}, *({"text": f"{number}" * 400} for number in range(9))]

    monkeypatch.setattr("datasets.load_dataset", load_dataset)
    out = tmp_path / "runs" / "prompts" / "c4.jsonl"
    fetch_prompts("c4", 3, out)
    assert asked == [("allenai/c4", "realnewslike", {"split": "validation", "streaming": True})]
    found = load_prompts("c4", PROMPT_SETS["c4"], 5, stored_prompts(tmp_path / "runs"))
    assert [(one.prompt_id, one.text) for one in found] == [(f"c4-{number}", f"{number}" * 300) for number in range(3)]


def test_prompts_that_cannot_be_fetched_say_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def load_dataset(*_names: str, **_options: Any) -> None:
        raise ConnectionError("no route to the hub")

    monkeypatch.setattr("datasets.load_dataset", load_dataset)
    with pytest.raises(NoTexts, match=r"no route to the hub\): where there is a network, run `dgmark-lab prompts c4"):
        fetch_prompts("c4", 3, tmp_path / "c4.jsonl")
    assert not (tmp_path / "c4.jsonl").exists()
    with pytest.raises(SettingsError, match="not on the hub: give one of c4, writingprompts"):
        fetch_prompts("story", 3, tmp_path / "story.jsonl")


def test_the_built_in_prompts_are_200_different_ones() -> None:
    prompts = load_prompts("story", PROMPT_SETS["story"], 1000, {})
    assert len({one.text for one in prompts}) == 200
    assert [one.seed for one in prompts] == list(range(200))
    assert prompts[0].prompt_id == "story-000"


def test_the_papers_numbers_are_as_they_were_held_against_the_paper() -> None:
    """All of them were compared with its tables, and with what was read off its figures, when they were written."""
    numbers = {
        f"{name}, {one.name}": found
        for name in experiment_names()
        for one in load_experiment(name).cells
        if (found := one.paper.model_dump(exclude_defaults=True))
    }
    assert digest(numbers) == "4ea1378f38bf2b49222556e9"


def test_the_example_of_the_documentation_is_an_experiment() -> None:
    example = PAGE.partition("```toml\n")[2].partition("```")[0]
    assert parse_toml(example, Experiment, "the page").cells[0].name == "unmarked"


def test_the_documentation_states_cells_and_texts_of_every_experiment() -> None:
    rows = re.findall(r"^\| (`[^|]+) \| [^|]+ \| ([\d, ]+) (?:x (\d+)|cells)", PAGE, flags=re.MULTILINE)
    stated = [
        (name, int(cells), texts)
        for names, numbers, texts in rows
        for name, cells in zip(re.findall("`([^`]+)`", names), cycle(numbers.split(", ")), strict=False)
    ]
    experiments = [load_experiment(name) for name in experiment_names()]
    found = {one.name: (len(one.cells_of("builtin")), str(one.setup("builtin").texts)) for one in experiments}
    assert {name: (cells, texts or found[name][1]) for name, cells, texts in stated} == found
