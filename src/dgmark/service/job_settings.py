"""The decoding settings of a job: what the request names, and of the service's own what fits beside it.

What a request does not name is no fault of its sender's: the service's block, steps and limits follow the text's length
and the request's settings. Also tells which settings leave less of a mark than the service's own.
"""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from dgmark.decode.config import DecodeConfig
from dgmark.decode.infilling import config_of_holes
from dgmark.decode.prompts import rule_of
from dgmark.errors import SettingsError
from dgmark.models.denoiser import Denoiser, traits_of
from dgmark.service.jobs import FieldError, Job
from dgmark.watermark.key import WatermarkKey

# tokens of a text that must be marked; the model's block if that is shorter
MIN_TOKENS = 32
# a smaller value leaves less choice of order or of tokens, or moves less mass
_LESS = ("temperature", "top_p", "top_k", "alpha", "bias", "block_length", "steps", "lookahead")
_MORE = ("guard", "repetition_guard")
_ALIKE = ("edit_threshold",)  # an edit loses no match
_CALLED = {"steps": "num_denoising_steps"}


def config_of_text(model: Denoiser, job: Job, room: int) -> DecodeConfig:
    """The settings of a text in whole blocks.

    Args:
        model: the model.
        job: the job.
        room: the most tokens that fit beside the prompt.

    Raises:
        FieldError: the request asks for blocks that are longer than the text.
        SettingsError: a setting is invalid.
    """
    own = _beside(job)
    most = job.max_tokens or min(own.get("length", DecodeConfig.length), room)
    block = _block_length(model, job, most)
    length = most // block * block
    if own.get("steps") is not None:
        own["steps"] = _steps(job, length, block)
    return DecodeConfig.of(model, **{**own, **job.settings, "length": length, "block_length": block})


def config_of_filling(model: Denoiser, job: Job) -> DecodeConfig:
    """The settings of an infilling, whose holes set its length and steps.

    Raises:
        SettingsError: a setting is invalid.
    """
    own = {name: value for name, value in _beside(job).items() if name not in ("length", "steps")}
    return config_of_holes(model, {**own, **job.settings})


def check_marked(model: Denoiser, key: WatermarkKey, job: Job, config: DecodeConfig, tokens: int) -> None:
    """Refuse what can carry no mark, and what is too short to where every text must be marked.

    Args:
        model: the model.
        key: the key, or the sub-key, of the job.
        job: the job.
        config: its settings.
        tokens: how many tokens are written.

    Raises:
        FieldError: the settings leave no mark; or the text is too short.
    """
    block, steps = config.block_length, config.steps
    try:
        rule_of(model, key).check(config)
    except SettingsError as error:
        cause = "lookahead" if config.lookahead > 1 else "guard" if config.guard else "repetition_guard"
        if not config.bias and (config.greedy or config.alpha == 0):
            cause = "temperature" if config.greedy else "alpha"
        raise FieldError(str(error), cause if cause in job.settings else "") from None
    # one token at a time leaves no choice of order, and tokens of one step complete no pair together
    at_once = steps is not None and steps * block <= tokens
    if (key.spec.rule == "position" and block == 1 < tokens) or (at_once and block > 1):
        raise FieldError(
            "these settings leave hardly any mark: use a block length above 1 and more steps than blocks, or turn the "
            "watermark off",
            param="block_length" if block == 1 else "num_denoising_steps",
        )
    if job.enforced and tokens < (fewest := _min_tokens(model, job)):
        raise FieldError(
            f"every text of this service is marked, and {tokens} tokens are too few for that: ask for {fewest} or more",
            param=_size_param(job),
        )


def weakened(model: Denoiser, key: WatermarkKey, job: Job, tokens: int) -> list[str]:
    """The fields of a request that leave less of a mark than the service's own settings."""
    alpha = float(key.spec.rule == "bigram")
    own = {**asdict(DecodeConfig(alpha=alpha)), **traits_of(model).defaults, **job.own}
    named = [_CALLED.get(name, name) for name, value in job.settings.items() if _weaker(name, value, own[name], tokens)]
    return [*named, _size_param(job)] if tokens < _min_tokens(model, job) else named


def _weaker(name: str, value: Any, own: Any, tokens: int) -> bool:
    if name in _LESS:
        most = tokens if name == "steps" else 1.0 if name == "top_p" else float("inf")
        # a block is as long as the text at most
        return bool(value < (most if own is None else min(own, tokens) if name in ("block_length", "steps") else own))
    return bool(value > own) if name in _MORE else bool(value != own) and name not in _ALIKE


def _beside(job: Job) -> dict[str, Any]:
    """The service's own settings that make sense beside those of the request."""
    asked, strategy = job.settings, job.settings.get("strategy", "confidence")
    without = set(asked)
    if asked.get("temperature") == 0:
        without |= {"top_k", "top_p"}
    if asked.get("commit", "quota") != "quota":
        without.add("steps")
    if "steps" in asked or strategy != "confidence":
        without |= {"commit", "threshold", "factor"}
    if strategy != "confidence":
        without.add("edit_threshold")
    if strategy in ("random", "left_to_right"):
        without |= {"guard", "lookahead"}
    return {name: value for name, value in job.own.items() if name not in without}


def _block_length(model: Denoiser, job: Job, most: int) -> int:
    traits, asked = traits_of(model), job.settings.get("block_length")
    if asked is not None and asked > most:
        raise FieldError(
            f"block length {asked} is longer than the response of at most {most} tokens: reduce it",
            param="block_length",
        )
    block: int = asked or _own_block(model, job.own)
    if block > most:
        whole = traits.block_multiple or most
        block = next(size for size in range(min(most, whole), 0, -1) if whole % size == 0)
    return block


def _steps(job: Job, length: int, block: int) -> int:
    """The service's own number of steps, for a text of another length: as many tokens a step, as nearly as may be."""
    own_length = job.own.get("length", DecodeConfig.length)
    fewest = 1 if job.key is None else min(2, block)
    in_block = min(block, max(fewest, round(job.own["steps"] * block / own_length)))
    return int(length // block * in_block)


def _own_block(model: Denoiser, own: Mapping[str, Any]) -> int:
    defaults = traits_of(model).defaults
    return int(own.get("block_length") or defaults.get("block_length", DecodeConfig.block_length))


def _min_tokens(model: Denoiser, job: Job) -> int:
    return min(MIN_TOKENS, _own_block(model, job.own))


def _size_param(job: Job) -> str:
    """The field that says how much is written."""
    return "max_tokens" if job.max_tokens is not None else job.prompt_param
