"""What drawings of Word documents and presentations say beside the text: descriptions, tips and charts."""

from typing import Any

from dgmark_documents.account import Account
from dgmark_documents.elements import attribute
from dgmark_documents.office_parts import Link, OfficeParts


def add_described(account: Account, element: Any) -> None:
    """Add the texts that stand for a drawing where it is not shown."""
    account.put("alternative texts", attribute(element, "title"))
    account.put("alternative texts", attribute(element, "descr"))


def add_tip(account: Account, element: Any) -> None:
    """Add what is shown when somebody points at a drawing."""
    account.put("tool tips", attribute(element, "tooltip"))


def add_chart(account: Account, parts: OfficeParts, link: Link | None) -> bool:
    """Add the titles and labels of a chart, with what is drawn on it.

    Returns:
        Whether the chart is there.
    """
    tree = None if link is None else parts.tree(link.part)
    if link is None or tree is None:
        return False
    drawn = [one.part for one in parts.links(link.part).values() if one.kind == "chartUserShapes"]
    for one in (tree, *map(parts.tree, drawn)):
        for text in () if one is None else one.iter("{*}t", "{*}v", "{*}pt"):
            account.put("charts", text.text)
    return True
