"""The report of a run, as a folder: report.md, numbers.csv, tables.tex and figures."""

from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from dgmark.checkpoint.tokenizer import Tokenizer
from dgmark.rows.outputs import atomic_write
from dgmark.watermark.key import WatermarkKey
from dgmark_lab.experiments.cells import CellRows, read_cells
from dgmark_lab.experiments.recipe import digest
from dgmark_lab.experiments.spec import Experiment, SetupName
from dgmark_lab.experiments.store import Store
from dgmark_lab.experiments.tables import Table, to_csv, to_latex, to_markdown
from dgmark_lab.experiments.views import VIEWS, Context, Section

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Report:
    """The report of a run.

    Attributes:
        context: the run.
        section: its numbers, tables and figures.
    """

    context: Context
    section: Section

    @property
    def complete(self) -> bool:
        """Whether every cell of the setup has all its texts."""
        return all(cell.complete for cell in _to_run(self.context))


def keys_of(store: Store, path: Path | None) -> dict[str, WatermarkKey]:
    """Load the keys of runs by fingerprint: those in the runs folder, and one from a file.

    Raises:
        KeyFileError: a file is not a key.
    """
    own = sorted((store.root / "keys").glob("*.json"))
    keys = [WatermarkKey.load(file) for file in [*own, *([] if path is None else [path])]]
    return {key.fingerprint: key for key in keys}


def make_report(
    experiment: Experiment,
    store: Store,
    setup: SetupName,
    keys: Mapping[str, WatermarkKey],
    tokenizers: Mapping[str, Tokenizer] | None = None,
) -> Report:
    """Score the texts of a run; no model is loaded.

    Args:
        experiment: the experiment.
        store: the store of its rows.
        setup: the setup that was run.
        keys: the run's keys by fingerprint.
        tokenizers: tokenizers by fingerprint, if the name in a key does not lead to them.

    Raises:
        NoTexts: the experiment was not run.
        KeyFileError: a key is missing.
        MissingExtra: matplotlib, which draws the figures, is not installed.
    """
    plan = store.read_plan(experiment.plan_name(setup))
    cells = read_cells(store, experiment, setup, plan, keys, tokenizers or {})
    context = Context(experiment, setup, store, plan, cells)
    return Report(context, VIEWS[experiment.view](context))


def write_report(report: Report, folder: Path) -> list[Path]:
    """Write the report and return the files that were written.

    Raises:
        InputError: the folder is not writable.
    """
    section = report.section
    files: dict[str, str | bytes] = {
        "report.md": to_page(report),
        "numbers.csv": to_csv(section.quantities),
        "tables.tex": "\n".join(map(to_latex, [status_table(report.context), *section.tables])),
        **{f"{name}.{kind}": _drawn(figure, kind) for name, figure in section.figures.items() for kind in _NO_DATES},
    }
    for name, content in files.items():
        atomic_write(folder / name, content)
    return [folder / name for name in files]


# formats of figures; without dates, versions and random names, so that the same numbers give the same file
_NO_DATES: dict[str, dict[str, None]] = {
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}


def _drawn(figure: "Figure", kind: str) -> bytes:
    from matplotlib import rc_context

    out = BytesIO()
    with rc_context({"svg.hashsalt": "dgmark"}):
        figure.savefig(out, format=kind, dpi=130, metadata=_NO_DATES[kind])
    return out.getvalue()


def to_page(report: Report) -> str:
    """Render the report as Markdown."""
    context, section = report.context, report.section
    experiment = context.experiment
    parts = [
        f"# {experiment.title}\n",
        f"{experiment.source}; `dgmark-lab experiment run {experiment.name}`, setup {context.setup}.\n",
        experiment.notes.strip() + "\n" if experiment.notes else "",
        _warnings(report),
        to_markdown(status_table(context)),
        *map(to_markdown, section.tables),
        *(f"![{name}]({name}.png)\n" for name in section.figures),
        section.text,
        _how_to_read(context),
    ]
    return "\n".join(part for part in parts if part)


def _warnings(report: Report) -> str:
    lines = []
    context = report.context
    if not report.complete:
        lines.append("**Not complete**: cells below the number of texts that was asked for stand for themselves only.")
    if context.plan.get("length") is not None:
        lines.append(f"**Shortened**: texts of at most {context.plan['length']} tokens, not those of the experiment.")
    if context.plan.get("model") is not None:
        lines.append(f"**Another model** than the setup's: {context.plan['model']}.")
    elsewhere = [cell.name for cell in context.cells.values() if context.setup not in cell.cell.setups]
    if elsewhere:
        lines.append(f"Not in setup {context.setup}, so with the paper's numbers alone: {'; '.join(elsewhere)}.")
    changed = [cell.name for cell in context.cells.values() if _changed(cell)]
    if changed:
        lines.append(f"**The experiment has changed since it was run**: run it again for {', '.join(changed)}.")
    return "\n\n".join(lines) + "\n" if lines else ""


def _changed(cell: CellRows) -> bool:
    if cell.plan is None:
        return False
    return digest(cell.plan["definition"]) != digest(cell.cell.definition)


def status_table(context: Context) -> Table:
    """Tabulate how many of its texts each cell has."""
    rows = []
    for cell in _to_run(context):
        if cell.plan is None:
            rows.append([cell.name, "0", str(cell.requested), "not run"])
            continue
        left_out = f", {cell.left_out} too short left out" if cell.left_out else ""
        rows.append(
            [
                cell.name,
                str(len(cell.rows)),
                str(cell.requested),
                ("complete" if cell.complete else "incomplete") + left_out,
            ]
        )
    return Table("Texts", ["", "texts", "asked for", "status"], rows)


def _to_run(context: Context) -> list[CellRows]:
    return [cell for cell in context.cells.values() if context.setup in cell.cell.setups]


def _how_to_read(context: Context) -> str:
    """Describe model, keys and intervals in words."""
    ran = [cell for cell in context.cells.values() if cell.plan is not None]
    models = dict.fromkeys(
        f"{c.plan['model']} (weights {c.plan['model_hash'][:12]}, {c.plan['dtype']})" for c in ran if c.plan
    )
    keys = dict.fromkeys(cell.plan["run_key"] for cell in ran if cell.plan)
    # rows added by `dgmark-lab experiment import`, a command of earlier versions, record no versions of their own
    versions = dict.fromkeys(
        ", ".join(f"{name} {version}" for name, version in (row["versions"] or row["imported"]["versions"]).items())
        + (" (rows imported with these)" if row["versions"] is None else "")
        for cell in ran
        for row in cell.rows
    )
    return (
        "In brackets: 95 % intervals (shares: Wilson; others: bootstrap over texts). Texts are scored from the text. "
        f"False positives count unmarked texts under the run's key and {context.experiment.null_keys} random ones; "
        "these share texts, so their intervals are somewhat too narrow, and with few texts much. "
        "The paper's numbers are of its own models, prompts and judge.\n\n"
        f"Model: {'; '.join(models)}. Key: {', '.join(keys)}. Versions: {'; '.join(versions)}.\n"
    )
