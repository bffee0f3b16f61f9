"""How many operations of torch a decoding step takes outside the network, on any machine.

A small step takes as long as its operations are launched. Views and what numpy computes on the host are not counted.
The hash of pairs is one operation, as on CUDA with Triton. A device is one that the CPU plays.
To print the counts by kind: `PYTHONPATH=tests python tests/decode/test_operation_counts.py`
"""

from collections import Counter
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock, patch

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from dgmark import load_model
from dgmark.decode import Canvas, DecodeConfig, RoundTrip, decode_steps, side_of_rows
from dgmark.decode.steps import loop
from dgmark.decode.steps.canvas import collect_steps
from dgmark.models.denoiser import open_session
from dgmark.models.load import NetworkDenoiser
from dgmark.watermark.key import WatermarkKey
from support.known_keys import bound_key
from support.other_device import DEVICE, Far, OtherDevice

ROWS, STEPS = 8, 8
_IMPLICIT = torch._C.DispatchKey.CompositeImplicitAutograd


class Operations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While it is entered, operations that are no views are counted by kind.

    Attributes:
        counts: how many of each kind there were.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.counts = Counter[str]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Count an operation, or those that it is made of."""
        if func.has_kernel_for_dispatch_key(_IMPLICIT):
            with self:
                found = func.decompose(*args, **(kwargs or {}))
            if found is not NotImplemented:
                return found
        name = func.__name__.split(".")[0]
        self.counts[name] += not func.is_view and name != "_unsafe_view"
        return func(*args, **(kwargs or {}))

    def uncounted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, none of whose operations counts."""

        def call(*args: Any) -> Any:
            before = self.counts.copy()
            found = function(*(getattr(one, "near", one) for one in args))
            self.counts = before
            return Far(found) if isinstance(args[0], Far) else found

        return call


def counted(model: NetworkDenoiser, kind: str, device: torch.device) -> Counter[str]:
    """The operations of all steps of a block but the first and the last; all tokens survive re-tokenization.

    Args:
        model: the storyteller in fp32; in bf16 a step takes one operation more.
        kind: which keys the rows have.
        device: the device of the canvas.
    """
    mode, found = Operations(), list[Counter[str]]()
    config = DecodeConfig(length=STEPS + 2, block_length=STEPS + 2, temperature=0.5)
    ids = model.tokenizer.encode("Once upon a time there was")

    def opened(*args: Any) -> Any:
        session = open_session(*args)
        return Mock(begin=mode.uncounted(session.begin), step=mode.uncounted(session.step))

    with (
        patch.object(RoundTrip, "survives", lambda *_: True),
        patch.object(loop, "open_session", opened),
        patch.object(torch, "inference_mode", torch.no_grad),  # no tensors of the device can be views of its tensors
        mode,
        OtherDevice(),
    ):
        canvas = Canvas.after(torch.tensor([ids] * ROWS), config.length, model.mask_id).to(device)
        side, check = side_of_rows(keys_of(model, kind), device), RoundTrip.of(model.tokenizer, 0)
        for _ in collect_steps(model, canvas, decode_steps(model, canvas, config, side, [*range(ROWS)], check)):
            found.append(mode.counts)
            mode.counts = Counter()
    return sum(found[1:-1], Counter())


def keys_of(model: NetworkDenoiser, kind: str) -> list[WatermarkKey | None]:
    """Keys of the rows: none, one, sub-keys of one with pairs at distance 0 or without, or one for each row."""
    if kind.startswith("sub-keys"):
        nearest = 1 - kind.endswith("distance 0")
        key = bound_key("counted", model, rule="bigram", nearest=nearest, subkeys=256)
        return [key.subkey(row) for row in range(ROWS)]
    names = {"one key": ["counted"] * ROWS, "a key for each row": [f"counted {row}" for row in range(ROWS)]}
    return [bound_key(name, model, rule="bigram") for name in names[kind]] if kind in names else [None] * ROWS


# the most operations of a step, on the CPU and on a device
MOST = {"none": (49, 61), "one key": (156, 162), "sub-keys": (156, 162), "a key for each row": (156, 162)}
MOST |= {"sub-keys, distance 0": (168, 177)}


@pytest.mark.parametrize("device", [torch.device("cpu"), DEVICE])
@pytest.mark.parametrize("kind", MOST)
def test_a_step_takes_no_more_operations_than_are_stated(
    storyteller: NetworkDenoiser, kind: str, device: torch.device
) -> None:
    assert counted(storyteller, kind, device).total() <= MOST[kind][device == DEVICE] * STEPS


if __name__ == "__main__":
    loaded = load_model(dtype="fp32", device="cpu")
    assert isinstance(loaded, NetworkDenoiser)
    for kind in MOST:
        for device in (torch.device("cpu"), DEVICE):
            counts = counted(loaded, kind, device)
            print(f"\n{kind}, {'a device' if device == DEVICE else 'CPU'}: {counts.total() / STEPS:.1f} a step")
            print(", ".join(f"{name} {count / STEPS:.3g}" for name, count in counts.most_common()))
