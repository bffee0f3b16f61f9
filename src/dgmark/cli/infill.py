"""`dgmark infill`: texts with holes in, the holes filled with marked tokens out."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dgmark.checkpoint import BUILTIN
from dgmark.cli.console import speaks, stderr
from dgmark.cli.keys import key_to_mark_with
from dgmark.errors import DgmarkError, EmptyInput, InputError, MissingExtra, SettingsError
from dgmark.records import BadRow, Row, read_rows, to_line

if TYPE_CHECKING:
    from dgmark.decode.infill import CountFrom


@speaks
def infill(
    text: Annotated[
        str | None, typer.Argument(help="A text in which [mask:N] is a hole of N tokens.", show_default=False)
    ] = None,
    texts: Annotated[
        str | None,
        typer.Option(help='JSON Lines with "id" and "text" (or "parts"); - is stdin.', show_default=False),
    ] = None,
    key: Annotated[Path | None, typer.Option(help="Key file to mark with.", show_default=False)] = None,
    no_watermark: Annotated[bool, typer.Option("--no-watermark", help="The same loop without a mark.")] = False,
    model: Annotated[str, typer.Option(help="Built-in model name, checkpoint folder, or hub id.")] = BUILTIN,
    count_from: Annotated[
        str, typer.Option(help="text: one count of positions for all holes; hole: anew in each.")
    ] = "text",
    block_length: Annotated[int | None, typer.Option(help="Positions of a block.", show_default="32")] = None,
    strategy: Annotated[
        str | None, typer.Option(help="random, confidence, entropy or margin.", show_default="confidence")
    ] = None,
    temperature: Annotated[
        float | None, typer.Option(help="0 takes the most likely token.", show_default="1.0")
    ] = None,
    lookahead: Annotated[
        int | None, typer.Option(help="Candidates a step tries one step ahead.", show_default="1")
    ] = None,
    seed: Annotated[int, typer.Option(help="Text i is drawn with seed + i.")] = 0,
    device: Annotated[str | None, typer.Option(help="A torch device; by default the GPU if any.")] = None,
    dtype: Annotated[str | None, typer.Option(help="bf16 or fp32; by default the faster here.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Rows, which say where the holes were.")] = False,
    allow_open_key: Annotated[bool, typer.Option(help="Accept a key file that every user can read.")] = False,
) -> None:
    """Fill the holes of a text with tokens that carry the mark of a key; the rest stays as it is."""
    secret = key_to_mark_with(key, no_watermark, allow_open_key)
    rows = list(_rows(text, texts))
    if not rows:
        raise EmptyInput("there is no text to fill")
    try:
        from dgmark.decode.infill import INFILLING_SCHEMA
        from dgmark.decode.infill import infill as fill
        from dgmark.models import load_model
    except ImportError as error:
        raise MissingExtra(
            f"infilling needs torch and transformers: pip install 'dgmark[generate]' ({error})"
        ) from None
    given = {"block_length": block_length, "strategy": strategy, "temperature": temperature, "lookahead": lookahead}
    settings = {name: value for name, value in given.items() if value is not None}
    denoiser = load_model(model, device=device, dtype=dtype)
    origin: CountFrom = count_from  # type: ignore[assignment]
    errors: list[DgmarkError] = []
    for index, row in enumerate(rows):
        try:
            parts = _parts(row)
            (filled,) = fill(denoiser, [parts], key=secret, count_from=origin, seed=seed + index, **settings)  # type: ignore[arg-type]
        except InputError as error:
            if len(rows) == 1:
                raise
            errors.append(error)
            row_id = row.row_id if isinstance(row, BadRow) else row["id"]
            print(to_line(BadRow(row_id, str(error)).to_row(INFILLING_SCHEMA)), flush=True)
            continue
        assert not isinstance(row, BadRow)
        print(to_line(filled.to_row(row["id"])) if as_json or len(rows) > 1 else filled.text, flush=True)
    if errors:
        stderr().print(f"{len(errors)} of {len(rows)} rows have errors")
        if len(errors) == len(rows):
            raise errors[0]


def _rows(text: str | None, texts: str | None) -> Iterator[Row | BadRow]:
    if (text is None) == (texts is None):
        raise SettingsError("give a text with [mask:N] in it, or --texts FILE.jsonl (one of the two)")
    if texts is not None:
        return read_rows(texts)
    content = sys.stdin.read() if text == "-" else text
    return iter([{"id": "0", "text": content}])


def _parts(row: Row | BadRow) -> list[str | int]:
    from dgmark.decode.infill import holes_in

    if isinstance(row, BadRow):
        raise InputError(row.error)
    if isinstance(row.get("parts"), list):
        parts: list[str | int] = row["parts"]
        return parts
    if isinstance(row.get("text"), str):
        return holes_in(row["text"])
    raise InputError('no "text" with [mask:N] in it, and no "parts"')
