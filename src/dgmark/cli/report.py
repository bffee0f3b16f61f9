"""`dgmark report`: keys that sign reports, and the check of a signed report."""

import json
from pathlib import Path
from typing import Annotated

import typer

from dgmark.cli.console import command_errors, stderr, tell_of_key, visible
from dgmark.cli.options import AllowOpenKey, NewKeyFile
from dgmark.cli.panels import Commands
from dgmark.files.inputs import read_bytes
from dgmark.report.signed import read_signed_report
from dgmark.report.signing import SigningKey, read_key_set

report_app = Commands(help="Make keys that sign reports of `dgmark detect --report`, and check signed reports.")


@report_app.command("keygen")
@command_errors
def report_keygen(
    file: NewKeyFile,
    name: Annotated[
        str | None, typer.Option(help="Who signs with it, such as ACME; `dgmark report verify` shows it.")
    ] = None,
) -> None:
    """Make a key that signs reports. It is another kind of key than the one that marks texts."""
    key = SigningKey.generate(name)
    key.save(file)
    tell_of_key(file, f"signing key {key.key_id}")
    stderr().print(
        "Next:\n"
        f"  dgmark report jwks {file} > jwks.json   the public key, to be published\n"
        f"  dgmark detect --key KEY --report report.html --sign {file} TEXT   a signed report"
    )


@report_app.command("jwks")
@command_errors
def report_jwks(
    files: Annotated[
        list[Path], typer.Argument(help="Signing keys, also former ones whose reports are to stay valid.")
    ],
    allow_open_key: AllowOpenKey = False,
) -> None:
    """Print the public keys as a JSON Web Key Set. Publish it where those who get your reports will look for it."""
    sets = [SigningKey.load(file, allow_open=allow_open_key).to_jwks() for file in files]
    print(json.dumps({"keys": [key for one in sets for key in one["keys"]]}, indent=2))


@report_app.command("verify")
@command_errors
def report_verify(
    file: Annotated[Path, typer.Argument(help="Signed report (.html or .json).")],
    jwks: Annotated[Path, typer.Option(help="The published keys of the signer (a JSON Web Key Set).")],
) -> None:
    """Check that a report was signed with a trusted key, and that no byte of it was changed since.

    Exits with 0 only if both hold.
    """
    report = read_signed_report(read_bytes(file), read_key_set(jwks))
    signed = f"{report['signer']} signed it" if report["signer"] else "it was signed"
    print(visible(f"{file}: unchanged since {signed} with key {report['key_id']}"))
    print(visible(f"It says, made on {report['created']}: {report['heading']} ({report['name']})"))
