"""`dgmark rate`: texts rated by a language model behind an OpenAI-compatible endpoint, with the paper's prompt."""

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
    source: Annotated[str, typer.Argument(metavar="FILE", help='JSON Lines with "id" and "text"; - is stdin.')],
    rater: Annotated[
        str, typer.Option("--model", help="The rating model's name at the endpoint.", rich_help_panel=opt.MODEL)
    ] = "gpt-4o-mini",
    base_url: Annotated[
        str | None,
        typer.Option(
            help="Address of an OpenAI-compatible service.", show_default="OpenAI's own", rich_help_panel=opt.MODEL
        ),
    ] = None,
    no_json_mode: Annotated[
        bool,
        typer.Option(
            "--no-json-mode",
            help="Ask for JSON in the prompt alone; for services without the mode.",
            rich_help_panel=opt.MODEL,
        ),
    ] = False,
    attempts: Annotated[
        int, typer.Option(min=1, help="How often a text is asked about at most.", rich_help_panel=opt.MODEL)
    ] = 5,
    timeout: Annotated[float, typer.Option(help="Seconds for an answer.", rich_help_panel=opt.MODEL)] = 60.0,
    workers: Annotated[int, typer.Option(min=1, help="Questions under way at once.", rich_help_panel=opt.SPEED)] = 4,
    cache: Annotated[
        Path | None,
        typer.Option(
            help="Folder that answers are kept in.",
            show_default="~/.cache/dgmark/ratings",
            rich_help_panel=opt.SPEED,
        ),
    ] = None,
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Keep no answers.", rich_help_panel=opt.SPEED)] = False,
    out: Annotated[
        Path | None, typer.Option(help="Write one row for each text.", show_default=False, rich_help_panel=opt.OUTPUT)
    ] = None,
    as_json: opt.OneObject = False,
) -> None:
    """Have a language model rate texts for coherence, clarity and naturalness (the paper's GPT-as-a-judge).

    The texts, without their prompts, are sent to the endpoint. The key is read from OPENAI_API_KEY. Answers are kept on
    disk, so that a second run asks nothing.
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
    """Ids and texts.

    Raises:
        InputError: a row has no text.
    """
    texts = []
    for row in read_good_rows(source):
        if not isinstance(row.get("text"), str):
            raise InputError(f"{row['id']}: {row.get('error') or 'no text'}; leave such rows out")
        texts.append((row["id"], row["text"]))
    return texts


def _cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dgmark" / "ratings"
