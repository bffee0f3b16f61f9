"""The lines of `pip install` by which pages and scripts install from a checkout."""

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
_FILES = ("*.md", "*.ipynb", "*.sh", "Containerfile")
_FOLDERS = ("builtin", "deploy", "docs", "documents", "lab", "service")
_FOLDER = r"\.(?:/[a-z]+)?(?:\[[a-z,]+\])?"
_LINE = re.compile(rf"pip install(?: --[a-z]+(?: [\w-]+\.txt)?)*((?: ['\"]?{_FOLDER}['\"]?(?![\w/]))+)")


def install_lines() -> Iterator[tuple[str, str]]:
    """The file and the arguments of each line, such as `. ./service`, without options and quotation marks."""
    within = (file for folder in _FOLDERS for pattern in _FILES for file in sorted((ROOT / folder).rglob(pattern)))
    for file in (ROOT / "Makefile", *sorted(ROOT.glob("*.md")), *within):
        text = file.read_text(encoding="utf-8").replace("--editable ", "").replace("${EXTRAS}", "report")
        for found in _LINE.finditer(text.replace("$(INSTALL)", "pip install")):
            yield file.relative_to(ROOT).as_posix(), re.sub("['\"]", "", found[1].strip())
