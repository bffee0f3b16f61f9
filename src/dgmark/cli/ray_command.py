"""`dgmark-ray`: tables of texts checked, or written, on Ray Data, on one machine or many. Loads Ray when it runs."""

import os
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from dgmark.cli import options as opt
from dgmark.cli import run as run_app
from dgmark.cli.console import command_errors
from dgmark.cli.detect import report_counts
from dgmark.cli.detect_options import Tests
from dgmark.cli.generate import check_settings
from dgmark.cli.option_groups import OptionGroup, option_groups
from dgmark.cli.panels import Commands
from dgmark.cli.row_output import MarkedTally, tell_counts
from dgmark.columns.detect_columns import DetectColumns
from dgmark.columns.generate_columns import GenerateColumns
from dgmark.columns.key_source import ENVIRONMENT, read_keys
from dgmark.errors import SettingsError, needed_extra
from dgmark.rows.item import Row, Tally
from dgmark.rows.parquet import values_in
from dgmark.rows.scoring import ScoringOptions, settings_hash
from dgmark.rows.sources import PROMPT_COLUMN

# tests that name files
_FILES = ("tokenizer", "surprisal_model")

app = Commands(
    name="dgmark-ray",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    help="Check or write tables of texts on Ray Data, on one machine or on a cluster.",
)


@dataclass(frozen=True)
class Places:
    """What both commands read and write, and on what.

    Raises:
        SettingsError: source and target are one place.
    """

    source: Annotated[str, typer.Argument(help="Parquet or JSON Lines: a file, a folder or a URL.")]
    target: Annotated[str, typer.Argument(help="Folder of Parquet files to write, or to go on with; or a URL.")]
    id_column: Annotated[str, typer.Option(help="Column of the rows' ids, each row its own.")] = "id"
    prefix: Annotated[str, typer.Option(help="What the names of added columns begin with.")] = ""
    rows_per_file: Annotated[
        int | None,
        typer.Option(
            min=1, help="Rows of a file, which are kept once it is written.", show_default="65536, or 256 to write"
        ),
    ] = None
    actors: Annotated[
        int | None, typer.Option(min=1, help="Processes that work on rows.", show_default="as many as fit")
    ] = None
    address: Annotated[
        str | None,
        typer.Option(
            envvar="RAY_ADDRESS", help="Cluster of Ray, such as auto.", show_default="a new one of this machine"
        ),
    ] = None

    def __post_init__(self) -> None:
        if _absolute(self.source).rstrip("/") == _absolute(self.target).rstrip("/"):
            raise SettingsError(f"{self.target} is the source, which is only read: choose another target")

    def run(
        self, work: DetectColumns | GenerateColumns, made_with: Row, batch_size: int, part_rows: int, gpus: float = 0
    ) -> int:
        """Write the rows that are not finished, and return how many were; without Ray a MissingExtra."""
        with needed_extra("ray", "dgmark-ray", "ray[data]"):
            from dgmark.columns.ray_run import RayRun
        made_with = {**made_with, "column": work.column, "id_column": self.id_column, "prefix": self.prefix}
        places, part_rows = (_absolute(self.source), _absolute(self.target)), self.rows_per_file or part_rows
        return RayRun(work, *places, made_with, batch_size, part_rows, self.actors, gpus, self.address).write()

    def count(self, tally: Tally, columns: list[str], finished: int) -> None:
        """Count the rows of the target, of which so many were finished, by some of the added columns."""
        from dgmark.columns.ray_run import files_in

        for row in values_in(files_in(_absolute(self.target)), columns, self.prefix):
            tally.count_row(row)
        tally.resumed = finished


@app.command()
@command_errors
@option_groups
def detect(
    places: Annotated[Places, OptionGroup(Places)],
    key: Annotated[str, typer.Option("--key", "-k", help="Key file or folder that all machines see, or env:NAME.")],
    tests: Tests,
    key_column: opt.KeyColumn = None,
    text_column: Annotated[str, typer.Option(help="Column of the texts, or of lists of token ids.")] = "text",
    batch_size: Annotated[int, typer.Option(min=1, help="Texts that a process takes at a time.")] = 1024,
) -> None:
    """Check the texts of a table for the mark of a key."""
    work = DetectColumns(
        str(_absolute_file(key)),
        text_column,
        id_column=places.id_column,
        key_column=key_column,
        prefix=places.prefix,
        **(tests | {name: _absolute_file(tests[name]) for name in _FILES if name in tests}),
    )
    # read here, so that a wrong key or setting ends the command before the cluster works
    settings = settings_hash(work.scorer, ScoringOptions(payload=tests["payload"]), ids=False)
    made_with = {"command": "detect", "key": work.scorer.settings["keys"], "settings": settings}
    finished, tally = places.run(work, made_with | {"key_column": key_column}, batch_size, part_rows=65_536), Tally()
    places.count(tally, ["verdict", "error"], finished)
    report_counts(places.target, tally)
    if not tally.scored and tally.first_unusable:
        raise tally.failed()


@app.command()
@command_errors
@option_groups
def generate(
    places: Annotated[Places, OptionGroup(Places)],
    settings: opt.DecodingOptions,
    key: Annotated[str | None, typer.Option("--key", "-k", help="Key file that all machines see, or env:NAME.")] = None,
    no_watermark: opt.NoWatermark = False,
    allow_open_key: opt.AllowOpenKey = False,
    model: Annotated[str, typer.Option("--model", "-m", help="Model that all machines can load.")] = "storyteller",
    dtype: opt.Dtype = None,
    prompt_column: opt.PromptColumn = PROMPT_COLUMN,
    seed: Annotated[int, typer.Option(help="Seed that the ids of rows are hashed with.")] = 0,
    key_column: opt.KeyColumn = None,
    chat: opt.Chat = False,
    check: opt.Check = False,
    gpus_per_actor: Annotated[
        float, typer.Option("--gpus-per-actor", min=0, help="GPUs of each process; 0.5 for two on one.")
    ] = 0,
    batch_size: opt.BatchSize = 8,
) -> None:
    """Write a marked text for each prompt of a table. The seed and the sub-key of a row follow from its id."""
    if (key is None) != no_watermark:
        raise SettingsError("give --key FILE to mark the texts, or --no-watermark for texts without a mark")
    source, model = _absolute_file(key), str(_absolute_file(model))
    keys = [None] if source is None else read_keys(source, allow_open=allow_open_key)
    for own in keys:
        check_settings({"name_or_path": model}, own, settings)
    given: dict[str, Any] = {"key_column": key_column, "seed": seed, "chat": chat, "check": check, "dtype": dtype}
    given["device"] = "cuda" if gpus_per_actor else None
    of_run: Any = {"id_column": places.id_column, "prefix": places.prefix, "batch_size": batch_size}
    work = GenerateColumns(model, source, prompt_column, allow_open_key=allow_open_key, **of_run, **given, **settings)
    fingerprints = [own and own.fingerprint for own in keys]
    made_with = {"command": "generate", "key": fingerprints, "model": model, **given, "settings": settings}
    finished, tally = places.run(work, made_with, batch_size, part_rows=256, gpus=gpus_per_actor), MarkedTally()
    places.count(tally, [name for name in work.fields if name != "text"], finished)
    tell_counts(places.target, tally, "written", "with errors")
    if tally.first_unusable and not tally.scored:
        raise tally.first_unusable.raised()
    tally.tell()


def _absolute(place: str) -> str:
    """A path as all processes of the machine see it; a URL, and env:NAME, as they are."""
    return place if "://" in place or place.startswith(ENVIRONMENT) else os.path.abspath(place)


def _absolute_file(name: str | None) -> str | None:
    """The name of a model or tokenizer as all processes of the machine see it, where it is a file or folder."""
    return name if name is None or not os.path.exists(name) else os.path.abspath(name)


def main() -> None:
    """Entry point of the `dgmark-ray` command."""
    run_app(app)


if __name__ == "__main__":
    main()
