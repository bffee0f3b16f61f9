"""`dgmark generate`: generate marked texts from prompts."""

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from dgmark.checkpoint.families import family_of
from dgmark.checkpoint.folder import BUILTIN, find_checkpoint
from dgmark.cli import options as opt
from dgmark.cli.console import command_errors, stderr, visible
from dgmark.cli.option_groups import OptionGroup, option_groups
from dgmark.cli.panels import panels
from dgmark.cli.written import MarkedTally, RowMark, RowMarks, RowOutput, items_of, table_of, write_rows
from dgmark.columns.row_schema import CHECK_FIELDS, GENERATE_FIELDS
from dgmark.decode.config import DecodeConfig, Settings
from dgmark.decode.settings_file import read_settings
from dgmark.errors import SettingsError, needed_extra
from dgmark.files.inputs import STDIN, named_file
from dgmark.files.outputs import check_output
from dgmark.rows.item import Item, Row
from dgmark.rows.parquet import is_parquet
from dgmark.rows.sources import PROMPT_COLUMN, RowReading, prompt_of, read_prompts
from dgmark.watermark.key import WatermarkKey, check_has_key

if TYPE_CHECKING:
    from dgmark.decode.texts.generation import Generation
    from dgmark.models.loaded import LoadedModel


class Prompted(NamedTuple):
    """What is decoded for a row: its prompt, and what marks its text."""

    prompt: str | list[int]
    mark: RowMark


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

    def rows(self) -> Iterator[Item]:
        """An item for each prompt; see `read_prompts`."""
        if self.source is None:
            return iter([Item("0", {self.prompt_column: self.given if self.prompt is None else self.prompt})])
        reading = RowReading(self.prompt_column, self.id_column, self.key_column)
        return read_prompts(self.source, reading, one_text=self.source == STDIN and self.prompts is None)


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
    rows = RowMarks(marks, subkey, seed, prompts.id_column, prompts.key_column)
    loading = opt.model_of_key(loading, rows.keys)
    if check:
        check_has_key(rows.keys)
    if settings_file is not None:
        settings = {**read_settings(settings_file, key=rows.keys[0]), **settings}
    table = is_parquet(out or "")
    check_output(None if out is None or table else Path(out), [prompts.source])
    for key in rows.keys:
        check_settings(loading, key, settings)
    task_of = partial(_task, rows=rows, column=prompts.prompt_column)
    items = items_of(prompts.rows(), task_of, seed=seed, purpose="" if table else "prompt to continue")
    if live and (len(items) != 1 or out is not None):
        raise SettingsError("--stream shows one text: give a single prompt, and leave --out out")
    with needed_extra("generate", "generating"):
        from dgmark.decode.texts.generation import GENERATION_SCHEMA
        from dgmark.decode.texts.generation import generate as generate_texts
        from dgmark.decode.texts.prepared import check_marking, config_of
        from dgmark.decode.texts.written import MarkTally
        from dgmark.models.load import load_model
    model = load_model(**loading)
    config, tally = config_of(model, rows.keys, settings), MarkedTally(marks=MarkTally())
    for key in {item.content.mark.key for item in items if item.error is None}:
        check_marking(model, key, config)
    given: dict[str, Any] = {"config": config, "chat": chat, "check": check, "pad": pad}
    shared = _shared_fields(model, config, rows, chat)
    columns = {name: getattr(prompts, name) for name in ("prompt_column", "id_column", "key_column")}
    made_with = {**shared, "keys": sorted(key.fingerprint for key in rows.keys if key), "seed": seed, **columns}
    fields = {**GENERATE_FIELDS, **(CHECK_FIELDS if check else {})}
    output = RowOutput(
        GENERATION_SCHEMA,
        out,
        shared,
        lambda item, text: text.to_row(item.row_id, with_trace=trace and not table),
        source="prompt or seed" if subkey is None else "prompt, seed or sub-key",
        as_json=as_json,
        titles=True,
        table=table_of(out, prompts.source, made_with, fields, prefix, check=check),
    )

    def work(batch: list[Item], progress: Callable[[int], None]) -> Sequence[Any]:
        texts, marks = zip(*(item.content for item in batch), strict=True)
        arguments: Any = {name: [getattr(mark, name) for mark in marks] for name in RowMark._fields} | given
        return generate_texts(model, texts, errors="return", batch_size=len(batch), progress=progress, **arguments)

    if live:
        (item,) = items
        if item.error is not None:
            raise item.error
        text = _show_live(model, item.content, given)
        tally.count(item, text)
        output.print([output.row(item, text)], single=True)
    else:
        write_rows(items, work, output, tally=tally, batch_size=batch_size, tokens_each=config.length)
    tally.tell()


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


def _shared_fields(model: "LoadedModel", config: DecodeConfig, rows: RowMarks, chat: bool) -> Row:
    """The fields that all rows of one file share; where rows name their keys, each states its own."""
    from dgmark.models.denoiser import traits_of

    traits, marks = traits_of(model), rows.marks
    fields = {"model": traits.name, "settings": config.to_dict(), "dtype": traits.number_format, "chat": chat}
    rule: Row = {} if isinstance(marks, dict) else {"rule": None if marks is None else marks.spec.rule}
    return {**fields, **rows.shared(), **rule}


def _show_live(model: "LoadedModel", prompted: Prompted, given: dict[str, Any]) -> "Generation":
    """Show the canvas of the only text on stderr while it is decoded, if that is a terminal, and return the text.

    Matching tokens are green (under a rule without matches all), masked positions shaded.
    """
    from rich.live import Live
    from rich.text import Text

    from dgmark.decode import Committed, RowFinished
    from dgmark.decode.texts.generation import stream_generate

    text, mark = prompted
    events = stream_generate(model, [text], **mark._asdict(), **given)
    length, marked = given["config"].length, mark.key is not None
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


def _task(item: Item, seed: int, *, rows: RowMarks, column: str) -> Item:
    """The prompt of a row and what marks its text."""
    prompt, mark = prompt_of(item.content, column), rows.of(item, seed)
    return replace(item, content=Prompted(prompt, mark), source={"prompt": prompt, **rows.stated(mark)})
