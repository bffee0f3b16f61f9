"""Files of decoding settings that were found for a model; `generate`, `serve` and the Python API take them."""

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from dgmark.arguments.checks import FirstVersion, as_path, field_problems
from dgmark.checkpoint.folder import model_option
from dgmark.decode.config import DecodeConfig, Settings
from dgmark.errors import SettingsError
from dgmark.files.inputs import open_file
from dgmark.files.own_files import instead
from dgmark.watermark.key import WatermarkKey, check_key
from dgmark.watermark.rules import find_rule

FORMAT, VERSION = "dgmark-settings", 1
MAX_FILE = 2**20


class TunedSettings(BaseModel):
    """The contents of a settings file.

    Attributes:
        model: name of the model that the settings were found for.
        rule: the rule of the key that they were found with.
        decoding: fields of `DecodeConfig`; those that are left out have their defaults.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    format: Literal["dgmark-settings"] = FORMAT  # type: ignore[assignment]
    version: FirstVersion = VERSION  # type: ignore[assignment]
    model: str
    rule: str
    decoding: dict[str, bool | int | float | str | None]

    def check_rule(self, key: WatermarkKey | None) -> None:
        """Refuse a key of another rule with a SettingsError; text without a mark has no key."""
        if key is None or key.spec.rule == self.rule:
            return
        raise SettingsError(
            f"these settings were found with a key of rule {self.rule}, and the key is of rule {key.spec.rule}: make a "
            f"key with `dgmark keygen FILE{model_option(self.model)} --rule {self.rule}`, or give the settings as "
            "options, which need no such key"
        )


def read_settings_file(path: Path) -> TunedSettings:
    """Read a settings file.

    Raises:
        SettingsError: the file is unreadable, is not a settings file, or has an unknown, missing or invalid field.
    """
    try:
        with open_file(path) as file:
            content = file.read(MAX_FILE)
        tuned = TunedSettings.model_validate_json(content)
    except OSError as error:
        raise SettingsError(f"the settings file {path} cannot be read: {error.strerror}") from None
    except ValidationError as error:
        problem = f"{path} is not a valid settings file ({instead(content, FORMAT) or field_problems(error)}): "
        raise SettingsError(f"{problem}give a JSON object with model, rule and decoding") from None
    try:
        decoding: Any = tuned.decoding
        DecodeConfig(**decoding)
        find_rule(tuned.rule)
    except SettingsError as error:
        raise SettingsError(f"{path}: {error}") from None
    return tuned


def read_settings(path: str | Path, *, key: WatermarkKey | None) -> Settings:
    """Read the decoding settings of a settings file.

        dgmark.generate(model, prompt, key=key, **dgmark.read_settings("settings.json", key=key))

    Args:
        path: the settings file.
        key: the key that the text will be marked with; None for text without a mark.

    Raises:
        SettingsError: the file is unusable, or was made for keys with another position code.
    """
    check_key(key, or_none=True)
    tuned = read_settings_file(as_path(path, "a settings file"))
    tuned.check_rule(key)
    return tuned.decoding
