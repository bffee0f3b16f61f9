"""A masked diffusion model, marked or not, in the lm-evaluation-harness, which does tasks, prompts, answers and scores.

`python -m dgmark_lab.evaluate.harness run --model dgmark ...` is the harness's own command with this model in it.
"""

from collections.abc import Mapping
from functools import partial
from importlib.metadata import version
from typing import Any

from lm_eval.__main__ import cli_evaluate
from lm_eval.api.instance import Instance
from lm_eval.api.model import LM
from lm_eval.api.registry import register_model

from dgmark.checkpoint.folder import BUILTIN
from dgmark.decode.config import DecodeConfig
from dgmark.decode.texts.generation import generation_of
from dgmark.decode.texts.prepared import Prepared, check_marking, config_of
from dgmark.decode.texts.requests import Request, key_of_text
from dgmark.errors import SettingsError, without_errors
from dgmark.models.chat import template_of
from dgmark.models.denoiser import Denoiser, traits_of
from dgmark.models.load import load_model
from dgmark.watermark.key import WatermarkKey

# the harness's own default
MAX_GEN_TOKS = 256


@register_model("dgmark")
class DiffusionLM(LM):  # type: ignore[misc]
    """A model as the harness calls it; the arguments are what the harness's `--model_args` name.

    Args:
        pretrained: a model as `load_model` takes it, or a loaded one.
        key: a key or its file, to mark with; None for no mark.
        seed: request i is decoded with seed + i.
        batch_size: largest number of requests decoded at once.
        max_batch_size: ignored; the harness always gives it.
        device: see `load_model`, as `dtype` and `revision`.
        dtype: see `device`.
        revision: see `device`.
        decoding: decoding settings that hold for every task and override the task's own. Other settings come from the
            task (greedy if it states none), then from the rule of the key, then from the model.

    Attributes:
        truncated: number of prompts that lost their beginning to fit the context.

    Raises:
        DgmarkError: the model, the key or a decoding setting is unusable.
    """

    def __init__(
        self,
        pretrained: str | Denoiser = BUILTIN,
        *,
        key: WatermarkKey | str | None = None,
        seed: int = 0,
        batch_size: int | str = 8,
        max_batch_size: int | None = None,  # noqa: ARG002
        device: str | None = None,
        dtype: str | None = None,
        revision: str | None = None,
        **decoding: Any,
    ) -> None:
        super().__init__()
        loading: dict[str, Any] = {"device": device, "dtype": dtype, "revision": revision}
        self.model = load_model(pretrained, **loading) if isinstance(pretrained, str) else pretrained
        self.key = WatermarkKey.load(key) if isinstance(key, str) else key
        self.decoding = decoding
        self.seed, self.batch_size = seed, int(batch_size)
        self.truncated = 0
        check_marking(self.model, key_of_text(self.key), self.config({}))

    def get_model_info(self) -> dict[str, Any]:
        """What the harness's results record of the model, the key and the settings; the key's secret is not in it."""
        traits = traits_of(self.model)
        return {
            "model": traits.name,
            "dtype": traits.number_format,
            "tokenizer_fingerprint": self.model.tokenizer.fingerprint,
            "key_fingerprint": None if self.key is None else self.key.fingerprint,
            "rule": None if self.key is None else self.key.spec.rule,
            "decoding": self.decoding,
            "seed": self.seed,
            "truncated": self.truncated,
            "dgmark_version": version("dgmark"),
        }

    def config(self, arguments: Mapping[str, Any]) -> DecodeConfig:
        """The decoding settings for a task's generation arguments.

        Raises:
            SettingsError: a setting is invalid.
        """
        settings: dict[str, Any] = {**_sampling(arguments), **self.decoding}
        settings.setdefault("length", max(1, int(arguments.get("max_gen_toks", MAX_GEN_TOKS))))
        config = config_of(self.model, [self.key], settings)
        if config.length >= self.model.context_length:
            raise SettingsError(
                f"{config.length} tokens leave no room for a prompt: {traits_of(self.model).name} holds "
                f"{self.model.context_length} in all; ask for fewer (length=)"
            )
        return config

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:  # noqa: ARG002
        """Continue each context, up to the first of the task's stops.

        A response is always decoded whole; the task's stops cut it afterwards.
        """
        texts = [""] * len(requests)
        groups: dict[DecodeConfig, list[tuple[int, list[int]]]] = {}
        for index, request in enumerate(requests):
            context, arguments = request.args
            config = self.config(arguments)
            groups.setdefault(config, []).append((index, self._prompt(context, config.length)))
        for config, group in groups.items():
            group.sort(key=lambda one: len(one[1]))  # prompts of one length together, which need no padding
            asked = [Request(prompt, self.seed + index, self.key) for index, prompt in group]
            prepared = Prepared.of(self.model, asked, config, batch_size=self.batch_size)
            made = without_errors(prepared.results(partial(generation_of, prepared)))
            for (index, _), generation in zip(group, made, strict=True):
                texts[index] = self._cut(generation.token_ids, requests[index].args[1])
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
        self.truncated += surplus > 0
        return ids[surplus:]

    def _cut(self, ids: list[int], arguments: Mapping[str, Any]) -> str:
        text = self.model.tokenizer.decode(ids)
        until = arguments.get("until") or []
        for stop in [until] if isinstance(until, str) else until:
            text = text.split(stop, 1)[0] if stop else text
        return text


def _sampling(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """A task's sampling as decoding settings: greedy unless the task says otherwise."""
    if arguments.get("do_sample") is False:
        return {"temperature": 0.0}
    temperature = float(arguments.get("temperature", 1.0 if arguments.get("do_sample") else 0.0))
    names = [name for name in ("top_k", "top_p") if arguments.get(name) is not None and temperature > 0]
    filters = {name: arguments[name] for name in names}
    return {"temperature": temperature, **filters}


if __name__ == "__main__":
    cli_evaluate()
