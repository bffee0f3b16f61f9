"""All errors that dgmark raises on purpose, the exit code of each, and the refusal of arguments of the wrong type.

DgmarkError                    70   (also used for bugs in dgmark)
├── SettingsError               2   invalid settings
│   └── PromptTooLong
├── InputError                  4   unusable text or rows
│   ├── NoTexts
│   ├── ResumeMismatch
│   ├── SignatureInvalid
│   └── CommitmentMismatch
├── KeyFileError                5   an unusable key
│   ├── KeyFileNotFound
│   ├── KeyFileExists
│   ├── KeyFileFormat
│   ├── TokenizerMismatch
│   └── VocabularyMismatch
└── ModelError                  6   an unavailable or unusable model
    ├── ModelNotFound
    ├── CheckpointFormat
    ├── ModelFault
    └── MissingExtra

Each message says what happened, why, and what to do. No message holds key material.
"""

import operator
import os
from collections.abc import Iterable
from numbers import Real
from pathlib import Path
from typing import Any


def install_hint(extra: str, distribution: str = ".") -> str:
    """How to install an extra. The hint names a checkout, because dgmark is not on the package index."""
    return f"run `pip install '{distribution}[{extra}]'` in a checkout of dgmark"


class DgmarkError(Exception):
    """Base class of all errors that dgmark raises on purpose."""

    exit_code = 70


class SettingsError(DgmarkError):
    """A setting, or a combination of settings, is invalid."""

    exit_code = 2


class PromptTooLong(SettingsError):
    """The prompt and the response together exceed the model's context length."""


class InputError(DgmarkError):
    """Text or rows are unusable."""

    exit_code = 4


class NoTexts(InputError):
    """A file or folder cannot be read, or holds no text."""


class ResumeMismatch(InputError):
    """An output file holds rows of other settings or inputs, or lines that are not rows of dgmark."""


class SignatureInvalid(InputError):
    """A report is not signed by a trusted key, or was changed since."""


class CommitmentMismatch(InputError):
    """A key does not meet a commitment, or a time stamp does not hold for it."""


class KeyFileError(DgmarkError):
    """A key or a key file is unusable here."""

    exit_code = 5


class KeyFileNotFound(KeyFileError):
    """No key file exists at this path."""


class KeyFileExists(KeyFileError):
    """Writing here would overwrite a key. Texts marked with a lost key can no longer be proved."""


class KeyFileFormat(KeyFileError):
    """The file is not a key file that this version of dgmark can read."""


class TokenizerMismatch(KeyFileError):
    """The key is bound to another tokenizer."""


class VocabularyMismatch(KeyFileError):
    """A token id or a model's vocabulary does not fit the key's group table."""


class ModelError(DgmarkError):
    """A model or tokenizer is unavailable or unusable."""

    exit_code = 6


class ModelNotFound(ModelError):
    """No model or tokenizer has this name or path."""


class CheckpointFormat(ModelError):
    """dgmark cannot load a checkpoint of this layout."""


class ModelFault(ModelError):
    """A model computed something that no token can be taken from: NaN, +inf, or a wrong shape, dtype or device.

    Attributes:
        problem: what came, where, and what to do, without the numbers of the rows.
        rows: numbers of the rows concerned, from 0; empty if the fault concerns no single rows.
    """

    def __init__(self, problem: str, rows: Iterable[int] = ()) -> None:
        self.problem, self.rows = problem, tuple(rows)
        numbers = ", ".join(map(str, self.rows))
        super().__init__(f"{problem} (row {numbers}, counted from 0)" if numbers else problem)


class MissingExtra(ModelError):
    """A package that this feature needs is not installed."""


def whole(name: str, value: Any) -> int:
    """A whole number, Python's or numpy's.

    Raises:
        SettingsError: `value` is not one.
    """
    try:
        if not isinstance(value, bool):
            return operator.index(value)
    except TypeError:
        pass
    raise SettingsError(f"{name} {value!r} is not a whole number")


def number(name: str, value: Any) -> float:
    """A real number, Python's or numpy's.

    Raises:
        SettingsError: `value` is not one.
    """
    if isinstance(value, bool) or not isinstance(value, Real):
        raise SettingsError(f"{name} {value!r} is not a number")
    return value  # type: ignore[return-value] # an int stays an int


def as_path(value: Any, what: str) -> Path:
    """An argument as a path.

    Args:
        value: the path, as a text or a `Path`.
        what: what is there, such as "a key file".

    Raises:
        SettingsError: `value` is neither a text nor a path.
    """
    if not isinstance(value, str | os.PathLike) or not isinstance(os.fspath(value), str):
        raise SettingsError(f"the path of {what} is a str or a Path, not a {type(value).__name__}")
    return Path(value)


def several(value: Any, what: str) -> list[Any]:
    """The items of an iterable.

    Args:
        value: the iterable.
        what: what it holds, such as "texts".

    Raises:
        SettingsError: `value` has no items.
    """
    if not isinstance(value, Iterable):
        raise SettingsError(f"several {what} are given as a list, not as a {type(value).__name__}")
    return list(value)
