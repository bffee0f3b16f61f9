"""`dgmark convert`: rewrite a checkpoint so that it loads as fast as possible."""

from pathlib import Path
from typing import Annotated

import typer

from dgmark.cli.console import command_errors, needed_extra
from dgmark.cli.option_groups import option_groups
from dgmark.cli.options import Loading, loading_options


@command_errors
@option_groups
def convert(
    source: Annotated[str, typer.Argument(help="Built-in model, checkpoint folder, or hub id to convert.")],
    target: Annotated[Path, typer.Argument(help="Folder to write; it must not exist.")],
    loading: Annotated[Loading, loading_options("revision", "family")],
) -> None:
    """Rewrite a checkpoint to load faster: one safetensors file, with final tensor names. The logits stay the same."""
    with needed_extra("generate", "converting"):
        from dgmark.models.convert import convert_checkpoint
    convert_checkpoint(source, target, revision=loading.get("revision"), family=loading.get("family"))
    print(f"{target}: converted from {source}; use it with --model {target}")
