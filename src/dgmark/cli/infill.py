"""`dgmark infill`: fill the holes of texts with marked tokens."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Annotated

import typer

from dgmark.checkpoint.gguf import LLAMA_OPTIONS
from dgmark.cli import options as opt
from dgmark.cli.console import command_errors
from dgmark.cli.option_groups import option_groups
from dgmark.cli.row_runs import RowOutput, Task, make_rows, one_by_one, tasks_of
from dgmark.decode.config import Settings
from dgmark.errors import DgmarkError, SettingsError
from dgmark.extras import needed_extra
from dgmark.rows.inputs import STDIN, read_stdin
from dgmark.rows.jsonl import BadRow, Row, read_rows
from dgmark.rows.outputs import guard_output


@command_errors
@option_groups
def infill(
    key: opt.KeyToMark,
    loading: Annotated[opt.Loading, opt.loading_options(hidden=("tokenizer", *LLAMA_OPTIONS))],
    settings: Annotated[
        Settings,
        opt.decoding_options(
            without=("length", "steps", "schedule"),
            shown=("block_length", "strategy", "temperature", "top_k", "top_p", "bias"),
        ),
    ],
    text: Annotated[
        str | None, typer.Argument(help="Text in which [mask:N] is a hole of N tokens; - is standard input.")
    ] = None,
    texts: Annotated[str | None, typer.Option(help='JSON Lines file of rows with "id" and "text" or "parts".')] = None,
    subkey: opt.Subkey = None,
    seed: opt.Seed = 0,
    out: opt.RowsOut = None,
    as_json: opt.AsRows = False,
) -> None:
    """Fill the holes of a text with marked tokens. The other text stays as it is.

    The options of `dgmark generate` for decoding (but for --length, --steps, --schedule) and GGUF files are taken too.
    """
    guard_output(out, [STDIN if text == STDIN else texts])
    rows = _rows(text, texts)
    with needed_extra("generate", "infilling"):
        from dgmark.decode.infilling import INFILLING_SCHEMA, config_of_holes, holes_in, shared_fields
        from dgmark.decode.infilling import infill as fill
        from dgmark.models.load import load_model
    tasks = tasks_of(rows, partial(_task, split=holes_in, subkey=subkey), seed=seed, purpose="text to fill")
    model = load_model(**loading)

    def work(batch: list[Task[int]], progress: Callable[[int], None]) -> list[Row | DgmarkError]:
        def fill_holes(task: Task[int]) -> Row:
            parts, row_seed = task.same["parts"], task.content
            (result,) = fill(model, [parts], key=key, subkey=subkey, seed=row_seed, progress=progress, **settings)
            return result.to_row(task.row_id)

        return one_by_one(fill_holes, batch)

    must_agree = shared_fields(model, key, "text", config_of_holes(model, settings))
    source = "text or seed" if subkey is None else "text, seed or sub-key"
    make_rows(tasks, work, RowOutput(INFILLING_SCHEMA, out, must_agree, source=source, as_json=as_json))


def _task(row: Row, seed: int, split: Callable[[str], list[str | int]], subkey: int | None) -> Task[int] | BadRow:
    parts, text = row.get("parts"), row.get("text")
    if not isinstance(parts, list) and isinstance(text, str):
        parts = split(text)
    if isinstance(parts, list):
        return Task(row["id"], seed, same={"parts": parts, "seed": seed, **opt.same_subkey(subkey)})
    return BadRow(row["id"], 'no "text" and no "parts": give a text with [mask:N] in it, or its parts')


def _rows(text: str | None, texts: str | None) -> Iterator[Row | BadRow]:
    if (text is None) == (texts is None):
        raise SettingsError("give a text with [mask:N] in it, or --texts FILE.jsonl (one of the two)")
    if texts is not None:
        return read_rows(texts)
    content = read_stdin() if text == STDIN else text
    return iter([{"id": "0", "text": content}])
