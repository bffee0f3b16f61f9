"""`dgmark models`: list the supported models and their default settings; rewrite a checkpoint so that it loads fast."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from dgmark.checkpoint.families import FAMILIES
from dgmark.checkpoint.folder import BUILTIN, BUILTINS
from dgmark.cli.console import command_errors
from dgmark.cli.option_groups import option_groups
from dgmark.cli.options import Loading, OneObject, loading_options
from dgmark.extras import needed_extra

models_app = typer.Typer(invoke_without_command=True)


@models_app.callback()
@command_errors
def models(ctx: typer.Context, as_json: OneObject = False) -> None:
    """List the model families, their published checkpoints, the memory of their weights, and their default settings."""
    if ctx.invoked_subcommand:
        return
    families = FAMILIES.values()
    if as_json:
        rows = [asdict(family) for family in families]
        print(json.dumps({"builtin": BUILTIN, "builtins": BUILTINS, "families": rows, "schema": 1}))
        return
    line = "{:<16} {:<43} {:>10} {:>8} {:>6}  {}"
    print(line.format("family", "checkpoint", "parameters", "GB bf16", "block", "licence"))
    for family in families:
        for one in family.published:
            size, block = f"{one.weight_bytes / 1e9:.1f}", family.defaults["block_length"]
            print(line.format(family.name, one.hub_id, f"{one.parameters / 1e9:.2f}e9", size, block, one.licence))
    print(f"built in: {', '.join(BUILTINS)}; --model takes any checkpoint of these families, as a folder or a hub id")


@models_app.command()
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
