"""Arguments of a wrong type are refused with one of dgmark's errors, which names the argument."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch

import dgmark
from dgmark import errors
from dgmark.checkpoint.folder import find_checkpoint
from dgmark.errors import ModelNotFound
from dgmark.models.toy import ToyDenoiser
from support.cases import cases
from support.known_keys import bound_key
from support.unchecked import unchecked

TOY = ToyDenoiser()
KEY = bound_key("types", TOY)


@pytest.mark.parametrize(
    ("arguments", "message", "error"),
    [
        *cases(__file__, "generate_refuses"),
        ({"model": None}, "a model is wanted, and None has no mask_id", None),
        ({"model": torch.nn.Linear(2, 2)}, "has no mask_id, end_ids, vocab_size", None),
        ({"prompts": None}, "give several texts as a list", None),
        ({"prompts": [None]}, r"text 0 \(counted from 0\) cannot be used: it is missing", None),
        ({"prompts": [b"w1"]}, "these are bytes", None),
        ({"seed": None}, "seed None is not a whole number", None),
        ({"ids": {"a"}}, "several ids are given as a list, not as a set", None),
    ],
    ids=str,
)
def test_generate_refuses(arguments: dict[str, Any], message: str, error: str | None) -> None:
    given = {"model": TOY, "prompts": "w1", "key": KEY, "length": 8, "block_length": 4, **arguments}
    with unchecked(), pytest.raises(getattr(errors, error or "SettingsError"), match=message):
        dgmark.generate(**given)


@pytest.mark.parametrize(
    ("arguments", "message", "error"),
    [
        *cases(__file__, "infill_refuses"),
        ({"texts": [None]}, "a text to fill is a list of strings and hole lengths, not None", "InputError"),
        ({"texts": None}, "give a list of such lists", "InputError"),
        ({"texts": [["w1", 4, b"w2"]]}, "a string or a positive number of tokens", "InputError"),
    ],
    ids=str,
)
def test_infill_refuses(arguments: dict[str, Any], message: str, error: str | None) -> None:
    given = {"model": TOY, "texts": [["w1", 4]], "key": KEY, "block_length": 4, **arguments}
    with unchecked(), pytest.raises(getattr(errors, error or "SettingsError"), match=message):
        dgmark.infill(**given)


def test_seeds_may_be_numpy_s_whole_numbers() -> None:
    seeds: list[Any] = [3, np.int64(3), [np.uint64(3), 4]]
    with unchecked():
        rows = [dgmark.generate(TOY, ["w1", "w2"], seed=one, key=KEY, length=8, block_length=4) for one in seeds]
    assert rows[0] == rows[1] == rows[2]
    assert {type(row.seed) for row in rows[2]} == {int}


def test_nothing_to_write_is_nothing_written() -> None:
    for key in (KEY, None):
        assert dgmark.generate(TOY, [], key=key, length=4, block_length=4) == []
    assert dgmark.infill(TOY, [], key=KEY, block_length=4) == []
    assert dgmark.infill(TOY, [], key=KEY, block_length=4, share=0.5) == []


@pytest.mark.parametrize("kind", [np.array, pa.array, pl.Series, pd.Series], ids=lambda kind: kind.__module__)
def test_prompts_may_stand_in_a_column(kind: Any) -> None:
    def texts(prompts: Any) -> list[Any]:
        made = dgmark.generate(TOY, prompts, key=KEY, length=4, block_length=4)
        assert all(type(one.prompt) in (str, list) for one in made)
        return made

    with unchecked():
        assert texts(kind(["w1", "w2 w3"])) == texts(["w1", "w2 w3"])
        assert texts([kind([3, 4]), kind([5])]) == texts([[3, 4], [5]])


def test_a_model_may_be_named_by_a_path(tmp_path: Path) -> None:
    folder = shutil.copytree(find_checkpoint("storyteller").folder, tmp_path / "storyteller")
    loaded = dgmark.load_model(folder, device="cpu", dtype="fp32")
    assert loaded.tokenizer.fingerprint == dgmark.load_tokenizer(folder).fingerprint
    assert (loaded.name, dgmark.load_tokenizer(folder).name) == (str(folder), str(folder))
    assert dgmark.WatermarkKey.generate(folder).spec.tokenizer == str(folder)
    with pytest.raises(ModelNotFound, match="no model 'storyteller'"):
        dgmark.load_model(Path("storyteller"))


@pytest.mark.parametrize("name", [None, 5, b"storyteller", "", "a\0b", "a\ud800b", Path("a\0b")], ids=ascii)
def test_load_model_refuses(name: Any) -> None:
    with unchecked(), pytest.raises(ModelNotFound, match="a model is given by name, folder or hub id"):
        dgmark.load_model(name)
