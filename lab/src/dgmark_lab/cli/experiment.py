"""`dgmark-lab experiment`: list, run and report the paper's tables and figures."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from dgmark.checkpoint.folder import BUILTIN
from dgmark.cli.bar import RowBar, row_bar
from dgmark.cli.console import command_errors, stderr, stdout
from dgmark.cli.option_groups import option_groups
from dgmark.cli.options import BatchSize, Loading, Pad, loading_options
from dgmark.cli.panels import Commands
from dgmark_lab.experiments.cells import StoredRun, keys_of
from dgmark_lab.experiments.plan import RunOptions
from dgmark_lab.experiments.prompt_sets import named_files, stored_prompts
from dgmark_lab.experiments.report import draw_again, section_of, write_report
from dgmark_lab.experiments.run import run_experiment
from dgmark_lab.experiments.spec import SetupName, experiment_names, load_experiment
from dgmark_lab.experiments.store import Store
from dgmark_lab.experiments.tables import to_markdown
from dgmark_lab.experiments.views.paired import paired

experiment_app = Commands(no_args_is_help=True, help="Reproduce the paper's tables and figures.")

Runs = Annotated[Path, typer.Option(help="Folder where the rows are kept.")]
Name = Annotated[
    str, typer.Argument(help="Name of an experiment (see `dgmark-lab experiment list`), or a file ending in .toml.")
]
ModelName = Annotated[
    str,
    typer.Option(
        help="builtin (small models and settings), paper (the paper's), or a model to use with the paper's settings."
    ),
]
KeyFile = Annotated[
    Path | None,
    typer.Option(help="Key file of the marked texts.", show_default="one in the --runs folder, made if missing"),
]


@experiment_app.command("list")
@command_errors
def list_experiments() -> None:
    """List the experiments: what each one shows, and its number of cells and texts."""
    setups: tuple[SetupName, ...] = ("builtin", "paper")
    for name in experiment_names():
        one = load_experiment(name)
        stdout().print(Text.assemble((one.name, "bold"), f"  {one.source}: {one.title}"), soft_wrap=True)
        sizes = [f"{setup}: {len(one.cells_of(setup))} cells of {one.setup(setup).texts} texts" for setup in setups]
        stdout().print(Text("  " + "; ".join(sizes)), soft_wrap=True)


@experiment_app.command("run")
@command_errors
@option_groups
def run(
    name: Name,
    *,
    prompts: Annotated[
        list[str] | None,
        typer.Option(
            help="File of prompts that do not come with dgmark, as SET=FILE; may be repeated. Those that "
            "`dgmark-lab prompts` fetched to the --runs folder need none."
        ),
    ] = None,
    cell: Annotated[
        list[str] | None,
        typer.Option(
            help="Run only this cell: its name, or a new one as setting=value,... (rule and its options, model, "
            "options of decoding); may be repeated."
        ),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Largest number of texts in a cell.", show_default="all")
    ] = None,
    length: Annotated[
        int | None,
        typer.Option(min=1, help="Largest number of response tokens, for a quick look.", show_default="the cell's"),
    ] = None,
    key: KeyFile = None,
    model: ModelName = "builtin",
    judge: Annotated[
        str | None,
        typer.Option(help="Model that measures perplexity; none: no perplexity.", show_default="the setup's"),
    ] = None,
    rater: Annotated[
        str | None,
        typer.Option(
            help="Server of a language model that rates the texts, as URL#MODEL, with its key in $OPENAI_API_KEY.",
            show_default="no ratings",
        ),
    ] = None,
    loading: Annotated[Loading, loading_options("device", "dtype")],
    batch_size: BatchSize = 8,
    pad: Pad = None,
    runs: Runs = Path("runs"),
    with_report: Annotated[
        bool, typer.Option("--report", help="Then write the report, as `dgmark-lab experiment report` does.")
    ] = False,
) -> None:
    """Make and measure the texts of an experiment that are still missing; after an interruption, run it again."""
    experiment, files = load_experiment(name), stored_prompts(runs) | named_files(prompts or [])
    setup, other = _setup(model)
    options = RunOptions(
        setup=setup,
        model=other,
        key=key,
        files=files,
        cells=cell or [],
        limit=limit,
        length=length,
        batch_size=batch_size,
        pad=pad,
        judge=judge,
        rater=rater,
        loading=loading,
    )
    with row_bar("texts") as bar:
        run_experiment(experiment, Store(runs), options, partial(_show_progress, bar))
    if with_report:
        report(name, runs, model, key)


def _setup(model: str) -> tuple[SetupName, str | None]:
    """The setup and the model that --model names; None for the models of the setup."""
    if model in ("builtin", BUILTIN):
        return "builtin", None
    return ("paper", None) if model == "paper" else ("paper", model)


def _stored(name: str, runs: Path, model: str, key: Path | None) -> StoredRun:
    """The run of an experiment that a runs folder holds."""
    store = Store(runs)
    return StoredRun.read(load_experiment(name), store, _setup(model)[0], keys_of(store, key))


def _show_progress(bar: RowBar, what: str, done: int, total: int) -> None:
    """Show unfinished work as a bar and finished work as a line; without a bar, show all work as lines."""
    if bar.shown and done < total:
        bar.show(what, done, total)
        return
    bar.clear()
    stderr().print(f"{what}: {done} of {total}")


@experiment_app.command("report")
@command_errors
def report(
    name: Name,
    runs: Runs = Path("runs"),
    model: ModelName = "builtin",
    key: KeyFile = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder to write the report to.", show_default="RUNS/reports/NAME")
    ] = None,
) -> None:
    """Write the results of a run next to the paper's numbers: report.md, numbers.csv and pictures."""
    run = _stored(name, runs, model, key)
    for path in write_report(run, section_of(run), out or runs / "reports" / run.experiment.plan_name(run.setup)):
        print(path)
    if not run.complete:
        stderr().print("warning: some texts are missing; the report says which cells are incomplete")


@experiment_app.command("compare")
@command_errors
def compare(
    name: Name,
    cells: Annotated[list[str], typer.Argument(help="Names of cells; the first is what the others are compared with.")],
    runs: Runs = Path("runs"),
    model: ModelName = "builtin",
    key: KeyFile = None,
) -> None:
    """Compare the evidence in the texts of cells of a run, prompt by prompt: a table in Markdown."""
    print(to_markdown(paired(_stored(name, runs, model, key), cells)), end="")


@experiment_app.command("draw")
@command_errors
def draw(
    name: Name,
    numbers: Annotated[Path, typer.Argument(help="The numbers.csv of a report.")],
    model: ModelName = "builtin",
    out: Annotated[
        Path | None, typer.Option(help="Folder for the pictures.", show_default="that of the numbers")
    ] = None,
) -> None:
    """Draw the pictures of a report again from its numbers.csv, as far as they follow from it."""
    for path in draw_again(load_experiment(name), _setup(model)[0], numbers, out or numbers.parent):
        print(path)
