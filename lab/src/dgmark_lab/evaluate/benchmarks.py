"""Benchmarks of the lm-evaluation-harness on a masked diffusion model, marked or not, decoded by the usual loop.

The harness does the tasks, few-shot prompts, answers and scores. This module continues texts up to a stop. The
harness's parts are called one by one: its front end would seed the whole process, and record the machine. The results
record model, settings and packages.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from lm_eval.api.instance import Instance
from lm_eval.api.model import LM
from lm_eval.evaluator import evaluate
from lm_eval.tasks import TaskManager

from dgmark.checkpoint.folder import first_line
from dgmark.decode.config import DecodeConfig, Settings
from dgmark.decode.generation import baseline_row, generations
from dgmark.decode.prompts import Prepared, Request, config_of, key_of_text, rule_of
from dgmark.errors import InputError, SettingsError
from dgmark.models.chat import template_of
from dgmark.models.denoiser import Denoiser, traits_of
from dgmark.watermark.key import WatermarkKey
from dgmark_lab.baselines import Baseline

BENCH_SCHEMA = 1
# the harness's own defaults
MAX_GEN_TOKS = 256
_FEWSHOT_SEED = 1234


# --- the paper's settings (appendix B, "Inference configurations") ---


@dataclass(frozen=True)
class Preset:
    """Tasks of the harness, the response's length, and the block length by model."""

    tasks: tuple[str, ...]
    length: int
    block_lengths: Mapping[str, int]

    def decoding(self, model_name: str, family: str | None) -> Settings:
        """Return length and block length for a model: LLaDA 1.5 by its name, others by family, else those of LLaDA."""
        known = "llada-1.5" if "llada-1.5" in model_name.lower() else family
        return {"length": self.length, "block_length": self.block_lengths.get(known or "", self.block_lengths["llada"])}


# The paper states block and total length; the number of few-shot examples, which it leaves open, is the harness's
# default. MMLU is answered by generating three tokens, not by likelihoods, which a watermark cannot change.
PRESETS: dict[str, Preset] = {
    "mmlu": Preset(("mmlu_generative",), 3, {"llada": 3, "llada-1.5": 3, "dream": 3}),
    "gsm8k": Preset(("gsm8k",), 256, {"llada": 8, "llada-1.5": 16, "dream": 32}),
    "humaneval": Preset(("humaneval",), 512, {"llada": 8, "llada-1.5": 8, "dream": 32}),
}


# --- the model, as the harness calls it ---


class DiffusionLM(LM):  # type: ignore[misc]
    """A model as the harness calls it.

    Args:
        model: a loaded model.
        decoding: decoding settings that hold for every task and override the task's own. Other settings come from the
            task (greedy if it states none), then from the baseline, then from the model.
        key: the key to mark with; None for no mark.
        baseline: another watermark than dgMARK.
        seed: request i is decoded with seed + i.
        batch_size: largest number of requests decoded at once.
        progress: called with the number of requests that were finished.

    Attributes:
        counts: number of requests ("generate_until"), and of prompts that lost their beginning to fit the context
            ("truncated").

    Raises:
        SettingsError: a decoding setting is invalid.
        KeyFileError: the key is bound to another tokenizer or vocabulary.
    """

    def __init__(
        self,
        model: Denoiser,
        *,
        decoding: Settings | None = None,
        key: WatermarkKey | None = None,
        baseline: Baseline | None = None,
        seed: int = 0,
        batch_size: int = 8,
        progress: Callable[[int], None] = lambda _: None,
    ) -> None:
        super().__init__()
        self.model = model
        self.decoding: Settings = decoding or {}
        self.key, self.baseline = key, baseline
        self.seed, self.batch_size = seed, batch_size
        self.counts: Counter[str] = Counter()
        self._progress = progress
        rule_of(model, key_of_text(key), baseline).check(self.config({}))

    def config(self, arguments: Mapping[str, Any]) -> DecodeConfig:
        """The decoding settings for a task's generation arguments.

        Raises:
            SettingsError: a setting is invalid.
        """
        settings: dict[str, Any] = {**_sampling(arguments), **self.decoding}
        if "length" not in settings:
            of_baseline = self.baseline.defaults if self.baseline else {}
            defaults = {**traits_of(self.model).defaults, **of_baseline, **settings}
            block = int(defaults.get("block_length", DecodeConfig.block_length))
            settings["length"] = -(-_most_tokens(arguments) // block) * block
        config = config_of(self.model, self.baseline, settings)
        if config.length >= self.model.context_length:
            raise SettingsError(
                f"{config.length} tokens leave no room for a prompt: {traits_of(self.model).name} holds "
                f"{self.model.context_length} in all; ask for fewer (length, --length)"
            )
        return config

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:  # noqa: ARG002
        """Continue each context, up to the first of the task's stops.

        A response is always decoded whole; stops and the task's `max_gen_toks` cut it afterwards.
        """
        texts = [""] * len(requests)
        groups: dict[DecodeConfig, list[tuple[int, list[int]]]] = {}
        for index, request in enumerate(requests):
            context, arguments = request.args
            config = self.config(arguments)
            groups.setdefault(config, []).append((index, self._prompt(context, config.length)))
        for config, group in groups.items():
            group.sort(key=lambda one: len(one[1]))  # prompts of one length together, which need no padding
            prepared = Prepared.of(
                self.model,
                [Request(prompt, self.seed + index, self.key) for index, prompt in group],
                config,
                baseline=self.baseline,
                batch_size=self.batch_size,
            )
            for rows in prepared.chunks():
                for row, generation in zip(rows, generations(prepared, rows), strict=True):
                    index = group[row][0]
                    texts[index] = self._cut(generation.token_ids, requests[index].args[1])
                self._progress(len(rows))
        self.counts["generate_until"] += len(requests)
        return texts

    def loglikelihood(self, requests: list[Instance], disable_tqdm: bool = False) -> Any:  # noqa: ARG002
        """Refuse tasks that score given texts, which carry no mark.

        Raises:
            SettingsError: always.
        """
        raise SettingsError(
            "the task scores given texts by their likelihood, which no mark can change: give one that generates"
        )

    loglikelihood_rolling = loglikelihood

    @property
    def tokenizer_name(self) -> str:
        """The name of the tokenizer in the harness's caches of requests, which are not used."""
        return self.model.tokenizer.fingerprint

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        """One turn of chat: the system's message, the user's message, and the beginning of an answer, if any.

        Raises:
            SettingsError: there are several turns, or the model has no template.
        """
        roles = [message["role"] for message in chat_history]
        turn = ["user"] if add_generation_prompt else ["user", "assistant"]
        if roles not in (turn, ["system", *turn]):
            raise SettingsError(f"the chat templates here hold one turn, not {', '.join(roles)}")
        messages = [message["content"] for message in chat_history if message["role"] != "assistant"]
        answer = "" if add_generation_prompt else chat_history[-1]["content"]
        return template_of(self.model).text([("user", "\n\n".join(messages))]) + answer

    def _prompt(self, context: str, length: int) -> list[int]:
        """The end of a context that leaves room for `length` tokens."""
        ids = self.model.tokenizer.encode(context)
        if not ids:
            raise SettingsError("the harness asks for a continuation of nothing; give the task a prompt")
        surplus = max(0, len(ids) + length - self.model.context_length)
        self.counts["truncated"] += surplus > 0
        return ids[surplus:]

    def _cut(self, ids: list[int], arguments: Mapping[str, Any]) -> str:
        if "length" not in self.decoding:
            ids = ids[: _most_tokens(arguments)]
        text = self.model.tokenizer.decode(ids)
        until = arguments.get("until") or []
        for stop in [until] if isinstance(until, str) else until:
            text = text.split(stop, 1)[0] if stop else text
        return text


def _most_tokens(arguments: Mapping[str, Any]) -> int:
    return max(1, int(arguments.get("max_gen_toks", MAX_GEN_TOKS)))


def _sampling(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """A task's sampling as decoding settings: greedy unless the task says otherwise."""
    if arguments.get("do_sample") is False:
        return {"temperature": 0.0}
    temperature = float(arguments.get("temperature", 1.0 if arguments.get("do_sample") else 0.0))
    names = [name for name in ("top_k", "top_p") if arguments.get(name) is not None and temperature > 0]
    filters = {name: arguments[name] for name in names}
    return {"temperature": temperature, **filters}


# --- running tasks ---


@dataclass(frozen=True)
class TaskSettings:
    """Which tasks to run, and how to prompt for them.

    Attributes:
        tasks: names of tasks, the harness's or those of the files in `include`.
        include: folders of further task files (YAML).
        limit: how many documents of each task to use, from the first on; None for all.
        num_fewshot: examples before each question; None for the task's own number.
        chat: whether to put each question into the model's chat template.
        run_unsafe_code: whether to execute what the model writes, if a task's score needs it (HumanEval).
    """

    tasks: tuple[str, ...]
    include: tuple[Path, ...] = ()
    limit: int | None = None
    num_fewshot: int | None = None
    chat: bool = False
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
    if folders and not set(settings.tasks) <= manager.task_index.keys():
        manager = TaskManager(include_path=folders)
    unknown = sorted(set(settings.tasks) - manager.task_index.keys())
    if unknown or not settings.tasks:
        raise SettingsError(
            f"the harness has no task {', '.join(unknown) or '(none given)'}; `lm-eval ls tasks` lists its tasks, and "
            "--include FOLDER adds your own files"
        )
    try:
        return manager.load(list(settings.tasks))
    except Exception as error:  # every library that the harness calls has its own errors
        raise InputError(
            f"the tasks {', '.join(settings.tasks)} cannot be set up: {first_line(error)}; if their data is "
            "missing here, run them once on a machine with network access, and copy its Hugging Face cache (HF_HOME)"
        ) from error


def _conditions(model: DiffusionLM, settings: TaskSettings) -> dict[str, Any]:
    """Return what the results depend on in addition to the tasks."""
    traits = traits_of(model.model)
    return {
        "model": traits.name,
        "dtype": traits.number_format,
        "tokenizer_fingerprint": model.model.tokenizer.fingerprint,
        "key_fingerprint": None if model.key is None else model.key.fingerprint,
        "baseline": baseline_row(model.baseline),
        "decoding": dict(model.decoding),
        "seed": model.seed,
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
