"""Muon, which parameters it takes, rates over a run, and the average of the weights."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from dgmark_lab.training.config import Schedule
from dgmark_lab.training.muon import Muon, orthogonalise
from dgmark_lab.training.optimization import Average, split_parameters, trapezoid
from dgmark_lab.training.shards import Shards
from support.training_setup import tiny, trainer


def test_muon_moves_as_torch_s_own() -> None:
    torch.manual_seed(0)
    shapes = [(12, 8), (8, 12), (12, 8), (8, 8)]
    ours = [nn.Parameter(torch.randn(shape)) for shape in shapes]
    theirs = [nn.Parameter(one.detach().clone()) for one in ours]
    options: dict[str, Any] = {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.1}
    mine, reference = Muon(ours, dtype=torch.bfloat16, **options), torch.optim.Muon(theirs, nesterov=True, **options)
    for _ in range(4):
        for left, right in zip(ours, theirs, strict=True):
            left.grad = torch.randn_like(left)
            right.grad = left.grad.clone()
        mine.step()
        reference.step()  # type: ignore[no-untyped-call]
    for left, right in zip(ours, theirs, strict=True):
        torch.testing.assert_close(left, right, rtol=0, atol=0.01)  # both iterate in bf16: an update is about 0.2 long


def test_orthogonalised_matrices_have_singular_values_near_one() -> None:
    torch.manual_seed(0)
    for shape in ((3, 20, 10), (2, 10, 20)):
        values = torch.linalg.svdvals(orthogonalise(torch.randn(shape)))
        assert values.min() > 0.6
        assert values.max() < 1.3


def test_muon_takes_only_the_matrices_of_the_blocks(shards: Shards, tmp_path: Path) -> None:
    module = trainer(tiny(), shards, tmp_path).network.module
    names = {id(param): name for name, param in module.named_parameters()}
    matrices, others = ([names[id(one)] for one in part] for part in split_parameters(module))
    assert len(matrices) == 2 * 7
    assert all(".layers." in name and "norm" not in name for name in matrices)
    assert {name for name in others if "norm" not in name} == {"model.embed_tokens.weight"}


def test_the_trapezoid_rises_stays_and_falls() -> None:
    shape = [trapezoid(step, Schedule(steps=10, warmup_steps=4, decay_steps=4)) for step in range(10)]
    assert shape == [0.25, 0.5, 0.75, 1, 1, 1, 1, 0.75, 0.5, 0.25]
    assert trapezoid(9, Schedule(steps=10, warmup_steps=1, decay_steps=1)) == 1


def test_the_average_follows_its_definition() -> None:
    module = nn.Linear(1, 1, bias=False)
    with torch.no_grad():
        module.weight.fill_(3.0)
        average = Average(module, 0.5)
        expected = 0.0
        for step, value in enumerate([1.0, 2.0, 5.0, 4.0, 8.0, 2.0, 1.0, 0.0, 7.0, 3.0]):
            module.weight.fill_(value)
            average.update(module, step)
            decay = min(0.5, (1 + step) / (10 + step))
            expected = value if step == 0 else decay * expected + (1 - decay) * value
    assert float(next(average.module.parameters()).detach()) == pytest.approx(expected)
