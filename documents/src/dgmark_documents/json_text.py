"""JSON to texts: objects that have the column of the texts are a table, and all else is a text of its strings."""

import json
from collections.abc import Iterator
from typing import Any

from dgmark_documents.account import Account
from dgmark_documents.charsets import decode
from dgmark_documents.reading import Reading, Refusal, Table, is_column

# of the events of services: the fields that hold pieces of texts, and those that number these texts
_STREAMED = frozenset((
    "content", "text", "delta", "response", "completion", "thinking", "reasoning", "reasoning_content", "refusal",
    "arguments", "partial_json",
))  # fmt: skip
_NUMBERS = ("type", "index", "output_index", "content_index")


class _Object(dict[str, Any]):
    """An object, which also knows the fields whose names it has twice."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.pairs = pairs


def parse_json(text: str) -> list[Any]:
    """The values of a JSON text: one, or several behind each other, as in JSON Lines."""
    decoder = json.JSONDecoder(object_pairs_hook=_Object)
    values, at = [], 0
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        try:
            value, at = decoder.raw_decode(text, at)
        except ValueError as error:
            raise Refusal(
                f"is no JSON ({error}): it is damaged, or it is plain text and should be named .txt"
            ) from error
        values.append(value)
    return values


def read_json(content: bytes, column: str) -> Reading:
    """Read a table of objects that has the column, or else all strings as one text, each on a line of its own."""
    text, how = decode(content)
    values = parse_json(text)
    objects = values[0] if len(values) == 1 and isinstance(values[0], list) else values
    if objects and all(isinstance(one, _Object) for one in objects):
        table = _table(objects, column)
        if table is not None:
            return Reading(form="tables", tables=(table,), how=tuple(how))
    how.append("all strings in it were read, one a line; names of fields and numbers were not")
    return Account().reading("\n".join(strings(values)), how=tuple(how))


def read_events(content: bytes) -> Reading:
    """Read the answer of a service that was saved as it was streamed: its pieces, joined."""
    text, how = decode(content)
    account, texts = Account(), dict[tuple[str, ...], str]()
    for line in (one.removeprefix("data:").strip() for one in text.split("\n")):
        try:
            event = json.loads(line) if line.startswith("{") else {}
        except ValueError:
            account.add_unknown("damaged events")
            continue
        for place, piece in _pieces(event, ()):
            texts[place] = texts.get(place, "") + piece
    # the last events of some services repeat what was streamed
    return account.reading("\n\n".join(dict.fromkeys(texts.values())).strip("\n"), how=tuple(how))


def _pieces(event: dict[str, Any], place: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    """The pieces of texts in an event, each with the place that tells its text from others."""
    place = *place, *(str(event.get(name)) for name in _NUMBERS)
    for name, value in event.items():
        if isinstance(value, str) and name in _STREAMED:
            yield (*place, name), value
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, dict):
                yield from _pieces(one, (*place, name))


def _table(objects: list[_Object], column: str) -> Table | None:
    """The table whose rows are objects; None if no field has the name of the column."""
    header = list(dict.fromkeys(name for one in objects for name in one))
    if not any(is_column(name, column) for name in header):
        return None
    for number, one in enumerate(objects, 1):
        if len(one) < len(one.pairs):
            raise Refusal(f"names a field twice in object {number}: give each field of an object a name of its own")
    return Table(
        header, [(str(number), [_cell(one.get(name)) for name in header]) for number, one in enumerate(objects, 1)]
    )


def _cell(value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return "\n".join(strings([value])) if isinstance(value, list | dict) else json.dumps(value)


def strings(values: list[Any]) -> Iterator[str]:
    """All strings, in order."""
    waiting = values[::-1]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, _Object):
            waiting += [one for _, one in reversed(value.pairs)]
        elif isinstance(value, list):
            waiting += reversed(value)
