"""A masked diffusion model for the lm-evaluation-harness: marked or not, by the loop of every other command.

The harness owns tasks, few-shot prompts, answers and scores; here are texts continued until a stop, and likelihoods.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lm_eval.api.instance import Instance
from lm_eval.api.model import LM

from dgmark.decode.config import DecodeConfig, Settings
from dgmark.decode.generation import generations
from dgmark.decode.prompts import Prepared, Request, config_of, steering_of
from dgmark.errors import SettingsError
from dgmark.lab.baselines import Scheme
from dgmark.lab.evaluate.monte_carlo import SAMPLES, answer_likelihood, parts
from dgmark.models.chat import template_of
from dgmark.models.denoiser import Denoiser
from dgmark.models.traits import traits_of
from dgmark.watermark.key import WatermarkKey

# The harness's own default where a task states none.
MAX_GEN_TOKS = 256


@dataclass(frozen=True)
class HarnessSettings:
    """How the model answers the harness.

    Attributes:
        decoding: settings of the decode that hold for every task, whatever the task asks for; of others the task's are
            taken (greedy where it asks for none), then the scheme's, then the model's.
        key: the key to mark with; None for no mark.
        scheme: another watermark than dgMARK.
        seed: request i is decoded with seed + i.
        batch_size: most requests decoded at once.
        samples: masked canvases of a likelihood ("mc_num").
        is_greedy: whether to decode each scored answer to tell if greedy decoding gives it; else it is said not to.
        pad: decode prompts of different lengths together; None for what `dgmark.generate` does.
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
        progress: told the number of requests that were finished.

    Attributes:
        counts: how many requests there were by kind, and how many "truncated" prompts lost their beginning to fit the
            context.

    Raises:
        SettingsError: invalid decoding settings.
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
        steering_of(model, settings.key, settings.scheme).check(self.config({}))

    def config(self, asked: Mapping[str, Any]) -> DecodeConfig:
        """The settings of the decode for a task's generation arguments.

        Raises:
            SettingsError: they are invalid.
        """
        given: dict[str, Any] = {**_sampling(asked), **self.settings.decoding}
        if "length" not in given:
            scheme = self.settings.scheme
            defaults = {**traits_of(self.model).defaults, **(scheme.defaults if scheme else {}), **given}
            block = int(defaults.get("block_length", DecodeConfig.block_length))
            given["length"] = -(-_most_tokens(asked) // block) * block
        config = config_of(self.model, self.settings.scheme, given)  # type: ignore[arg-type]
        if config.length >= self.model.context_length:
            raise SettingsError(
                f"{config.length} tokens leave no room for a prompt: {traits_of(self.model).name} holds "
                f"{self.model.context_length} in all; give a smaller --length"
            )
        return config

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:  # noqa: ARG002
        """Texts that continue contexts, up to the first of the task's stops.

        A response is decoded whole: stops and the task's `max_gen_toks` cut what is there.
        """
        texts = [""] * len(requests)
        groups: dict[DecodeConfig, list[tuple[int, list[int]]]] = {}
        for index, request in enumerate(requests):
            context, asked = request.args
            config = self.config(asked)
            groups.setdefault(config, []).append((index, self._prompt(context, config.length)))
        for config, group in groups.items():
            group.sort(key=lambda one: len(one[1]))  # of one length together, which need no padding
            prepared = self._prepared(group, config)
            for rows in prepared.chunks():
                for (index, _), made in zip(group[rows.start : rows.stop], generations(prepared, rows), strict=True):
                    texts[index] = self._cut(made.token_ids, requests[index].args[1])
                    self.cache_hook.add_partial("generate_until", requests[index].args, texts[index])
                self._progress(len(rows))
        self.counts["generate_until"] += len(requests)
        return texts

    def loglikelihood(self, requests: list[Instance], disable_tqdm: bool = False) -> list[tuple[float, bool]]:  # noqa: ARG002
        """Lower bounds of the likelihoods of continuations, and whether greedy decoding gives them (if asked for)."""
        found = []
        for request in requests:
            context, continuation = request.args
            blank = len(context) - len(context.rstrip())  # spaces belong to the word behind them
            answer = self.model.tokenizer.encode(context[len(context) - blank :] + continuation)
            prompt = self._fitted(self.model.tokenizer.encode(context[: len(context) - blank]), len(answer))
            bound = self._bound(prompt, answer)
            found.append((bound, self.settings.is_greedy and self._is_greedy(prompt, answer)))
            self.cache_hook.add_partial("loglikelihood", request.args, found[-1])
            self._progress(1)
        self.counts["loglikelihood"] += len(requests)
        return found

    def loglikelihood_rolling(self, requests: list[Instance], disable_tqdm: bool = False) -> list[float]:  # noqa: ARG002
        """Lower bounds of the likelihoods of whole texts; long ones part by part, each after half a context."""
        found = []
        for request in requests:
            (text,) = request.args
            ids = self.model.tokenizer.encode(text)
            bounds = [self._bound(given, scored) for given, scored in parts(ids, self.model.context_length)]
            found.append(sum(bounds))
            self.cache_hook.add_partial("loglikelihood_rolling", request.args, found[-1])
            self._progress(1)
        self.counts["loglikelihood_rolling"] += len(requests)
        return found

    @property
    def tokenizer_name(self) -> str:
        """What the harness's caches of requests know the template by."""
        return f"{traits_of(self.model).name}-{self.model.tokenizer.vocabulary_fingerprint}".replace("/", "__")

    def chat_template(self, chat_template: bool | str = False) -> str | None:
        """The template of the model's family, for the harness's records.

        Raises:
            SettingsError: a template by name, or the family has none.
        """
        if isinstance(chat_template, str):
            raise SettingsError(f"there is no chat template {chat_template!r}: a family has one")
        return template_of(self.model) if chat_template else ""

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        """One turn of chat: what the system says before the user's message, and the beginning of an answer, if any.

        Raises:
            SettingsError: more turns than one, or the model has no template.
        """
        roles = [message["role"] for message in chat_history]
        turn = ["user"] if add_generation_prompt else ["user", "assistant"]
        if roles not in (turn, ["system", *turn]):
            raise SettingsError(f"the chat templates here hold one turn, not {', '.join(roles)}")
        said = [message["content"] for message in chat_history if message["role"] != "assistant"]
        answer = "" if add_generation_prompt else chat_history[-1]["content"]
        return template_of(self.model).replace("{prompt}", "\n\n".join(said).strip()) + answer

    def _prompt(self, context: str, length: int) -> list[int]:
        ids = self.model.tokenizer.encode(context)
        if not ids:
            raise SettingsError("the harness asks for a continuation of nothing; give the task a prompt")
        return self._fitted(ids, length)

    def _fitted(self, prompt: list[int], room: int) -> list[int]:
        """The end of a prompt that leaves room for so many tokens."""
        kept = max(0, self.model.context_length - room)
        self.counts["truncated"] += len(prompt) > kept
        return prompt[max(0, len(prompt) - kept) :]

    def _prepared(self, prompts: Sequence[tuple[int, list[int]]], config: DecodeConfig) -> Prepared:
        """Numbered prompts, ready to decode."""
        settings = self.settings
        return Prepared.of(
            self.model,
            [Request(prompt, settings.seed + index, settings.key) for index, prompt in prompts],
            config,
            scheme=settings.scheme,
            pad=settings.pad,
            batch_size=settings.batch_size,
        )

    def _cut(self, ids: list[int], asked: Mapping[str, Any]) -> str:
        if "length" not in self.settings.decoding:
            ids = ids[: _most_tokens(asked)]
        text = self.model.tokenizer.decode(ids)
        until = asked.get("until") or []
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


def _most_tokens(asked: Mapping[str, Any]) -> int:
    return max(1, int(asked.get("max_gen_toks", MAX_GEN_TOKS)))


def _sampling(asked: Mapping[str, Any]) -> dict[str, Any]:
    """A task's sampling in the decoder's words: greedy unless it says otherwise."""
    if asked.get("do_sample") is False:
        return {"temperature": 0.0}
    temperature = float(asked.get("temperature", 1.0 if asked.get("do_sample") else 0.0))
    filters = {name: asked[name] for name in ("top_k", "top_p") if asked.get(name) is not None and temperature > 0}
    return {"temperature": temperature, **filters}
