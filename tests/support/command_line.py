"""The command line, called in this process."""

import json
from typing import Any

from typer import Typer
from typer.testing import CliRunner, Result

from dgmark.cli import app as dgmark_app
from dgmark_lab.cli import app as lab_app

LAB = {"attack", "baselines", "evaluate", "experiment", "rate", "train"}


def run(*args: object, stdin: str | bytes | None = None, code: int | None = None) -> Result:
    """Run a command of `dgmark` or of `dgmark-lab`, which must end with this exit code if one is given."""
    return invoke(lab_app if args and args[0] in LAB else dgmark_app, *args, stdin=stdin, code=code)


def invoke(app: Typer, *args: object, stdin: str | bytes | None = None, code: int | None = None) -> Result:
    """Run a command of an application."""
    result = CliRunner().invoke(app, [str(arg) for arg in args], input=stdin, catch_exceptions=False)
    assert code in (None, result.exit_code), f"exit code {result.exit_code}: {result.output}"
    return result


def complaint(*args: object, stdin: str | bytes | None = None, code: int) -> str:
    """What a command that must end with this exit code says on stderr, on one line."""
    return " ".join(run(*args, stdin=stdin, code=code).stderr.split())


def rows(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]
