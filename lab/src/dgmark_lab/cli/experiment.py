"""`dgmark-lab experiment`: list, run and report the paper's tables and figures."""

import json
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from dgmark.checkpoint.folder import BUILTIN
from dgmark.cli.bar import RowBar, row_bar
from dgmark.cli.console import command_errors, needed_extra, stderr, stdout
from dgmark.cli.option_groups import OptionGroup, option_groups
from dgmark.cli.options import BatchSize, Loading, OneObject, Pad, loading_options
from dgmark_lab.offline import offline_if_unreachable

if TYPE_CHECKING:
    from dgmark_lab.experiments.spec import SetupName

experiment_app = typer.Typer(no_args_is_help=True, help="Reproduce the paper's tables and figures.")

EXPERIMENT_SCHEMA = 1

Runs = Annotated[Path, typer.Option(help="Folder where the rows are kept.")]
Name = Annotated[
    str, typer.Argument(help="Name of an experiment (see `dgmark-lab experiment list`), or a file ending in .toml.")
]
ModelName = Annotated[
    str,
    typer.Option(
        help="builtin (small models and settings), paper (the paper's), or a model to use with the paper's settings.",
    ),
]
KeyFile = Annotated[
    Path | None,
    typer.Option(
        help="Key file of the marked texts.",
        show_default="one in the --runs folder, made if missing",
    ),
]


@experiment_app.callback()
def experiment_group() -> None:
    """Reproduce the paper's tables and figures."""


@experiment_app.command("list")
@command_errors
def list_experiments(as_json: OneObject = False) -> None:
    """List the experiments: what each one shows, what it costs, and what it needs.

    The cost is counted in tokens. `--model builtin` is the default of a run, `--model paper` the paper's setup.
    """
    from dgmark_lab.experiments.catalog import experiment_names, load_experiment
    from dgmark_lab.experiments.needs import most_tokens, needs

    setups: tuple[SetupName, ...] = ("builtin", "paper")
    experiments = [load_experiment(name) for name in experiment_names()]
    rows = [
        {
            "name": one.name,
            "title": one.title,
            "source": one.source,
            "view": one.view,
            "cells": {name: len(one.cells_of(name)) for name in setups},
            "texts": {name: one.setup(name).texts for name in setups},
            "most_tokens": {name: most_tokens(one, name) for name in setups},
            "needs": {name: needs(one, name) for name in setups},
        }
        for one in experiments
    ]
    if as_json:
        print(json.dumps({"experiments": rows, "schema": EXPERIMENT_SCHEMA}))
        return
    for one in experiments:
        stdout().print(Text.assemble((one.name, "bold"), f"  {one.source}: {one.title}"), soft_wrap=True)
        for name in setups:
            cells, tokens = len(one.cells_of(name)), most_tokens(one, name)
            size = f"{cells} cell{'s' * (cells != 1)}"
            cost = f" of {one.setup(name).texts} texts, up to {tokens:,} tokens" if tokens else ""
            wanted = "; ".join(needs(one, name)) or "nothing more"
            stdout().print(Text(f"  {name + ':':<8} {size}{cost}; needs {wanted}"), soft_wrap=True)


@dataclass(frozen=True)
class Part:
    """The part of an experiment to run."""

    prompts: Annotated[
        list[str] | None,
        typer.Option(help="File of prompts that do not come with dgmark: FILE, or SET=FILE; may be repeated."),
    ] = None
    cell: Annotated[list[str] | None, typer.Option(help="Run only this cell of the table; may be repeated.")] = None
    limit: Annotated[int | None, typer.Option(min=1, help="Largest number of texts in a cell.", show_default="all")] = (
        None
    )
    length: Annotated[
        int | None,
        typer.Option(min=1, help="Largest number of response tokens, for a quick look.", show_default="the cell's"),
    ] = None
    task: Annotated[list[str] | None, typer.Option(help="Run only this task of a benchmark; may be repeated.")] = None
    include: Annotated[
        list[Path] | None,
        typer.Option(exists=True, file_okay=False, help="Folder with more benchmark task files; may be repeated."),
    ] = None
    confirm_run_unsafe_code: Annotated[
        bool, typer.Option("--confirm-run-unsafe-code", help="Run code that the model writes (needed by HumanEval).")
    ] = False


@dataclass(frozen=True)
class Raters:
    """The models that say how good the texts are: a judge by perplexity, a rater by marks."""

    judge: Annotated[
        str | None,
        typer.Option(
            help="Model that measures perplexity; none: no perplexity.",
            show_default="the setup's",
        ),
    ] = None
    rater: Annotated[
        str | None,
        typer.Option(
            help="Name of a language model at an OpenAI-compatible endpoint that rates the texts.",
        ),
    ] = None
    rater_url: Annotated[
        str | None,
        typer.Option(help="Address of the rater's endpoint.", show_default="OpenAI's own"),
    ] = None


@experiment_app.command("run")
@command_errors
@option_groups
def run(
    name: Name,
    part: Annotated[Part, OptionGroup(Part)],
    *,
    key: KeyFile = None,
    model: ModelName = "builtin",
    raters: Annotated[Raters, OptionGroup(Raters)],
    loading: Annotated[Loading, loading_options("device", "dtype", "quantization")],
    batch_size: BatchSize = 8,
    pad: Pad = None,
    runs: Runs = Path("runs"),
) -> None:
    """Make and measure the texts of an experiment that are still missing; after an interruption, run it again."""
    from dgmark_lab.experiments.catalog import load_experiment
    from dgmark_lab.experiments.prompt_sets import named_files
    from dgmark_lab.experiments.store import Store

    experiment, files = load_experiment(name), named_files(part.prompts or [])
    if experiment.view == "benchmark":
        offline_if_unreachable()
    with needed_extra("generate", "running an experiment"):
        from dgmark_lab.endpoint import Endpoint
        from dgmark_lab.experiments.run import RunOptions, run_experiment
    setup, other = _setup(model)
    options = RunOptions(
        setup=setup,
        model=other,
        key=key,
        files=files,
        cells=part.cell or [],
        limit=part.limit,
        length=part.length,
        batch_size=batch_size,
        pad=pad,
        judge=raters.judge,
        rater=None if raters.rater is None else Endpoint(model=raters.rater, base_url=raters.rater_url),
        tasks=part.task or [],
        include=part.include or [],
        run_unsafe_code=part.confirm_run_unsafe_code,
        loading=loading,  # type: ignore[arg-type]
    )
    with row_bar("texts") as bar:
        run_experiment(experiment, Store(runs), options, partial(_show_progress, bar), warn=_warn)


def _setup(model: str) -> "tuple[SetupName, str | None]":
    """The setup and the model that --model names; None for the models of the setup."""
    if model in ("builtin", BUILTIN):
        return "builtin", None
    return ("paper", None) if model == "paper" else ("paper", model)


def _warn(message: str) -> None:
    stderr().print(f"warning: {message}", markup=False)


def _show_progress(bar: RowBar, what: str, done: int, total: int) -> None:
    """Show unfinished work as a bar and finished work as a line; without a bar, show all work as lines."""
    if bar.shown and done < total:
        bar.show(what, done, total)
        return
    bar.clear()
    stderr().print(f"{what}: {done} of {total}", markup=False)


@experiment_app.command("report")
@command_errors
def report(
    name: Name,
    runs: Runs = Path("runs"),
    model: ModelName = "builtin",
    key: KeyFile = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder to write the report to.", show_default="RUNS/reports/NAME"),
    ] = None,
) -> None:
    """Write the results of a run next to the paper's numbers: report.md, numbers.csv, tables.tex and pictures."""
    from dgmark_lab.experiments.catalog import load_experiment
    from dgmark_lab.experiments.report import keys_of, make_report, write_report
    from dgmark_lab.experiments.store import Store

    experiment, store = load_experiment(name), Store(runs)
    setup, _ = _setup(model)
    made = make_report(experiment, store, setup, keys_of(store, key))
    for path in write_report(made, out or runs / "reports" / experiment.plan_name(setup)):
        print(path)
    if not made.complete:
        _warn("some texts are missing; the report says which cells are incomplete")
