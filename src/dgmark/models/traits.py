"""The traits that a model may state about itself in addition to its logits, and their defaults."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, get_args

import torch

from dgmark.errors import SettingsError

# The distribution that rewards are taken from.
ConfidenceSource = Literal["model", "sampling"]
# Where the first block starts.
BlockOrigin = Literal["response", "canvas"]


@dataclass(frozen=True)
class Traits:
    """The facts about a model that decoding, results and checks read.

    Attributes:
        name: the model's name in results.
        device: the device on which the model takes its ids.
        dtype: number format of the forward; None if the model does not state it.
        quantization: how the weights are quantized, like "int4"; None if they are not.
        defaults: decoding settings for those that the user leaves out, such as `block_length` and `cache`.
        confidence_source: the distribution that rewards are taken from. "model" (LLaDA): softmax of the logits, neither
            tempered nor filtered. "sampling" (Dream, LLaDA2): the distribution that the token is drawn from: logits /
            temperature, top-k and top-p applied, renormalised. At temperature 0 both are the softmax of the logits.
        block_origin: where the first block starts. "response": at the first generated position. "canvas" (LLaDA2):
            at position 0 of the canvas, so that block b is the positions [b * block_length, (b + 1) * block_length) of
            prompt and response together; the first block may begin in the prompt, and the last may be cut short.
        block_multiple: positions in a block of the model's own attention mask (LLaDA2: 32), counted from position 0 of
            the canvas; `block_length` must divide it. None if the model attends to the whole canvas.
        pads: whether the model's sessions take padding: rows with prompts of different lengths in one batch.
    """

    name: str
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    dtype: torch.dtype | str | None = None
    quantization: str | None = None
    defaults: Mapping[str, Any] = field(default_factory=dict)
    confidence_source: ConfidenceSource = "model"
    block_origin: BlockOrigin = "response"
    block_multiple: int | None = None
    pads: bool = False

    def __post_init__(self) -> None:
        for trait, value, known in (
            ("confidence_source", self.confidence_source, get_args(ConfidenceSource)),
            ("block_origin", self.block_origin, get_args(BlockOrigin)),
        ):
            if value not in known:
                raise SettingsError(f"{self.name} states {trait} {value!r}, which is not one of: {', '.join(known)}")

    @property
    def number_format(self) -> str | None:
        """The dtype as written in results, like "float32" or "bfloat16+int4"; None if the model does not state it."""
        return None if self.dtype is None else number_format(self.dtype, self.quantization)


def number_format(dtype: torch.dtype | str, quantization: str | None) -> str:
    """The dtype and the quantization as written in results."""
    return str(dtype).removeprefix("torch.") + (f"+{quantization}" if quantization else "")


def traits_of(model: object) -> Traits:
    """The traits of a model: its `traits`, or its plain attributes with the names of traits.

    A model of your own needs neither. Its name is then that of its class, its device is the CPU, and it is decoded like
    LLaDA.

    Raises:
        SettingsError: a trait has an invalid value.
    """
    stated = getattr(model, "traits", None)
    if isinstance(stated, Traits):
        return stated
    absent = object()
    attributes = {trait.name: getattr(model, trait.name, absent) for trait in fields(Traits)}
    traits: dict[str, Any] = {name: value for name, value in attributes.items() if value is not absent}
    traits["name"] = str(traits.get("name", type(model).__name__))
    if "device" in traits:
        traits["device"] = torch.device(traits["device"])
    return Traits(**traits)
