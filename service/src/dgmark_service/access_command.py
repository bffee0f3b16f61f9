"""`dgmark access`: the tokens by which a service knows who may do what."""

from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from dgmark.cli.console import command_errors, stderr, stdout
from dgmark.cli.panels import Commands
from dgmark_service.token_file import TokenFile

access_app = Commands(no_args_is_help=True, help="Make, list and remove the access tokens of `dgmark serve`.")
TokensFile = Annotated[Path, typer.Argument(help="File of access tokens; it keeps their hashes only.")]
TokenName = Annotated[str, typer.Argument(help="Name of the token, such as whom it is for.")]


@access_app.command("keygen")
@command_errors
def access_keygen(
    file: TokensFile,
    name: TokenName,
    scope: Annotated[
        list[str],
        typer.Option(
            help="What its holder may do: detect (the verdict and spans), detect:full (all numbers), "
            "generate (have texts written), admin (/metrics); may be repeated.",
        ),
    ] = ["detect:full"],  # noqa: B006 (typer reads it once)
    expires: Annotated[datetime | None, typer.Option(help="Refuse it from this date on (UTC).")] = None,
    key: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Key that its holder may use, and no other; repeatable.", show_default="all"),
    ] = None,
) -> None:
    """Make a token and print it once. A running service takes it from its next request on."""
    print(TokenFile(file).add(name, scope, expires=expires, keys=key))
    stderr().print("This is the only time that the token is shown: the file keeps its hash.")


@access_app.command("list")
@command_errors
def access_list(file: TokensFile) -> None:
    """List the tokens: name, scopes, time of making, end and keys."""
    for token in TokenFile(file).tokens():
        limits = [f"until {token.expires.isoformat()}"] if token.expires else []
        limits += [f"keys {', '.join(token.keys)}"] if token.keys is not None else []
        said = f"{token.name:<24} {' '.join(token.scopes):<32} {token.created}"
        stdout().print("  ".join([said, *limits]), soft_wrap=True)


@access_app.command("remove")
@command_errors
def access_remove(file: TokensFile, name: TokenName) -> None:
    """Remove a token. A running service refuses it from its next request on."""
    TokenFile(file).remove(name)
    print(f"{file}: removed {name}")
