"""`dgmark-lab bench-lm`: run benchmarks of the lm-evaluation-harness, with the mark or without."""

import json
import logging
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from dgmark.cli import options as opt
from dgmark.cli.bar import row_bar
from dgmark.cli.baselines import BASELINE_GROUP
from dgmark.cli.console import command_errors, stderr, stdout
from dgmark.cli.option_groups import option_groups
from dgmark.decode.config import Settings
from dgmark.errors import SettingsError
from dgmark.extras import needed_extra
from dgmark.models.load import load_model
from dgmark.rows.jsonl import to_line
from dgmark.rows.outputs import atomic_write
from dgmark_lab.baselines import Baseline

_DEFAULTS = {"length": "the task's, in whole blocks", "temperature": "the task's, or 0"}


@command_errors
@option_groups
def bench_lm(
    *,
    tasks: Annotated[
        list[str] | None, typer.Option(help="Names of tasks of the harness, separated by commas; may be repeated.")
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(help="A benchmark of the paper, with its settings: mmlu, gsm8k or humaneval.", show_default=False),
    ] = None,
    include: Annotated[
        list[Path] | None,
        typer.Option(exists=True, file_okay=False, help="Folder with more task files; may be repeated."),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Ask only this many questions of each task.", show_default="all")
    ] = None,
    num_fewshot: Annotated[
        int | None, typer.Option(min=0, help="Solved examples before each question.", show_default="the task's")
    ] = None,
    chat: Annotated[bool, typer.Option("--chat", help="Put each question into the model's chat template.")] = False,
    run_unsafe_code: Annotated[
        bool, typer.Option("--confirm-run-unsafe-code", help="Run code that the model writes (needed by HumanEval).")
    ] = False,
    key: opt.KeyToMark,
    baseline: Annotated[Baseline | None, BASELINE_GROUP],
    loading: opt.ModelOptions,
    settings: Annotated[Settings, opt.decoding_options(defaults=_DEFAULTS, shown=_DEFAULTS)],
    seed: opt.Seed = 0,
    batch_size: opt.BatchSize = 8,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder to write results.json and samples.jsonl to.", show_default=False),
    ] = None,
    as_json: opt.OneObject = False,
) -> None:
    """Run benchmarks of the lm-evaluation-harness on a diffusion model.

    Give --key FILE to answer with the mark, or --no-watermark to answer without it. Tasks whose answers are chosen by
    likelihood are refused: only generated text can carry a mark.

    The decoding options of `dgmark generate` are taken too.
    """
    with needed_extra("bench", "bench-lm", "the lm-evaluation-harness"):
        from dgmark_lab.evaluate import benchmarks
    logging.getLogger("lm_eval").setLevel(logging.ERROR)
    names = tuple(name for one in tasks or [] for name in one.split(",") if name)
    if preset not in (None, *benchmarks.PRESETS):
        raise SettingsError(f"preset {preset!r} is not one of: {', '.join(benchmarks.PRESETS)}")
    if (preset is None) == (not names):
        raise SettingsError("give either --tasks NAME[,NAME...] or --preset mmlu|gsm8k|humaneval (one of the two)")
    model = load_model(**loading)
    of_preset = benchmarks.PRESETS[preset] if preset else None
    decoding: Settings = of_preset.decoding(model.name, model.family.name) if of_preset else {}
    asked = benchmarks.TaskSettings(
        tasks=of_preset.tasks if of_preset else names,
        include=tuple(include or ()),
        limit=limit,
        num_fewshot=num_fewshot,
        chat=chat,
        run_unsafe_code=run_unsafe_code,
    )
    with row_bar("answers") as bar:
        bar.show("", 0, None)  # the number of requests is unknown beforehand
        harness = benchmarks.DiffusionLM(
            model,
            decoding={**decoding, **settings},
            key=key,
            baseline=baseline,
            seed=seed,
            batch_size=batch_size,
            progress=bar.rows,
        )
        results = benchmarks.run_tasks(harness, asked)
    summary = {name: value for name, value in results.items() if name != "samples"}
    if out is not None:
        samples = [
            {"id": f"{task}-{one['doc_id']}-{one.get('filter', '')}", "task": task, **one}
            for task, ones in results["samples"].items()
            for one in ones
        ]
        atomic_write(out / "samples.jsonl", "".join(to_line(json.loads(_plain(row))) + "\n" for row in samples))
        atomic_write(out / "results.json", _plain(summary) + "\n")
    if as_json:
        print(_plain(summary))
        return
    table = Table("task", "metric", "filter", "value", "standard error")
    for task, metric, kind, value, error in benchmarks.headline(results):
        table.add_row(task, metric, kind, f"{value:.4f}", "" if error is None else f"{error:.4f}")
    stdout().print(table)
    if truncated := results["counts"].get("truncated", 0):
        stderr().print(f"{truncated} prompts were cut at the beginning to fit into the model's context")


def _plain(content: Any) -> str:
    """JSON; values that JSON does not have (such as functions of a task) become text."""
    return json.dumps(content, indent=1, default=str)
