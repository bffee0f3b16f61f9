"""`dgmark rate`: texts rated by a language model behind an OpenAI-compatible endpoint, with the paper's prompt."""

import json
import os
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from dgmark.cli.console import speaks, stderr, stdout
from dgmark.cli.options import OneObject
from dgmark.errors import InputError
from dgmark.lab.evaluate import Endpoint, rate_texts
from dgmark.rows.jsonl import BadRow, read_rows, to_line
from dgmark.rows.whole_files import write_whole

RATING_SCHEMA = 1


@speaks
def rate(
    source: Annotated[str, typer.Argument(metavar="FILE", help='JSON Lines with "id" and "text"; - is stdin.')],
    model: Annotated[str, typer.Option(help="The rating model's name at the endpoint.")] = "gpt-4o-mini",
    base_url: Annotated[
        str | None, typer.Option(help="Of an OpenAI-compatible service.", show_default="OpenAI's own")
    ] = None,
    cache: Annotated[
        Path | None, typer.Option(help="Folder that answers are kept in.", show_default="~/.cache/dgmark/ratings")
    ] = None,
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Keep no answers.")] = False,
    no_json_mode: Annotated[
        bool, typer.Option("--no-json-mode", help="Ask in the prompt alone for JSON; for services without the mode.")
    ] = False,
    attempts: Annotated[int, typer.Option(min=1, help="How often a text is asked about at most.")] = 5,
    timeout: Annotated[float, typer.Option(help="Seconds for an answer.")] = 60.0,
    workers: Annotated[int, typer.Option(min=1, help="Questions under way at once.")] = 4,
    out: Annotated[Path | None, typer.Option(help="Write a row a text.", show_default=False)] = None,
    as_json: OneObject = False,
) -> None:
    """Have a language model rate texts for coherence, clarity and naturalness (the paper's GPT-as-a-judge).

    The texts, without their prompts, are sent to the endpoint. The key is read from OPENAI_API_KEY. Answers are kept on
    disk, so that a second run asks nothing.
    """
    ids, texts = _read(source)
    endpoint = Endpoint(
        model=model,
        base_url=base_url,
        json_mode=not no_json_mode,
        attempts=attempts,
        timeout=timeout,
        cache=None if no_cache else cache or _cache_folder(),
    )
    found = rate_texts(texts, endpoint, workers=workers)
    if out is not None:
        made = {"model": model, "schema": RATING_SCHEMA}
        rows = [{"id": name, **rated.to_dict(), **made} for name, rated in zip(ids, found.texts, strict=True)]
        write_whole(out, "".join(to_line(row) + "\n" for row in rows))
    if as_json:
        print(json.dumps({"schema": RATING_SCHEMA, **found.to_dict()}))
    else:
        table = Table("", "mean", "95 % interval")
        for name, mean in found.means.items():
            table.add_row(name, f"{mean.value:.2f}", "" if mean.low is None else f"{mean.low:.2f} to {mean.high:.2f}")
        stdout().print(table)
    if found.failed:
        stderr().print(f"{found.failed} of {len(texts)} texts have no rating")


def _read(source: str) -> tuple[list[str], list[str]]:
    ids, texts = [], []
    for row in read_rows(source):
        if isinstance(row, BadRow):
            raise InputError(f"{row.row_id}: {row.error}")
        if not isinstance(row.get("text"), str):
            raise InputError(f"{row['id']}: {row.get('error') or 'no text'}; leave such rows out")
        ids.append(row["id"])
        texts.append(row["text"])
    return ids, texts


def _cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dgmark" / "ratings"
