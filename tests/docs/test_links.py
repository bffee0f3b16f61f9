"""Every relative link in the documentation leads to a file that is there, and to a heading that is in it."""

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "builtin").rglob("*.md"),
        *(ROOT / "lab").rglob("*.md"),
    ]
)
LINK = re.compile(r"\]\(([^)\s]+)\)")
CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", flags=re.DOTALL | re.MULTILINE)


def targets(page: Path) -> list[str]:
    """What the page's relative links point to; code is no link."""
    found = LINK.findall(CODE.sub("", page.read_text(encoding="utf-8")))
    return [target for target in found if not re.match(r"[a-z]+:", target)]


@cache
def anchors(page: Path) -> frozenset[str]:
    """The anchors that GitHub and the site give a page's headings."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    return frozenset(re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    for target in targets(page):
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        assert there.is_relative_to(ROOT), f"{target}: outside the repository"
        assert there.exists(), f"{target}: no such file"
        if anchor and there.suffix == ".md":
            assert anchor in anchors(there), f"{target}: no such heading; there are {sorted(anchors(there))}"
