"""Every error that dgmark raises on purpose, each with the exit code that the CLI gives it.

DgmarkError                    70   (with faults of dgmark itself)
├── SettingsError               2   a setting that cannot be meant
│   ├── UnknownStrategy
│   ├── BlockLengthError
│   └── PromptTooLong
├── InputError                  4   text or rows that cannot be used
│   ├── EmptyInput
│   ├── NoTexts
│   └── ResumeMismatch
├── KeyFileError                5   a key that cannot be used here
│   ├── KeyFileNotFound
│   ├── KeyFileExists
│   ├── KeyFileFormat
│   ├── KeyFileOpen
│   ├── TokenizerMismatch
│   └── VocabularyMismatch
└── ModelError                  6   a model or tokenizer that cannot be had
    ├── ModelNotFound
    ├── CheckpointFormat
    ├── EndpointError
    │   └── NoUsableAnswer
    └── MissingExtra

A message says what is wrong and what to do; it never holds key material.
"""


def install_hint(extra: str) -> str:
    """How to install an extra; it names a checkout, as dgmark is on no package index."""
    return f"run `pip install '.[{extra}]'` in a checkout of dgmark"


class DgmarkError(Exception):
    """Base of all errors raised on purpose; catch this one to catch them all."""

    exit_code = 70


class SettingsError(DgmarkError):
    """A setting, or a combination of settings, that cannot be meant."""

    exit_code = 2


class UnknownStrategy(SettingsError):
    """The decoding strategy has no such name."""


class BlockLengthError(SettingsError):
    """The length is not a whole number of blocks."""


class PromptTooLong(SettingsError):
    """Prompt and response together do not fit the model's context."""


class InputError(DgmarkError):
    """Text or rows that cannot be used."""

    exit_code = 4


class EmptyInput(InputError):
    """There is nothing to score: the input holds no token."""


class NoTexts(InputError):
    """A file or folder that holds no text to read."""


class ResumeMismatch(InputError):
    """An output file holds rows made with other settings."""


class KeyFileError(DgmarkError):
    """A key, or a key file, that cannot be used here."""

    exit_code = 5


class KeyFileNotFound(KeyFileError):
    """There is no key file at this path."""


class KeyFileExists(KeyFileError):
    """Writing here would overwrite a key, and with it every text it proves."""


class KeyFileFormat(KeyFileError):
    """The file is not a key file that this version reads."""


class KeyFileOpen(KeyFileError):
    """Every user of the machine can read the key file."""


class TokenizerMismatch(KeyFileError):
    """The key is bound to another tokenizer."""


class VocabularyMismatch(KeyFileError):
    """A token id, or a model's vocabulary, lies outside the key's group table."""


class ModelError(DgmarkError):
    """A model or tokenizer that cannot be had."""

    exit_code = 6


class ModelNotFound(ModelError):
    """No model or tokenizer has this name or path."""


class CheckpointFormat(ModelError):
    """The checkpoint is not in a layout that dgmark loads."""


class EndpointError(ModelError):
    """A model behind an endpoint that gives no answer, or none in the form that was asked for."""


class NoUsableAnswer(EndpointError):
    """The endpoint works, but refuses this question, or gives no answer to it in the form that was asked for."""


class MissingExtra(ModelError):
    """The installation lacks the packages that this needs."""
