"""`dgmark infill`: fill the holes of texts with marked tokens; the holes are given, or are a share of the words."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from dgmark.cli import options as opt
from dgmark.cli.console import command_errors, stderr, visible
from dgmark.cli.option_groups import option_groups
from dgmark.cli.panels import panels
from dgmark.cli.row_runs import RowOutput, Task, make_rows, rows_of, tasks_of, tell_of_marks
from dgmark.decode.config import Settings
from dgmark.errors import DgmarkError, SettingsError, needed_extra
from dgmark.files.inputs import decode, named_file, read_bytes
from dgmark.files.outputs import check_output
from dgmark.rows.jsonl import BadRow, Row
from dgmark.rows.prompt_rows import read_prompts
from dgmark.watermark.key import check_has_key

if TYPE_CHECKING:
    from dgmark.decode.texts.infilling import Infilling
    from dgmark.decode.texts.remasking import Remasking


@command_errors
@panels(
    Texts="text_file texts keep target",
    Mark="no_watermark allow_open_key subkey check",
    Decoding=[*opt.RARE_SETTINGS, "seed"],
    Model=opt.RARE_LOADING,
    Output=["as_json"],
)
@option_groups
def infill(
    key: opt.KeyToMark,
    loading: opt.ModelOptions,
    settings: Annotated[Settings, opt.decoding_options(without=("length", "steps", "schedule"))],
    given: Annotated[
        str | None,
        typer.Argument(
            metavar="TEXT|FILE",
            help="Text in which [mask:N] is a hole of N tokens, or a file of one or of rows; - is standard input.",
        ),
    ] = None,
    text_file: Annotated[str | None, typer.Option("--text", metavar="FILE", help="A text file.")] = None,
    texts: Annotated[
        str | None, typer.Option(metavar="FILE", help='Rows with "id" and "text" or "parts": JSON Lines or a table.')
    ] = None,
    share: Annotated[
        float | None,
        typer.Option(help="Choose the holes: replace words that make up this share of the tokens.", min=0, max=1),
    ] = None,
    keep: Annotated[
        str | None, typer.Option(metavar="REGEX", help="With --share: what this matches stays, in addition.")
    ] = None,
    target: Annotated[
        float | None, typer.Option(help="With --share: stop as soon as the text's p-value is at most this.")
    ] = None,
    subkey: opt.Subkey = None,
    check: opt.Check = False,
    seed: opt.Seed = 0,
    out: opt.RowsOut = None,
    as_json: opt.AsRows = False,
) -> None:
    """Fill the holes of a text with marked tokens. The other text stays as it is.

    With --share, the holes are words of which the model is least sure. Quotations, code, headings, addresses, names and
    numbers stay; --keep names more, such as what stands between markers of your own: --keep "<keep>.*?</keep>".
    """
    if check:
        check_has_key(key)
    rows = _rows(given, text_file, texts)
    check_output(out, [given, text_file, texts])
    with needed_extra("generate", "infilling"):
        from dgmark.decode.config import DecodeConfig
        from dgmark.decode.texts.holes import holes_in
        from dgmark.decode.texts.infilling import INFILLING_SCHEMA, config_of_remasking, settings_beside_holes
        from dgmark.decode.texts.infilling import infill as infill_texts
        from dgmark.decode.texts.written import MarkTally, shared_fields
        from dgmark.models.load import load_model
    task_of = partial(_task, split=holes_in if share is None else None, subkey=subkey)
    tasks = tasks_of(rows, task_of, seed=seed, purpose="text to fill")
    model = load_model(**loading)
    options: dict[str, Any] = {"key": key, "subkey": subkey, "share": share, "keep": keep, "target": target, **settings}
    tally = MarkTally()

    def row_of(task: Task[int], text: "Infilling") -> Row:
        tally.add(text)
        if text.remasking is not None and len(tasks) == 1:
            _tell(text.remasking, text.text)
        return text.to_row(task.row_id)

    def work(batch: list[Task[int]], progress: Callable[[int], None]) -> list[Row | DgmarkError]:
        sources = [task.same["parts" if share is None else "original"] for task in batch]
        seeds = [task.content for task in batch]
        made = infill_texts(model, sources, seed=seeds, check=check, errors="return", progress=progress, **options)
        return rows_of(batch, made, row_of)

    config = DecodeConfig.of(model, **settings) if share is None else config_of_remasking(model, settings)
    must_agree = shared_fields(model, key, settings_beside_holes(config.to_dict()))
    if share is not None:
        must_agree |= {"share": share, "keep": keep, "target": target}
    source = "text or seed" if subkey is None else "text, seed or sub-key"
    output = RowOutput(INFILLING_SCHEMA, out, must_agree, source=source, as_json=as_json)
    make_rows(tasks, work, output, batch_size=8 if share is None else 1)
    tell_of_marks(tally)


def _task(
    row: Row, seed: int, *, split: Callable[[str], list[str | int]] | None, subkey: int | None
) -> Task[int] | BadRow:
    """The task of a row; without `split`, of its whole text, in which the holes are chosen."""
    parts, text = row.get("parts"), row.get("text")
    same: Row = {"seed": seed, **opt.same_subkey(subkey)}
    if split is None:
        if isinstance(text, str):
            return Task(row["id"], seed, same={"original": text, **same})
        return BadRow(row["id"], 'no "text": with a share, give the text whose words are to be replaced')
    if not isinstance(parts, list) and isinstance(text, str):
        parts = split(text)
    if parts == [text]:
        return BadRow(row["id"], "there is no hole: write [mask:N] where N tokens belong, or give --share")
    if isinstance(parts, list):
        return Task(row["id"], seed, same={"parts": parts, **same})
    return BadRow(row["id"], 'no "text" and no "parts": give a text with [mask:N] in it, or its parts')


def _tell(done: "Remasking", text: str) -> None:
    """Say on stderr what was done to a text, and if that is a terminal show the words that changed."""
    from dgmark.decode.texts.remasking import changes

    if stderr().is_terminal:
        shown = Text()
        for number, (old, new) in enumerate(changes(done.original, text)):
            shown.append(" " if number else "")
            if old != new:
                shown.append(visible(old, lines=True), "red strike").append(" ")
            shown.append(visible(new, lines=True), "default" if old == new else "green")
        stderr().print(shown)
    evidence = "no mark"
    if done.p_value is not None:
        expected = "" if done.expected_p is None else f" (expected {done.expected_p:.2g})"
        evidence = f"p-value {done.p_value:.2g}{expected}"
    stderr().print(f"{done.masked:.0%} of the tokens masked, {done.changed:.0%} changed; {evidence}")


def _rows(given: str | None, text_file: str | None, texts: str | None) -> Iterator[Row | BadRow]:
    if [given, text_file, texts].count(None) != 2:
        raise SettingsError("give a text with [mask:N] in it, a file of one, or a file of rows (one of the three)")
    if text_file is not None:
        return iter([{"id": "0", "text": decode(read_bytes(text_file, "a text file"), text_file)}])
    source = texts if given is None else named_file(given)
    return iter([{"id": "0", "text": given}]) if source is None else read_prompts(source, "text", one_text=True)
