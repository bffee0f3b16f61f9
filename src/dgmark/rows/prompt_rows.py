"""Prompts to continue, from JSON Lines, Parquet, CSV or lines of text. An unusable row becomes a bad row."""

from collections.abc import Iterator

from dgmark.errors import InputError
from dgmark.files.inputs import MAX_LINE_BYTES, STDIN, STDIN_NAME, checked_size, decode
from dgmark.rows.documents import read_document
from dgmark.rows.jsonl import BadRow, Row, is_rows, open_lines, read_rows, rows_or_text
from dgmark.rows.parquet import is_parquet, parquet_rows
from dgmark.rows.tables import ID_COLUMN
from dgmark.rows.texts import are_ids

PROMPT_COLUMN = "prompt"
_TABLES = (".csv", ".tsv", ".xlsx")


def read_prompts(
    source: str,
    column: str = PROMPT_COLUMN,
    *,
    id_column: str | None = None,
    key_column: str | None = None,
    one_text: bool = False,
) -> Iterator[Row | BadRow]:
    """The rows of a file, each with an `id` and its prompt.

    Args:
        source: JSON Lines (also .jsonl.gz), Parquet, a table (.csv, .tsv, .xlsx), or a text, of which each line is a
            prompt; "-" for standard input.
        column: the column or field of the prompts.
        id_column: the column of ids.
        key_column: the column that names the key of each row.
        one_text: whether a text is one prompt.

    Raises:
        NoTexts: the file cannot be read.
        InputError: it has no such column, or is neither of these.
    """
    if is_parquet(source):
        yield from parquet_rows(source, column, more=[one for one in (id_column, key_column) if one is not None])
    elif source.lower().endswith(_TABLES):
        if {id_column, key_column} - {None, ID_COLUMN}:
            raise InputError(
                f"{source} has its ids in the column {ID_COLUMN}, and names no keys: give Parquet or JSON Lines"
            )
        for row_id, prompt in read_document(source, text_column=column).rows:
            yield {"id": row_id, column: prompt}
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


def prompt_of(row: Row, column: str = PROMPT_COLUMN) -> str | list[int] | BadRow:
    """The prompt of a row: a text, or token ids."""
    prompt = row.get(column)
    if isinstance(prompt, str) or (isinstance(prompt, list) and are_ids(prompt)):
        return prompt
    if prompt is None and column in row:
        return BadRow(row["id"], "there is no text: the value is missing")
    return BadRow(row["id"], f'no "{column}": give a text, or a list of token ids')
