"""How many operations of torch a decoding step takes outside the network, on any machine.

A small step takes as long as its operations are launched. Views and what numpy computes on the host are not counted.
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
from dgmark.watermark.key import WatermarkKey
from support.known_keys import bound_key

ROWS, STEPS = 8, 32
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
        self.counts[func.__name__.split(".")[0]] += not func.is_view
        return func(*args, **(kwargs or {}))

    def uncounted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, none of whose operations counts."""

        def call(*args: Any) -> Any:
            before = self.counts.copy()
            found = function(*args)
            self.counts = before
            return found

        return call


def counted(kind: str, *, fixed_shapes: bool = False) -> Counter[str]:
    """The operations of all steps of a block but the first and the last; all tokens survive re-tokenization.

    Args:
        kind: which keys the rows have.
        fixed_shapes: hash in torch, as on a device, and not in numpy.
    """
    model, mode, found = load_model("storyteller"), Operations(), list[Counter[str]]()
    config = DecodeConfig(length=STEPS + 2, block_length=STEPS + 2, temperature=0.5)
    ids = model.tokenizer.encode("Once upon a time there was")
    canvas = Canvas.after(torch.tensor([ids] * ROWS), config.length, model.mask_id)
    side, check = side_of_rows(keys_of(kind), "cpu", fixed_shapes=fixed_shapes), RoundTrip.of(model.tokenizer, 0)

    def opened(*args: Any) -> Any:
        session = open_session(*args)
        return Mock(begin=mode.uncounted(session.begin), step=mode.uncounted(session.step))

    with mode, patch.object(RoundTrip, "survives", lambda *_: True), patch.object(loop, "open_session", opened):
        for _ in collect_steps(model, canvas, decode_steps(model, canvas, config, side, [*range(ROWS)], check)):
            found.append(mode.counts)
            mode.counts = Counter()
    return sum(found[1:-1], Counter())


def keys_of(kind: str) -> list[WatermarkKey | None]:
    """Keys of the rows: none, one, sub-keys of one, or one for each row."""
    model = load_model("storyteller")
    if kind == "sub-keys":
        return [bound_key("counted", model, rule="bigram", subkeys=256).subkey(row) for row in range(ROWS)]
    names = {"one key": ["counted"] * ROWS, "a key for each row": [f"counted {row}" for row in range(ROWS)]}
    return [bound_key(name, model, rule="bigram") for name in names[kind]] if kind in names else [None] * ROWS


# the most operations of a step; and how many more there are with hashes in torch
MOST, HASHES = {"none": 48, "one key": 179, "sub-keys": 179, "a key for each row": 179}, 132


@pytest.mark.parametrize(("kind", "most"), MOST.items())
def test_a_step_takes_no_more_operations_than_are_stated(kind: str, most: int) -> None:
    assert counted(kind).total() <= most * STEPS


def test_with_hashes_in_torch_a_step_takes_no_more_than_are_stated() -> None:
    assert counted("a key for each row", fixed_shapes=True).total() <= (MOST["a key for each row"] + HASHES) * STEPS


if __name__ == "__main__":
    for kind in MOST:
        for fixed_shapes in (False, True):
            counts = counted(kind, fixed_shapes=fixed_shapes)
            print(f"\n{kind}{', hashes in torch' * fixed_shapes}: {counts.total() / STEPS:.1f} a step")
            print(", ".join(f"{name} {count / STEPS:.3g}" for name, count in counts.most_common()))
