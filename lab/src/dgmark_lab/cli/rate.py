"""`dgmark-lab rate`: let a language model on a server rate texts, and compare them with others in pairs."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.table import Table

from dgmark.arguments.contents import sha256_of
from dgmark.cli.console import command_errors, stderr, stdout
from dgmark.cli.row_output import items_of, write_rows
from dgmark.errors import DgmarkError, InputError
from dgmark.files.outputs import check_output
from dgmark.rows.item import SOURCE_SHA256, Item, Row
from dgmark.rows.jsonl import read_good_rows
from dgmark.rows.sources import read_prompts
from dgmark.rows.tables import ANY_ROWS
from dgmark_lab.chat_endpoint import ChatEndpoint
from dgmark_lab.evaluate.estimates import mean
from dgmark_lab.evaluate.rating import QUESTION_VERSION, Preference, Rater, Rating, mean_scores
from dgmark_lab.experiments.tables import with_interval

RATING_SCHEMA = 1


@command_errors
def rate(
    texts: Annotated[
        Path, typer.Argument(metavar="FILE", help='JSON Lines file of rows with "id" and "text".', show_default=False)
    ],
    *,
    base_url: Annotated[
        str,
        typer.Option(
            help="Address of a server with OpenAI's interface, such as https://api.openai.com/v1. Its key is taken "
            "from $OPENAI_API_KEY.",
            show_default=False,
        ),
    ],
    model: Annotated[
        str | None, typer.Option(help="Name of the model that rates.", show_default="the server's only one")
    ] = None,
    out: Annotated[
        Path,
        typer.Option(
            "--out", "-o", help="File of the rows: scores and raw answers. Run again to go on.", show_default=False
        ),
    ],
    against: Annotated[
        Path | None,
        typer.Option(
            help="Other texts of the same ids, such as unmarked ones: both are rated, and each pair is compared in "
            "both orders.",
            show_default=False,
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the first text's answers; text i has seed + i.")] = 0,
    temperature: Annotated[float, typer.Option(min=0, max=2, help="Temperature of the answers.")] = 0.0,
    parallel: Annotated[int, typer.Option(min=1, max=64, help="Texts that are asked about at the same time.")] = 4,
) -> None:
    """Rate texts by a language model, with the paper's question, and compare them with others in pairs."""
    check_output(out, [str(texts), *([str(against)] if against else [])])
    others = None if against is None else _texts_of(against)
    rater = Rater(ChatEndpoint(base_url, model), temperature)
    make = partial(_item, others=others)
    items = items_of(read_prompts(str(texts), ANY_ROWS), make, seed=seed, purpose="text to rate")
    shared: Row = {
        "rater": rater.endpoint.name,
        "temperature": temperature,
        "questions": QUESTION_VERSION,
        "compared": others is not None,
    }

    def work(batch: list[Item], _: Callable[[int], None]) -> list[Row | DgmarkError]:
        with ThreadPoolExecutor(parallel) as threads:
            return [*threads.map(lambda item: _row(rater, item, shared), batch)]

    about: Any = {"schema": RATING_SCHEMA, "out": out, "source": "text, other text or seed"}
    write_rows(items, work, shared=shared, batch_size=parallel, **about)
    ids = {item.row_id for item in items}
    _print_summary(
        [row for row in read_good_rows(str(out)) if row["id"] in ids and "error" not in row],
        compared=others is not None,
    )


def _texts_of(path: Path) -> dict[str, str]:
    """The texts of a file by id.

    Raises:
        InputError: it holds no text.
    """
    found = {row["id"]: row["text"] for row in read_good_rows(str(path)) if isinstance(row.get("text"), str)}
    if not found:
        raise InputError(f'{path} holds no row with a "text": give rows of `dgmark generate --json`')
    return found


def _item(item: Item, seed: int, others: dict[str, str] | None) -> Item:
    text, other = item.content.get("text"), None
    if not isinstance(text, str) or not text.strip():
        raise InputError(str(item.content.get("error") or 'no "text"'))
    source = {SOURCE_SHA256: sha256_of(text), "seed": seed}
    if others is not None:
        other = others.get(item.row_id)
        if other is None:
            raise InputError("the other file has no text of this id")
        source["other_sha256"] = sha256_of(other)
    return replace(item, content=(text, other), source=source)


def _row(rater: Rater, item: Item, shared: Row) -> Row:
    """Rate one text, and its other one, and compare them."""
    (text, other), seed = item.content, item.source["seed"]
    row: Row = {"id": item.row_id, "rating": asdict(rater.rate(text, seed))}
    if other is not None:
        row |= {"other_rating": asdict(rater.rate(other, seed)), **rater.compare(text, other, seed)}
    return {**row, **shared, **item.source, "schema": RATING_SCHEMA}


def _print_summary(rows: list[Row], *, compared: bool) -> None:
    """Print the mean of each score with its interval, the share of pairs won, and what could not be read."""
    columns = {"texts": "rating", **({"others": "other_rating"} if compared else {})}
    ratings = {name: [Rating(**row[field]) for row in rows] for name, field in columns.items()}
    means = [mean_scores(ones) for ones in ratings.values()]
    table = Table("", *ratings)
    for name in dict.fromkeys(name for one in means for name in one):
        table.add_row(name, *(with_interval(one.get(name), 2) for one in means))
    for problem in ("refused", "unparsable"):
        table.add_row(problem, *(_counted(ones, problem) for ones in ratings.values()))
    stdout().print(table)
    if compared:
        wins = [row["win"] for row in rows if row["win"] is not None]
        asked = [Preference(**one) for row in rows for one in row["comparisons"]]
        if wins:
            won = with_interval(mean(np.array(wins)), 2)
            stdout().print(f"the text is the better one of its pair: {won}, {len(wins)} pairs, ties .5")
        unread = f"{_counted(asked, 'refused')} refused, {_counted(asked, 'unparsable')} unparsable"
        stdout().print(f"answers about pairs: {len(asked)}, {unread}")
    if not any(means):
        stderr().print("warning: no answer holds scores: look at the raw answers in the file")


def _counted(ones: Iterable[Rating | Preference], problem: str) -> str:
    return str(sum(one.problem == problem for one in ones))
