"""Files of decoding settings: what `dgmark-lab tune` found for a model, and `generate` and the Python API take."""

import json
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dgmark.checkpoint.folder import model_option
from dgmark.decode.config import DecodeConfig, Settings
from dgmark.errors import SettingsError
from dgmark.rows.inputs import open_file
from dgmark.rows.outputs import atomic_write
from dgmark.watermark.key import WatermarkKey

FORMAT, VERSION = "dgmark-settings", 1
LARGEST_FILE = 2**20
MOST_POINTS = 500

Values = dict[str, bool | int | float | str | None]
_Multiple = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Point(BaseModel):
    """Settings that a search tried, and what it measured with them.

    Attributes:
        code_length: period of the position code of the trial keys.
        decoding: the fields of `DecodeConfig` in which the candidates differ.
        texts: number of marked texts; each is compared with the unmarked text of the same prompt.
        diversity: mean distinct-2, as a multiple of unmarked text's.
        perplexity: perplexity, as a multiple of unmarked text's.
        bits: mean evidence of a text, in bits a token.
        found: share of texts with a p-value at or below the rate.
        diversity_error: standard error of `diversity`.
        log_perplexity_error: standard error of the logarithm of `perplexity`.
        meets_goal: whether the texts are as diverse and as likely as the search demanded.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    code_length: int = Field(ge=0)
    decoding: Values
    texts: int = Field(ge=1)
    diversity: _Multiple
    perplexity: Annotated[_Multiple, Field(gt=0)]
    bits: _Multiple
    found: Annotated[_Multiple, Field(le=1)]
    diversity_error: _Multiple
    log_perplexity_error: _Multiple
    meets_goal: bool


class Frontier(BaseModel):
    """All settings that a search tried.

    Attributes:
        unmarked: decoding settings of the unmarked text, whose figures are 1.
        least_diversity: the goal has no smaller diversity.
        most_perplexity: the goal has no larger perplexity.
        points: what was tried: the settings that were chosen, then those that went as far, then those that were given
            up earlier, after fewer texts.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    unmarked: Values
    least_diversity: _Multiple
    most_perplexity: _Multiple
    points: list[Point] = Field(min_length=1, max_length=MOST_POINTS)


class TunedSettings(BaseModel):
    """The contents of a settings file.

    Attributes:
        format: "dgmark-settings".
        version: version of the format.
        model: name of the model that the settings were found for.
        code_length: period of the key's position code that they were found with; 0 is the paper's i mod m.
        decoding: fields of `DecodeConfig`; those that are left out have their defaults.
        measured: what was measured with these settings, for the reader.
        frontier: what else was tried; None if the file does not say.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    format: Literal["dgmark-settings"] = FORMAT  # type: ignore[assignment]
    version: Literal[1] = VERSION  # type: ignore[assignment]
    model: str
    code_length: int = Field(ge=0)
    decoding: Values
    measured: Values = {}
    frontier: Frontier | None = None

    def check_key(self, key: WatermarkKey | None) -> None:
        """Refuse a key with another position code; text without a mark has none.

        Raises:
            SettingsError: the key's code is another one.
        """
        if key is None or key.spec.code_length == self.code_length:
            return
        values = " ".join(_flag(name, value) for name, value in self.decoding.items())
        raise SettingsError(
            f"these settings were found with a position code of {self.code_length}, and the key has one of "
            f"{key.spec.code_length}: make a key with `dgmark keygen FILE{model_option(self.model)} "
            f"--code-length {self.code_length}` (and the other options that yours was made with), or give the "
            f"settings as options, which need no such key: {values}"
        )


def read_settings_file(path: Path) -> TunedSettings:
    """Read a settings file.

    Raises:
        SettingsError: the file is unreadable, is no settings file, or has an unknown, missing or invalid field.
    """
    try:
        with open_file(path) as file:
            content = json.loads(file.read(LARGEST_FILE).decode())
    except OSError as error:
        raise SettingsError(f"the settings file {path} cannot be read: {error.strerror}") from None
    except ValueError as error:  # no UTF-8, or no JSON
        raise SettingsError(f"{path} is no settings file ({error}): give one that `dgmark-lab tune` wrote") from None
    try:
        tuned = TunedSettings.model_validate(content)
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, e['loc'])) or 'the file'}: {e['msg']}" for e in error.errors())
        raise SettingsError(f"{path} is no valid settings file: {problems}") from None
    _check_decoding(path, tuned.decoding)
    return tuned


def _flag(name: str, value: bool | int | float | str | None) -> str:
    flag = name.replace("_", "-")
    if isinstance(value, bool):
        return f"--{flag}" if value else f"--no-{flag}"
    return f"--{flag} {value}"


def _check_decoding(path: Path, decoding: dict[str, Any]) -> None:
    try:
        DecodeConfig(**{"length": decoding.get("block_length", DecodeConfig.block_length), **decoding})
    except SettingsError as error:
        raise SettingsError(f"{path}: {error}") from None


def write_settings_file(path: Path, tuned: TunedSettings) -> None:
    """Write a settings file, whole or not at all.

    Raises:
        InputError: the file cannot be written.
    """
    atomic_write(path, json.dumps(tuned.model_dump(), indent=1, ensure_ascii=False) + "\n")


def read_settings(path: str | Path, *, key: WatermarkKey | None) -> Settings:
    """Read the decoding settings of a file that `dgmark-lab tune` wrote.

        dgmark.generate(model, prompt, key=key, **dgmark.read_settings("settings.json", key=key))

    Args:
        path: the settings file.
        key: the key that the text will be marked with; None for text without a mark.

    Raises:
        SettingsError: the file is unusable, or was made for keys with another position code.
    """
    tuned = read_settings_file(Path(path))
    tuned.check_key(key)
    return tuned.decoding
