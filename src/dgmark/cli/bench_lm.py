"""`dgmark bench-lm`: benchmarks of the lm-evaluation-harness, answered with the mark or without."""

import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from dgmark.checkpoint.folder import BUILTIN
from dgmark.cli import options as opt
from dgmark.cli.console import speaks, stderr, stdout
from dgmark.cli.keys import key_to_mark_with
from dgmark.cli.schemes import SchemeName, SchemeOptions, scheme_of
from dgmark.errors import MissingExtra, SettingsError, install_hint
from dgmark.rows.jsonl import to_line
from dgmark.rows.whole_files import write_whole

if TYPE_CHECKING:
    from dgmark.decode.config import Settings
    from dgmark.lab.evaluate.harness import DiffusionLM, HarnessSettings
    from dgmark.models.network import NetworkDenoiser


@speaks
def bench_lm(
    tasks: Annotated[
        list[str] | None, typer.Option(help="Tasks of the harness, separated by commas; may be repeated.")
    ] = None,
    preset: Annotated[
        str | None, typer.Option(help="mmlu, gsm8k or humaneval: the paper's settings.", show_default=False)
    ] = None,
    include: Annotated[list[Path] | None, typer.Option(help="Folder of further task files; may be repeated.")] = None,
    key: opt.KeyToMark = None,
    no_watermark: opt.NoWatermark = False,
    scheme: SchemeName = None,
    scheme_option: SchemeOptions = None,
    model: opt.Model = BUILTIN,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first documents of each task.")] = None,
    num_fewshot: Annotated[
        int | None, typer.Option(min=0, help="Examples before each question.", show_default="the task's")
    ] = None,
    chat: Annotated[bool, typer.Option("--chat", help="Put questions into the model's chat template.")] = False,
    system: Annotated[str | None, typer.Option(help="What the system says, with --chat.", show_default=False)] = None,
    length: Annotated[
        int | None, typer.Option(help="Response tokens.", show_default="the task's, in whole blocks")
    ] = None,
    block_length: opt.BlockLength = None,
    strategy: opt.Strategy = None,
    temperature: Annotated[float | None, typer.Option(help="0 is greedy.", show_default="the task's, or 0")] = None,
    top_k: opt.TopK = None,
    top_p: opt.TopP = None,
    lookahead: opt.Lookahead = None,
    lookahead_scope: opt.LookaheadScope = None,
    lookahead_proposals: opt.LookaheadProposals = None,
    commit: opt.Commit = None,
    threshold: opt.Threshold = None,
    factor: opt.Factor = None,
    steps: opt.Steps = None,
    schedule: opt.Schedule = None,
    cache: opt.Cache = None,
    guard: opt.Guard = None,
    repetition_guard: opt.RepetitionGuard = None,
    seed: Annotated[int, typer.Option(help="Request i is decoded with seed + i.")] = 0,
    batch_size: Annotated[int, typer.Option(min=1, help="Most requests decoded at once.")] = 8,
    pad: opt.Pad = None,
    mc_num: Annotated[int, typer.Option(min=1, help="Masked canvases of a likelihood.")] = 128,
    is_greedy: Annotated[bool, typer.Option("--is-greedy", help="Tell whether greedy decoding agrees.")] = False,
    confirm_run_unsafe_code: Annotated[
        bool, typer.Option("--confirm-run-unsafe-code", help="Execute what the model writes (HumanEval).")
    ] = False,
    device: opt.Device = None,
    dtype: opt.Dtype = None,
    revision: opt.Revision = None,
    family: opt.Family = None,
    quantization: opt.Quantization = None,
    device_map: opt.DeviceMap = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for results.json and samples.jsonl.", show_default=False)
    ] = None,
    allow_open_key: opt.AllowOpenKey = False,
    as_json: Annotated[bool, typer.Option("--json", help="The results as one JSON object.")] = False,
) -> None:
    """Run benchmarks of the lm-evaluation-harness on a diffusion model.

    Give --key FILE to answer with the mark, or --no-watermark for the same without. Answers that are chosen by
    likelihood are the same either way: only what is generated can carry a mark.
    """
    loading, settings = opt.given(locals(), opt.LOADING), opt.given(locals(), opt.DECODING)
    secret = key_to_mark_with(key, no_watermark, allow_open_key)
    marking = scheme_of(scheme, scheme_option)
    names = [name for one in tasks or [] for name in one.split(",") if name]
    _need_harness()
    from dgmark.lab.evaluate.benchmarks import TaskSettings, run_tasks
    from dgmark.lab.evaluate.harness import HarnessSettings
    from dgmark.lab.evaluate.presets import preset_named
    from dgmark.models.load import load_model

    chosen = None if preset is None else preset_named(preset)
    if (chosen is None) == (not names):
        raise SettingsError("give either --tasks NAME[,NAME...] or --preset mmlu|gsm8k|humaneval")
    loaded = load_model(model, **loading)
    decoding: Settings = {} if chosen is None else chosen.decoding(loaded.name, loaded.family.name)
    decoding = {**decoding, **settings}  # type: ignore[typeddict-item]
    answering = HarnessSettings(
        decoding=decoding,
        key=secret,
        scheme=marking,
        seed=seed,
        batch_size=batch_size,
        samples=mc_num,
        is_greedy=is_greedy,
        pad=pad,
    )
    asked = TaskSettings(
        tasks=tuple(names) if chosen is None else chosen.tasks,
        include=tuple(include or ()),
        limit=limit,
        num_fewshot=num_fewshot,
        chat=chat,
        system=system,
        run_unsafe_code=confirm_run_unsafe_code,
    )
    results = run_tasks(_with_progress(loaded, answering), asked)
    if out is not None:
        _write(out, results)
    _show(results, as_json)


def _need_harness() -> None:
    """Raises MissingExtra without lm_eval or torch."""
    try:
        import lm_eval
        import torch  # noqa: F401
    except ModuleNotFoundError as error:
        raise MissingExtra(f"benchmarks need the harness: {install_hint('bench')} ({error})") from None
    del lm_eval
    logging.getLogger("lm_eval").setLevel(logging.ERROR)


def _with_progress(model: "NetworkDenoiser", settings: "HarnessSettings") -> "DiffusionLM":
    from dgmark.lab.evaluate.harness import DiffusionLM

    done = 0

    def progress(count: int) -> None:
        nonlocal done
        done += count
        stderr().print(f"{done} answers", end="\r")

    return DiffusionLM(model, settings, progress if stderr().is_terminal else lambda _: None)


def _write(folder: Path, results: dict[str, Any]) -> None:
    from dgmark.lab.evaluate.benchmarks import sample_rows, without_samples

    samples = "".join(to_line(json.loads(_plain(row))) + "\n" for row in sample_rows(results))
    write_whole(folder / "samples.jsonl", samples)
    write_whole(folder / "results.json", _plain(without_samples(results)) + "\n")


def _show(results: dict[str, Any], as_json: bool) -> None:
    from dgmark.lab.evaluate.benchmarks import headline, without_samples

    if as_json:
        print(_plain(without_samples(results)))
        return
    table = Table("task", "metric", "filter", "value", "standard error")
    for task, metric, kind, value, error in headline(results):
        table.add_row(task, metric, kind, f"{value:.4f}", "" if error is None else f"{error:.4f}")
    stdout().print(table)
    truncated = results["counts"].get("truncated", 0)
    if truncated:
        stderr().print(f"{truncated} prompts lost their beginning to fit the context")


def _plain(content: Any) -> str:
    """JSON; what the harness has of other kinds (functions of a task) as text."""
    return json.dumps(content, indent=1, default=str)
