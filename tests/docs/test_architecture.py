"""The architecture page names every module there is, once, and none that is not there."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
ENTRY = re.compile(r"(?P<indent> *)(?P<name>\S+) +\S")


def named(tree: str) -> Iterator[str]:
    """The paths of a tree's files; two spaces are one level."""
    folders: list[str] = []
    for line in tree.splitlines():
        entry = ENTRY.match(line)
        assert entry, f"not 'name   what it holds': {line!r}"
        del folders[len(entry["indent"]) // 2 :]
        if entry["name"].endswith("/"):
            folders.append(entry["name"])
            assert (ROOT / "".join(folders)).is_dir(), f"no such folder: {''.join(folders)}"
        else:
            yield "".join(folders) + entry["name"]


@pytest.fixture
def trees() -> list[str]:
    """Every module that the page names, over its trees."""
    blocks = re.findall(r"```\n(.*?)```", PAGE[PAGE.index("## The files") :], flags=re.DOTALL)
    return [path for block in blocks for path in named(block)]


@pytest.mark.parametrize("folder", ["src/dgmark", "training", "benchmarks", "soak"])
def test_the_tree_names_every_module_once(folder: str, trees: list[str]) -> None:
    there = {path.relative_to(ROOT).as_posix() for path in (ROOT / folder).rglob("*.py") if path.name != "__init__.py"}
    counted = Counter(path for path in trees if path.startswith(f"{folder}/"))
    assert not there - set(counted), f"not in docs/architecture.md: {sorted(there - set(counted))}"
    assert not set(counted) - there, f"in docs/architecture.md, but not there: {sorted(set(counted) - there)}"
    assert not [path for path, count in counted.items() if count > 1]


def test_every_file_that_a_table_points_to_is_there() -> None:
    pointed = re.findall(r"`((?:[a-z_0-9]+/)+(?:[a-z_0-9]+\.py)?|[a-z_]+\.py)`", PAGE[: PAGE.index("## The files")])
    places = [name for name in pointed if not name.startswith("builtin")]
    assert len(places) > 10
    assert not [name for name in places if not (ROOT / "src/dgmark" / name).exists()]


def test_the_readme_fits_on_a_few_screens() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) < 120
