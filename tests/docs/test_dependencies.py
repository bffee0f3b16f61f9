"""The table of dependencies names exactly those of both pyproject.toml, each with the extras that install it."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def declared() -> dict[str, set[str]]:
    """Each package of both pyproject.toml, and what installs it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    lab = tomllib.loads((ROOT / "lab" / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    groups = {
        "always": project["project"]["dependencies"],
        "build": project["build-system"]["requires"],
        "lab": lab["dependencies"] + lab["optional-dependencies"]["bench"],
        **project["project"]["optional-dependencies"],
    }
    found: dict[str, set[str]] = {}
    for group, requirements in groups.items():
        for requirement in requirements:
            name = re.split(r"[\[<>=!~; ]", requirement)[0]
            if name != "dgmark":
                found.setdefault(name, set()).add(group)
    return found


def test_the_table_names_each_dependency_and_what_installs_it() -> None:
    page = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([\w-]+)` \| ([^|]+) \| ([^|]+) \|$", page, flags=re.MULTILINE)
    assert {name: set(installed.replace("`", "").split(", ")) for name, installed, _ in rows} == declared()
    assert len(rows) == len(declared())
