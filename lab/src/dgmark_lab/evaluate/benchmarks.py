"""Tasks of the lm-evaluation-harness, run on a model of dgmark; the results record model, settings and packages.

The harness's parts are called one by one: its front end would seed the whole process, and record the machine.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from lm_eval.evaluator import evaluate
from lm_eval.tasks import TaskManager

from dgmark.decode.generation import scheme_row
from dgmark.errors import InputError, SettingsError
from dgmark.models.denoiser import traits_of
from dgmark_lab.evaluate.harness import DiffusionLM

BENCH_SCHEMA = 1
_FEWSHOT_SEED = 1234  # the harness's


@dataclass(frozen=True)
class TaskSettings:
    """Which tasks to run, and how to prompt for them.

    Attributes:
        tasks: names of tasks, the harness's or those of the files in `include`.
        include: folders of further task files (YAML).
        limit: how many documents of each task to use, from the first on; None for all.
        num_fewshot: examples before each question; None for the task's own number.
        chat: whether to put each question into the model's chat template.
        system: the system message, with `chat`.
        run_unsafe_code: whether to execute what the model writes, if a task's score needs it (HumanEval).
    """

    tasks: tuple[str, ...]
    include: tuple[Path, ...] = ()
    limit: int | None = None
    num_fewshot: int | None = None
    chat: bool = False
    system: str | None = None
    run_unsafe_code: bool = False


def run_tasks(model: DiffusionLM, settings: TaskSettings) -> dict[str, Any]:
    """Run tasks and return their results as plain JSON values; "samples" holds every question and answer.

    Raises:
        SettingsError: a task does not exist, or it executes what the model writes and this is not allowed.
        InputError: a task's data is unavailable.
    """
    loaded = _load(settings)
    for name, task in loaded["tasks"].items():
        if getattr(task, "UNSAFE_CODE", False) and not settings.run_unsafe_code:
            raise SettingsError(
                f"task {name} executes code that the model writes: if that is safe on this machine, allow it with "
                "--confirm-run-unsafe-code"
            )
        own = task.get_config("num_fewshot")
        if own is None or (settings.num_fewshot is not None and own != 0):  # with 0 a task forbids examples
            task.set_config(key="num_fewshot", value=settings.num_fewshot or 0)
        task.set_fewshot_seed(seed=_FEWSHOT_SEED)
    output = evaluate(
        lm=model,
        task_dict=loaded,
        limit=settings.limit,
        apply_chat_template=settings.chat,
        fewshot_as_multiturn=False,
        system_instruction=settings.system,
        confirm_run_unsafe_code=settings.run_unsafe_code,
    )
    return {
        "schema": BENCH_SCHEMA,
        "results": output["results"],
        "groups": output.get("groups", {}),
        "versions": output["versions"],
        "n_shot": output["n-shot"],
        "n_samples": output["n-samples"],
        **_conditions(model, settings),
        "samples": output["samples"],
    }


def _load(settings: TaskSettings) -> Any:
    """Load the tasks and their data.

    Raises:
        SettingsError: a task does not exist.
        InputError: a task's data is unavailable.
    """
    folders = [str(folder) for folder in settings.include]
    # listing the harness's thousands of tasks takes long: only if one of them is needed
    manager = TaskManager(include_path=folders, include_defaults=False) if folders else TaskManager()
    unknown = _unknown(manager, settings)
    if unknown and folders:
        manager = TaskManager(include_path=folders)
        unknown = _unknown(manager, settings)
    if unknown or not settings.tasks:
        raise SettingsError(
            f"the harness has no task {', '.join(unknown) or '(none given)'}; `lm-eval ls tasks` lists its tasks, and "
            "--include FOLDER adds your own files"
        )
    try:
        return manager.load(list(settings.tasks))
    except Exception as error:  # every library that the harness calls has its own errors
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise InputError(
            f"the tasks {', '.join(settings.tasks)} cannot be set up: {reason}; if their data is missing here, run "
            "them once on a machine with network access, and copy its Hugging Face cache (HF_HOME)"
        ) from error


def _unknown(manager: TaskManager, settings: TaskSettings) -> list[str]:
    return [name for name in settings.tasks if name not in manager.task_index]


def _conditions(model: DiffusionLM, settings: TaskSettings) -> dict[str, Any]:
    """Return what the results depend on in addition to the tasks."""
    answering, traits = model.settings, traits_of(model.model)
    return {
        "model": traits.name,
        "dtype": traits.number_format,
        "tokenizer_fingerprint": model.model.tokenizer.fingerprint,
        "key_fingerprint": None if answering.key is None else answering.key.fingerprint,
        "scheme": scheme_row(answering.scheme),
        "decoding": dict(answering.decoding),
        "seed": answering.seed,
        "samples_per_likelihood": answering.samples,
        "is_greedy": answering.is_greedy,
        "task_settings": {**asdict(settings), "include": [folder.name for folder in settings.include]},
        "counts": dict(model.counts),
        "packages": {name: version(name) for name in ("dgmark", "lm_eval", "torch", "transformers", "datasets")},
    }


def headline(results: dict[str, Any]) -> list[tuple[str, str, str, float, float | None]]:
    """List the results as task, metric, filter, value, standard error (None if the harness gives none)."""
    rows = []
    for task, figures in results["results"].items():
        for name, value in figures.items():
            metric, comma, kind = name.partition(",")
            if comma and isinstance(value, int | float) and not metric.endswith("_stderr"):
                error = figures.get(f"{metric}_stderr,{kind}")
                rows.append((task, metric, kind, float(value), error if isinstance(error, int | float) else None))
    return rows


def without_samples(results: dict[str, Any]) -> dict[str, Any]:
    """Return the results without questions and answers."""
    return {name: value for name, value in results.items() if name != "samples"}


def sample_rows(results: dict[str, Any]) -> Sequence[dict[str, Any]]:
    """Return questions and answers as rows, each with an id."""
    return [
        {"id": f"{task}-{sample['doc_id']}-{sample.get('filter', '')}", "task": task, **sample}
        for task, samples in results["samples"].items()
        for sample in samples
    ]
