"""`dgmark report`: keys that sign reports, and the check of a signed report."""

import json
from pathlib import Path
from typing import Annotated

import typer

from dgmark.cli.console import command_errors, stderr, tell_of_key, visible
from dgmark.cli.options import AllowOpenKey, NewKeyFile
from dgmark.cli.panels import Commands
from dgmark.errors import SettingsError
from dgmark.files.inputs import decode, read_bytes
from dgmark.files.outputs import check_output
from dgmark.report.joined import MAX_REPORTS, JoinedReport
from dgmark.report.page import check_report_path, write_report
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
    print(json.dumps({"keys": [key for jwks in sets for key in jwks["keys"]]}, indent=2))


@report_app.command("join")
@command_errors
def report_join(
    files: Annotated[list[Path], typer.Argument(help="JSON reports of single texts, as they were made.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="File to write (.html or .json).")],
    jwks: Annotated[
        Path | None, typer.Option(help="Refuse reports that none of these keys signed (a JSON Web Key Set).")
    ] = None,
    sign: Annotated[Path | None, typer.Option(help="Sign the joined report with this key.")] = None,
    name: Annotated[str, typer.Option(help="What the joined report calls them.")] = "several texts",
    allow_open_key: AllowOpenKey = False,
) -> None:
    """Make one report of several reports."""
    check_report_path(out)
    check_output(out, [str(file) for file in (*files, jwks, sign) if file is not None])
    if len(files) > MAX_REPORTS:
        raise SettingsError(f"one report is made of up to {MAX_REPORTS:,} reports, not of {len(files):,}")
    signer = SigningKey.load(sign, allow_open=allow_open_key) if sign else None
    documents = [decode(read_bytes(file), str(file)) for file in files]
    write_report(JoinedReport.of(documents, name, read_key_set(jwks) if jwks else None), out, signer=signer)


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
