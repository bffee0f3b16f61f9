"""The tables of the pages."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
FORMATS = "docs/formats.md"


def table(page: str, heading: str, number: int = 0) -> list[list[str]]:
    """The cells of a table under a heading, without its head."""
    section = (ROOT / page).read_text(encoding="utf-8").partition(f"# {heading}\n")[2]
    lines = re.findall(r"(?:^\|.*\n)+", section, flags=re.MULTILINE)[number].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def names(cells: list[str]) -> set[str]:
    """The names that cells show as code."""
    return {name for cell in cells for name in re.findall(r"`([\w-]+(?:\.\d+)?)`", cell)}
