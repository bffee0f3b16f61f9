"""Options that several commands have: one name, one meaning, one sentence of help everywhere.

Those of the decoding are made of the fields of `DecodeConfig`, so that a setting is said once.
"""

import inspect
from collections.abc import Collection, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, TypedDict, get_type_hints

import typer

from dgmark.checkpoint.folder import BUILTIN
from dgmark.cli.option_groups import OptionGroup, option, parameter, set_options
from dgmark.decode.config import DecodeConfig, Settings
from dgmark.errors import SettingsError
from dgmark.watermark.key import WatermarkKey

# the panels of a command's help, besides the options that are its own
KEY, MODEL, DECODING, SPEED, OUTPUT = "Key", "Model", "Decoding", "Speed", "Output"

# --- the key
AllowOpenKey = Annotated[bool, typer.Option(help="Accept a key file that every user can read.", rich_help_panel=KEY)]


def key_to_mark_with(key: Path | None, no_watermark: bool, allow_open_key: bool) -> WatermarkKey | None:
    """The key that a command is to mark with; None if it is to leave no mark.

    Raises:
        SettingsError: neither or both were asked for.
        KeyFileError: the file is no key that can be used.
    """
    if (key is None) != no_watermark:
        raise SettingsError("give --key FILE to mark the text, or --no-watermark to leave it unmarked (one of the two)")
    return None if key is None else WatermarkKey.load(key, allow_open=allow_open_key)


KeyToMark = Annotated[
    WatermarkKey | None,
    OptionGroup(
        options=(
            option("key", Path | None, "Key file to mark with.", panel=KEY),
            option("no_watermark", bool, "Leave no mark.", "--no-watermark", panel=KEY, default=False),
            parameter("allow_open_key", AllowOpenKey, False),
        ),
        value=lambda options: key_to_mark_with(**options),
    ),
]


# --- the model
class Loading(TypedDict, total=False):
    """Arguments of `load_model`, as far as the command line sets them."""

    name_or_path: str
    device: str
    dtype: str
    revision: str
    family: str
    quantization: str
    device_map: str


_LOADING = (
    option("device", str | None, "A torch device.", panel=MODEL, default_text="the GPU if any"),
    option("dtype", str | None, "fp32, bf16 or fp16.", panel=MODEL, default_text="the faster one here"),
    option("revision", str | None, "Branch, tag or commit of a hub id.", panel=MODEL),
    option("family", str | None, "Model family, if config.json does not say.", panel=MODEL),
    option("quantization", str | None, "Quantize while loading: int8 or int4.", panel=MODEL),
    option("device_map", str | None, "auto: spread the model over all devices.", panel=MODEL),
)


def loading_options(*names: str) -> OptionGroup:
    """Those options of `load_model` that have these names, for a command that names its model in another way."""
    return OptionGroup([one for one in _LOADING if one.name in names], set_options)


def _with_name(options: dict[str, Any]) -> Loading:
    return {"name_or_path": options.pop("model"), **set_options(options)}  # type: ignore[typeddict-item]


_MODEL = option("model", str, "Built-in model, checkpoint folder, or hub id.", panel=MODEL, default=BUILTIN)
ModelOptions = Annotated[Loading, OptionGroup((_MODEL, *_LOADING), _with_name)]


# --- the decoding
def decoding_options(without: Collection[str] = (), defaults: Mapping[str, str] | None = None) -> OptionGroup:
    """The settings of `DecodeConfig` as options.

    Args:
        without: settings that the command decides itself.
        defaults: what the command says in place of a setting's own default.
    """
    kinds = get_type_hints(DecodeConfig)
    options: list[inspect.Parameter] = []
    for one in fields(DecodeConfig):
        if one.name not in without:
            told = one.metadata
            kind = (str if told["choices"] else kinds[one.name]) | None
            default = (defaults or {}).get(one.name, told["default"])
            options.append(
                option(one.name, kind, told["help"], panel=DECODING, default_text=default, choices=told["choices"])
            )
    return OptionGroup(options, _settings)


def _settings(options: dict[str, Any]) -> Settings:
    """The settings that are set.

    Raises:
        SettingsError: a name that is none of the choices; said before a model is loaded.
    """
    settings = set_options(options)
    for one in fields(DecodeConfig):
        choices = one.metadata["choices"]
        if choices and settings.get(one.name, choices[0]) not in choices:
            name, value = one.name.replace("_", "-"), settings[one.name]
            raise SettingsError(f"--{name} {value!r} is not one of: {', '.join(choices)}")
    return settings  # type: ignore[return-value]


DecodingOptions = Annotated[Settings, decoding_options()]
Seed = Annotated[int, typer.Option(help="Row i is drawn with seed + i.", rich_help_panel=DECODING)]

# --- the run
BatchSize = Annotated[int, typer.Option(min=1, help="Most rows decoded at once.", rich_help_panel=SPEED)]
Pad = Annotated[
    bool | None,
    typer.Option(
        help="Decode prompts of different lengths together.",
        show_default="on accelerators",
        rich_help_panel=SPEED,
    ),
]
AsRows = Annotated[
    bool, typer.Option("--json", help="Print rows (JSON Lines) instead of text.", rich_help_panel=OUTPUT)
]
OneObject = Annotated[bool, typer.Option("--json", help="Print one JSON object.", rich_help_panel=OUTPUT)]
RowsOut = Annotated[
    Path | None,
    typer.Option(
        help="Append rows to this file; finished rows are not made again.", show_default=False, rich_help_panel=OUTPUT
    ),
]
