"""`Walk`: goes through a tree of lxml, element by element, and keeps what holds within each."""

from typing import Any

from lxml import etree

from dgmark_documents.reading import Refusal


class Walk:
    """Goes through trees. Subclasses take the elements and the texts.

    Attributes:
        state: what holds at this place; what changes at the beginning of an element holds up to its end.
        top: the element whose tree is gone through.
        deepest: the number of elements in elements beyond which a tree is refused.
    """

    state: Any = None
    top: Any = None
    deepest = 100_000

    def walk(self, top: Any) -> None:
        """Go through the tree under an element, and this itself."""
        outer, passed, above = list[Any](), None, self.top
        self.top = top
        events = etree.iterwalk(top, events=("start", "end", "comment", "pi"))
        for event, element in events:
            if event == "start":
                outer.append(self.state)
                if len(outer) > self.deepest:
                    raise Refusal("is nested too deeply to be read")
                if self.begin(element):
                    events.skip_subtree()
                    passed = element
                else:
                    self.text(element.text)
                continue
            if event == "end":
                self.state = outer.pop()
                if element is not passed:
                    self.end(element)
            elif event == "comment":
                self.comment(element.text or "")
            if element is not top:
                self.text(element.tail)
        self.top = above

    def begin(self, element: Any) -> bool:
        """Take an element that begins; whether its contents are passed over."""
        raise NotImplementedError

    def end(self, element: Any) -> None:
        """Take the end of an element that was not passed over, in the state around it."""

    def text(self, text: str | None) -> None:
        """Take a text that stands here."""

    def comment(self, text: str) -> None:
        """Take a comment."""
