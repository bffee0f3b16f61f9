"""What measured figures depend on, as one line that reports, benchmarks and pages state, so that a test finds old ones.

Each part of the line is a name and a short hash: of the p-values that a rule or a baseline gives to fixed texts, of the
tokens that decoding chooses on a toy, or of a model's weights.
"""

import hashlib
import json
from collections.abc import Sequence
from functools import cache
from typing import cast, get_args

import torch

from dgmark.checkpoint.folder import BUILTIN, BUILTINS, builtin_folder
from dgmark.decode import DecodeConfig, decode, generate
from dgmark.decode.matching import key_steering
from dgmark.detection.detector import Detector
from dgmark.errors import SettingsError
from dgmark.models.toy import ToyDenoiser
from dgmark.version import __version__
from dgmark.watermark.groups import SECRET_BYTES, Rule
from dgmark.watermark.key import ModelLike, WatermarkKey
from dgmark_lab.baselines import BASELINES, Gumbel, baseline
from dgmark_lab.experiments.prompt_sets import BUILTIN_PROMPTS
from dgmark_lab.experiments.store import checkpoint_hash

DECODING, JUDGE = "decoding", "judge"
_TOY, _LENGTH = ToyDenoiser(words=80, end_ids=(), forbidden_bias=-1e3), 64


def made_with(*names: str, **known: str) -> str:
    """The line for figures that depend on what is named.

    Args:
        names: rules and baselines (what is found under them), "decoding" (what is written under the rules) and
            "decoding-BASELINE", built-in models and "judge".
        known: hashes by name of what a stored run was made with, whatever they are today.

    Raises:
        SettingsError: nothing of this name is known.
    """
    parts = {name: identifier(name) for name in names} | known
    return f"Made with dgmark {__version__}, {', '.join(f'{name} {parts[name][:8]}' for name in parts)}."


@cache
def identifier(name: str) -> str:
    """A hash that changes when figures that depend on this part may change.

    Raises:
        SettingsError: nothing of this name is known.
    """
    if name in (*BUILTINS, JUDGE):
        return checkpoint_hash(builtin_folder(name))
    if name == DECODING:
        return _hash(_decoded())
    if name in get_args(Rule) or name in BASELINES:
        return _hash(_p_values(name))
    if (marked_by := name.removeprefix(f"{DECODING}-")) in BASELINES:
        return _hash(_decoded_by_baseline(marked_by))
    raise SettingsError(f"no part is called {name!r}: see `made_with`")


def _p_values(name: str) -> list[str]:
    """The p-values of the first built-in prompts, to 6 digits: the last ones depend on the processor."""
    of_baseline = name in BASELINES
    key = _fixed_key(BUILTIN, None if of_baseline else cast(Rule, name))
    scorer = baseline(name).detector(key, fpr=1e-4) if of_baseline else Detector(key)
    prompts = [json.loads(row)["prompt"] for row in BUILTIN_PROMPTS.read_text(encoding="utf-8").splitlines()]
    return [f"{scorer.detect(prompt).p_value:.6g}" for prompt in prompts]


def _decoded() -> list[list[int]]:
    """What a toy writes greedily under each rule, whose arithmetic is exact: no processor changes a token."""
    prompts, config = torch.tensor([[2, 7, 5, 3]]), DecodeConfig(length=_LENGTH, temperature=0)
    steerings = [key_steering([_fixed_key(_TOY, rule)], prompts.device) for rule in get_args(Rule)]
    return [decode(_TOY, prompts, config, steering, seeds=[0])[0].token_ids for steering in steerings]


def _decoded_by_baseline(name: str) -> list[int]:
    """What the toy writes greedily under a baseline; Gumbel noise replaces the draw, so it takes a temperature."""
    temperature = float(name == Gumbel.name)
    key, made = _fixed_key(_TOY, None), baseline(name)
    return generate(_TOY, "w5 w3 w1", key=key, baseline=made, length=_LENGTH, temperature=temperature)[0].token_ids


def _fixed_key(model: str | ModelLike, rule: Rule | None) -> WatermarkKey:
    return WatermarkKey(WatermarkKey.generate(model, rule=rule).spec, "fixed", bytes(range(SECRET_BYTES)))


def _hash(content: Sequence[object]) -> str:
    return hashlib.sha256(repr(content).encode()).hexdigest()
