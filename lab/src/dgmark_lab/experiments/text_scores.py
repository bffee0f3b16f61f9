"""Scores of stored texts, each computed once: perplexity under the judge, and ratings by a language model."""

from collections.abc import Sequence
from typing import Any

from dgmark.checkpoint.folder import builtin_folder, find_checkpoint
from dgmark.rows.jsonl import Row
from dgmark_lab.endpoint import Endpoint
from dgmark_lab.evaluate.judge import BUILTIN_JUDGE, Judge
from dgmark_lab.evaluate.likelihood import score_texts
from dgmark_lab.evaluate.ratings import PROMPT, Rating, rate_texts
from dgmark_lab.experiments.recipe import ROW_VERSION, checkpoint_hash, digest, versions
from dgmark_lab.experiments.store import Store

_AT_ONCE = 16


def judge_identity(judge: Judge, quantization: str | None = None) -> dict[str, Any]:
    """Return name, weights and number format of a judge, and their hash, which names the file of its scores."""
    name = judge.name
    folder = builtin_folder("judge") if name == BUILTIN_JUDGE else find_checkpoint(name).folder
    known = {"weights": checkpoint_hash(folder), "dtype": judge.dtype, "quantization": quantization}
    return {"name": name, **known, "hash": digest([known, ROW_VERSION])}


def make_perplexities(store: Store, judge: Judge, identity: dict[str, Any], rows: Sequence[Row]) -> None:
    """Compute the perplexity, after its prompt, of each text that has none yet."""
    with store.open("perplexity", identity["hash"], {"judge": identity["hash"]}) as file:
        todo = [row for row in rows if row["id"] not in file.done]
        for start in range(0, len(todo), _AT_ONCE):
            batch = todo[start : start + _AT_ONCE]
            scored = score_texts(judge, [row["text"] for row in batch], [row["prompt"] for row in batch])
            file.append(
                {
                    "id": row["id"],
                    "judge": identity["hash"],
                    "judge_name": identity["name"],
                    "nats": one.nats,
                    "tokens": one.tokens,
                    "versions": versions(),
                    "schema": ROW_VERSION,
                }
                for row, one in zip(batch, scored, strict=True)
            )


def rater_hash(endpoint: Endpoint) -> str:
    """Hash everything that determines a rater's question; the hash names the file of its ratings."""
    return digest([endpoint.model, endpoint.base_url, endpoint.temperature, PROMPT, ROW_VERSION])


def make_ratings(store: Store, endpoint: Endpoint, rows: Sequence[Row]) -> int:
    """Have the texts without a rating rated, and return how many texts have one now. A next run asks about the rest.

    Raises:
        EndpointError: no text of a batch could be rated.
        MissingExtra: the openai package is not installed.
    """
    name = rater_hash(endpoint)
    with store.open("judged", name, {"rater": name}) as file:
        todo = [row for row in rows if row["id"] not in file.done]
        rated = len(rows) - len(todo)
        for start in range(0, len(todo), _AT_ONCE):
            batch = todo[start : start + _AT_ONCE]
            results = rate_texts([row["text"] for row in batch], endpoint).texts
            new = [
                _rating_row(row, one.rating, name, endpoint)
                for row, one in zip(batch, results, strict=True)
                if one.rating
            ]
            file.append(new)
            rated += len(new)
    return rated


def _rating_row(row: Row, rating: Rating, name: str, endpoint: Endpoint) -> Row:
    return {
        "id": row["id"],
        "rater": name,
        "model": endpoint.model,
        "scores": rating.model_dump(),
        "versions": versions(),
        "schema": ROW_VERSION,
    }
