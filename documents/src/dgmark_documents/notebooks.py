"""Jupyter notebooks to text: the sources of the cells, and the outputs that are text."""

import re
from collections.abc import Iterator
from typing import Any

from dgmark_documents.account import Account
from dgmark_documents.charsets import decode
from dgmark_documents.html_text import add_html, page_pieces
from dgmark_documents.json_text import parse_json, strings
from dgmark_documents.reading import Reading, Refusal
from dgmark_documents.text_builder import TextBuilder

_RICH = ("text/markdown", "text/latex", "application/json")  # that a reader sees, by preference
_PAGES = ("text/html", "html", "image/svg+xml", "svg")
_STANDING_IN = {"text/plain", "application/vnd.jupyter.widget-view+json"}  # for what is read elsewhere, or not shown
_REFERENCE = re.compile("IPY_MODEL_[0-9a-f-]+\n?")
_STREAMS = ("text", "traceback")


def read_notebook(content: bytes) -> Reading:
    """Read the cells of a notebook in order, with empty lines between them and their outputs."""
    text, how = decode(content)
    values = parse_json(text)
    notebook = values[0] if len(values) == 1 else None
    cells = list(_cells(notebook)) if isinstance(notebook, dict) else []
    if not cells:
        raise Refusal("is no notebook: it has no cells")
    builder, account = TextBuilder(), Account()
    for cell in cells:
        _add(builder, _joined(cell.get("source", cell.get("input"))))
        for _ in _dict(cell.get("attachments")):
            account.add("pictures", weight=Account.UNKNOWN)
        for output in _list(cell.get("outputs")):
            _add_output(builder, account, _dict(output))
    widgets = _dict(_dict(notebook.get("metadata")).get("widgets"))  # type: ignore[union-attr]
    for model in (_dict(one) for kind in widgets.values() for one in _dict(_dict(kind).get("state")).values()):
        _add_widget(account.at("widgets"), account, str(model.get("model_name")), _dict(model.get("state")))
    return account.reading(builder.text, form="as it stands", how=tuple(how))


def _cells(notebook: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The cells; those of the format before version 4 stand in worksheets."""
    sheets = [notebook, *map(_dict, _list(notebook.get("worksheets")))]
    return (cell for sheet in sheets for cell in _list(sheet.get("cells")) if isinstance(cell, dict))


def _add_output(builder: TextBuilder, account: Account, output: dict[str, Any]) -> None:
    for name in _STREAMS:
        ends = "\n" if name == "traceback" else ""
        _add(builder, _joined(output.get(name), ends))
    data = _dict(output.get("data")) or {name: output[name] for name in ("html", "png", "svg") if name in output}
    page = next((data[name] for name in _PAGES if name in data), None)
    rich = next((name for name in _RICH if name in data), None)
    account.add("scripts", sum("javascript" in name for name in data))
    if page is not None:
        builder.block(2)
        add_html(builder, _joined(page), account)
        account.held += page_pieces(_joined(page))
    elif rich is not None:
        _add(builder, "\n".join(strings([data[rich]])) if rich == "application/json" else _joined(data[rich]))
    elif any(name.startswith("image/") or name == "png" for name in data):
        account.add("pictures", weight=Account.UNKNOWN)
    else:
        _add(builder, _joined(data.get("text/plain")))
        for _ in data.keys() - _STANDING_IN:
            account.add("outputs of other kinds", weight=Account.UNKNOWN)


def _add_widget(builder: TextBuilder, account: Account, name: str, state: dict[str, Any]) -> None:
    text = "\n".join(strings([one for key, one in state.items() if not key.startswith("_")]))
    if "HTML" in name:
        add_html(builder, text, account)
    elif not name.endswith(("LayoutModel", "StyleModel")):
        builder.add(_REFERENCE.sub("", text), exact=True)


def _add(builder: TextBuilder, text: str) -> None:
    builder.block(2)
    builder.add(text.strip("\n"), exact=True)


def _joined(source: Any, ends: str = "") -> str:
    """A text that is given as one, or as a list of its lines."""
    return source if isinstance(source, str) else ends.join(one for one in _list(source) if isinstance(one, str))


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
