"""`dgmark rate`: have a language model at an OpenAI-compatible endpoint rate texts, with the paper's prompt."""

import json
import os
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from dgmark.cli import options as opt
from dgmark.cli.console import command_errors, stderr, stdout
from dgmark.errors import InputError
from dgmark.lab.evaluate import Endpoint, rate_texts
from dgmark.rows.jsonl import read_good_rows, to_line
from dgmark.rows.whole_files import write_whole

RATING_SCHEMA = 1


@command_errors
def rate(
    source: Annotated[
        str, typer.Argument(metavar="FILE", help='JSON Lines file of rows with "id" and "text"; - is standard input.')
    ],
    rater: Annotated[
        str, typer.Option("--model", help="Name of the rating model at the endpoint.", rich_help_panel=opt.MODEL)
    ] = "gpt-4o-mini",
    base_url: Annotated[
        str | None,
        typer.Option(
            help="Address of the OpenAI-compatible endpoint.", show_default="OpenAI's own", rich_help_panel=opt.MODEL
        ),
    ] = None,
    no_json_mode: Annotated[
        bool,
        typer.Option(
            "--no-json-mode",
            help="Ask for JSON only in the prompt, for an endpoint without JSON mode.",
            rich_help_panel=opt.MODEL,
        ),
    ] = False,
    attempts: Annotated[
        int, typer.Option(min=1, help="Largest number of requests for one text.", rich_help_panel=opt.MODEL)
    ] = 5,
    timeout: Annotated[float, typer.Option(help="Seconds to wait for an answer.", rich_help_panel=opt.MODEL)] = 60.0,
    workers: Annotated[
        int, typer.Option(min=1, help="Largest number of requests at the same time.", rich_help_panel=opt.SPEED)
    ] = 4,
    cache: Annotated[
        Path | None,
        typer.Option(
            help="Folder where answers are kept.",
            show_default="~/.cache/dgmark/ratings",
            rich_help_panel=opt.SPEED,
        ),
    ] = None,
    no_cache: Annotated[
        bool, typer.Option("--no-cache", help="Neither keep answers nor use kept ones.", rich_help_panel=opt.SPEED)
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Write a JSON Lines file with one row for each text.", show_default=False, rich_help_panel=opt.OUTPUT
        ),
    ] = None,
    as_json: opt.OneObject = False,
) -> None:
    """Have a language model rate texts for coherence, clarity and naturalness (the paper's GPT-as-a-judge).

    The texts, without their prompts, are sent to the endpoint. The API key is read from the environment variable
    OPENAI_API_KEY. Answers are kept on disk, so that a second run over the same texts sends no requests.
    """
    texts = _read(source)
    endpoint = Endpoint(
        model=rater,
        base_url=base_url,
        json_mode=not no_json_mode,
        attempts=attempts,
        timeout=timeout,
        cache=None if no_cache else cache or _cache_folder(),
    )
    ratings = rate_texts([text for _, text in texts], endpoint, workers=workers)
    if out is not None:
        same = {"model": rater, "schema": RATING_SCHEMA}
        rows = [{"id": name, **rated.to_dict(), **same} for (name, _), rated in zip(texts, ratings.texts, strict=True)]
        write_whole(out, "".join(to_line(row) + "\n" for row in rows))
    if as_json:
        print(json.dumps({"schema": RATING_SCHEMA, **ratings.to_dict()}))
    else:
        table = Table("", "mean", "95 % interval")
        for name, mean in ratings.means.items():
            table.add_row(name, f"{mean.value:.2f}", "" if mean.low is None else f"{mean.low:.2f} to {mean.high:.2f}")
        stdout().print(table)
    if ratings.failed:
        stderr().print(f"{ratings.failed} of {len(texts)} texts have no rating")


def _read(source: str) -> list[tuple[str, str]]:
    """Read the ids and texts of a file.

    Raises:
        InputError: a row has no text.
    """
    texts = []
    for row in read_good_rows(source):
        if not isinstance(row.get("text"), str):
            raise InputError(f"row {row['id']!r}: {row.get('error') or 'no text'}; leave such rows out")
        texts.append((row["id"], row["text"]))
    return texts


def _cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dgmark" / "ratings"
