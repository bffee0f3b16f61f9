"""`Story`: walks a tree of a part of an office document, element by element, and keeps what holds within each."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from dgmark_documents.elements import local
from dgmark_documents.reading import Refusal

_DEEPEST = 500  # elements in elements; handlers look at all that an element holds


class Story:
    """Walks a tree. Subclasses have a handler for each element that matters.

    A handler takes an element that begins, and says whether its contents are passed over.

    Attributes:
        handlers: the handlers, by the local names of elements.
        state: what holds at this place; what a handler changes holds up to the end of the element.
    """

    handlers: ClassVar[Mapping[str, Callable[[Any, Any], bool]]] = {}
    state: Any = None

    def add(self, top: Any) -> None:
        """Walk the tree under an element, and this itself."""
        from lxml import etree

        outer: list[Any] = []
        skipped = None
        events = etree.iterwalk(top, events=("start", "end", "comment", "pi"))
        for event, element in events:
            if event == "start":
                outer.append(self.state)
                if len(outer) > _DEEPEST:
                    raise Refusal("is nested too deeply to be read")
                self.begin(element)
                handle = self.handlers.get(local(element))
                if element is not top and handle and handle(self, element):
                    events.skip_subtree()
                    skipped = element
                else:
                    self.text(element.text)
                continue
            if event == "end":
                if element is not skipped:
                    self.end(local(element))
                self.state = outer.pop()
            if element is not top:
                self.text(element.tail)

    def begin(self, element: Any) -> None:
        """Take the beginning of any element, before its handler."""

    def text(self, text: str | None) -> None:
        """Take a text that stands in no element of its own."""

    def end(self, name: str) -> None:
        """Take the end of an element that was not passed over."""
