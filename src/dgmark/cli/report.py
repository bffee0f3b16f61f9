"""`dgmark report`: keys that sign reports, and the check of a signed report."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from dgmark.cli.console import command_errors, stderr
from dgmark.cli.help_page import Command
from dgmark.cli.options import KEY, AllowOpenKey
from dgmark.detection.detector import Detector
from dgmark.detection.result import Detection
from dgmark.errors import InputError, SettingsError
from dgmark.report import Report, SigningKey, to_html, to_json, verify_report
from dgmark.rows.texts import Item
from dgmark.rows.whole_files import write_whole

report_app = typer.Typer(help="Make keys that sign reports of `dgmark detect --report`, and check signed reports.")

_WRITERS = {".html": to_html, ".json": to_json}


def check_report_paths(paths: Sequence[Path]) -> None:
    """Refuse a file name that does not say which kind of report is meant.

    Raises:
        SettingsError: a name ends neither in .html nor in .json.
    """
    for path in paths:
        if path.suffix.lower() not in _WRITERS:
            raise SettingsError(
                f"--report {path} does not end in .html or .json: the ending chooses the kind of report"
            )


def write_reports(
    detector: Detector, item: Item, detection: Detection, paths: Sequence[Path], signer: SigningKey | None, public: bool
) -> None:
    """Write the report of one text to each of these files, signed if there is a signing key."""
    report = Report.of(detector, item.row_id, item.content, detection=detection, public=public)
    for path in paths:
        document = _WRITERS[path.suffix.lower()](report)
        write_whole(path, signer.sign(document) if signer else document)


@report_app.command("keygen", cls=Command)
@command_errors
def report_keygen(
    file: Annotated[
        Path, typer.Argument(help="File to write the key to (mode 0600); an existing file is never overwritten.")
    ],
) -> None:
    """Make a key that signs reports. It is another kind of key than the one that marks texts."""
    key = SigningKey.generate()
    key.save(file)
    print(f"{file}: signing key {key.key_id}")
    stderr().print(
        "Next:\n"
        f"  dgmark report jwks {file} > jwks.json   the public key, to be published\n"
        f"  dgmark detect --key KEY --report report.html --sign {file} TEXT   a signed report",
        markup=False,
        highlight=False,
    )


@report_app.command("jwks", cls=Command)
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


@report_app.command("verify", cls=Command)
@command_errors
def report_verify(
    file: Annotated[Path, typer.Argument(help="Signed report (.html or .json).")],
    jwks: Annotated[
        Path, typer.Option(help="The published keys of whoever signed it (a JSON Web Key Set).", rich_help_panel=KEY)
    ],
) -> None:
    """Check that a report was signed with a trusted key, and that no byte of it was changed since.

    Exits with 0 only if both hold.
    """
    try:
        keys = json.loads(_read(jwks))
    except ValueError as error:
        raise InputError(f"{jwks} is not JSON: give the key set (jwks.json) of whoever signed the report") from error
    print(f"{file}: unchanged since it was signed with key {verify_report(_read(file), keys)}")


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
