"""`Cascade`: styles that are based on others, and what holds for a text in one of them."""

from collections.abc import Callable, Hashable
from operator import or_
from typing import Any

Properties = dict[str, Any]  # what styles state, by the names of the format or by those of a look


class Cascade:
    """Styles by their keys. `over` joins what a style states to what the one that it is based on does."""

    def __init__(self, over: Callable[[Properties, Properties], Properties] = or_) -> None:
        self._over = over
        self._own: dict[Hashable, tuple[Properties, tuple[Hashable, ...]]] = {}
        self._all: dict[Hashable, Properties] = {}

    def add(self, key: Hashable, stated: Properties, *bases: Hashable) -> None:
        """Add a style, with what it states; it is based on the first of the others that is there."""
        self._own[key] = stated, bases

    def of(self, *keys: Hashable) -> Properties:
        """What the first of these styles that is there states, with those that it is based on."""
        key = next((one for one in keys if one in self._own), None)
        if key is not None and key not in self._all:
            self._all[key] = {}  # of a style that is based on itself
            stated, bases = self._own[key]
            self._all[key] = self._over(self.of(*bases), stated)
        return self._all.get(key, {})
