"""`dgmark-lab rate`: have a language model at an OpenAI-compatible endpoint rate texts, with the paper's prompt."""

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from dgmark.cli import options as opt
from dgmark.cli.console import command_errors, stdout
from dgmark.cli.row_runs import RowOutput, Task, make_rows, tasks_of
from dgmark.errors import DgmarkError, InputError
from dgmark.rows.jsonl import SOURCE_SHA256, BadRow, Row, read_good_rows, sha256_of
from dgmark.rows.outputs import check_output
from dgmark_lab.endpoint import Endpoint, EndpointError, NoUsableAnswer
from dgmark_lab.evaluate.ratings import CRITERIA, Rating, mean_ratings, rate_texts

RATING_SCHEMA = 1
_AT_ONCE = 64  # texts of a batch: an interruption loses one batch at most


@command_errors
def rate(
    source: Annotated[
        str, typer.Argument(metavar="FILE", help='JSON Lines file of rows with "id" and "text"; - is standard input.')
    ],
    rater: Annotated[str, typer.Option("--model", help="Name of the rating model at the endpoint.")] = "gpt-4o-mini",
    base_url: Annotated[
        str | None,
        typer.Option(help="Address of the OpenAI-compatible endpoint.", show_default="OpenAI's own"),
    ] = None,
    no_json_mode: Annotated[
        bool,
        typer.Option(
            "--no-json-mode",
            help="Ask for JSON only in the prompt, for an endpoint without JSON mode.",
        ),
    ] = False,
    attempts: Annotated[int, typer.Option(min=1, help="Largest number of requests for one text.")] = 5,
    timeout: Annotated[float, typer.Option(help="Seconds to wait for an answer.")] = 60.0,
    workers: Annotated[int, typer.Option(min=1, help="Largest number of requests at the same time.")] = 4,
    out: opt.RowsOut = None,
    as_json: opt.OneObject = False,
) -> None:
    """Have a language model rate texts for coherence, clarity and naturalness (the paper's GPT-as-a-judge).

    The texts, without their prompts, are sent to the endpoint. The API key is read from the environment variable
    OPENAI_API_KEY. With --out, a second run asks only for the ratings that are missing.
    """
    check_output(out, [source])
    texts = _read(source)
    endpoint = Endpoint(model=rater, base_url=base_url, json_mode=not no_json_mode, attempts=attempts, timeout=timeout)
    rows = _rated(texts, endpoint, workers, out)
    ratings = [Rating(**{name: row[name] for name in CRITERIA}) for row in rows if "error" not in row]
    if not ratings:
        raise EndpointError(rows[0]["error"])
    means = mean_ratings(ratings)
    if as_json:
        counts = {"num_texts": len(rows), "failed": len(rows) - len(ratings)}
        shown = {name: asdict(mean) for name, mean in means.items()}
        print(json.dumps({"schema": RATING_SCHEMA, "model": rater, "means": shown, **counts}))
    else:
        table = Table("", "mean", "95 % interval")
        for name, mean in means.items():
            table.add_row(name, f"{mean.value:.2f}", "" if mean.low is None else f"{mean.low:.2f} to {mean.high:.2f}")
        stdout().print(table)


def _read(source: str) -> list[Task[str] | BadRow]:
    """Read the texts of a file.

    Raises:
        InputError: a row has no text, two rows have the same id, or there is no row.
    """

    def task(row: Row, _seed: int) -> Task[str]:
        if not isinstance(row.get("text"), str):
            raise InputError(f"row {row['id']!r}: {row.get('error') or 'no text'}; leave such rows out")
        return Task(row["id"], row["text"], same={SOURCE_SHA256: sha256_of(row["text"])})

    return tasks_of(read_good_rows(source), task, seed=0, purpose="text to rate")


def _rated(tasks: list[Task[str] | BadRow], endpoint: Endpoint, workers: int, out: Path | None) -> list[Row]:
    """Have the texts rated; ratings that the file `out` holds are read from it, and new ones are appended to it."""
    agree: Row = {"model": endpoint.model}

    def rate_some(batch: list[Task[str]], _: Callable[[int], None]) -> list[Row | DgmarkError]:
        rated = rate_texts([task.content for task in batch], endpoint, workers=workers)
        return [
            {"id": task.row_id, **task.same, **one.model_dump(), **agree, "schema": RATING_SCHEMA}
            if isinstance(one, Rating)
            else NoUsableAnswer(str(one))
            for task, one in zip(batch, rated, strict=True)
        ]

    output = RowOutput(RATING_SCHEMA, out, agree, remembered=CRITERIA, source="text", collected=True)
    rows = make_rows(tasks, rate_some, output, batch_size=_AT_ONCE)
    return [rows[task.row_id] for task in tasks]
