"""Values that nobody means as an argument: of wrong types, out of range, empty, nested, and those that give bytes."""

import array
import ctypes
import io
import math
import mmap
import pickle
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import torch

from support.cases import data

BYTES = b"The king went to the sea."


class GivesAnArray:
    """What numpy would read as an array of ids."""

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.arange(5)


class GivesNoPath:
    """A path that is none."""

    def __fspath__(self) -> Any:
        return 5


class ClaimsToBeAText:
    """What `isinstance` takes for a text."""

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return str


# what holds bytes, or numbers of 8 bits
BYTE_LIKE: dict[str, Callable[[], Any]] = {
    "bytes": lambda: BYTES,
    "bytearray": lambda: bytearray(BYTES),
    "memoryview": lambda: memoryview(BYTES),
    "memoryview of ints": lambda: memoryview(array.array("i", [5, 6])),
    "array of bytes": lambda: array.array("B", BYTES),
    "array of ints": lambda: array.array("i", [5, 6, 7]),
    "mmap": lambda: mmap.mmap(-1, 16),
    "ctypes": lambda: ctypes.create_string_buffer(b"king"),
    "ctypes ints": lambda: (ctypes.c_int * 3)(5, 6, 7),
    "PickleBuffer": lambda: pickle.PickleBuffer(BYTES),
    "BytesIO": lambda: io.BytesIO(BYTES),
    "numpy bytes": lambda: np.bytes_(BYTES),
    "numpy uint8": lambda: np.frombuffer(BYTES, np.uint8),
    "numpy int8": lambda: np.frombuffer(BYTES, np.int8),
    "numpy column of bytes": lambda: np.array([BYTES]),
    "numpy void": lambda: np.void(BYTES),
    "pandas uint8": lambda: pd.Series(list(BYTES), dtype="uint8"),
    "pandas UInt8": lambda: pd.Series(list(BYTES), dtype="UInt8"),
    "pandas Arrow int8": lambda: pd.Series([5, 6], dtype=pd.ArrowDtype(pa.int8())),
    "pandas column of bytes": lambda: pd.Series([BYTES]),
    "Arrow uint8": lambda: pa.array(list(BYTES), pa.uint8()),
    "Arrow bytes": lambda: pa.array([BYTES]),
    "Arrow scalar of bytes": lambda: pa.scalar(BYTES),
    "Arrow scalar of a number": lambda: pa.scalar(5),
    "Arrow scalar without a text": lambda: pa.scalar(None, pa.string()),
    "Arrow scalar of no UTF-8": lambda: pa.array([b"\xff"]).view(pa.string())[0],
    "Arrow lists of bytes": lambda: pa.array([list(BYTES)], pa.list_(pa.uint8())),
    "Arrow buffer": lambda: pa.py_buffer(BYTES),
    "polars UInt8": lambda: pl.Series(list(BYTES), dtype=pl.UInt8),
    "polars bytes": lambda: pl.Series([BYTES]),
    "torch uint8": lambda: torch.tensor(list(BYTES), dtype=torch.uint8),
    "torch int8": lambda: torch.tensor([5, 6], dtype=torch.int8),
    "list of numpy int8": lambda: [np.int8(5)],
    "__array__": GivesAnArray,
}

# arrays, tensors and columns that hold neither texts nor ids
ARRAYS: dict[str, Callable[[], Any]] = {
    "numpy without a dimension": lambda: np.array(5),
    "numpy text without a dimension": lambda: np.array("a text"),
    "numpy of three dimensions": lambda: np.zeros((1, 2, 3), np.int64),
    "numpy bool": lambda: np.array([True]),
    "numpy float": lambda: np.array([1.0, math.nan]),
    "numpy datetime": lambda: np.array(["2024-01-01"], "datetime64[D]"),
    "numpy timedelta": lambda: np.array([5], "timedelta64[s]"),
    "numpy complex": lambda: np.array([1j]),
    "numpy masked": lambda: np.ma.array([5, 6], mask=[False, True]),
    "numpy records": lambda: np.array([(1, "a")], dtype=[("n", np.int64), ("text", "U9")]),
    "torch without a dimension": lambda: torch.tensor(5),
    "torch bfloat16": lambda: torch.ones(3, dtype=torch.bfloat16),
    "torch grad": lambda: torch.ones(3, requires_grad=True),
    "torch bool": lambda: torch.tensor([True]),
    "torch sparse": lambda: torch.tensor([5, 0, 6]).to_sparse(),
    "torch meta": lambda: torch.empty(3, dtype=torch.int64, device="meta"),
    "pandas float": lambda: pd.Series([1.0, math.nan]),
    "pandas bool": lambda: pd.Series([True]),
    "pandas missing id": lambda: pd.Series([5, None], dtype="Int64"),
    "pandas sparse": lambda: pd.arrays.SparseArray([5, 6]),
    "pandas categories of ids": lambda: pd.Categorical([5, 6]),
    "pandas dates": lambda: pd.date_range("2024-01-01", periods=2),
    "pandas MultiIndex": lambda: pd.MultiIndex.from_tuples([(5, 6)]),
    "pandas missing text": lambda: pd.Series(["a", None]),
    "pandas groups": lambda: pd.Series(["a"]).groupby([1]),
    "Arrow float": lambda: pa.array([1.5]),
    "Arrow missing id": lambda: pa.array([5, None]),
    "Arrow missing text": lambda: pa.array(["a", None]),
    "Arrow structs": lambda: pa.array([{"text": "a"}]),
    "polars float": lambda: pl.Series([1.5]),
    "polars missing id": lambda: pl.Series([5, None]),
    "polars missing text": lambda: pl.Series(["a", None]),
    "polars structs": lambda: pl.Series([{"text": "a"}]),
    "polars expression": lambda: pl.col("text"),
}

# what has names beside texts
TABLES: dict[str, Callable[[], Any]] = {
    "mapping": lambda: {"text": "The king."},
    "mapping of ids": lambda: {"id1": "The king."},
    "pandas table": lambda: pd.DataFrame({"text": ["The king."], "n": [1]}),
    "pandas table without columns": pd.DataFrame,
    "Arrow table": lambda: pa.table({"text": ["The king."]}),
    "Arrow batch": lambda: pa.record_batch({"text": ["The king."]}),
    "polars table": lambda: pl.DataFrame({"text": ["The king."]}),
    "polars lazy table": lambda: pl.LazyFrame({"text": ["The king."]}),
}

PLAIN: dict[str, Callable[[], Any]] = {
    "None": lambda: None,
    "True": lambda: True,
    "0": lambda: 0,
    "-1": lambda: -1,
    "10**30": lambda: 10**30,
    "10**400": lambda: 10**400,
    "1.5": lambda: 1.5,
    "1e-9": lambda: 1e-9,
    "1e-320": lambda: 1e-320,
    "NaN": lambda: math.nan,
    "inf": lambda: math.inf,
    "-inf": lambda: -math.inf,
    "complex": lambda: 1j,
    "fraction": lambda: Fraction(1, 3),
    "numpy float": lambda: np.float32(0.5),
    "numpy int": lambda: np.int64(5),
    "numpy bool": lambda: np.bool_(True),
    "empty": lambda: "",
    "space": lambda: " ",
    "NUL": lambda: "a\0b",
    "surrogate": lambda: "a\ud800b",
    "long": lambda: "x" * 5000,
    "line ends": lambda: "a\r\n\x1b[2J\u202e",
    "claims to be a text": ClaimsToBeAText,
    "empty list": list,
    "nested list": lambda: [[5], [[6]]],
    "list of bools": lambda: [True, False],
    "list of floats": lambda: [1.5, 2.5],
    "list of None": lambda: [None],
    "list of a huge id": lambda: [5, 10**30],
    "list of texts": lambda: ["a", "b"],
    "mixed list": lambda: ["a", 5, None],
    "huge range": lambda: range(10**12),
    "empty mapping": dict,
    "mapping of numbers": lambda: {1: 2},
    "set": lambda: {"a"},
    "generator": lambda: (one for one in list[int]()),
    "object": object,
    "class": lambda: int,
    "function": lambda: lambda *_: None,
    "path": lambda: Path("no such file.txt"),
    "path with NUL": lambda: Path("a\0b"),
    "path of a folder": lambda: Path("."),
    "no path": GivesNoPath,
    "open file": lambda: io.StringIO("a line\nanother"),
    "exception": lambda: ValueError("x"),
    "ellipsis": lambda: ...,
}

UNFIT_NAMES: list[str] = [*data(__file__, "unfit_names"), "\ud800", "x" * 81]

ODD = {**PLAIN, **BYTE_LIKE, **ARRAYS, **TABLES}
