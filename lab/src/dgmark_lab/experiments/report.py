"""The report of a run, as a folder: report.md, numbers.csv and figures."""

from collections.abc import Callable
from dataclasses import replace
from io import BytesIO
from pathlib import Path

from matplotlib.figure import Figure

from dgmark.checkpoint.folder import BUILTINS
from dgmark.errors import InputError
from dgmark.files.outputs import atomic_write
from dgmark_lab.experiments.cells import StoredRun
from dgmark_lab.experiments.made_with import made_with
from dgmark_lab.experiments.spec import Experiment, SetupName, Step
from dgmark_lab.experiments.tables import Section, Table, read_csv, to_csv, to_markdown
from dgmark_lab.experiments.views.answers import answers
from dgmark_lab.experiments.views.curves import area_under_curve
from dgmark_lab.experiments.views.detection import detection
from dgmark_lab.experiments.views.drawn import About, figures_of
from dgmark_lab.experiments.views.frontier import frontier
from dgmark_lab.experiments.views.ratings import ratings
from dgmark_lab.experiments.views.rivals import rivals
from dgmark_lab.experiments.views.texts import ratios, samples

VIEWS: dict[Step, Callable[[StoredRun], Section]] = {
    "detection": detection,
    "auc": area_under_curve,
    "length-curve": detection,
    "ratios": ratios,
    "samples": samples,
    "frontier": frontier,
    "rivals": rivals,
    "answers": answers,
    "ratings": ratings,
}


def section_of(run: StoredRun) -> Section:
    """Score the texts of a run: its numbers, tables and figures."""
    section = VIEWS[run.experiment.view](run)
    try:
        drawn = figures_of(run.experiment, section.quantities, About.of(run))
    except InputError as error:
        return section if section.figures else replace(section, text=f"No picture: {error}.\n")
    return replace(section, figures={**drawn, **section.figures})


def write_report(run: StoredRun, section: Section, folder: Path) -> list[Path]:
    """Write the report of a run and return the files that were written; the same numbers give the same files.

    Raises:
        InputError: the folder is not writable.
    """
    files: dict[str, str | bytes] = {"report.md": to_page(run, section), "numbers.csv": to_csv(section.quantities)}
    files |= {f"{name}.png": to_png(figure) for name, figure in section.figures.items()}
    for name, content in files.items():
        atomic_write(folder / name, content)
    return [folder / name for name in files]


def draw_again(experiment: Experiment, setup: SetupName, numbers: Path, folder: Path) -> list[Path]:
    """Draw the pictures of a report that follow from its numbers.csv, and return the files that were written.

    Raises:
        InputError: the file holds no numbers of a report, or none of which a picture is drawn.
    """
    figures = figures_of(experiment, read_csv(numbers), About.of_setup(experiment.setup(setup)))
    for name, figure in figures.items():
        atomic_write(folder / f"{name}.png", to_png(figure))
    return [folder / f"{name}.png" for name in figures]


def to_png(figure: Figure) -> bytes:
    """Render a figure; the same figure gives the same bytes."""
    picture = BytesIO()
    figure.savefig(picture, format="png", metadata={"Software": None})
    return picture.getvalue()


def to_page(run: StoredRun, section: Section) -> str:
    """Render the report as Markdown."""
    experiment = run.experiment
    parts = [
        f"# {experiment.title}\n",
        f"{experiment.source}; `dgmark-lab experiment run {experiment.name}`, setup {run.setup}.\n",
        experiment.notes.strip() + "\n" if experiment.notes else "",
        _warnings(run),
        to_markdown(_status_table(run)),
        *(to_markdown(table) for table in section.tables if table is not None),
        *(f"![{name}]({name}.png)\n" for name in section.figures),
        section.text,
        _how_to_read(run),
    ]
    return "\n".join(part for part in parts if part)


def _warnings(run: StoredRun) -> str:
    lines = []
    if not run.complete:
        lines.append("**Not complete**: cells below the number of texts that was asked for stand for themselves only.")
    if run.plan.get("length") is not None:
        lines.append(f"**Shortened**: texts of at most {run.plan['length']} tokens, not those of the experiment.")
    if run.plan.get("model") is not None:
        lines.append(f"**Another model** than the setup's: {run.plan['model']}.")
    elsewhere = [cell.name for cell in run.cells.values() if run.setup not in cell.cell.setups]
    if elsewhere:
        lines.append(f"Not in setup {run.setup}, so with the paper's numbers alone: {'; '.join(elsewhere)}.")
    return "\n\n".join(lines) + "\n" if lines else ""


def _status_table(run: StoredRun) -> Table:
    """Tabulate how many of its texts each cell has, and their seeds."""
    rows = []
    for cell in run.to_run:
        status = "complete" if cell.complete else "incomplete"
        if cell.plan is None:
            status = "not run"
        left_out = f", {cell.left_out} too short left out" if cell.left_out else ""
        seeds = [row["seed"] for row in cell.rows]
        shown = f"{min(seeds)} to {max(seeds)}" if seeds else "–"
        rows.append([cell.name, str(len(cell.rows)), str(cell.requested), status + left_out, shown])
    return Table("Texts", ["", "texts", "asked for", "status", "seeds"], rows)


def _how_to_read(run: StoredRun) -> str:
    """Describe model, keys and intervals in words, and what the figures depend on: rules, and a built-in model."""
    plans = [cell.plan for cell in run.cells.values() if cell.plan is not None]
    models = dict.fromkeys(f"{plan['model']} (weights {plan['model_hash'][:12]}, {plan['dtype']})" for plan in plans)
    keys = dict.fromkeys(plan["run_key"] for plan in plans)
    versions = dict.fromkeys(
        ", ".join(f"{name} {version}" for name, version in row["versions"].items())
        for cell in run.present
        for row in cell.rows
    )
    builtins = {plan["model"]: plan["model_hash"] for plan in plans if plan["model"] in BUILTINS}
    rules = dict.fromkeys(one.cell.rule for one in run.present if one.cell.rule is not None)
    return (
        "In brackets: 95 % intervals (shares: Wilson; others: bootstrap over texts). Texts are scored from the text. "
        f"False positives count unmarked texts under the run's key and {run.experiment.null_keys} random ones; "
        "these share texts, so their intervals are somewhat too narrow, and with few texts much. "
        "The paper's numbers are of its own models, prompts and judge.\n\n"
        f"Model: {'; '.join(models)}. Key: {', '.join(keys)}. Versions: {'; '.join(versions)}.\n\n"
        f"{made_with(*rules, **builtins)}\n"
    )
