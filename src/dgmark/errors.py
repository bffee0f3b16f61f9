"""All errors that dgmark raises on purpose, and the exit code of each.

DgmarkError                    70   (also used for bugs in dgmark)
├── SettingsError               2   invalid settings
│   ├── UnknownStrategy
│   ├── BlockLengthError
│   └── PromptTooLong
├── InputError                  4   unusable text or rows
│   ├── EmptyInput
│   ├── NoTexts
│   ├── ResumeMismatch
│   └── SignatureInvalid
├── KeyFileError                5   an unusable key
│   ├── KeyFileNotFound
│   ├── KeyFileExists
│   ├── KeyFileFormat
│   ├── KeyFileOpen
│   ├── TokenizerMismatch
│   └── VocabularyMismatch
└── ModelError                  6   an unavailable or unusable model
    ├── ModelNotFound
    ├── CheckpointFormat
    ├── EndpointError
    │   └── NoUsableAnswer
    └── MissingExtra

Each message says what happened, why, and what to do. No message holds key material.
"""


def install_hint(extra: str) -> str:
    """How to install an extra. The hint names a checkout, because dgmark is not on the package index."""
    return f"run `pip install '.[{extra}]'` in a checkout of dgmark"


class DgmarkError(Exception):
    """Base class of all errors that dgmark raises on purpose."""

    exit_code = 70


class SettingsError(DgmarkError):
    """A setting, or a combination of settings, is invalid."""

    exit_code = 2


class UnknownStrategy(SettingsError):
    """No decoding strategy has this name."""


class BlockLengthError(SettingsError):
    """The response length is not a multiple of the block length."""


class PromptTooLong(SettingsError):
    """The prompt and the response together exceed the model's context length."""


class InputError(DgmarkError):
    """Text or rows are unusable."""

    exit_code = 4


class EmptyInput(InputError):
    """The input holds no token."""


class NoTexts(InputError):
    """A file or folder holds no readable text."""


class ResumeMismatch(InputError):
    """An output file holds rows that other settings made."""


class SignatureInvalid(InputError):
    """A report is not signed by a trusted key, or was changed since."""


class KeyFileError(DgmarkError):
    """A key or a key file is unusable here."""

    exit_code = 5


class KeyFileNotFound(KeyFileError):
    """No key file exists at this path."""


class KeyFileExists(KeyFileError):
    """Writing here would overwrite a key. Texts marked with a lost key can no longer be proved."""


class KeyFileFormat(KeyFileError):
    """The file is not a key file that this version of dgmark can read."""


class KeyFileOpen(KeyFileError):
    """Every user of the machine can read the key file."""


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


class EndpointError(ModelError):
    """A model behind an endpoint does not answer, or not in the requested form."""


class NoUsableAnswer(EndpointError):
    """The endpoint works, but refuses this question, or gives no answer to it in the form that was asked for."""


class MissingExtra(ModelError):
    """A package that this feature needs is not installed."""
