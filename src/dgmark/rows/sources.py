"""What a run reads: texts and rows from documents, folders, JSON Lines, Parquet, tables and standard input.

Each becomes an `Item`. What cannot be used is one with an error, and the others are read. Knows nothing of tokens and
keys.
"""

import os
import re
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from io import BufferedIOBase
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, cast

from dgmark.arguments.contents import as_text, id_of_row, is_id, is_missing
from dgmark.detection.reading.disguises.markup_signs import markup_note
from dgmark.errors import InputError, NoTexts
from dgmark.files.inputs import MAX_LINE_BYTES, STDIN, STDIN_NAME, checked_size, decode, open_input
from dgmark.files.own_files import is_key
from dgmark.rows.documents import MAX_BYTES, Document, folder_suffixes, members_of, read_opened
from dgmark.rows.item import ONE_TEXT, Item, Row
from dgmark.rows.jsonl import SUFFIXES, is_rows, open_lines, read_rows, rows_or_text
from dgmark.rows.parquet import PARQUET_SUFFIXES, is_parquet, parquet_rows
from dgmark.rows.tables import ANY_ROWS, ID_COLUMN, RowReading

PROMPT_COLUMN = "prompt"
# characters of a text, or token ids of a response: more than the Bible has
MAX_CHARS = 5_000_000
_MISSING = "there is no text: the value is missing"
_IDS = "token_ids"  # the column or field of token ids
_TABLES = (".csv", ".tsv", ".xlsx")

Content = TypeVar("Content", str, list[int])


# --- texts to score


def read_sources(
    sources: Sequence[str], reading: RowReading = ANY_ROWS, *, on_skip: Callable[[str], object] | None = None
) -> Iterator[Item]:
    """Read the texts of all sources (see `read_texts`). A source that cannot be read is an item with an error."""
    reading = replace(reading, name_files=len(sources) > 1)
    for source in sources:
        try:
            yield from read_texts(source, reading, on_skip=on_skip)
        except InputError as error:
            yield _unreadable(source, error)


def read_texts(
    source: str, reading: RowReading = ANY_ROWS, *, on_skip: Callable[[str], object] | None = None
) -> Iterator[Item]:
    """Read the texts of one source. One of more than `MAX_CHARS` characters or ids cannot be used.

    Args:
        source: a document that `read_document` reads, JSON Lines (`.jsonl`, `.ndjson`, also `.gz`), Parquet, a folder
            (its files with such an ending, in order of name), or "-" for standard input.
        reading: what is read of rows.
        on_skip: called with each file of a folder whose ending is that of no document, and with files of keys.

    Raises:
        InputError: the file cannot be read, or the folder holds no document.
        MissingExtra: reading the file needs a package that is not installed.
    """
    if os.path.isdir(source):
        for file in _documents_of(source, on_skip):
            if isinstance(file, Item):
                yield file
                continue
            try:
                yield from read_texts(file, replace(reading, name_files=True))
            except InputError as error:
                yield _unreadable(file, error)
    elif on_skip and is_key(Path(source)):
        on_skip(source)
    elif is_rows(source) or is_parquet(source):
        for item in _rows_in(source, reading, _IDS):
            yield _with_text(item, reading)
    elif source == STDIN:
        yield from _from_stdin(replace(reading, name_files=False))
    else:
        with open_input(source, "a document, a folder, or -") as opened, _on_disk(opened) as document:
            yield from _items_in(document, source, reading, on_skip)


def _rows_in(source: str, reading: RowReading, ids_column: str | None = None) -> Iterator[Item]:
    """The rows of JSON Lines or Parquet, each with its fields."""
    if is_rows(source):
        for row in read_rows(source):
            yield _item_of(row, source, reading)
        return
    for number, fields in enumerate(parquet_rows(source, reading, ids_column)):
        yield _row_item(reading, fields, source, str(number), str(number))


def _item_of(row: Row | Item, source: str, reading: RowReading) -> Item:
    """The item of a row of JSON Lines, which has an id already."""
    if isinstance(row, Item):
        return replace(row, file=source) if reading.name_files else row
    return _row_item(reading, row, source, row[ID_COLUMN])


def _row_item(reading: RowReading, fields: Row, source: str, default_id: str, place: str | None = None) -> Item:
    """The item of a row with these fields; one without an id has the default id, and one with an id the place."""
    file = source if reading.name_files else None
    value = fields.get(reading.id_column or ID_COLUMN)
    row_id = id_of_row(value)
    key = None if reading.key_column is None else as_text(fields.get(reading.key_column))
    if row_id is None and reading.id_column is not None:
        why = f"the row has no id: give each row a text or a whole number in column {reading.id_column}"
        return Item(default_id, file=file).failed(why)
    if row_id is None:
        row_id, place = (default_id, None) if is_missing(value) else (str(value), place)
    return Item(row_id, fields, place=place, file=file, key=key)


def _unreadable(source: str, error: InputError) -> Item:
    """The item of a source that cannot be read. The source is named once, by its id."""
    return Item(source).failed(type(error)(str(error).removeprefix(f"{source} ")))


def _from_stdin(reading: RowReading) -> Iterator[Item]:
    """Read rows as they arrive, or one whole document. The first line that is not blank decides."""
    with open_input(STDIN, "a document") as file:
        found = rows_or_text(file, "stdin", MAX_BYTES)
        if not isinstance(found, bytes):
            for row in found:
                yield _with_text(_item_of(row, STDIN, reading), reading)
            return
    with _spooled(found) as copy:
        yield from _items_in(copy, "stdin", reading, None)


def _items_in(
    file: BinaryIO, name: str, reading: RowReading, on_skip: Callable[[str], object] | None
) -> Iterator[Item]:
    """The texts of a document, or of those in an archive or a mailbox; one of these that is damaged has an error."""
    members = [*members_of(file, name)]
    if not members:
        yield from _items_of(name, read_opened(file, name, reading), reading)
    elif not any(unpack for _, unpack in members):
        raise InputError(f"{name} is an archive that holds no document")
    for member, unpack in members:
        if unpack is None:
            if on_skip:
                on_skip(member)
            continue
        try:
            with _spooled(unpack()) as copy:
                document = read_opened(copy, member, reading)
            yield from _items_of(member, document, replace(reading, name_files=True))
        except InputError as error:
            yield _unreadable(member, error)


def _on_disk(file: BufferedIOBase) -> BinaryIO:
    """The file, or a copy of what comes out of a pipe, up to the limit of a file's size."""
    is_file = stat.S_ISREG(os.fstat(cast(BinaryIO, file).fileno()).st_mode)
    return cast(BinaryIO, file) if is_file else _spooled(file.read(MAX_BYTES + 1))


def _spooled(content: bytes) -> BinaryIO:
    """A file of the system with this content; it ends with its use."""
    file = tempfile.TemporaryFile()  # noqa: SIM115 (the caller closes it)
    file.write(content)
    file.seek(0)
    return cast(BinaryIO, file)


def files_of(sources: Iterable[str]) -> list[str]:
    """The sources, with documents in place of folders; an InputError if a folder holds none, or what cannot be read."""
    files: list[str] = []
    for source in sources:
        for file in _documents_of(source, None) if os.path.isdir(source) else [source]:
            if isinstance(file, Item):
                raise InputError(f"{file.row_id} {file.error}")
            files.append(file)
    return files


def _documents_of(folder: str, on_skip: Callable[[str], object] | None) -> list[str | Item]:
    """The documents of a folder and the folders in it, by their endings, in order of name, and what is not read."""
    found: dict[Path, str | Item] = {}
    skipped: list[Path] = []
    suffixes = (*folder_suffixes(), *SUFFIXES, *PARQUET_SUFFIXES)

    def refuse(path: str | Path, why: str) -> None:
        found[Path(path)] = Item(str(path)).failed(why)

    def unread(error: OSError) -> None:
        refuse(error.filename, f"cannot be read: {error.strerror}")

    for place, folders, files in os.walk(folder, onerror=unread):
        for path in (Path(place, name) for name in folders):
            if path.is_symlink():
                refuse(path, "is a link to a folder, and links are not followed: give that folder itself")
        for path in (Path(place, name) for name in files):
            # Office writes "~$name" beside a document that is open
            if not path.name.lower().endswith(suffixes) or path.name.startswith(("~$", ".")) or is_key(path):
                skipped.append(path)
            elif path.is_file() or not path.exists():
                found[path] = str(path)  # a link to nothing is refused when it is opened
            else:
                refuse(path, "is a pipe or a device, not a file")
    if not found:
        raise NoTexts(f"the folder {folder} holds no document: looked for {', '.join(suffixes)}")
    for path in sorted(skipped):
        if on_skip:
            on_skip(str(path))
    return [found[path] for path in sorted(found)]


def _items_of(name: str, document: Document, reading: RowReading) -> Iterator[Item]:
    """The text of a document, or the texts of a table."""
    about: dict[str, Any] = {"incomplete": document.incomplete, "uncertain_because": document.uncertain_because}
    items = (
        _rows_of_table(name, document, reading) if document.is_table else [Item(name, {reading.column: document.text})]
    )
    for item in items:
        item = _with_text(item, reading)
        # a document that is no table has its own notes on markup
        notes = (*document.notes, *(item.notes if document.is_table else ()))
        yield replace(item, kind=document.kind, notes=notes, **about) if item.error is None else item


def _rows_of_table(name: str, document: Document, reading: RowReading) -> Iterator[Item]:
    """The rows of a table; one without an id of its own is named by its file and place."""
    for row in document.table:
        fields = {reading.id_column or ID_COLUMN: row.row_id, reading.key_column: row.key, reading.column: row.text}
        item = _row_item(reading, cast(Row, fields), name, f"{name}:{row.place}", row.place)
        yield item if item.place is not None else replace(item, file=None)  # which its id begins with


def _with_text(item: Item, reading: RowReading) -> Item:
    """The item of a row with its text or ids in place of its fields, see `RowReading`."""
    if item.error is not None:
        return item
    try:
        content = _content_of(item.content, reading)
    except InputError as error:
        return replace(item, content=None).failed(error)
    note = markup_note(content) if isinstance(content, str) else None  # rows have no kind of their own
    return replace(item, content=content, notes=() if note is None else (note,))


def _content_of(row: Row, reading: RowReading) -> str | list[int]:
    """The text or the ids of a row; an InputError if it has none that can be scored."""
    text, ids = _field(row, reading.column), row.get(_IDS)
    if isinstance(text, list):
        text, ids = None, text
    if isinstance(ids, list) and (reading.prefer_ids or text is None):
        if not are_ids(ids):
            raise InputError('"token_ids" are not all whole numbers')
        return _checked(ids)
    if isinstance(text, str):
        return _checked(text)
    if reading.column in row and text is None and not row.get("error"):
        raise InputError(_MISSING)
    _, longest = max(_texts_within(row), default=(0, ""))
    named = f"; if {longest} is the text, name it as the column" if longest else ""
    raise InputError(str(row.get("error") or f'no "{reading.column}" and no "token_ids"{named}'))


def _field(row: Row, name: str) -> Any:
    """The field of a row, or one within it by its path, such as `messages[-1].content`; None if there is none."""
    if name in row:
        return row[name]
    value: Any = row
    for part in re.findall(r"[^.\[\]]+", name):
        if isinstance(value, list) and re.fullmatch(r"-?\d+", part):
            value = value[int(part)] if -len(value) <= int(part) < len(value) else None
        else:
            value = value.get(part) if isinstance(value, dict) else None
    return value


def _texts_within(value: Any, path: str = "") -> Iterator[tuple[int, str]]:
    """The length and the path of each string of several words in a row; items of lists are counted from the end."""
    if isinstance(value, str) and " " in value:
        yield len(value), path
    elif isinstance(value, dict):
        for name, within in value.items():
            yield from _texts_within(within, f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        for place, within in enumerate(value, -len(value)):
            yield from _texts_within(within, f"{path}[{place}]")


def _checked(content: Content) -> Content:
    """A text, or ids; an InputError if it is empty, or more than can be scored."""
    if len(content) > MAX_CHARS:
        what = "the text has {} characters" if isinstance(content, str) else "the row has {} token ids"
        raise InputError(f"{what.format(len(content))}, and {MAX_CHARS} are allowed: cut it into parts")
    if not content or (isinstance(content, str) and content.isspace()):
        raise InputError("the text is empty")
    return content


# --- rows to write


def read_prompts(source: str, reading: RowReading, *, one_text: bool = False) -> Iterator[Item]:
    """The rows of a file, each with its fields, of which one is its prompt.

    Args:
        source: JSON Lines (also .jsonl.gz), Parquet, a table (.csv, .tsv, .xlsx), or a text, of which each line is a
            prompt; "-" for standard input.
        reading: the columns or fields, of which that of the texts is that of the prompts.
        one_text: whether a text is one prompt.

    Raises:
        NoTexts: the file cannot be read.
        InputError: it has no such column, or is neither of these.
    """
    if is_parquet(source) or is_rows(source):
        yield from _rows_in(source, reading)
        return
    if source.lower().endswith(_TABLES):
        with open_input(source, "a table") as opened, _on_disk(opened) as table:
            document = read_opened(table, source, reading)
        yield from _rows_of_table(source, document, reading)
        return
    with open_lines(source) as file:
        found = rows_or_text(file, "stdin" if source == STDIN else source, MAX_LINE_BYTES)
        if not isinstance(found, bytes):
            for row in found:
                yield _item_of(row, source, reading)
            return
    for row_id, line in _lines_of(found, source, one_text):
        yield Item(row_id, {ID_COLUMN: row_id, reading.column: line})


def _lines_of(content: bytes, source: str, one_text: bool) -> Iterator[tuple[str, str]]:
    """The lines of a text that are not blank, each with what names it; or the whole text."""
    if source.lower().endswith(".json"):
        raise InputError(f"{source} is not JSON Lines: put one object on each line, without brackets around all")
    name = STDIN_NAME if source == STDIN else source
    text = decode(checked_size(content, name), name).rstrip("\n")
    for number, line in enumerate([text] if one_text else text.splitlines(), 1):
        if line.strip():
            yield ONE_TEXT if one_text else f"{source}:{number}", line


def prompt_of(fields: Row, column: str = PROMPT_COLUMN) -> str | list[int]:
    """The prompt of a row, a text or token ids; an InputError if it has none."""
    prompt = fields.get(column)
    if isinstance(prompt, str) or (isinstance(prompt, list) and are_ids(prompt)):
        return prompt
    raise InputError(
        _MISSING if prompt is None and column in fields else f'no "{column}": give a text, or a list of token ids'
    )


def are_ids(ids: list[Any]) -> bool:
    """Whether a list holds token ids."""
    return all(is_id(i) and abs(i) < 2**31 for i in ids)
