"""A masked diffusion model for the lm-evaluation-harness, marked or not, decoded by the same loop as everywhere else.

The harness does the tasks, few-shot prompts, answers and scores. This module continues texts up to a stop, and computes
likelihoods.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lm_eval.api.instance import Instance
from lm_eval.api.model import LM

from dgmark.decode.config import DecodeConfig, Settings
from dgmark.decode.generation import generations
from dgmark.decode.prompts import Prepared, Request, config_of, key_of_text, steering_of
from dgmark.errors import SettingsError
from dgmark.models.chat import template_of
from dgmark.models.denoiser import Denoiser, traits_of
from dgmark.watermark.key import WatermarkKey
from dgmark_lab.baselines import Scheme
from dgmark_lab.evaluate.monte_carlo import SAMPLES, answer_likelihood, parts

# The harness's own default for tasks that state none.
MAX_GEN_TOKS = 256


@dataclass(frozen=True)
class HarnessSettings:
    """How the model answers the harness.

    Attributes:
        decoding: decoding settings that hold for every task and override the task's own. Other settings come from the
            task (greedy if it states none), then from the scheme, then from the model.
        key: the key to mark with; None for no mark.
        scheme: another watermark than dgMARK.
        seed: request i is decoded with seed + i.
        batch_size: largest number of requests decoded at once.
        samples: number of masked canvases for one likelihood ("mc_num").
        is_greedy: whether to decode greedily and compare with each scored answer; if False, the harness is always told
            that greedy decoding does not give the answer.
        pad: decode prompts of different lengths together; None for the default of `dgmark.generate`.
    """

    decoding: Settings = field(default_factory=Settings)
    key: WatermarkKey | None = None
    scheme: Scheme | None = None
    seed: int = 0
    batch_size: int = 8
    samples: int = SAMPLES
    is_greedy: bool = False
    pad: bool | None = None


class DiffusionLM(LM):  # type: ignore[misc]
    """A model as the harness calls it.

    Args:
        model: a loaded model.
        settings: how it answers.
        progress: called with the number of requests that were finished.

    Attributes:
        counts: number of requests by kind; "truncated" is the number of prompts that lost their beginning to fit the
            context.

    Raises:
        SettingsError: a decoding setting is invalid.
        KeyFileError: the key is bound to another tokenizer or vocabulary.
    """

    def __init__(
        self, model: Denoiser, settings: HarnessSettings, progress: Callable[[int], None] = lambda _: None
    ) -> None:
        super().__init__()
        self.model = model
        self.settings = settings
        self.counts: Counter[str] = Counter()
        self._progress = progress
        steering_of(model, key_of_text(settings.key), settings.scheme).check(self.config({}))

    def config(self, arguments: Mapping[str, Any]) -> DecodeConfig:
        """The decoding settings for a task's generation arguments.

        Raises:
            SettingsError: a setting is invalid.
        """
        settings: dict[str, Any] = {**_sampling(arguments), **self.settings.decoding}
        if "length" not in settings:
            scheme = self.settings.scheme
            defaults = {**traits_of(self.model).defaults, **(scheme.defaults if scheme else {}), **settings}
            block = int(defaults.get("block_length", DecodeConfig.block_length))
            settings["length"] = -(-_most_tokens(arguments) // block) * block
        config = config_of(self.model, self.settings.scheme, settings)
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
            prepared = self._prepared(group, config)
            for rows in prepared.chunks():
                for (index, _), generation in zip(
                    group[rows.start : rows.stop], generations(prepared, rows), strict=True
                ):
                    texts[index] = self._cut(generation.token_ids, requests[index].args[1])
                    self.cache_hook.add_partial("generate_until", requests[index].args, texts[index])
                self._progress(len(rows))
        self.counts["generate_until"] += len(requests)
        return texts

    def loglikelihood(self, requests: list[Instance], disable_tqdm: bool = False) -> list[tuple[float, bool]]:  # noqa: ARG002
        """Lower bounds of the likelihoods of continuations, and whether greedy decoding gives them (if checked)."""
        results = []
        for request in requests:
            context, continuation = request.args
            blank = len(context) - len(context.rstrip())  # spaces belong to the word after them
            answer = self.model.tokenizer.encode(context[len(context) - blank :] + continuation)
            prompt = self._fitted(self.model.tokenizer.encode(context[: len(context) - blank]), len(answer))
            bound = self._bound(prompt, answer)
            results.append((bound, self.settings.is_greedy and self._is_greedy(prompt, answer)))
            self.cache_hook.add_partial("loglikelihood", request.args, results[-1])
            self._progress(1)
        self.counts["loglikelihood"] += len(requests)
        return results

    def loglikelihood_rolling(self, requests: list[Instance], disable_tqdm: bool = False) -> list[float]:  # noqa: ARG002
        """Lower bounds of the likelihoods of whole texts; long ones part by part, each after half a context."""
        results = []
        for request in requests:
            (text,) = request.args
            ids = self.model.tokenizer.encode(text)
            bounds = [self._bound(context, scored) for context, scored in parts(ids, self.model.context_length)]
            results.append(sum(bounds))
            self.cache_hook.add_partial("loglikelihood_rolling", request.args, results[-1])
            self._progress(1)
        self.counts["loglikelihood_rolling"] += len(requests)
        return results

    @property
    def tokenizer_name(self) -> str:
        """The name of the tokenizer and its template in the harness's caches of requests."""
        return f"{traits_of(self.model).name}-{self.model.tokenizer.fingerprint}".replace("/", "__")

    def chat_template(self, chat_template: bool | str = False) -> str | None:
        """The template of the model's family, for the harness's records.

        Raises:
            SettingsError: a template is named, or the family has none.
        """
        if isinstance(chat_template, str):
            raise SettingsError(
                f"there is no chat template {chat_template!r}: each family has a single one, so give no name"
            )
        return template_of(self.model) if chat_template else ""

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
        return template_of(self.model).replace("{prompt}", "\n\n".join(messages).strip()) + answer

    def _prompt(self, context: str, length: int) -> list[int]:
        ids = self.model.tokenizer.encode(context)
        if not ids:
            raise SettingsError("the harness asks for a continuation of nothing; give the task a prompt")
        return self._fitted(ids, length)

    def _fitted(self, prompt: list[int], room: int) -> list[int]:
        """The end of a prompt that leaves room for `room` tokens."""
        length = max(0, self.model.context_length - room)
        self.counts["truncated"] += len(prompt) > length
        return prompt[max(0, len(prompt) - length) :]

    def _prepared(self, prompts: Sequence[tuple[int, list[int]]], config: DecodeConfig) -> Prepared:
        """Prepare numbered prompts for decoding."""
        settings = self.settings
        return Prepared.of(
            self.model,
            [Request(prompt, settings.seed + index, settings.key) for index, prompt in prompts],
            config,
            scheme=settings.scheme,
            pad=settings.pad,
            batch_size=settings.batch_size,
        )

    def _cut(self, ids: list[int], arguments: Mapping[str, Any]) -> str:
        if "length" not in self.settings.decoding:
            ids = ids[: _most_tokens(arguments)]
        text = self.model.tokenizer.decode(ids)
        until = arguments.get("until") or []
        for stop in [until] if isinstance(until, str) else until:
            text = text.split(stop, 1)[0] if stop else text
        return text

    def _bound(self, prompt: Sequence[int], answer: Sequence[int]) -> float:
        settings = self.settings
        return answer_likelihood(self.model, prompt, answer, samples=settings.samples, seed=settings.seed).bound

    def _is_greedy(self, prompt: list[int], answer: list[int]) -> bool:
        """Whether the unmarked greedy decode of one block gives this answer."""
        if not prompt or not answer:
            return False
        config = DecodeConfig.of(self.model, length=len(answer), block_length=len(answer), temperature=0.0)
        return generations(Prepared.of(self.model, [Request(prompt, 0, None)], config), [0])[0].token_ids == answer


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
