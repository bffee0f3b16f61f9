"""MkDocs hooks: the docstrings of the Python API, and pages for linked files of the repository outside `docs/`.

A Markdown file becomes a page, a source file becomes a page that shows it with line numbers, anything else is copied.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

REPOSITORY = Path(__file__).resolve().parents[1]
DOCS = REPOSITORY / "docs"
SOURCES = {".py": "python", ".toml": "toml", ".txt": "text", "": "text"}
# a link's path and anchor; or a block of code, which has neither
_LINK = re.compile(
    r"^[ \t]*```.*?^[ \t]*```|(?<=\]\()(?P<path>[^)#:\s]+)(?P<anchor>#[^)\s]*)?(?=\))", re.DOTALL | re.MULTILINE
)


def on_files(files: Any, *, config: Any) -> Any:
    """Add the linked files of the repository, and those that they link to."""
    waiting = [DOCS / file.src_uri for file in files.documentation_pages()]
    seen: set[Path] = set()
    while waiting:
        page = waiting.pop()
        for target in _targets(page):
            if target in seen or target.is_relative_to(DOCS) or not target.is_file():
                continue
            seen.add(target)
            files.append(_file(target, config))
            if target.suffix == ".md":
                waiting.append(target)
    return files


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Any) -> str:  # noqa: ARG001
    """Turn links to files of the repository into links to their pages."""
    here = page.file.src_uri
    original = _original(here)
    if here == "reference/api.md":
        markdown += "\n::: dgmark\n"  # the signatures and docstrings, by mkdocstrings

    def rewritten(match: re.Match[str]) -> str:
        if match["path"] is None:
            return match[0]
        target = (original.parent / match["path"]).resolve()
        if not target.is_file() or (target.is_relative_to(DOCS) and original.is_relative_to(DOCS)):
            return match[0]
        return os.path.relpath(_uri(target), Path(here).parent) + (match["anchor"] or "")

    return _LINK.sub(rewritten, markdown)


def _file(target: Path, config: Any) -> Any:
    if target.suffix == ".md":
        return File.generated(config, _uri(target), content=target.read_text(encoding="utf-8"))
    if target.suffix in SOURCES:
        name, text = target.relative_to(REPOSITORY), target.read_text(encoding="utf-8")
        shown = f'# {name}\n\n````{SOURCES[target.suffix]} linenums="1"\n{text}````\n'
        return File.generated(config, _uri(target), content=shown)
    return File.generated(config, _uri(target), abs_src_path=str(target))


def _uri(target: Path) -> str:
    """Where a file of the repository stands in the site's sources."""
    if target.is_relative_to(DOCS):
        return target.relative_to(DOCS).as_posix()
    uri = f"repository/{target.relative_to(REPOSITORY).as_posix()}"
    return f"{uri}.md" if target.suffix in SOURCES else uri


def _original(uri: str) -> Path:
    if not uri.startswith("repository/"):
        return DOCS / uri
    path = REPOSITORY / uri.removeprefix("repository/")
    return path if path.is_file() else path.with_suffix("")


def _targets(page: Path) -> Iterator[Path]:
    paths = (match["path"] for match in _LINK.finditer(page.read_text(encoding="utf-8")))
    return ((page.parent / path).resolve() for path in paths if path)
