"""The paper's benchmark settings, as data (appendix B, "Inference configurations").

The paper states block and total length. The number of few-shot examples, which it leaves open, is the harness's
default here. MMLU is answered by generating three tokens, not by likelihoods, which a watermark cannot change.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from dgmark.decode.config import Settings
from dgmark.errors import SettingsError


@dataclass(frozen=True)
class Preset:
    """Tasks of the harness, the response's length, and the block length by model; `unsafe` if answers are executed."""

    tasks: tuple[str, ...]
    length: int
    block_lengths: Mapping[str, int]
    unsafe: bool = False

    def decoding(self, model_name: str, family: str | None) -> Settings:
        """Return length and block length for a model: LLaDA 1.5 by its name, others by family, else those of LLaDA."""
        known = "llada-1.5" if "llada-1.5" in model_name.lower() else family
        return {"length": self.length, "block_length": self.block_lengths.get(known or "", self.block_lengths["llada"])}


PRESETS: dict[str, Preset] = {
    "mmlu": Preset(("mmlu_generative",), 3, {"llada": 3, "llada-1.5": 3, "dream": 3}),
    "gsm8k": Preset(("gsm8k",), 256, {"llada": 8, "llada-1.5": 16, "dream": 32}),
    "humaneval": Preset(("humaneval",), 512, {"llada": 8, "llada-1.5": 8, "dream": 32}, unsafe=True),
}


def preset_named(name: str) -> Preset:
    """Return a preset by its name.

    Raises:
        SettingsError: no preset has this name.
    """
    if name not in PRESETS:
        raise SettingsError(f"preset {name!r} is not one of: {', '.join(PRESETS)}")
    return PRESETS[name]
