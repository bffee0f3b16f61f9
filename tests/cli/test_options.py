"""The options that several commands share are the settings of the code behind them, and no command lacks one unsaid."""

import inspect
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import pytest

from dgmark.cli import options
from dgmark.cli.bench_lm import bench_lm
from dgmark.cli.generate import generate
from dgmark.cli.infill import infill
from dgmark.decode import DecodeConfig
from dgmark.models.load import load_model


def test_shared_options_are_the_fields_of_the_decoding_and_of_the_loading() -> None:
    assert tuple(field.name for field in fields(DecodeConfig)) == options.DECODING
    assert tuple(list(inspect.signature(load_model).parameters)[1:]) == options.LOADING


@pytest.mark.parametrize(
    ("command", "decided"),
    [(generate, set()), (bench_lm, set()), (infill, {"length", "steps", "schedule"})],  # its holes decide
)
def test_what_decodes_takes_every_setting(command: Callable[..., Any], decided: set[str]) -> None:
    taken = set(inspect.signature(command).parameters)
    assert {*options.DECODING, *options.LOADING} - taken == decided


def test_an_option_that_is_not_set_leaves_the_default_alone() -> None:
    assert options.given({"guard": 0.0, "cache": None, "other": 1}, ("guard", "cache", "steps")) == {"guard": 0.0}
