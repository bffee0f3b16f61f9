"""All errors that dgmark raises on purpose, the exit code of each, and what to install where a package is missing.

The exit code says what is wrong: 2 settings, 4 text or rows, 5 a key, 6 a model, 70 anything else, such as a bug.
Each message says what happened, why, and what to do. No message holds key material.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Literal, TypeVar

T = TypeVar("T")
R = TypeVar("R")


class DgmarkError(Exception):
    """Base class of all errors that dgmark raises on purpose."""

    exit_code = 70


def without_errors(results: Iterable[T | DgmarkError]) -> list[T]:
    """Results, if there is no error in the place of one; else the first error is raised."""
    found = []
    for result in results:
        if isinstance(result, DgmarkError):
            raise result
        found.append(result)
    return found


def each(function: Callable[[T], R], values: Iterable[T | DgmarkError]) -> list[R | DgmarkError]:
    """What a function gives for each value; in the place of one that it refuses, its error.

    An error in the place of a value stays there.
    """
    found: list[R | DgmarkError] = []
    for value in values:
        try:
            found.append(value if isinstance(value, DgmarkError) else function(value))
        except DgmarkError as error:
            found.append(error)
    return found


def together(
    function: Callable[[list[T]], Iterable[R | DgmarkError]], values: Iterable[T | DgmarkError]
) -> list[R | DgmarkError]:
    """What a function gives for several values at once. An error in the place of a value stays there."""
    values = list(values)
    results = iter(function([value for value in values if not isinstance(value, DgmarkError)]))
    return [value if isinstance(value, DgmarkError) else next(results) for value in values]


def together_or_each(function: Callable[[list[T]], Iterable[R]], values: list[T]) -> list[R | DgmarkError]:
    """What a function gives for several values at once; if it refuses them, for each by itself, or its error."""
    try:
        return [*function(values)]
    except DgmarkError:
        return each(lambda value: next(iter(function([value]))), values)


class SettingsError(DgmarkError):
    """A setting, or a combination of settings, is invalid.

    Args:
        problem: what is wrong and what to do; with a field, a sentence whose subject is the field, such as "needs a
            temperature above 0".
        field: the name of the setting that is refused, as the library spells it.
    """

    exit_code = 2

    def __init__(self, problem: str, field: str | None = None) -> None:
        super().__init__(problem if field is None else f"{field} {problem}")
        self.problem, self.field = problem, field

    def spelled(self, spell: Callable[[str], str]) -> str:
        """The message, with the field as somebody else spells it, such as `--top-k` for `top_k`."""
        return self.problem if self.field is None else f"{spell(self.field)} {self.problem}"


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
    """A report is not signed by a trusted key, or was changed since.

    Attributes:
        reason: "unsigned", "changed", "untrusted" (its key is not among the trusted ones), or "no_report" (the
            signature holds, but what was signed is not a report).
        key_id: the key that the file names; None if it names none. Unless the signature holds, anybody may have
            written it there.
    """

    def __init__(
        self, problem: str, reason: Literal["unsigned", "changed", "untrusted", "no_report"], key_id: str | None = None
    ) -> None:
        super().__init__(problem)
        self.reason, self.key_id = reason, key_id


class CommitmentMismatch(InputError):
    """A key does not meet a commitment."""


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
    """A token id or a model's vocabulary does not fit the vocabulary of the key."""


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
    """A package that this feature needs is not installed, or cannot be used."""


# --- packages that some features need ---


def install_hint(extra: str, distribution: str = ".") -> str:
    """How to install an extra. The hint names a checkout, because dgmark is not on the package index."""
    return f"run `pip install '{distribution}[{extra}]'` in a checkout of dgmark"


def distribution_hint(folder: str) -> str:
    """How to install another distribution of this repository."""
    return f"run `pip install ./{folder}` in a checkout of dgmark"


@contextmanager
def needed_extra(extra: str, purpose: str, packages: str = "torch and transformers") -> Iterator[None]:
    """Report a failed import in the block as a missing extra, and say how to install the extra.

    Args:
        extra: name of the extra in pyproject.toml.
        purpose: what needs the extra, as the subject of a sentence.
        packages: the packages that the extra installs.

    Raises:
        MissingExtra: an import within the block fails.
    """
    try:
        yield
    except ImportError as error:
        raise MissingExtra(f"{purpose} needs {packages}: {install_hint(extra)} ({error})") from None
