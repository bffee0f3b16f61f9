"""Options that several commands share: the same name, meaning and help sentence everywhere.

The decoding options are built from the fields of `DecodeConfig`, so that each setting is described once.
"""

import inspect
import os
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from dgmark.checkpoint.folder import BUILTINS, is_hub_id
from dgmark.cli.option_groups import OptionGroup
from dgmark.decode.config import SettingField, Settings, setting_fields
from dgmark.watermark.key import WatermarkKey

# --- the key
NEW_KEY_FILE = "File to write the key to (mode 0600), or - for standard output; an existing file is never overwritten."
NewKeyFile = Annotated[Path, typer.Argument(help=NEW_KEY_FILE)]
AllowOpenKey = Annotated[
    bool, typer.Option("--allow-open-key", help="Accept a key file that every user of the machine can read.")
]

Tokenizer = Annotated[str | None, typer.Option(help="Tokenizer folder or file.", show_default="that of the key")]
SurprisalModel = Annotated[
    str | None,
    typer.Option(
        metavar="MODEL",
        help="Language model that weighs tokens: builtin, a folder, a GGUF file, a hub id, or a server's address.",
    ),
]
ModelContext = Annotated[
    int | None,
    typer.Option("--context", help="Most tokens that the language model reads.", show_default="all it can"),
]


# --- the model
Dtype = Annotated[
    str | None,
    typer.Option(help="fp32, bf16 or fp16.", show_default="$DGMARK_DTYPE, else the faster one on the device"),
]
Loading = dict[str, Any]
"""The arguments of `load_model` that the command line sets."""


def model_to_load(
    name_or_path: Annotated[
        str | None,
        typer.Option(
            "--model", "-m", help="Built-in model, folder, GGUF file or hub id.", show_default="that of the key"
        ),
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="cpu, cuda, mps or mlx.", show_default="a GPU, else the CPU")
    ] = None,
    dtype: Dtype = None,
    revision: Annotated[str | None, typer.Option(help="Branch, tag or commit of a model on the hub.")] = None,
    family: Annotated[
        str | None, typer.Option(help="Model family, if the checkpoint's config.json does not name it.")
    ] = None,
    device_map: Annotated[
        str | None, typer.Option(help="auto: spread the model over all devices of the machine.")
    ] = None,
    compile: Annotated[  # noqa: A002 (as in torch)
        bool | None,
        typer.Option("--compile", help="Compile the forward, which takes a minute.", show_default="no"),
    ] = None,
    tokenizer: Annotated[
        str | None, typer.Option(help="Tokenizer folder or file for a GGUF file.", show_default="the file's own")
    ] = None,
    n_gpu_layers: Annotated[
        int | None, typer.Option(help="Layers of a GGUF file on the GPU.", show_default="as many as fit")
    ] = None,
    n_threads: Annotated[int | None, typer.Option(help="Threads for a GGUF file.", show_default="as torch has")] = None,
    n_batch: Annotated[
        int | None, typer.Option(help="Positions of one forward of a GGUF file.", show_default="512")
    ] = None,
) -> Loading:
    """The arguments of `load_model` that are set."""
    return set_options(**locals())


ModelOptions = Annotated[Loading, OptionGroup(model_to_load)]


def model_of_key(loading: Loading, keys: Iterable[WatermarkKey | None]) -> Loading:
    """The model to load: by default that of the keys, if they name one and it can be found by this name here."""
    names = {key.spec.tokenizer for key in keys if key is not None and key.spec.tokenizer}
    found = [name for name in names if name in BUILTINS or is_hub_id(name) or os.path.isdir(name)]
    return {**({"name_or_path": found[0]} if len(names) == len(found) == 1 else {}), **loading}


def loading_options(*names: str) -> OptionGroup:
    """The named options of `load_model`, for a command that names its model in another way."""
    return OptionGroup(model_to_load, names)


def set_options(**options: Any) -> dict[str, Any]:
    """The options that the command line sets: those that are not None."""
    return {name: value for name, value in options.items() if value is not None}


# --- the decoding
def decoding_options(without: Collection[str] = ()) -> OptionGroup:
    """The fields of `DecodeConfig` as options, without those that the command decides itself."""

    def option(setting: SettingField) -> inspect.Parameter:
        metavar = None if setting.choices else "NUMBER"
        info = typer.Option(help=setting.help, metavar=metavar, show_default=setting.default_text or False)
        kind: Any = Annotated[setting.type | None, info]
        return inspect.Parameter(setting.name, inspect.Parameter.KEYWORD_ONLY, annotation=kind, default=None)

    options = [option(setting) for setting in setting_fields() if setting.name not in without]
    return OptionGroup(set_options, signature=inspect.Signature(options))


DecodingOptions = Annotated[Settings, decoding_options()]
# for help panels: what a normal user leaves alone
RARE_SETTINGS = [setting.name for setting in setting_fields() if setting.name not in ("length", "temperature")]
RARE_LOADING = [name for name in inspect.signature(model_to_load).parameters if name != "name_or_path"]

# --- tables
PromptColumn = Annotated[str, typer.Option(help="Column or field of the prompts.")]
IdColumn = Annotated[str | None, typer.Option(help="Column or field of the rows' ids.")]
KeyColumn = Annotated[str | None, typer.Option(help="Column or field that names each row's key.")]
Prefix = Annotated[str, typer.Option(help="Begin the names of added columns with this.")]

# --- the run
NoWatermark = Annotated[bool, typer.Option("--no-watermark", help="Write texts without a mark.")]
Chat = Annotated[bool, typer.Option("--chat", help="Put each prompt into the model's chat template.")]
Check = Annotated[
    bool,
    typer.Option("--check", help="Look for the mark in each new text, as a checker with the same key would."),
]
BatchSize = Annotated[int, typer.Option(min=1, help="Largest number of rows decoded at once.")]
Pad = Annotated[
    bool | None,
    typer.Option(help="Decode prompts of different lengths in one batch.", show_default="pad, except on a CPU"),
]
AsRows = Annotated[bool, typer.Option("--json", help="Print rows (JSON Lines) instead of text.")]
OneObject = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]
RowsOut = Annotated[
    Path | None, typer.Option("--out", "-o", help="Append to this JSON Lines file; the rows that it holds stay.")
]
