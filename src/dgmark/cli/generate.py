"""`dgmark generate`: generate marked texts from prompts."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
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
from dgmark.cli.write_options import WriteOptions
from dgmark.columns.row_schema import GENERATE_FIELDS
from dgmark.decode.config import DecodeConfig, Settings
from dgmark.decode.settings_file import read_settings
from dgmark.errors import SettingsError, needed_extra
from dgmark.files.inputs import STDIN, named_file
from dgmark.rows.item import ONE_TEXT, Item, Row
from dgmark.rows.sources import PROMPT_COLUMN, prompt_of, read_prompts
from dgmark.rows.tables import RowReading
from dgmark.watermark.key import WatermarkKey

if TYPE_CHECKING:
    from dgmark.decode.texts.generation import Generation
    from dgmark.models.loaded import LoadedModel


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
    prompt_column: opt.PromptColumn = PROMPT_COLUMN

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

    def items(self, reading: RowReading) -> Iterator[Item]:
        """An item for each prompt; see `read_prompts`."""
        if self.source is None:
            return iter([Item(ONE_TEXT, {self.prompt_column: self.given if self.prompt is None else self.prompt})])
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
    writing: Annotated[WriteOptions, OptionGroup(WriteOptions)],
    prompts: Annotated[PromptOptions, OptionGroup(PromptOptions)],
    loading: opt.ModelOptions,
    settings: opt.DecodingOptions,
    settings_file: Annotated[
        Path | None,
        typer.Option("--settings", help="Settings file; decoding options that are also given go before it."),
    ] = None,
    chat: opt.Chat = False,
    batch_size: opt.BatchSize = 8,
    pad: opt.Pad = None,
    live: Annotated[
        bool, typer.Option("--stream", help="Show the text of one prompt on stderr as it is decoded.")
    ] = False,
    trace: Annotated[bool, typer.Option(help="Include in the rows which step committed each token.")] = True,
) -> None:
    """Generate text that carries the mark of a key.

    Give --key FILE to mark the text, or --no-watermark to generate in the same way without a mark. With --id-column,
    the seed and the sub-key of a row follow from its id, as in `dgmark.GenerateColumns`. With --keys FOLDER and
    --key-column, each row names its key.
    """
    loading = opt.model_of_key(loading, writing.all_keys)
    if settings_file is not None:
        settings = {**read_settings(settings_file, key=writing.all_keys[0]), **settings}
    writing.check_output(prompts.source)
    for key in writing.all_keys:
        check_settings(loading, key, settings)
    read, column = prompts.items(writing.reading(prompts.prompt_column)), prompts.prompt_column
    items = writing.items(read, "prompt", partial(prompt_of, column=column), "prompt to continue")
    if live and (len(items) != 1 or writing.out is not None):
        raise SettingsError("--stream shows one text: give a single prompt, and leave --out out")
    with needed_extra("generate", "generating"):
        from dgmark.decode.texts.generation import GENERATION_SCHEMA
        from dgmark.decode.texts.generation import generate as generate_texts
        from dgmark.decode.texts.prepared import check_marking, config_of
        from dgmark.models.load import load_model
    model = load_model(**loading)
    config = config_of(model, writing.all_keys, settings)
    for key in {item.content[1]["key"] for item in items if item.error is None}:
        check_marking(model, key, config)
    rule: Row = {} if writing.keys is not None else {"rule": writing.all_keys[0] and writing.all_keys[0].spec.rule}
    given: Any = {"config": config, "chat": chat, "batch_size": batch_size, "pad": pad}
    writing.write(
        items,
        partial(_show_live, model, **given) if live else partial(generate_texts, model, errors="return", **given),
        lambda item, text: text.to_row(item.row_id, with_trace=trace and not writing.table),
        schema=GENERATION_SCHEMA,
        source="prompt",
        source_file=prompts.source,
        column=column,
        shared={**writing.shared(model, config.to_dict()), "chat": chat, **rule},
        fields=GENERATE_FIELDS,
        titles=True,
        hidden=live,
        batch_size=batch_size,
        tokens_each=config.length,
    )


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


def _show_live(model: "LoadedModel", prompts: Sequence[Any], *, progress: object, **given: Any) -> "list[Generation]":  # noqa: ARG001
    """Show the canvas of the only text on stderr while it is decoded, if that is a terminal, and return the text.

    Matching tokens are green (under a rule without matches all), masked positions shaded. Where tokens are deleted and
    inserted, a block is shown once it is finished.
    """
    from rich.live import Live
    from rich.text import Text

    from dgmark.decode import Committed, RowFinished
    from dgmark.decode.steps.settled import SettledBlocks
    from dgmark.decode.texts.generation import stream_generate

    events = stream_generate(model, prompts, **given)
    events = SettledBlocks(given["config"].inserts).of(events)
    length, marked = given["config"].length, given["key"] != [None]
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
    return [generation]
