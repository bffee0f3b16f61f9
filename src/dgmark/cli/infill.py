"""`dgmark infill`: texts with holes in, the holes filled with marked tokens out."""

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from dgmark.checkpoint.folder import BUILTIN
from dgmark.cli import options as opt
from dgmark.cli.console import speaks, stderr
from dgmark.cli.keys import key_to_mark_with
from dgmark.errors import DgmarkError, EmptyInput, InputError, MissingExtra, SettingsError, install_hint
from dgmark.rows.jsonl import BadRow, Row, read_rows, to_line

if TYPE_CHECKING:
    from dgmark.decode.infilling import CountFrom


@speaks
def infill(
    text: Annotated[
        str | None, typer.Argument(help=r"A text in which \[mask:N] is a hole of N tokens.", show_default=False)
    ] = None,
    texts: Annotated[
        str | None,
        typer.Option(help='JSON Lines with "id" and "text" (or "parts"); - is stdin.', show_default=False),
    ] = None,
    key: opt.KeyToMark = None,
    no_watermark: opt.NoWatermark = False,
    model: opt.Model = BUILTIN,
    count_from: Annotated[
        str, typer.Option(help="text: one count of positions for all holes; hole: anew in each.")
    ] = "text",
    block_length: opt.BlockLength = None,
    strategy: opt.Strategy = None,
    temperature: opt.Temperature = None,
    top_k: opt.TopK = None,
    top_p: opt.TopP = None,
    lookahead: opt.Lookahead = None,
    lookahead_scope: opt.LookaheadScope = None,
    lookahead_proposals: opt.LookaheadProposals = None,
    commit: opt.Commit = None,
    threshold: opt.Threshold = None,
    factor: opt.Factor = None,
    cache: opt.Cache = None,
    guard: opt.Guard = None,
    repetition_guard: opt.RepetitionGuard = None,
    seed: Annotated[int, typer.Option(help="Text i is drawn with seed + i.")] = 0,
    device: opt.Device = None,
    dtype: opt.Dtype = None,
    revision: opt.Revision = None,
    family: opt.Family = None,
    quantization: opt.Quantization = None,
    device_map: opt.DeviceMap = None,
    as_json: Annotated[bool, typer.Option("--json", help="Rows, which say where the holes were.")] = False,
    allow_open_key: opt.AllowOpenKey = False,
) -> None:
    """Fill the holes of a text with tokens that carry the mark of a key; the rest stays as it is."""
    loading, settings = opt.given(locals(), opt.LOADING), opt.given(locals(), opt.DECODING)
    secret = key_to_mark_with(key, no_watermark, allow_open_key)
    rows = list(_rows(text, texts))
    if not rows:
        raise EmptyInput("there is no text to fill")
    try:
        from dgmark.decode.infilling import INFILLING_SCHEMA
        from dgmark.decode.infilling import infill as fill
        from dgmark.models.load import load_model
    except ImportError as error:
        raise MissingExtra(f"infilling needs torch and transformers: {install_hint('generate')} ({error})") from None
    denoiser = load_model(model, **loading)
    origin: CountFrom = count_from  # type: ignore[assignment]
    errors: list[DgmarkError] = []
    for index, row in enumerate(rows):
        try:
            parts = _parts(row)
            (filled,) = fill(denoiser, [parts], key=secret, count_from=origin, seed=seed + index, **settings)
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
    from dgmark.decode.infilling import holes_in

    if isinstance(row, BadRow):
        raise InputError(row.error)
    if isinstance(row.get("parts"), list):
        parts: list[str | int] = row["parts"]
        return parts
    if isinstance(row.get("text"), str):
        return holes_in(row["text"])
    raise InputError('no "text" with [mask:N] in it, and no "parts"')
