"""`dgmark infill`: fill the holes of texts with marked tokens; the holes are given, or are a share of the words."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from dgmark.arguments.column_names import Fields
from dgmark.cli import options as opt
from dgmark.cli.console import command_errors, stderr, visible
from dgmark.cli.option_groups import OptionGroup, option_groups
from dgmark.cli.panels import panels
from dgmark.cli.write_options import WriteOptions
from dgmark.columns.row_schema import GENERATE_FIELDS
from dgmark.decode.config import DecodeConfig, Settings
from dgmark.errors import InputError, SettingsError, needed_extra
from dgmark.files.inputs import decode, named_file, read_bytes
from dgmark.rows.item import ONE_TEXT, Item, Row
from dgmark.rows.sources import read_prompts
from dgmark.rows.tables import RowReading

if TYPE_CHECKING:
    from dgmark.decode.texts.infilling import Infilling
    from dgmark.decode.texts.remasking import Remasking

# the columns of Parquet; the column of the texts is often called "text"
_TEXT = "filled_text"
_FIELDS: Fields = {
    _TEXT: "string",
    **{name: kind for name, kind in GENERATE_FIELDS.items() if name not in ("text", "ended")},
}
_SHARE_FIELDS: Fields = dict.fromkeys(("masked", "changed", "expected_p", "p_value"), "double")


@dataclass(frozen=True)
class TextOptions:
    """Where the texts stand, and which of their words are replaced.

    Raises:
        SettingsError: there is not one place of the texts.
    """

    given: Annotated[
        str | None,
        typer.Argument(
            metavar="TEXT|FILE",
            help="Text in which [mask:N] is a hole of N tokens, or a file of one or of rows; - is standard input.",
        ),
    ] = None
    text_file: Annotated[str | None, typer.Option("--text", metavar="FILE", help="A text file.")] = None
    texts: Annotated[
        str | None, typer.Option(metavar="FILE", help='Rows with "text" or "parts": JSON Lines, Parquet or a table.')
    ] = None
    text_column: Annotated[str, typer.Option(help="Column or field of the texts.")] = "text"
    share: Annotated[
        float | None,
        typer.Option(help="Choose the holes: replace words that make up this share of the tokens.", min=0, max=1),
    ] = None
    keep: Annotated[
        str | None, typer.Option(metavar="REGEX", help="With --share: what this matches stays, in addition.")
    ] = None
    target: Annotated[
        float | None, typer.Option(help="With --share: stop as soon as the text's p-value is at most this.")
    ] = None

    def __post_init__(self) -> None:
        if [self.given, self.text_file, self.texts].count(None) != 2:
            raise SettingsError("give a text with [mask:N] in it, a file of one, or a file of rows (one of the three)")

    @property
    def chosen(self) -> Row:
        """How words are chosen; empty where holes are given."""
        return {} if self.share is None else {"share": self.share, "keep": self.keep, "target": self.target}

    @cached_property
    def source(self) -> str | None:
        """The file that the texts are read from: "-" for standard input, None for the command line."""
        return self.text_file or self.texts if self.given is None else named_file(self.given)

    def items(self, reading: RowReading) -> Iterable[Item]:
        """An item for each text."""
        if self.text_file is None and self.source is not None:
            return read_prompts(self.source, reading, one_text=True)
        text = self.given
        if self.text_file is not None:
            text = decode(read_bytes(self.text_file, "a text file"), self.text_file)
        return [Item(ONE_TEXT, {self.text_column: text})]

    def content_of(self, row: Row) -> str | list[str | int]:
        """The text of a row, or its parts and the lengths of its holes; an InputError if it has none."""
        from dgmark.decode.texts.holes import holes_in

        column, parts, text = self.text_column, row.get("parts"), row.get(self.text_column)
        if self.share is not None:
            if isinstance(text, str):
                return text
            raise InputError(f'no "{column}": with a share, give the text whose words are to be replaced')
        if not isinstance(parts, list) and isinstance(text, str):
            parts = holes_in(text)
        if text is None and column in row and parts is None:
            raise InputError("there is no text: the value is missing")
        if parts == [text]:
            raise InputError("there is no hole: write [mask:N] where N tokens belong, or give --share")
        if not isinstance(parts, list):
            raise InputError(f'no "{column}" and no "parts": give a text with [mask:N] in it, or its parts')
        return parts


@command_errors
@panels(
    Texts="text_file texts text_column id_column key_column keep target",
    Mark="keys no_watermark allow_open_key subkey check",
    Decoding=[*opt.RARE_SETTINGS, "seed"],
    Model=opt.RARE_LOADING,
    Output="prefix as_json",
)
@option_groups
def infill(
    writing: Annotated[WriteOptions, OptionGroup(WriteOptions)],
    loading: opt.ModelOptions,
    settings: Annotated[Settings, opt.decoding_options(without=("length", "steps", "schedule"))],
    texts: Annotated[TextOptions, OptionGroup(TextOptions)],
) -> None:
    """Fill the holes of a text with marked tokens. The other text stays as it is.

    With --share, the holes are words of which the model is least sure. Quotations, code, headings, addresses, names and
    numbers stay; --keep names more, such as what stands between markers of your own: --keep "<keep>.*?</keep>".

    On stderr it says which p-value the text has. The expected one is an estimate, which half of the texts with so many
    masked tokens reach.

    With --id-column, the seed and the sub-key of a row follow from its id. With --keys FOLDER and --key-column, each
    row names its key.
    """
    loading, chosen = opt.model_of_key(loading, writing.all_keys), texts.chosen
    read = texts.items(writing.reading(texts.text_column))
    writing.check_output(texts.source)
    with needed_extra("generate", "infilling"):
        from dgmark.decode.texts.infilling import INFILLING_SCHEMA, config_of_remasking, settings_beside_holes
        from dgmark.decode.texts.infilling import infill as infill_texts
        from dgmark.models.load import load_model
    items = writing.items(read, "original" if chosen else "parts", texts.content_of, "text to fill")
    model = load_model(**loading)
    config = config_of_remasking(model, settings) if chosen else DecodeConfig.of(model, **settings)

    def row_of(item: Item, text: "Infilling") -> Row:
        if text.remasking is not None and len(items) == 1:
            _tell(text.remasking, text.text)
        row = text.to_row(item.row_id)
        return {**row, _TEXT: row["text"]} if writing.table else row

    writing.write(
        items,
        partial(infill_texts, model, errors="return", **settings, **chosen),
        row_of,
        schema=INFILLING_SCHEMA,
        source_file=texts.source,
        column=texts.text_column,
        shared=writing.shared(model, settings_beside_holes(config.to_dict())) | chosen,
        fields={**_FIELDS, **(_SHARE_FIELDS if chosen else {})},
        batch_size=1 if chosen else 8,
    )


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
