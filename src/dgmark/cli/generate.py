"""`dgmark generate`: generate marked texts from prompts."""

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dgmark.checkpoint.families import family_of
from dgmark.checkpoint.folder import BUILTIN, find_checkpoint
from dgmark.cli import options as opt
from dgmark.cli.console import command_errors, stderr, visible
from dgmark.cli.option_groups import OptionGroup, option_groups
from dgmark.cli.panels import panels
from dgmark.cli.row_runs import RowOutput, Task, make_rows, rows_of, table_counts, tasks_of, tell_of_marks, tell_written
from dgmark.columns.row_schema import CHECK_FIELDS, GENERATE_FIELDS
from dgmark.decode.config import DecodeConfig, Settings
from dgmark.decode.settings_file import read_settings
from dgmark.detection.row_keys import key_named
from dgmark.errors import DgmarkError, InputError, ResumeMismatch, SettingsError, needed_extra
from dgmark.files.inputs import STDIN, named_file
from dgmark.files.outputs import check_output
from dgmark.rows.jsonl import BadRow, Row
from dgmark.rows.parquet import is_parquet
from dgmark.rows.parquet_target import ParquetTarget
from dgmark.rows.prompt_rows import PROMPT_COLUMN, prompt_of, read_prompts
from dgmark.rows.texts import row_id_of
from dgmark.watermark.key import WatermarkKey, check_has_key, subkey_of

if TYPE_CHECKING:
    from dgmark.decode.texts.generation import Generation
    from dgmark.decode.texts.written import MarkTally
    from dgmark.models.loaded import LoadedModel

# (prompt, seed, key, sub-key)
Prompted = tuple[str | list[int], int, WatermarkKey | None, int | None]


@dataclass(frozen=True)
class PromptOptions:
    """Where the prompts stand.

    Raises:
        SettingsError: two places are named, or none and standard input is a terminal.
        NoTexts: `given` is the name of a file that does not exist.
    """

    given: Annotated[
        str | None,
        typer.Argument(
            metavar="PROMPT|FILE",
            help="A prompt, or a file of prompts as for --prompts; - is standard input.",
            show_default="standard input",
        ),
    ] = None
    prompt: Annotated[str | None, typer.Option(help="One prompt, whatever it looks like.")] = None
    prompts: Annotated[
        str | None,
        typer.Option(help="JSON Lines, Parquet, CSV or lines of text; - is standard input."),
    ] = None
    prompt_column: Annotated[str, typer.Option(help="Column or field of the prompts.")] = PROMPT_COLUMN
    id_column: opt.IdColumn = None
    key_column: opt.KeyColumn = None

    def __post_init__(self) -> None:
        if [self.given, self.prompt, self.prompts].count(None) < 2:
            raise SettingsError("a prompt or file, --prompt and --prompts exclude each other: give one of them")
        if self.source == STDIN and STDIN not in (self.given, self.prompts) and sys.stdin.isatty():
            raise SettingsError("give a prompt, a file of prompts, or - for standard input")

    @cached_property
    def source(self) -> str | None:
        """The file that the prompts are read from: "-" for standard input, None for the command line."""
        if self.given is not None:
            return named_file(self.given)
        return None if self.prompt is not None else self.prompts or STDIN

    def rows(self) -> Iterator[Row | BadRow]:
        """A row for each prompt; see `read_prompts`."""
        if self.source is None:
            return iter([{"id": "0", self.prompt_column: self.given if self.prompt is None else self.prompt}])
        columns: dict[str, Any] = {"id_column": self.id_column, "key_column": self.key_column}
        return read_prompts(
            self.source, self.prompt_column, **columns, one_text=self.source == STDIN and self.prompts is None
        )


@command_errors
@panels(
    Prompts="prompt prompts prompt_column id_column key_column chat",
    Mark="keys no_watermark allow_open_key subkey check",
    Decoding=[*opt.RARE_SETTINGS, "settings_file", "seed"],
    Model=[*opt.RARE_LOADING, "batch_size", "pad"],
    Output="prefix live as_json trace",
)
@option_groups
def generate(
    marks: Annotated[opt.Marks, OptionGroup(opt.marks_of)],
    prompts: Annotated[PromptOptions, OptionGroup(PromptOptions)],
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
    prefix: opt.Prefix = "",
    live: Annotated[
        bool, typer.Option("--stream", help="Show the text of one prompt on stderr as it is decoded.")
    ] = False,
    as_json: opt.AsRows = False,
    trace: Annotated[bool, typer.Option(help="Include in the rows which step committed each token.")] = True,
) -> None:
    """Generate text that carries the mark of a key.

    Give --key FILE to mark the text, or --no-watermark to generate in the same way without a mark. With --id-column,
    the seed and the sub-key of a row follow from its id, as in `dgmark.GenerateColumns`. With --keys FOLDER and
    --key-column, each row names its key.
    """
    if isinstance(marks, dict) == (prompts.key_column is None):
        raise SettingsError("--keys FOLDER and --key-column NAME belong together, as each row names its key: give both")
    keys = [*marks.values()] if isinstance(marks, dict) else [marks]
    if check:
        check_has_key(keys)
    if settings_file is not None:
        settings = {**read_settings(settings_file, key=keys[0]), **settings}
    if prompts.id_column is not None and subkey is not None:
        raise SettingsError("with --id-column the ids give the sub-keys: leave --subkey or --id-column out")
    table = is_parquet(out or "")
    out_file = None if out is None or table else Path(out)
    check_output(out_file, [prompts.source])
    task_of = partial(_task, marks=marks, subkey=subkey, prompts=prompts, seed_of_ids=seed)
    for key in keys:
        check_settings(loading, key, settings)
    tasks = tasks_of(prompts.rows(), task_of, seed=seed, purpose="" if table else "prompt to continue")
    if live and (len(tasks) != 1 or out is not None):
        raise SettingsError("--stream shows one text: give a single prompt, and leave --out out")
    with needed_extra("generate", "generating"):
        from dgmark.decode.texts.generation import GENERATION_SCHEMA
        from dgmark.decode.texts.generation import generate as generate_texts
        from dgmark.decode.texts.prepared import check_marking, config_of
        from dgmark.decode.texts.written import MarkTally
        from dgmark.models.load import load_model
    model = load_model(**loading)
    config, tally = config_of(model, keys, settings), MarkTally()
    for key in {task.content[2] for task in tasks if isinstance(task, Task)}:
        check_marking(model, key, config)
    given: dict[str, Any] = {"config": config, "chat": chat, "check": check, "pad": pad}
    output = RowOutput(
        GENERATION_SCHEMA,
        out_file,
        _shared_fields(model, config, marks, chat),
        source="prompt or seed" if subkey is None else "prompt, seed or sub-key",
        as_json=as_json,
        titles=True,
    )

    def row_of(task: Task[Prompted], text: "Generation") -> Row:
        tally.add(text)
        return text.to_row(task.row_id, with_trace=trace and not table)

    def work(batch: list[Task[Prompted]], progress: Callable[[int], None]) -> list[Row | DgmarkError]:
        texts, seeds, own, numbers = (list(column) for column in zip(*(task.content for task in batch), strict=True))
        of_rows: dict[str, Any] = {"key": own, "seed": seeds, "subkey": numbers, "batch_size": len(batch)}
        made = generate_texts(model, texts, **of_rows, **given, errors="return", progress=progress)
        return rows_of(batch, made, row_of)

    make = partial(make_rows, tasks, work, batch_size=batch_size, tokens_each=config.length)
    if table:
        made_with = {**output.must_agree, "keys": sorted(key.fingerprint for key in keys if key), "seed": seed}
        made_with |= {name: getattr(prompts, name) for name in ("prompt_column", "id_column", "key_column")}
        fields = {**GENERATE_FIELDS, **(CHECK_FIELDS if check else {})}
        target = ParquetTarget(str(out), [prompts.source or ""], {**made_with, "check": check}, fields, prefix)
        tally = _make_table(target, output, make, check)
    elif live:
        task = tasks[0]
        if isinstance(task, BadRow):
            raise task.kind(task.error)
        output.print([row_of(task, _show_live(model, task.content, given))], single=True)
    else:
        make(output)
    tell_of_marks(tally)


def _make_table(
    target: ParquetTarget, output: RowOutput, make: Callable[[RowOutput], object], check: bool
) -> "MarkTally":
    """Write a table unless it is there already, say so on stderr, and count the marks of its texts."""
    target.schema  # noqa: B018 (before the work)
    resumed = target.is_finished()
    if not resumed:
        make(replace(output, out=target.rows_file, finish=partial(_write_table, target, check)))
    written, tally = table_counts(target.fields, target.values)
    written.resumed = written.scored if resumed else 0
    tell_written(target.place, written)
    return tally


def _write_table(target: ParquetTarget, check: bool, rows: Iterator[Row]) -> None:
    """Write the columns of rows.

    Raises:
        ResumeMismatch: the texts of an earlier run were not checked.
    """

    def columns(row: Row) -> Row:
        if check and "error" not in row and not row.get("check"):
            raise ResumeMismatch(
                f"{target.rows_file} holds texts that were not checked: leave --check out, or delete it"
            )
        return {**row, **(row.get("check") or {})}

    target.write(map(columns, rows))


def check_settings(loading: opt.Loading, key: WatermarkKey | None, settings: Settings) -> None:
    """Refuse what no model of this family can decode with, before the model is loaded.

    Raises:
        ModelError: there is no such model, or it belongs to no family; or torch is not installed.
        SettingsError: the settings are invalid.
    """
    with needed_extra("generate", "generating"):
        from dgmark.decode.texts.prepared import with_defaults_of_rule
    checkpoint = find_checkpoint(loading.get("name_or_path", BUILTIN), loading.get("revision"))
    family = family_of(checkpoint, loading.get("family"))
    with_defaults_of_rule(key, settings, partial(DecodeConfig, **family.defaults_with(family.block_of(checkpoint))))


def _shared_fields(model: "LoadedModel", config: DecodeConfig, marks: opt.Marks, chat: bool) -> Row:
    """The fields that all rows of one file share; where rows name their keys, each states its own."""
    from dgmark.models.denoiser import traits_of

    traits = traits_of(model)
    fields = {"model": traits.name, "settings": config.to_dict(), "dtype": traits.number_format, "chat": chat}
    if isinstance(marks, dict):
        return fields
    rule, fingerprint = (None, None) if marks is None else (marks.spec.rule, marks.fingerprint)
    return {**fields, "key_fingerprint": fingerprint, "rule": rule}


def _show_live(model: "LoadedModel", prompted: Prompted, given: dict[str, Any]) -> "Generation":
    """Show the canvas of the only text on stderr while it is decoded, if that is a terminal, and return the text.

    Matching tokens are green (under a rule without matches all), masked positions shaded. Where tokens are deleted and
    inserted, a block is shown once it is finished.
    """
    from rich.live import Live
    from rich.text import Text

    from dgmark.decode import Committed, RowFinished
    from dgmark.decode.steps.settled import SettledBlocks
    from dgmark.decode.texts.generation import stream_generate

    text, seed, key, subkey = prompted
    events = stream_generate(model, [text], key=key, seed=seed, subkey=subkey, **given)
    events = SettledBlocks(given["config"].inserts).of(events)
    length, marked = given["config"].length, key is not None
    console, pieces = stderr(), [Text("░", style="dim") for _ in range(length)]
    with Live(console=console, transient=True, refresh_per_second=12, redirect_stdout=sys.stdout.isatty()) as live:
        for event in events:
            if isinstance(event, Committed):
                for position, token, matched in zip(event.positions, event.token_ids, event.matched, strict=True):
                    text, style = model.tokenizer.decode([token]), "green" if matched and marked else "default"
                    pieces[position] = Text(visible(text, lines=True), style=style)
                if console.is_terminal:
                    live.update(Text.assemble(*pieces))
            elif isinstance(event, RowFinished):
                generation = event.generation
    return generation


def _task(
    row: Row, seed: int, *, marks: opt.Marks, subkey: int | None, prompts: PromptOptions, seed_of_ids: int
) -> Task[Prompted] | BadRow:
    """The task of a row; with a column of ids, its seed and its sub-key follow from its id."""
    row_id = row_id_of(row, prompts.id_column)
    if isinstance(row_id, BadRow):
        return row_id
    prompt = prompt_of({**row, "id": row_id}, prompts.prompt_column)
    if isinstance(prompt, BadRow):
        return prompt
    try:
        key = key_named(marks, row.get(str(prompts.key_column))) if isinstance(marks, dict) else marks
    except InputError as error:
        return BadRow(row_id, str(error))
    same: Row = {"key_fingerprint": key.fingerprint} if isinstance(marks, dict) and key is not None else {}
    if prompts.id_column is not None:
        from dgmark.decode.texts.requests import seed_of

        seed = seed_of(seed_of_ids, row_id)
        subkey = subkey_of(key, row_id) if key is not None and key.spec.subkeys > 1 else None
    same |= {"prompt": prompt, "seed": seed, **opt.same_subkey(subkey)}
    return Task(row_id, (prompt, seed, key, subkey), same=same)
