"""What the host reads of tensors on a device, in few waits: a device that works ahead of the host stops for each.

On the CPU there is nothing to wait for, so that each function takes the way with the least work there.
"""

import numpy as np
import torch
from jaxtyping import Bool, Int
from numpy.typing import NDArray
from torch import Tensor


def waits(values: Tensor) -> bool:
    """Whether reading these values waits for a device."""
    return values.device.type != "cpu"


def on_host(*tensors: Tensor) -> list[Tensor]:
    """These tensors on the CPU, with one wait for all those of the device."""
    far = [tensor for tensor in tensors if waits(tensor)]
    if not far:
        return list(tensors)
    read = iter(_read_together(far))
    return [next(read) if waits(tensor) else tensor for tensor in tensors]


def _read_together(tensors: list[Tensor]) -> list[Tensor]:
    # wide numbers first, so that each begins at a multiple of its size
    order = sorted(range(len(tensors)), key=lambda number: -tensors[number].element_size())
    parts = [tensors[number].unsqueeze(-1).view(torch.uint8).reshape(-1) for number in order]
    together = torch.split_with_sizes(torch.cat(parts).cpu(), [len(part) for part in parts])
    found = dict(zip(order, together, strict=True))
    return [found[number].view(tensor.dtype).view(tensor.shape) for number, tensor in enumerate(tensors)]


def on_device(values: Tensor, device: torch.device) -> Tensor:
    """Values of the host on a device, without waiting for it."""
    return values.to(device, non_blocking=True)


def true_on_host(values: NDArray[np.bool_]) -> Int[Tensor, " k"]:
    """The places of the true values of a row."""
    return torch.from_numpy(values.nonzero()[0])


def true_places(
    masked: Bool[Tensor, "rows columns"], count: int | None = None
) -> tuple[Int[Tensor, " k"], Int[Tensor, " k"]]:
    """Row and column of each true value, row after row; if the host knows their number, this does not wait."""
    if not waits(masked):
        row, column = map(torch.from_numpy, masked.numpy().nonzero())
        return row, column
    if count is None:
        row, column = masked.nonzero(as_tuple=True)
        return row, column
    places = masked.reshape(-1).to(torch.uint8).sort(descending=True, stable=True).indices[:count]
    return places // masked.shape[1], places % masked.shape[1]
