"""Reports written to files: the ending chooses the kind, and a signing key signs them."""

import os
from pathlib import Path

from dgmark.errors import SettingsError
from dgmark.report.contents import Report
from dgmark.report.page import to_html, to_json
from dgmark.report.signing import SigningKey
from dgmark.rows.outputs import atomic_write

_WRITERS = {".html": to_html, ".json": to_json}


def check_report_path(path: str | os.PathLike[str]) -> None:
    """Refuse a file name that does not say which kind of report is meant.

    Raises:
        SettingsError: the name ends neither in .html nor in .json.
    """
    if Path(path).suffix.lower() not in _WRITERS:
        raise SettingsError(f"the report {path} does not end in .html or .json: the ending chooses the kind of report")


def write_report(report: Report, path: str | os.PathLike[str], *, signer: SigningKey | None = None) -> None:
    """Write a report as a page (.html) or as JSON (.json), whole or not at all.

    Args:
        report: the report.
        path: the file; an existing one is replaced.
        signer: the key to sign it with; unsigned by default.

    Raises:
        SettingsError: the name ends neither in .html nor in .json.
        InputError: the file cannot be written.
        MissingExtra: jinja2 is not installed.
    """
    check_report_path(path)
    document = _WRITERS[Path(path).suffix.lower()](report)
    atomic_write(Path(path), signer.sign(document) if signer else document)
