"""The cases of tests that are tables of plain data, by what they are."""

import tomllib
from pathlib import Path
from typing import Any

CASES: dict[str, Any] = tomllib.loads(Path(__file__).with_name("cases.toml").read_text(encoding="utf-8"))
