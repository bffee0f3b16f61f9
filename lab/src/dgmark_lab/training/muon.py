"""Muon: momentum with orthogonalised updates, for the matrices of the network.

The rule is that of `torch.optim.Muon`, which casts every matrix to bf16 and updates them one by one. Here matrices of
one shape go through the Newton-Schulz iteration together, in bf16 only if the device multiplies it natively. On a CPU
without bf16 units torch's own takes longer than the rest of the step.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

# quintic iteration, steepest at zero: singular values end at about 0.7..1.2
_COEFFICIENTS = (3.4445, -4.775, 2.0315)
_STEPS = 5
_TINY = 1e-7


class Muon(torch.optim.Optimizer):
    """Keller Jordan's Muon with Nesterov momentum and decoupled weight decay.

    Args:
        params: the parameters; all must be matrices.
        lr: step size; scaled by sqrt(max(1, rows / columns)).
        momentum: decay of the running mean of gradients.
        weight_decay: each step shrinks parameters by the share lr * weight_decay.
        dtype: number format of the iteration.
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        *,
        lr: float,
        momentum: float = 0.95,
        weight_decay: float = 0.0,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})
        self._dtype = dtype
        if any(one.ndim != 2 for group in self.param_groups for one in group["params"]):
            raise ValueError("Muon takes matrices only")

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        """Update every parameter that has a gradient."""
        if closure is not None:
            raise ValueError("Muon takes no closure")
        for group in self.param_groups:
            same_shape: dict[torch.Size, list[Tensor]] = defaultdict(list)
            for param in group["params"]:
                if param.grad is not None:
                    same_shape[param.shape].append(param)
            for params in same_shape.values():
                self._update(params, **{name: group[name] for name in ("lr", "momentum", "weight_decay")})

    def _update(self, params: list[Tensor], lr: float, momentum: float, weight_decay: float) -> None:
        updates = []
        for param in params:
            assert param.grad is not None
            state = self.state[param]
            if not state:
                state["momentum_buffer"] = torch.zeros_like(param)
            buffer = state["momentum_buffer"].lerp_(param.grad, 1 - momentum)
            updates.append(param.grad.lerp(buffer, momentum))
        directions = orthogonalise(torch.stack(updates).to(self._dtype))
        rows, columns = params[0].shape
        for param, direction in zip(params, directions, strict=True):
            param.mul_(1 - lr * weight_decay)
            param.add_(direction.to(param.dtype), alpha=-lr * max(1, rows / columns) ** 0.5)


def orthogonalise(matrices: Float[Tensor, "batch rows columns"]) -> Float[Tensor, "batch rows columns"]:
    """Drive the singular values of each matrix towards 1 (Newton-Schulz, five steps)."""
    if matrices.shape[1] > matrices.shape[2]:
        transposed: Tensor = orthogonalise(matrices.mT)
        return transposed.transpose(1, 2)
    first, third, fifth = _COEFFICIENTS
    x: Tensor = matrices / matrices.norm(dim=(1, 2), keepdim=True).clamp(min=_TINY)
    for _ in range(_STEPS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=third, alpha=fifth), x, beta=first)
    return x
