"""From gradients to weights: the optimizer of each parameter, the rate of each step, the average of weights."""

from dataclasses import dataclass

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from dgmark.models.load import faster_dtype
from dgmark_lab.training.config import OptimizerSettings, Schedule
from dgmark_lab.training.muon import Muon


def trapezoid(step: int, schedule: Schedule) -> float:
    """Return the share of the peak rate at a step (from 0): linear up, constant, linear down; never zero."""
    up = (step + 1) / schedule.warmup_steps
    down = (schedule.steps - step) / max(schedule.decay_steps, 1) if step >= schedule.decay_start else 1.0
    return min(up, down, 1.0)


@dataclass(frozen=True)
class Optimizers:
    """Muon for the matrices of the blocks; AdamW for embeddings, heads, norms and biases."""

    muon: Muon
    adamw: torch.optim.AdamW
    settings: OptimizerSettings

    def step(self, share: float) -> None:
        """Update with `share` of the peak rates, and clear the gradients."""
        for optimizer, peak in ((self.muon, self.settings.muon_lr), (self.adamw, self.settings.adamw_lr)):
            for group in optimizer.param_groups:
                group["lr"] = peak * share
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)


def make_optimizers(module: nn.Module, settings: OptimizerSettings, device: torch.device) -> Optimizers:
    """Make both optimizers for a module's parameters."""
    matrices, others = split_parameters(module)
    muon = Muon(
        matrices,
        lr=settings.muon_lr,
        momentum=settings.muon_momentum,
        weight_decay=settings.weight_decay,
        dtype=faster_dtype(device),
    )
    adamw = torch.optim.AdamW(
        others,
        lr=settings.adamw_lr,
        betas=settings.adamw_betas,
        weight_decay=settings.weight_decay,
        fused=device.type == "cuda",
    )
    return Optimizers(muon, adamw, settings)


def split_parameters(module: nn.Module) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """Return (matrices of the blocks, all other parameters); a block is a member of a `ModuleList`."""
    inside = {
        id(param)
        for blocks in module.modules()
        if isinstance(blocks, nn.ModuleList)
        for param in blocks.parameters()
        if param.ndim == 2
    }
    params = list(module.parameters())
    return [one for one in params if id(one) in inside], [one for one in params if id(one) not in inside]


class Average:
    """Exponential moving average of a module's weights; short at first, so that it forgets the random start.

    Args:
        module: the module whose weights are averaged; the property `module` is a copy.
        decay: decay of the average, once (1 + step) / (10 + step) exceeds it.
    """

    def __init__(self, module: nn.Module, decay: float) -> None:
        self.averaged = AveragedModel(module)
        self.decay = decay

    @property
    def module(self) -> nn.Module:
        """A module with the averaged weights."""
        averaged: nn.Module = self.averaged.module
        return averaged

    def update(self, module: nn.Module, step: int) -> None:
        """Add the weights after a step (from 0) to the average."""
        decay = min(self.decay, (1 + step) / (10 + step))
        self.averaged.multi_avg_fn = get_ema_multi_avg_fn(decay)  # type: ignore[no-untyped-call]
        self.averaged.update_parameters(module)
