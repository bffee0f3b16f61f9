"""Prompts to continue, from JSON Lines, Parquet, CSV or lines of text. An unusable row becomes a bad row."""

import csv
import io
from collections.abc import Iterator
from typing import BinaryIO, cast

from dgmark.contents.columns import check_named
from dgmark.errors import InputError
from dgmark.rows.inputs import MAX_LINE_BYTES, STDIN, STDIN_NAME, checked_size, decode, open_input
from dgmark.rows.jsonl import BadRow, Row, is_rows, open_lines, read_rows, rows_or_text
from dgmark.rows.parquet import is_parquet, parquet_rows
from dgmark.rows.texts import are_ids

PROMPT_COLUMN = "prompt"
_CSV, _SEPARATORS = (".csv", ".tsv"), ",;\t"


def read_prompts(
    source: str, column: str = PROMPT_COLUMN, *, id_column: str | None = None, one_text: bool = False
) -> Iterator[Row | BadRow]:
    """The rows of a file, each with an `id` and its prompt.

    Args:
        source: JSON Lines (also .jsonl.gz), Parquet, CSV whose first line names its columns, or a text, of which each
            line is a prompt; "-" for standard input.
        column: the column or field of the prompts.
        id_column: the column of ids of Parquet.
        one_text: whether a text is one prompt.

    Raises:
        NoTexts: the file cannot be read.
        InputError: it has no such column, or is neither of these.
    """
    if is_parquet(source):
        yield from parquet_rows(source, column, id_column=id_column)
    elif source.lower().endswith(_CSV):
        yield from _rows_of_csv(source, column)
    elif is_rows(source):
        yield from read_rows(source)
    else:
        with open_lines(source) as file:
            found = rows_or_text(file, "stdin" if source == STDIN else source, MAX_LINE_BYTES)
            if not isinstance(found, bytes):
                yield from found
                return
        yield from _prompts_of_text(found, source, column, one_text)


def _prompts_of_text(content: bytes, source: str, column: str, one_text: bool) -> Iterator[Row]:
    if source.lower().endswith(".json"):
        raise InputError(f"{source} is not JSON Lines: put one object on each line, without brackets around all")
    name = STDIN_NAME if source == STDIN else source
    text = decode(checked_size(content, name), name).rstrip("\n")
    lines = [text] if one_text else text.splitlines()
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield {"id": "0" if one_text else f"{source}:{number}", column: line}


def _rows_of_csv(source: str, column: str) -> Iterator[Row]:
    with open_input(source, "a file of prompts") as file:
        lines = io.TextIOWrapper(cast(BinaryIO, file), "utf-8-sig", newline="")
        try:
            first = lines.readline()
            separator = max(_SEPARATORS, key=first.count)
            (names,) = csv.reader([first], delimiter=separator)
            check_named(names, column, source)
            for number, row in enumerate(csv.DictReader(lines, names, delimiter=separator), 1):
                yield {**row, "id": row.get("id") or f"{source}:{number}"}
        except (csv.Error, UnicodeDecodeError, ValueError) as error:
            raise InputError(f"{source} is not a table in UTF-8 that can be read: {error}") from None


def prompt_of(row: Row, column: str = PROMPT_COLUMN) -> str | list[int] | BadRow:
    """The prompt of a row: a text, or token ids."""
    prompt = row.get(column)
    if isinstance(prompt, str) or (isinstance(prompt, list) and are_ids(prompt)):
        return prompt
    if prompt is None and column in row:
        return BadRow(row["id"], "there is no text: the value is missing")
    return BadRow(row["id"], f'no "{column}": give a text, or a list of token ids')
