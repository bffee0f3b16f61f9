"""The command line, called in this process."""

import json
from typing import Any

from typer.testing import CliRunner, Result

from dgmark.cli import app as dgmark_app
from dgmark_lab.cli import app as lab_app

LAB = {"attack", "baselines", "evaluate", "experiment", "rate", "train"}


def run(*args: object, stdin: str | bytes | None = None) -> Result:
    """Run a command of `dgmark` or of `dgmark-lab`."""
    app = lab_app if args and args[0] in LAB else dgmark_app
    return CliRunner().invoke(app, [str(arg) for arg in args], input=stdin, catch_exceptions=False)


def rows(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]
