"""`dgmark models`: list the supported models and their default settings; rewrite a checkpoint so that it loads fast."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from dgmark.checkpoint.families import BYTES_PER_PARAMETER, FAMILIES, Family
from dgmark.checkpoint.folder import BUILTIN, BUILTINS
from dgmark.cli.console import command_errors, needed_extra
from dgmark.cli.option_groups import option_groups
from dgmark.cli.options import Loading, OneObject, loading_options

MODELS_SCHEMA = 1

models_app = typer.Typer(invoke_without_command=True)


@models_app.callback()
@command_errors
def models(ctx: typer.Context, as_json: OneObject = False) -> None:
    """List the model families, their published checkpoints, the memory of their weights, and their default settings."""
    if ctx.invoked_subcommand:
        return
    rows = [family_row(family) for family in FAMILIES.values()]
    if as_json:
        print(json.dumps({"builtin": BUILTIN, "builtins": BUILTINS, "families": rows, "schema": MODELS_SCHEMA}))
        return
    lines = [("family", "checkpoint", "parameters", "GB bf16", "block", "licence")]
    for row in rows:
        for entry in row["checkpoints"]:
            size, block = f"{entry['weight_bytes']['bf16'] / 1e9:.1f}", str(row["defaults"]["block_length"])
            parameters = f"{entry['parameters'] / 1e9:.2f}e9"
            lines.append((row["family"], entry["id"], parameters, size, block, entry["licence"]))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = (
            cell.rjust(width) if 2 <= place <= 4 else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        print("  ".join(cells).rstrip())
    print(f"built in: {', '.join(BUILTINS)}; --model takes any checkpoint of these families, as a folder or a hub id")


def family_row(family: Family) -> dict[str, Any]:
    """A family as plain JSON values, with the size of the weights in bytes for each number format."""
    return {
        "family": family.name,
        "title": family.title,
        "defaults": dict(family.defaults),
        "confidence_source": family.confidence_source,
        "block_multiple": family.block_multiple,
        "chat": family.chat is not None,
        "known_ids": {
            str(size): {"mask_id": ids.mask_id, "end_ids": list(ids.end_ids)} for size, ids in family.known_ids.items()
        },
        "checkpoints": [
            {
                "id": published.hub_id,
                "parameters": published.parameters,
                "weight_bytes": {dtype: published.weight_bytes(dtype) for dtype in BYTES_PER_PARAMETER},
                "licence": published.licence,
            }
            for published in family.published
        ],
    }


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
