"""Options that several commands share: the same name, meaning and help sentence everywhere.

The decoding options are built from the fields of `DecodeConfig`, so that each setting is described once.
"""

import inspect
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated, Any, TypedDict

import typer

from dgmark.checkpoint.folder import BUILTIN
from dgmark.cli.option_groups import OptionGroup, option, parameter, set_options
from dgmark.decode.config import Settings, setting_fields
from dgmark.errors import SettingsError
from dgmark.watermark.key import WatermarkKey

# the panels of the help pages; options that only one command has are in "Options"
KEY, MODEL, DECODING, DETECTION = "Key", "Model", "Decoding", "Detection"
SPEED, OUTPUT = "Speed", "Output"

# --- the key
AllowOpenKey = Annotated[
    bool, typer.Option(help="Accept a key file that every user of the machine can read.", rich_help_panel=KEY)
]


def key_to_mark_with(key: Path | None, no_watermark: bool, allow_open_key: bool) -> WatermarkKey | None:
    """Load the key that a command marks with; None for text without a mark.

    Raises:
        SettingsError: neither or both of a key and `no_watermark` are given.
        KeyFileError: the key file is unusable.
    """
    if (key is None) != no_watermark:
        raise SettingsError("give --key FILE to mark the text, or --no-watermark to leave it unmarked (one of the two)")
    return None if key is None else WatermarkKey.load(key, allow_open=allow_open_key)


KeyToMark = Annotated[
    WatermarkKey | None,
    OptionGroup(
        options=(
            option("key", Path | None, "Key file to mark the text with; `dgmark keygen` makes one.", panel=KEY),
            option("no_watermark", bool, "Generate text without a mark.", "--no-watermark", panel=KEY, default=False),
            parameter("allow_open_key", AllowOpenKey, False),
        ),
        value=lambda options: key_to_mark_with(**options),
    ),
]

Subkey = Annotated[
    int | None,
    typer.Option(
        "--subkey",
        help="Sub-key to mark every text with, 0 to N - 1: the payload. For keys of `keygen --subkeys N`.",
        show_default="drawn for each text",
        rich_help_panel=KEY,
    ),
]


def same_subkey(subkey: int | None) -> dict[str, int]:
    """What a finished row must state to be of this run: the sub-key, if the user chose one."""
    return {} if subkey is None else {"subkey": subkey}


# --- the model
class Loading(TypedDict, total=False):
    """The arguments of `load_model` that the command line sets."""

    name_or_path: str
    device: str
    dtype: str
    revision: str
    family: str
    quantization: str
    device_map: str


_LOADING = (
    option(
        "device",
        str | None,
        "Device to compute on: cpu, cuda, cuda:1 or mps.",
        panel=MODEL,
        default_text="a GPU, else the CPU",
    ),
    option(
        "dtype",
        str | None,
        "Number format: fp32, bf16 or fp16.",
        panel=MODEL,
        default_text="the faster one on the device",
    ),
    option("revision", str | None, "Branch, tag or commit of a model named by its hub id.", panel=MODEL),
    option(
        "family",
        str | None,
        "Model family (see `dgmark models`), if the checkpoint's config.json does not name it.",
        panel=MODEL,
    ),
    option("quantization", str | None, "Quantize the weights while loading: int8 or int4.", panel=MODEL),
    option("device_map", str | None, "auto: spread the model over all devices of the machine.", panel=MODEL),
)


def loading_options(*names: str) -> OptionGroup:
    """The named options of `load_model`, for a command that names its model in another way."""
    return OptionGroup([one for one in _LOADING if one.name in names], set_options)


def _with_name(options: dict[str, Any]) -> Loading:
    return {"name_or_path": options.pop("model"), **set_options(options)}  # type: ignore[typeddict-item]


_MODEL = option(
    "model",
    str,
    "Built-in model, checkpoint folder, or hub id such as GSAI-ML/LLaDA-8B-Instruct.",
    panel=MODEL,
    default=BUILTIN,
)
ModelOptions = Annotated[Loading, OptionGroup((_MODEL, *_LOADING), _with_name)]


def address_of(path: Path) -> str:
    """A path, or an address such as s3://bucket/folder, of which a `Path` keeps only one slash."""
    return re.sub(r"^(\w{2,}):/(?!/)", r"\1://", str(path))


# --- the decoding
def decoding_options(without: Collection[str] = (), defaults: Mapping[str, str] | None = None) -> OptionGroup:
    """The fields of `DecodeConfig` as options.

    Args:
        without: settings that the command decides itself.
        defaults: the defaults in words, by setting, where the command's default is not that of `DecodeConfig`.
    """
    options: list[inspect.Parameter] = []
    for one in setting_fields():
        if one.name not in without:
            kind = (str if one.choices else one.type) | None
            default = (defaults or {}).get(one.name, one.default_text)
            options.append(option(one.name, kind, one.help, panel=DECODING, default_text=default, choices=one.choices))
    return OptionGroup(options, _settings)


def _settings(options: dict[str, Any]) -> Settings:
    """The settings that the command line sets, checked before a model is loaded.

    Raises:
        SettingsError: a value is not one of the setting's choices.
    """
    settings = set_options(options)
    for one in setting_fields():
        if one.choices and settings.get(one.name, one.default) not in one.choices:
            name, value = one.name.replace("_", "-"), settings[one.name]
            raise SettingsError(f"--{name} {value!r} is not one of: {', '.join(one.choices)}")
    return settings


DecodingOptions = Annotated[Settings, decoding_options()]
Seed = Annotated[int, typer.Option(help="Random seed; row i, counted from 0, uses seed + i.", rich_help_panel=DECODING)]

# --- the run
BatchSize = Annotated[int, typer.Option(min=1, help="Largest number of rows decoded at once.", rich_help_panel=SPEED)]
Pad = Annotated[
    bool | None,
    typer.Option(
        help="Decode prompts of different lengths in one batch.",
        show_default="on, except on a CPU",
        rich_help_panel=SPEED,
    ),
]
AsRows = Annotated[
    bool, typer.Option("--json", help="Print rows (JSON Lines) instead of text.", rich_help_panel=OUTPUT)
]
OneObject = Annotated[
    bool, typer.Option("--json", help="Print one JSON object instead of text.", rich_help_panel=OUTPUT)
]
Ray = Annotated[
    str | None,
    typer.Option(
        "--ray",
        metavar="ADDRESS",
        help="Work on a Ray cluster: local (this machine), auto, or host:port. Reads files and folders of .jsonl and "
        ".parquet, also at addresses such as s3://..., and --out names a folder of Parquet files.",
        show_default=False,
        rich_help_panel=SPEED,
    ),
]
RowsOut = Annotated[
    Path | None,
    typer.Option(
        help="Append the rows to this JSON Lines file; rows that it holds already are not made again.",
        show_default=False,
        rich_help_panel=OUTPUT,
    ),
]
