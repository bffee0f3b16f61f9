"""What the loop asks of a model beyond logits, and what holds where the model does not say."""

from dataclasses import dataclass, field

import pytest
import torch
from torch import Tensor

from dgmark.errors import SettingsError
from dgmark.models.denoiser import (
    BlockOrigin,
    CacheMode,
    ConfidenceSource,
    Session,
    block_multiple_of,
    block_origin_of,
    confidence_of,
    defaults_of,
    open_session,
    pads_of,
)
from dgmark.models.toy import ToyDenoiser


@dataclass(frozen=True)
class Particular(ToyDenoiser):
    """A toy that states all that a model can state."""

    defaults: dict[str, object] = field(default_factory=lambda: {"block_length": 8})
    confidence_source: ConfidenceSource = "sampling"
    block_origin: BlockOrigin = "canvas"
    block_multiple: int = 16
    pads: bool = True
    opened: list[Tensor | None] = field(default_factory=list)

    def session(self, cache: CacheMode, padding: Tensor | None = None) -> Session:
        self.opened.append(padding)
        return open_session(ToyDenoiser(), cache)


def test_what_a_model_does_not_say_is_llada() -> None:
    toy = ToyDenoiser()
    assert dict(defaults_of(toy)) == {}
    assert (confidence_of(toy), block_origin_of(toy), block_multiple_of(toy)) == ("model", "response", None)
    assert not pads_of(toy)


def test_what_a_model_says_holds() -> None:
    model = Particular()
    assert dict(defaults_of(model)) == {"block_length": 8}
    assert (confidence_of(model), block_origin_of(model), block_multiple_of(model)) == ("sampling", "canvas", 16)
    assert pads_of(model)


def test_padding_reaches_a_model_that_takes_it_and_only_if_there_is_any() -> None:
    model, padding = Particular(), torch.tensor([0, 3])
    open_session(model, "none", padding)
    open_session(model, "none", torch.zeros(2, dtype=torch.long))
    open_session(model)
    assert model.opened[0] is padding
    assert model.opened[1:] == [None, None]


def test_padding_is_refused_by_a_model_that_would_attend_to_it() -> None:
    with pytest.raises(SettingsError, match="toy cannot leave padding out"):
        open_session(ToyDenoiser(), "none", torch.tensor([0, 3]))
    open_session(ToyDenoiser(), "none", torch.tensor([0, 0]))
