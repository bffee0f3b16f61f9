"""`python docs/reference_pages.py` writes what the reference pages take from the code: commands, settings, names.

Each page keeps what stands above the line `MADE`. The pages are committed, so that they can be read where no site is
built; a test compares them with the code.
"""

import inspect
from collections.abc import Callable
from pathlib import Path

import typer
from typer.cli import get_docs_for_click

import dgmark
from dgmark.cli import app
from dgmark.cli.panels import in_words
from dgmark.cli.ray_command import app as ray_app
from dgmark.decode.config import setting_fields

_EXCEPTIONS = {Warning: "warning", Exception: "error"}
REFERENCE = Path(__file__).parent / "reference"
MADE = "<!-- What follows is made by `python docs/reference_pages.py`. -->\n"


def commands() -> str:
    """Every command with its arguments and options, as `--help` describes them."""
    described = []
    for name, application in (("dgmark", app), ("dgmark-ray", ray_app)):
        root = typer.main.get_command(application)
        described.append(get_docs_for_click(obj=root, ctx=typer.Context(root), name=name, indent=1).rstrip("\n"))
    return in_words("\n\n".join(described)) + "\n"


def settings() -> str:
    """A table of the fields of `DecodeConfig`."""
    rows = [
        (f"`{one.name}`", ", ".join(map(str, one.choices)), one.default_text or "none", one.help)
        for one in setting_fields()
    ]
    return _table([("setting", "choices", "default", "meaning"), ("---",) * 4, *rows])


def names() -> str:
    """A table of the public names of `dgmark`, each with the first paragraph of its docstring."""
    public = {name: getattr(dgmark, name) for name in dgmark.__all__ if name != "__version__"}
    rows = [(f"`{name}`", _kind(one), _summary(one)) for name, one in public.items()]
    return _table([("name", "kind", "what it is"), ("---",) * 3, *rows])


PAGES: dict[str, Callable[[], str]] = {"commands.md": commands, "decoding-options.md": settings, "api.md": names}


def made(page: str) -> str:
    """The whole text of a page: what stands above the line, and what the code says."""
    above, line, _ = (REFERENCE / page).read_text(encoding="utf-8").partition(MADE)
    return f"{above}{line or MADE}\n{PAGES[page]()}"


def _table(rows: list[tuple[str, ...]]) -> str:
    return "".join(f"| {' | '.join(cell.replace('|', '&#124;') for cell in row)} |\n" for row in rows)


def _kind(one: object) -> str:
    if not inspect.isclass(one):
        return "function"
    return next((kind for base, kind in _EXCEPTIONS.items() if issubclass(one, base)), "class")


def _summary(one: object) -> str:
    """The first paragraph of a docstring in one line."""
    return " ".join((inspect.getdoc(one) or "").split("\n\n")[0].split())


if __name__ == "__main__":
    for page in PAGES:
        (REFERENCE / page).write_text(made(page), encoding="utf-8")
