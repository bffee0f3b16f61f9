"""`dgmark convert`: a checkpoint as one that loads fastest."""

from pathlib import Path
from typing import Annotated

import typer

from dgmark.cli.console import speaks
from dgmark.cli.options import Family, Revision
from dgmark.errors import MissingExtra, install_hint


@speaks
def convert(
    source: Annotated[str, typer.Argument(help="Model name, checkpoint folder, or hub id.")],
    target: Annotated[Path, typer.Argument(help="Folder to write (never overwritten).")],
    revision: Revision = None,
    family: Family = None,
) -> None:
    """Rewrite a checkpoint to load fastest: one safetensors file, no tensor to rename. The logits stay the same."""
    try:
        from dgmark.models.convert import convert as convert_checkpoint
    except ImportError as error:
        raise MissingExtra(f"converting needs torch and transformers: {install_hint('generate')} ({error})") from None
    convert_checkpoint(source, target, revision=revision, family=family)
    print(f"{target}: {source}, to be loaded by this path")
