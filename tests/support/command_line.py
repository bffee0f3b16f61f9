"""The command line, called in this process."""

import json
from typing import Any

from typer.testing import CliRunner, Result

from dgmark.cli import app


def run(*args: object, stdin: str | bytes | None = None) -> Result:
    return CliRunner().invoke(app, [str(arg) for arg in args], input=stdin, catch_exceptions=False)


def rows(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]
