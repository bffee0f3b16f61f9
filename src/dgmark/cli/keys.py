"""`dgmark keygen` and `dgmark key show`."""

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from dgmark.checkpoint.folder import BUILTIN
from dgmark.checkpoint.tokenizer import load_tokenizer
from dgmark.cli.console import speaks, stderr, stdout
from dgmark.cli.options import AllowOpenKey, OneObject
from dgmark.errors import SettingsError
from dgmark.watermark.groups import PRF
from dgmark.watermark.key import WatermarkKey


class Scheme(StrEnum):
    """Where the groups come from."""

    KEYED = "keyed"
    TOKEN_ID = "token-id"  # noqa: S105 (the name of a scheme)


def key_to_mark_with(key: Path | None, no_watermark: bool, allow_open: bool) -> WatermarkKey | None:
    """The key that a command is to mark with; None if it is to leave no mark.

    Raises:
        SettingsError: neither or both were asked for.
    """
    if (key is None) != no_watermark:
        raise SettingsError("give --key FILE to mark the text, or --no-watermark to leave it unmarked (one of the two)")
    return None if key is None else WatermarkKey.load(key, allow_open=allow_open)


@speaks
def keygen(
    file: Annotated[Path, typer.Argument(help="Where to write the key (mode 0600; never overwritten).")],
    model: Annotated[str, typer.Option(help="Model whose tokenizer the key is bound to.")] = BUILTIN,
    modulus: Annotated[int, typer.Option(help="Number of token groups, 2 to 16.")] = 2,
    rotate: Annotated[int, typer.Option(help="Positions after which the groups change; 0 is never.")] = 0,
    scheme: Annotated[Scheme, typer.Option(help="token-id is the paper's rule, which has no key.")] = Scheme.KEYED,
    code_length: Annotated[
        int, typer.Option(help="Period of a keyed position code, a multiple of the modulus; 0 is the paper's i mod m.")
    ] = 0,
) -> None:
    """Make a secret key. Who has it can detect the mark, and forge it: keep it as you keep a signing key."""
    key = WatermarkKey.generate(model, modulus=modulus, rotation=rotate, grouping=scheme.value, code_length=code_length)
    key.save(file)
    if key.keyless:
        stderr().print(
            "warning: token-id has no secret; anybody can detect and forge it, and its p-values hold for no key"
        )
    print(f"{file}: key {key.fingerprint} for {model}")


key_app = typer.Typer(no_args_is_help=True, help="Look at a key file.")


@key_app.callback()
def key_group() -> None:
    """Look at a key file."""


@key_app.command("show")
@speaks
def show(
    file: Annotated[Path, typer.Argument(help="Key file.")],
    as_json: OneObject = False,
    allow_open_key: AllowOpenKey = False,
) -> None:
    """Show what a key file says of itself; never the secret."""
    key = WatermarkKey.load(file, allow_open=allow_open_key)
    public = {"key_fingerprint": key.fingerprint, "key_id": key.key_id, "prf": PRF, **key.spec.to_fields(), "schema": 1}
    if as_json:
        print(json.dumps(public))
        return
    for name, value in public.items():
        stdout().print(f"{name:<22} {value}", markup=False)


@key_app.command("renew")
@speaks
def renew(
    file: Annotated[Path, typer.Argument(help="Key file.")],
    new: Annotated[Path, typer.Argument(help="Where to write the renewed key (never overwritten).")],
    tokenizer: Annotated[
        str | None, typer.Option(help="Tokenizer folder or file; by default the one the key names.", show_default=False)
    ] = None,
    allow_open_key: AllowOpenKey = False,
) -> None:
    """Write a key anew, bound to its whole tokenizer; it finds the same marks, and its fingerprint is another one.

    Keys made by the first versions of dgmark are bound to the vocabulary alone.
    """
    key = WatermarkKey.load(file, allow_open=allow_open_key)
    renewed = key.renewed(load_tokenizer(tokenizer or key.spec.tokenizer))
    renewed.save(new)
    print(f"{new}: key {renewed.fingerprint}, renewed from {key.fingerprint}")
