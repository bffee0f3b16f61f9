"""Arguments of a wrong type are refused with one of dgmark's errors, which names the argument."""

from typing import Any

import pytest
import torch

import dgmark
from dgmark.errors import InputError, ModelNotFound, SettingsError
from dgmark.models.toy import ToyDenoiser
from support.known_keys import bound_key
from support.unchecked import unchecked

TOY = ToyDenoiser()
KEY = bound_key("types", TOY)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"model": None}, SettingsError, "a model is wanted, and None has no mask_id"),
        ({"model": "storyteller"}, SettingsError, "a model is wanted, not its name"),
        ({"model": torch.nn.Linear(2, 2)}, SettingsError, "has no mask_id, end_ids, vocab_size"),
        ({"prompts": None}, InputError, "prompts are a text, or a list"),
        ({"prompts": [None]}, InputError, "None"),
        ({"prompts": [[1.5]]}, InputError, "1.5"),
        ({"prompts": [["x"]]}, InputError, "a prompt is a text or a list of token ids"),
        ({"seed": "1"}, SettingsError, "seed '1' is not a whole number"),
        ({"seed": None}, SettingsError, "seed None is not a whole number"),
        ({"seed": 1.5}, SettingsError, "seed 1.5 is not a whole number"),
        ({"seed": 2**64}, SettingsError, "seed 18446744073709551616 is not a whole number from"),
        ({"prompts": ["w1", "w2"], "seed": 2**64 - 1}, SettingsError, "seed 18446744073709551616 is not"),
        ({"batch_size": "8"}, SettingsError, "batch size '8' is not a whole number"),
        ({"batch_size": 1.5}, SettingsError, "batch size 1.5 is not a whole number"),
        ({"batch_size": 0}, SettingsError, "batch size 0 is not a whole number of at least 1"),
        ({"baseline": "kgw"}, SettingsError, "a baseline is wanted, not 'kgw'"),
        ({"length": "8"}, SettingsError, "length '8' must be a valid integer"),
        ({"temperature": float("nan")}, SettingsError, "temperature nan"),
    ],
    ids=str,
)
def test_generate_refuses(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    given = {"model": TOY, "prompts": "w1", "key": KEY, "length": 8, "block_length": 4, **arguments}
    with unchecked(), pytest.raises(error, match=message):
        dgmark.generate(**given)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"model": 5}, SettingsError, "a model is wanted, and 5 has no"),
        ({"texts": "w1 [mask:4]"}, InputError, "give a list of such lists"),
        ({"texts": ["w1", 4, "w2"]}, InputError, "give a list of such lists"),
        ({"texts": [None]}, InputError, "a text to fill is a list of strings and hole lengths, not None"),
        ({"seed": "x"}, SettingsError, "seed 'x' is not a whole number"),
    ],
    ids=str,
)
def test_infill_refuses(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    given = {"model": TOY, "texts": [["w1", 4]], "key": KEY, "block_length": 4, **arguments}
    with unchecked(), pytest.raises(error, match=message):
        dgmark.infill(**given)


@pytest.mark.parametrize("name", [None, 5, b"storyteller"], ids=str)
def test_load_model_refuses(name: Any) -> None:
    with unchecked(), pytest.raises(ModelNotFound, match="a model is given by name, folder or hub id"):
        dgmark.load_model(name)
