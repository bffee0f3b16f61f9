"""What measured figures depend on, as one line that reports, benchmarks and pages state, so that a test finds old ones.

Each part of the line is a name and a short hash: of the p-values that a rule gives to fixed texts, of the
tokens that decoding chooses on a toy, or of a model's weights.
"""

import hashlib
from collections.abc import Sequence
from functools import cache
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from dgmark.checkpoint.folder import BUILTIN, BUILTINS, builtin_folder
from dgmark.decode import generate
from dgmark.detection.detector import Detector
from dgmark.errors import SettingsError
from dgmark.models.toy import ToyDenoiser
from dgmark.watermark.bigram import BigramSpec, matching_pairs, pair_key, pair_words
from dgmark.watermark.key import SECRET_BYTES, ModelLike, WatermarkKey
from dgmark.watermark.rules import rule_names
from dgmark.watermark.spec import spec_as
from dgmark.watermark.word_classes import class_ids
from dgmark_lab.baselines import BASELINES
from dgmark_lab.baselines.replaymark import lend, replay
from dgmark_lab.baselines.rules import REPLAYMARK
from dgmark_lab.experiments.prompt_sets import builtin_prompts
from dgmark_lab.experiments.store import checkpoint_hash
from dgmark_lab.rule_keys import rule_key

DECODING, JUDGE = "decoding", "judge"
_TOY, _LENGTH = ToyDenoiser(words=80, end_ids=(), forbidden_bias=-1e3), 64
_READER = "toy of `made_with`"
# of dgmark's own rules
_SETTINGS: dict[str, tuple[dict[str, Any], ...]] = {
    "bigram": (
        {"temperature": 0, "bias": 1},
        {"temperature": 1, "steps": 32},
        {"temperature": 0.8, "top_p": 0.9, "alpha": 0.5},
    ),
    "position": (
        {"temperature": 0},
        {"temperature": 1, "alpha": 1},
        {"temperature": 0.8, "top_p": 0.9, "min_relative_reward": 0.05},
        {"temperature": 1, "lookahead": 3, "steps": 32},
    ),
}

# of baselines on the toy: Gumbel noise replaces the draw, and ReplayMark repeats it, which temperature 0 has not; the
# toy has no embeddings
_TEMPERATURES = {"gumbel": 1.0, REPLAYMARK.name: 1.0}
_OPTIONS: dict[str, dict[str, Any]] = {
    "tango": {"colours": "hash"},
    REPLAYMARK.name: {"text_length": _LENGTH, "reader": _READER},
}


def made_with(*names: str, **known: str) -> str:
    """The line for figures that depend on what is named.

    Args:
        names: installed rules (what is found under them), "decoding" (what is written under the rules) and
            "decoding-BASELINE", built-in models and "judge".
        known: hashes by name of what a stored run was made with, whatever they are today.

    Raises:
        SettingsError: nothing of this name is known.
    """
    parts = {name: identifier(name) for name in names} | known
    return f"Made with dgmark: {', '.join(f'{name} {parts[name][:8]}' for name in parts)}."


@cache
def identifier(name: str) -> str:
    """A hash of what this part computes on small fixed inputs: if it changes, figures that depend on it are old.

    Raises:
        SettingsError: nothing of this name is known.
    """
    if name in (*BUILTINS, JUDGE):
        return checkpoint_hash(builtin_folder(name))
    if name == DECODING:
        keys = {rule: _fixed_key(_TOY, rule) for rule in _SETTINGS}
        return _hash([[_written(key, "w0 w5 w3 w1", **one) for one in _SETTINGS[rule]] for rule, key in keys.items()])
    if name == REPLAYMARK.name:
        return _hash(_replayed())
    if name in rule_names():
        return _hash(_p_values(name))
    if (marked_by := name.removeprefix(f"{DECODING}-")) in BASELINES:
        return _hash(_decoded_by_baseline(marked_by))
    raise SettingsError(f"no part is called {name!r}: see `made_with`")


def _p_values(name: str) -> list[str]:
    """P-values to 6 digits, as the last ones depend on the processor: of the first built-in prompts, none of them
    marked, and for pairs of a long text that is marked in its middle, where parts matter.
    """
    own = name in _SETTINGS  # its keys are those that are made by default, but for sub-keys
    key = _fixed_key(BUILTIN, name if own else None)
    scorer = Detector(key if own else rule_key(name, key), fpr=1e-4)
    found = [scorer.detect(text).p_value for text in builtin_prompts()]
    if name == "bigram":  # whose test has parts
        found.append(scorer.detect(_marked_in_the_middle(key)).p_value)
    return [f"{p:.6g}" for p in found]


def _replayed() -> list[str]:
    """P-values to 6 digits of texts of the toy, which reads them again: prompts and texts of up to 64 tokens."""
    lend(_TOY, _READER)
    key = rule_key(REPLAYMARK.name, _fixed_key(_TOY, None), **_OPTIONS[REPLAYMARK.name])
    ids = np.random.default_rng(0).integers(2, _TOY.vocab_size - _TOY.padding, (8, _LENGTH)).tolist()
    texts = [(ids[0][: 5 * size], one[: 1 + 9 * size]) for size, one in enumerate(ids)]
    return [f"{replay(key, prompt, text, 1e-4).p_value:.6g}" for prompt, text in texts]


def _marked_in_the_middle(key: WatermarkKey) -> list[int]:
    """Random tokens; in the middle 400 of 2,800, each is that of four which matches best with those before it."""
    drawn = np.random.default_rng(0).integers(100, key.spec.table_size, (2800, 4))
    ids: list[int] = drawn[:, 0].tolist()
    for place in range(1200, 1600):
        before = np.array(ids[place - spec_as(BigramSpec, key).farthest : place])[None]
        words = pair_words(class_ids(key.spec, before), class_ids(key.spec, drawn[place])[:, None]).ravel()
        counts = matching_pairs(words, pair_key(key)).reshape(4, -1).sum(1)
        ids[place] = int(drawn[place, np.argmax(counts)])
    return ids


class _FixedNumbers:
    """Numbers of torch's generator, in place of those that follow from a seed (`dgmark.decode.steps.draws.Draws`)."""

    def __init__(self, seeds: Sequence[int], *_: object) -> None:
        self._generators = [torch.Generator().manual_seed(seed) for seed in seeds]

    def uniforms(self, rows: torch.Tensor, _: int, width: int) -> torch.Tensor:
        """Two numbers for each place of each canvas, in the order in which they are asked for."""
        drawn = [torch.rand(width, 2, generator=self._generators[row], dtype=torch.float64) for row in rows.tolist()]
        return torch.stack(drawn)


def _decoded_by_baseline(name: str) -> list[int]:
    """What the toy writes greedily under a baseline, as far as that can be."""
    if name == REPLAYMARK.name:
        lend(_TOY, _READER)
    key = rule_key(name, _fixed_key(_TOY, None), **_OPTIONS.get(name, {}))
    return _written(key, "w5 w3 w1", temperature=_TEMPERATURES.get(name, 0.0))


# figures over many texts do not depend on where random numbers come from
@patch("dgmark.decode.steps.proposals.Draws", _FixedNumbers)
def _written(key: WatermarkKey, prompt: str, **settings: Any) -> list[int]:
    """What the toy, whose arithmetic is exact, writes with these settings."""
    ids: list[int] = generate(_TOY, prompt, key=key, length=_LENGTH, **settings)[0].token_ids
    return ids


def _fixed_key(model: str | ModelLike, rule: str | None) -> WatermarkKey:
    return WatermarkKey(WatermarkKey.generate(model, rule=rule, subkeys=1).spec, "fixed", bytes(range(SECRET_BYTES)))


def _hash(content: Sequence[object]) -> str:
    return hashlib.sha256(repr(content).encode()).hexdigest()
