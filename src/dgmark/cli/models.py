"""`dgmark models`: list the supported models and their default settings."""

import json
from dataclasses import asdict

from dgmark.checkpoint.families import FAMILIES
from dgmark.checkpoint.folder import BUILTIN, BUILTINS
from dgmark.cli.console import command_errors
from dgmark.cli.options import OneObject


@command_errors
def models(as_json: OneObject = False) -> None:
    """List the model families, their published checkpoints, the memory of their weights, and their default settings."""
    families = FAMILIES.values()
    if as_json:
        rows = [asdict(family) for family in families]
        print(json.dumps({"builtin": BUILTIN, "builtins": BUILTINS, "families": rows, "schema": 1}))
        return
    line = "{:<16} {:<43} {:>10} {:>8} {:>6}  {}"
    print(line.format("family", "checkpoint", "parameters", "GB bf16", "block", "licence"))
    for family in families:
        for checkpoint in family.published:
            size, count = f"{checkpoint.weight_bytes / 1e9:.1f}", f"{checkpoint.parameters / 1e9:.2f}e9"
            block, licence = family.defaults["block_length"], checkpoint.licence
            print(line.format(family.name, checkpoint.hub_id, count, size, block, licence))
    print(f"built in: {', '.join(BUILTINS)}; --model takes any checkpoint of these families, as a folder or a hub id")
