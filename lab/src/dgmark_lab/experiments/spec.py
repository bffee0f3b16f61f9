"""An experiment as data: the tables of its TOML file, validated strictly.

One file describes one table or figure of the paper, or of our own. It lists cells (what to decode, and how to mark it),
two setups (a built-in model, and the paper's), attacks, and the numbers that the paper reports.
"""

import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, RootModel, ValidationError, field_validator, model_validator

from dgmark.arguments.checks import field_problems
from dgmark.decode.config import DecodeSettings
from dgmark.errors import SettingsError
from dgmark.watermark.rules import find_rule, rule_with_options
from dgmark.watermark.spec import options_of
from dgmark_lab.experiments.conditions import CONDITIONS, Condition, ConditionSet
from dgmark_lab.rule_keys import rule_spec
from dgmark_lab.toml_files import read_toml

SetupName = Literal["builtin", "paper"]
Step = Literal["detection", "auc", "length-curve", "ratios", "samples", "frontier", "rivals", "answers", "ratings"]
# rates of the paper's TPR@FPR columns
Rate = Literal["10%", "1%", "0.1%", "0.01%"]
RATES: dict[Rate, float] = {"10%": 0.1, "1%": 0.01, "0.1%": 0.001, "0.01%": 0.0001}
FOLDER = Path(__file__).parent / "paper"
# what options of rules are checked with before a model is there
_ANY_MODEL = {"table_size": 50_000}
Option = bool | int | float | str | list[int] | list[float] | list[str]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class PromptSet(_Table):
    """The source of prompts.

    Attributes:
        dataset: description of the prompts; shown if the user has to give a file.
        hub: the data set, its configuration and its split on the hub, from which `dgmark-lab prompts` takes them.
        package_file: a file of the package that holds them.
        texts: the prompts themselves.
        field: the field of the file's rows that holds the prompt.
        characters: the prompt is this many first characters of the field; shorter rows are left out.
        chat: whether to put prompts into the model's chat template, if it has one.
        answers: how many texts are made of each prompt.
        first_seed: the seed of the first text.
    """

    dataset: str
    hub: list[str] | None = None
    package_file: str | None = None
    texts: list[str] | None = None
    field: str = "prompt"
    characters: int | None = Field(default=None, ge=1)
    chat: bool = False
    answers: int = Field(default=1, ge=1)
    first_seed: int = 0


# what every experiment may name; it may define others
PROMPT_SETS = read_toml(Path(__file__).with_name("prompt_sets.toml"), RootModel[dict[str, PromptSet]]).root


class Setup(_Table):
    """The settings that all cells of a setup share; the defaults are those of setup "builtin".

    Attributes:
        model: built-in name or hub id.
        prompts: name of a prompt set.
        texts: number of texts of a complete cell.
        decoding: fields of `DecodeConfig`.
        judge: the model that measures perplexity.
        reader: for view "rivals": the language model of weighted tests; empty for none.
        min_tokens: texts with fewer tokens are counted, but left out of the measures.
    """

    model: str = "storyteller"
    prompts: str = "story"
    texts: int = Field(default=200, ge=1)
    decoding: dict[str, Option] = {}
    judge: str = "builtin"
    reader: str = ""
    min_tokens: int = Field(default=0, ge=0)


class PaperSetup(Setup):
    """The paper's settings."""

    model: str = "GSAI-ML/LLaDA-1.5"
    prompts: str = "c4"
    texts: int = Field(default=300, ge=1)
    judge: str = "google/gemma-3-12b-pt"
    min_tokens: int = Field(default=201, ge=0)


class Rates(_Table):
    """Error rates at one threshold, as fractions."""

    fpr: float
    tpr: float


class PaperNumbers(_Table):
    """The paper's numbers for one cell: rates as fractions; TPR@FPR and shares in percent, as printed there.

    Attributes:
        perplexity: perplexity under the paper's judge.
        median_perplexity: median of the perplexities of single texts.
        z4: error rates at z = 4.
        z5: error rates at z = 5.
        tpr_at: TPR in percent by false-positive rate.
        auc: AUCs by series (attack, and window if there are several), in the order of the attack's values.
        match_ratios: matching ratios of the printed samples.
        ratings: mean scores by a language model, by criterion.
    """

    perplexity: float | None = None
    median_perplexity: float | None = None
    z4: Rates | None = None
    z5: Rates | None = None
    tpr_at: dict[Rate, float] = {}
    auc: dict[str, list[float]] = {}
    match_ratios: list[float] | None = None
    ratings: dict[str, float] = {}


class Attack(_Table):
    """An attack at several strengths; strength 0 is the unchanged text.

    Attributes:
        name: name of an installed attack.
        label: its name in the report, and the key of the paper's numbers.
        option: the option that takes the strength.
        values: the strengths.
        options: further options.
        setups: the setups in which the attack is made.
    """

    name: str
    label: str
    option: str = "budget"
    values: list[float]
    options: dict[str, Option] = {}
    setups: list[SetupName] = ["builtin", "paper"]

    @property
    def slug(self) -> str:
        """Its label in the names of files."""
        return "".join(c if c.isalnum() else "-" for c in self.label.lower())

    def steps_at(self, value: float) -> tuple[tuple[str, dict[str, Any]], ...]:
        """Return the attack with its strength as the steps of a condition; none at strength 0."""
        return ((self.name, {**self.options, self.option: value}),) if value else ()


class Cell(_Table):
    """One row of a table: texts decoded in one way.

    Attributes:
        name: a name that is unique in the experiment.
        key: the `rule` that marks, which is any that is installed, and its options as `rule_spec` takes them; None
            leaves no mark.
        decoding: fields of `DecodeConfig`, which override those of the setup; null leaves one out.
        prompts: name of a prompt set, instead of the setup's.
        model: a model instead of the setup's.
        setups: the setups in which the cell is run; in others only the paper's numbers are shown.
        null: the unmarked cell to compare with; by default the experiment's.
        group: its heading in the report, or its line in a figure.
        at: its coordinate on a figure's x axis.
        temperatures: for a curve, in place of `group` and `at`: one cell is made for each, called "NAME, T =
            TEMPERATURE", with `group` NAME and `at` TEMPERATURE.
        min_tokens: replaces the setup's `min_tokens` in setup "paper".
        paper: the numbers that the paper reports.
    """

    name: str
    key: dict[str, Option] | None = None
    decoding: dict[str, Option | None] = {}
    prompts: str | None = None
    model: str | None = None
    setups: list[SetupName] = ["builtin", "paper"]
    null: str | None = None
    group: str = ""
    at: float | None = None
    temperatures: list[float] = []
    min_tokens: int | None = None
    paper: PaperNumbers = PaperNumbers()

    @classmethod
    def parse(cls, text: str) -> "Cell":
        """Make a cell from "setting=value,...", which is also its name: a point of the curve without its temperature.

        A setting is `rule` or an option of it, `model`, or an option of decoding. Without `rule`, it is dgmark's own
        rule that has the options.

        Raises:
            SettingsError: a part is not "setting=value", no setting has its name, or a value is of a wrong type.
        """
        settings: dict[str, Any] = {}
        for part in re.split(r",(?![^\[]*\])", text):  # at commas outside of lists
            name, equals, value = part.partition("=")
            if not equals:
                raise SettingsError(f"{part!r} of the cell {text!r} is not setting=value")
            try:
                settings[name] = json.loads(value)
            except ValueError:
                settings[name] = value  # a word, such as a rule
        curve = ", ".join(f"{name} {value}" for name, value in settings.items() if name != "temperature")
        model, rule = settings.pop("model", None), settings.pop("rule", None)
        options = set(settings) - DecodeSettings.__annotations__.keys()
        try:
            if rule is None and options:
                rule = rule_with_options({name: settings[name] for name in options})
            if rule is not None:
                options |= settings.keys() & options_of(find_rule(rule).spec).keys()
            own = {name: settings.pop(name) for name in list(settings) if name in options}
            return cls(
                name=text,
                key=None if rule is None else {"rule": rule, **own},
                decoding=settings,
                model=model,
                group=curve or "unmarked",
                at=float(settings.get("temperature", 1.0)),
            )
        except (ValueError, SettingsError) as error:
            problem = field_problems(error) if isinstance(error, ValidationError) else error
            raise SettingsError(f"--cell {text} cannot be made: {problem}") from None

    @field_validator("key")
    @classmethod
    def _of_a_rule(cls, key: dict[str, Option] | None) -> dict[str, Option] | None:
        if key is not None:
            try:
                rule_spec(str(key.get("rule")), _options(key), _ANY_MODEL)
            except SettingsError as error:
                raise ValueError(str(error)) from None
        return key

    @model_validator(mode="after")
    def _only_one_temperature(self) -> "Cell":
        if self.temperatures and ("temperature" in self.decoding or self.at is not None or self.group):
            raise ValueError("temperatures set temperature, at and group: leave them out")
        return self

    @property
    def rule(self) -> str | None:
        """The rule that marks; None leaves no mark."""
        return None if self.key is None else str(self.key["rule"])

    @property
    def options(self) -> dict[str, Any]:
        """The options of the rule that the cell states."""
        return _options(self.key or {})

    @property
    def points(self) -> list["Cell"]:
        """The cells of its temperatures, in their order; the cell itself if it lists none."""
        own = [
            {
                "name": f"{self.name}, T = {temperature:g}",
                "decoding": {**self.decoding, "temperature": temperature},
                "group": self.name,
                "at": temperature,
                "temperatures": [],
            }
            for temperature in self.temperatures
        ]
        return [self.model_copy(update=fields) for fields in own] or [self]

    @property
    def definition(self) -> dict[str, Any]:
        """The fields that determine the cell's texts."""
        return self.model_dump(exclude={"paper", "group", "at", "temperatures", "null", "setups", "min_tokens"})


def _options(key: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in key.items() if name != "rule"}


class Experiment(_Table):
    """One table or figure.

    Attributes:
        name: the name of the file, without suffix.
        title: what the experiment shows.
        source: where the table or figure is in the paper.
        view: how the report shows the experiment.
        notes: remarks for readers of the report.
        perplexity: whether to measure perplexity in addition to detection.
        conditions: for views "frontier" (by default "edits") and "rivals" (by default "rivals"): what is done to the
            texts before they are scored.
        keys: number of keys that mark the texts of a cell in turn.
        windows: window lengths of the window statistic.
        null_keys: number of random keys, in addition to the run's, that unmarked texts are scored with.
        builtin: the setup that runs anywhere.
        paper: the paper's setup.
        prompts: prompt sets by name, in addition to `PROMPT_SETS`.
        attacks: attacks on every marked cell.
        listed: the cells as the file lists them.
    """

    name: str
    title: str
    source: str
    view: Step
    notes: str = ""
    perplexity: bool = False
    conditions: ConditionSet | None = None
    keys: int = Field(default=1, ge=1)
    windows: list[int] = [8]
    null_keys: int = Field(default=20, ge=0)
    null: str | None = None
    builtin: Setup
    paper: PaperSetup = PaperSetup()
    prompts: dict[str, PromptSet] = {}
    attacks: list[Attack] = []
    listed: list[Cell] = Field(alias="cells", min_length=1)

    @property
    def cells(self) -> list[Cell]:
        """All cells: those that the file lists, at each of their temperatures."""
        return [cell for listed in self.listed for cell in listed.points]

    def scored_under(self, setup: SetupName) -> dict[str, Condition]:
        """What is done to the texts before they are scored, by name: a set of the view, and the attacks."""
        sets: dict[Step, ConditionSet] = {"frontier": "edits", "rivals": "rivals"}
        known = CONDITIONS[self.conditions or sets[self.view]] if self.view in sets else {}
        own = {
            f"{attack.label} {value:g}": Condition(attack.steps_at(value))
            for attack in self.attacks
            if setup in attack.setups
            for value in attack.values
        }
        return known | own

    @model_validator(mode="after")
    def _names_agree(self) -> "Experiment":
        names = [cell.name for cell in self.cells]
        twice = {name for name in names if names.count(name) > 1}
        if twice:
            raise ValueError(f"two cells are called {', '.join(sorted(twice))}")
        sets = PROMPT_SETS | self.prompts
        for what, names_used, known in (
            ("prompt set", {self.builtin.prompts, self.paper.prompts, *(c.prompts for c in self.cells)}, sets),
            ("cell", {self.null, *(cell.null for cell in self.cells)}, names),
        ):
            missing = sorted(name for name in names_used if name is not None and name not in known)
            if missing:
                raise ValueError(f"there is no {what} {', '.join(missing)}")
        if self.view == "auc" and not self.attacks:
            raise ValueError("view auc needs attacks")
        return self

    def with_cells(self, names: list[str]) -> "Experiment":
        """Return the experiment with those of the names as further cells that are cells written out (`Cell.parse`)."""
        known = {cell.name for cell in self.cells}
        more = [Cell.parse(name) for name in names if name not in known and " " not in name and "=" in name]
        return self.model_copy(update={"listed": [*self.listed, *more]})

    def setup(self, name: SetupName) -> Setup:
        """Return the setup called `name`."""
        return self.builtin if name == "builtin" else self.paper

    def plan_name(self, setup: SetupName) -> str:
        """Return the name of a run's plan."""
        return self.name if setup == "builtin" else f"{self.name}-{setup}"

    def cells_of(self, setup: SetupName) -> list[Cell]:
        """List the cells that are run in a setup."""
        return [cell for cell in self.cells if setup in cell.setups]

    def null_of(self, cell: Cell) -> str | None:
        """Return the name of the unmarked cell that a marked one is compared with."""
        return None if cell.key is None else cell.null or self.null

    def min_tokens_of(self, cell: Cell, setup: SetupName) -> int:
        """Return the number of tokens below which a text of the cell is left out of the measures."""
        own = cell.min_tokens if setup == "paper" else None
        return self.setup(setup).min_tokens if own is None else own

    def prompt_set(self, cell: Cell, setup: SetupName) -> tuple[str, PromptSet]:
        """Return the name and definition of a cell's prompt set."""
        name = cell.prompts or self.setup(setup).prompts
        return name, (PROMPT_SETS | self.prompts)[name]


@cache
def experiment_names() -> tuple[str, ...]:
    """List the names of the experiments, sorted."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.toml")))


def load_experiment(name_or_path: str) -> Experiment:
    """Load an experiment by its name, or from a file ending in .toml.

    Raises:
        SettingsError: no experiment has this name, or the file is not a valid experiment.
    """
    if name_or_path in experiment_names():
        return read_toml(FOLDER / f"{name_or_path}.toml", Experiment)
    if name_or_path.endswith(".toml"):
        return read_toml(Path(name_or_path), Experiment)
    raise SettingsError(
        f"there is no experiment {name_or_path!r}: give a file ending in .toml, or one of "
        + ", ".join(experiment_names())
    )
