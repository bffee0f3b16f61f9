"""`dgmark generate`: generate marked texts from prompts."""

import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dgmark.checkpoint.families import family_of
from dgmark.checkpoint.folder import BUILTIN, find_checkpoint
from dgmark.cli import options as opt
from dgmark.cli.console import command_errors, stderr, visible
from dgmark.cli.option_groups import OptionGroup, option_groups
from dgmark.cli.row_runs import RowOutput, Task, make_rows, tasks_of, tell_of_marks
from dgmark.columns.parquet import is_parquet
from dgmark.decode.config import DecodeConfig, Settings
from dgmark.decode.settings_file import read_settings
from dgmark.errors import DgmarkError, SettingsError
from dgmark.extras import needed_extra
from dgmark.files.inputs import MAX_LINE_BYTES, STDIN, STDIN_NAME, checked_size, decode, open_input
from dgmark.files.outputs import check_output
from dgmark.rows.jsonl import BadRow, Row, read_rows, rows_or_text
from dgmark.rows.texts import prompt_of
from dgmark.watermark.key import WatermarkKey, check_has_key

if TYPE_CHECKING:
    from dgmark.decode.generation import Generation
    from dgmark.decode.own_check import MarkTally
    from dgmark.decode.prompts import Prepared

# (prompt, seed)
Prompted = tuple[str | list[int], int]
# a row for each prompt, and the file that they are read from: "-" for standard input, None for the command line
Prompts = tuple[Iterator[Row | BadRow], str | None]


def prompts_of(
    prompt: Annotated[str | None, typer.Option(help="One prompt.", show_default="standard input")] = None,
    prompts: Annotated[
        str | None,
        typer.Option(help='JSON Lines or Parquet file of rows with "id" and "prompt"; - is standard input.'),
    ] = None,
) -> Prompts:
    """Read the prompts: the one of `prompt`, those of the file `prompts`, or those of standard input.

    Raises:
        SettingsError: both are given, or neither is given and standard input is a terminal.
        NoTexts: the file cannot be read.
    """
    if prompt is not None and prompts is not None:
        raise SettingsError("--prompt and --prompts exclude each other: give one of them")
    if prompt is not None:
        return iter([{"id": "0", "prompt": prompt}]), None
    if prompts is not None:
        return read_rows(prompts), prompts
    if sys.stdin.isatty():
        raise SettingsError("give --prompt TEXT, --prompts FILE.jsonl, or a prompt on standard input")
    return _prompts_of_stdin(), STDIN


def _prompts_of_stdin() -> Iterator[Row | BadRow]:
    with open_input(STDIN, "a prompt") as file:
        found = rows_or_text(file, "stdin", MAX_LINE_BYTES)
        if not isinstance(found, bytes):
            yield from found
        elif prompt := decode(checked_size(found), STDIN_NAME).rstrip("\n"):
            yield {"id": "0", "prompt": prompt}


@command_errors
@option_groups
def generate(
    key: opt.KeyToMark,
    prompts: Annotated[Prompts, OptionGroup(prompts_of)],
    loading: opt.ModelOptions,
    settings: opt.DecodingOptions,
    settings_file: Annotated[
        Path | None,
        typer.Option("--settings", help="Settings file; decoding options that are also given go before it."),
    ] = None,
    chat: Annotated[bool, typer.Option("--chat", help="Put each prompt into the model's chat template.")] = False,
    subkey: opt.Subkey = None,
    check: opt.Check = False,
    seed: opt.Seed = 0,
    batch_size: opt.BatchSize = 8,
    pad: opt.Pad = None,
    out: opt.TableOut = None,
    live: Annotated[
        bool, typer.Option("--stream", help="Show the text of one prompt on stderr as it is decoded.")
    ] = False,
    as_json: opt.AsRows = False,
    trace: Annotated[bool, typer.Option(help="Include in the rows which step committed each token.")] = True,
) -> None:
    """Generate text that carries the mark of a key.

    Give --key FILE to mark the text, or --no-watermark to generate in the same way without a mark.
    """
    prompt_rows, source = prompts
    if check:
        check_has_key(key)
    if settings_file is not None:
        settings = {**read_settings(settings_file, key=key), **settings}
    if any(map(is_parquet, [source or "", out or ""])):
        if live or as_json or subkey is not None:
            raise SettingsError(
                "Parquet is written to a file, and its ids give the sub-keys: leave --stream, --json and --subkey out"
            )
        check_settings(loading, key, settings)
        _generate_parquet(
            source or "", out, key, loading, settings, seed=seed, batch_size=batch_size, chat=chat, pad=pad, check=check
        )
        return
    out_file = None if out is None else Path(out)
    check_output(out_file, [source])
    tasks = tasks_of(prompt_rows, partial(_task, subkey=subkey), seed=seed, purpose="prompt to continue")
    if live and (len(tasks) != 1 or out is not None):
        raise SettingsError("--stream shows one text: give a single prompt, and leave --out out")
    check_settings(loading, key, settings)
    with needed_extra("generate", "generating"):
        from dgmark.decode.generation import GENERATION_SCHEMA
        from dgmark.decode.own_check import MarkTally
    prepared = _prepared(tasks, key, settings, loading, subkey=subkey, chat=chat, pad=pad, check=check)
    tally = MarkTally()
    output = RowOutput(
        GENERATION_SCHEMA,
        out_file,
        _shared_fields(prepared, key),
        source="prompt or seed" if subkey is None else "prompt, seed or sub-key",
        as_json=as_json,
        titles=True,
    )
    if live:
        generation = _show_live(prepared, tasks[0], marked=key is not None)
        output.print([generation.to_row(tasks[0].row_id, with_trace=trace)], single=True)
        tally.add(generation)
    else:
        work = partial(_decode, prepared, [task.row_id for task in tasks if isinstance(task, Task)], trace, tally)
        make_rows(tasks, work, output, batch_size=batch_size, tokens_each=prepared.config.length)
    tell_of_marks(tally)


def _generate_parquet(
    source: str,
    out: str | None,
    key: WatermarkKey | None,
    loading: opt.Loading,
    settings: Settings,
    *,
    seed: int,
    batch_size: int,
    chat: bool,
    pad: bool | None,
    check: bool,
) -> None:
    """Write a text for each row of a Parquet file with the columns id and prompt, from which seed and sub-key follow.

    Raises:
        DgmarkError: see `generate_parquet`.
    """
    from dgmark.cli.parquet_runs import generate_parquet
    from dgmark.columns.generate_columns import GenerateColumns

    with needed_extra("generate", "generating"):
        from dgmark.decode.prompts import config_of
        from dgmark.models.denoiser import traits_of
        from dgmark.models.load import load_model
    model = load_model(**loading)
    config = config_of(model, [key], settings)
    how: dict[str, Any] = {"batch_size": batch_size, "chat": chat, "pad": pad, "check": check, **config.to_dict()}
    write = GenerateColumns(model, key, id_column="id", seed=seed, **how)
    fields = {"key": None if key is None else key.fingerprint, "seed": seed, "chat": chat, "check": check}
    made_with = {**fields, "model": traits_of(model).name, "settings": config.to_dict()}
    generate_parquet(write, source, out, made_with, 4 * batch_size)


def check_settings(loading: opt.Loading, key: WatermarkKey | None, settings: Settings) -> None:
    """Refuse what no model of this family can decode with, before the model is loaded.

    Raises:
        ModelError: there is no such model, or it belongs to no family; or torch is not installed.
        SettingsError: the settings are invalid.
    """
    with needed_extra("generate", "generating"):
        from dgmark.decode.prompts import with_defaults_of_rule
    checkpoint = find_checkpoint(loading.get("name_or_path", BUILTIN), loading.get("revision"))
    family = family_of(checkpoint, loading.get("family"))
    with_defaults_of_rule(key, settings, partial(DecodeConfig, **family.defaults_with(family.block_of(checkpoint))))


def _prepared(
    tasks: Sequence[Task[Prompted] | BadRow],
    key: WatermarkKey | None,
    settings: Settings,
    loading: opt.Loading,
    *,
    subkey: int | None,
    chat: bool,
    pad: bool | None,
    check: bool,
) -> "Prepared":
    """Load the model and prepare all prompts for it.

    Raises:
        ModelError: the model cannot be loaded.
        SettingsError: the settings are invalid.
        KeyFileError: the key is bound to another tokenizer or vocabulary.
    """
    from dgmark.decode.own_check import checker_of
    from dgmark.decode.prompts import Prepared, Request, config_of, key_of_text
    from dgmark.models.load import load_model

    model = load_model(**loading)
    prompted = [task.content for task in tasks if isinstance(task, Task)]
    return Prepared.of(
        model,
        [Request(prompt, seed, key_of_text(key, subkey)) for prompt, seed in prompted],
        config_of(model, [key], settings),
        chat=chat,
        pad=pad,
        strict=False,
        checker=checker_of(model, key, check),
    )


def _shared_fields(prepared: "Prepared", key: WatermarkKey | None) -> Row:
    """The fields that all rows of one file share."""
    from dgmark.models.denoiser import traits_of

    traits = traits_of(prepared.model)
    return {
        "model": traits.name,
        "key_fingerprint": None if key is None else key.fingerprint,
        "rule": None if key is None else key.spec.rule,
        "settings": prepared.config.to_dict(),
        "dtype": traits.number_format,
        "chat": prepared.chat,
    }


def _decode(
    prepared: "Prepared",
    row_ids: list[str],
    trace: bool,
    tally: "MarkTally",
    tasks: list[Task[Prompted]],
    progress: Callable[[int], None],
) -> list[Row | DgmarkError]:
    """Decode prompts together; return a row for each, or an error for a prompt that cannot be decoded.

    Args:
        prepared: all prompts.
        row_ids: the ids of their rows.
        trace: whether rows include which step committed each token.
        tally: counts what is made.
        tasks: the prompts to decode.
        progress: called with the number of tokens of each step.
    """
    from dgmark.decode.generation import generations_or_errors

    made = generations_or_errors(prepared, [row_ids.index(task.row_id) for task in tasks], progress)
    for text in made:
        if not isinstance(text, DgmarkError):
            tally.add(text)
    return [
        text if isinstance(text, DgmarkError) else text.to_row(task.row_id, with_trace=trace)
        for task, text in zip(tasks, made, strict=True)
    ]


def _show_live(prepared: "Prepared", task: Task[Prompted] | BadRow, *, marked: bool) -> "Generation":
    """Show the canvas of the only text on stderr while it is decoded, if that is a terminal, and return the text.

    Matching tokens are green (under a rule without matches all), masked positions shaded.

    Raises:
        DgmarkError: the prompt cannot be used.
    """
    from rich.live import Live
    from rich.text import Text

    from dgmark.decode import Committed, RowFinished
    from dgmark.decode.generation import events_of

    if isinstance(task, BadRow):
        raise task.kind(task.error)
    for error in prepared.refused.values():
        raise error
    console, pieces = stderr(), [Text("░", style="dim") for _ in range(prepared.config.length)]
    with Live(console=console, transient=True, refresh_per_second=12, redirect_stdout=sys.stdout.isatty()) as live:
        for event in events_of(prepared):
            if isinstance(event, Committed):
                for position, token, matched in zip(event.positions, event.token_ids, event.matched, strict=True):
                    text, style = prepared.model.tokenizer.decode([token]), "green" if matched and marked else "default"
                    pieces[position] = Text(visible(text, lines=True), style=style)
                if console.is_terminal:
                    live.update(Text.assemble(*pieces))
            elif isinstance(event, RowFinished):
                generation = event.generation
    return generation


def _task(row: Row, seed: int, subkey: int | None) -> Task[Prompted] | BadRow:
    prompt = prompt_of(row)
    if isinstance(prompt, BadRow):
        return prompt
    return Task(row["id"], (prompt, seed), same={"prompt": prompt, "seed": seed, **opt.same_subkey(subkey)})
