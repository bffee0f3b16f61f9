"""`python -m dgmark_lab.training.passage_bound`: compare models on the same passages, in nats a character.

The scored part of a passage is cut into blocks, each bounded after all text before it: the bound of decoding block by
block, which for one block is the bound of `dgmark_lab.training.evaluate`. Works with any model that dgmark decodes.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from dgmark.cli.console import command_errors, stderr, stdout
from dgmark.errors import InputError, SettingsError
from dgmark.models.denoiser import Denoiser
from dgmark.models.load import load_model
from dgmark_lab.evaluate.monte_carlo import answer_likelihood
from dgmark_lab.training.corpus import Document, read_documents
from dgmark_lab.training.files import write_json


@dataclass(frozen=True)
class Passage:
    """A context, and the text after it, which is scored; both are whole words."""

    context: str
    text: str


@dataclass(frozen=True)
class CharacterBound:
    """A bound over passages, in nats a character.

    Attributes:
        per_character: nats over characters.
        per_token: the same nats over the model's tokens.
        monte_carlo_error: standard error of `per_character` due to the masks.
        text_error: standard error of `per_character` due to the choice of passages, Monte-Carlo error included.
        passages: number of passages.
        characters: number of scored characters.
        block_length: tokens of a block.
        samples: masked canvases a block.
    """

    per_character: float
    per_token: float
    monte_carlo_error: float
    text_error: float
    passages: int
    characters: int
    block_length: int
    samples: int


def passages_of(documents: Sequence[Document], count: int, given: int, scored: int, seed: int = 0) -> list[Passage]:
    """Draw passages from random places of random documents, in proportion to their length.

    Args:
        documents: the documents to draw from.
        count: number of passages.
        given: approximate number of characters of the context.
        scored: approximate number of scored characters.
        seed: seed of the places.

    Raises:
        InputError: no document is long enough.
    """
    texts = [one.text for one in documents if len(one.text) > 2 * (given + scored)]
    if not texts:
        raise InputError(f"no document has {2 * (given + scored)} characters; give longer ones, or ask for less")
    rng = np.random.default_rng(seed)
    odds = np.array([len(text) for text in texts], np.float64)
    drawn = []
    for _ in range(count):
        text = texts[int(rng.choice(len(texts), p=odds / odds.sum()))]
        start = text.index(" ", int(rng.integers(len(text) - 2 * (given + scored)))) + 1
        middle = text.index(" ", start + given)
        stop = text.index(" ", middle + scored)
        drawn.append(Passage(text[start:middle], text[middle:stop]))
    return drawn


def passage_bound(
    model: Denoiser, passages: Sequence[Passage], *, block_length: int, samples: int, batch_size: int = 16
) -> CharacterBound:
    """Compute the bound of a model on passages, block after block.

    Args:
        model: the model; its context must hold a whole passage.
        passages: the passages to score.
        block_length: tokens of a block.
        samples: masked canvases a block.
        batch_size: canvases of a forward.
    """
    nats, errors, tokens = [], [], 0
    for number, passage in enumerate(passages):
        before, ids = model.tokenizer.encode(passage.context), model.tokenizer.encode(passage.text)
        blocks = [
            answer_likelihood(
                model,
                [*before, *ids[:start]],
                ids[start : start + block_length],
                samples=samples,
                batch_size=batch_size,
                seed=number,
            )
            for start in range(0, len(ids), block_length)
        ]
        nats.append(-sum(one.bound for one in blocks))
        errors.append(sum(one.standard_error**2 for one in blocks))
        tokens += len(ids)
    lengths = np.array([len(one.text) for one in passages], np.float64)
    total, characters = float(np.sum(nats)), int(lengths.sum())
    ratio = total / characters
    spread = np.array(nats) - ratio * lengths  # deviations for the error of a ratio of sums
    count = len(passages)
    return CharacterBound(
        per_character=ratio,
        per_token=total / tokens,
        monte_carlo_error=float(np.sum(errors)) ** 0.5 / characters,
        text_error=float(np.sqrt((spread**2).sum() * count / max(count - 1, 1))) / characters,
        passages=count,
        characters=characters,
        block_length=block_length,
        samples=samples,
    )


@command_errors
def main(
    model: Annotated[list[str], typer.Option(help="NAME:BLOCK, a model and its block length; may be repeated.")],
    data: Annotated[Path, typer.Option(help="Held-out documents (.jsonl, .xz).")],
    out: Annotated[Path, typer.Option(help="JSON file of the results; those in it are not measured again.")],
    only: Annotated[str, typer.Option(help="Only documents whose id begins with this.")] = "",
    passages: Annotated[int, typer.Option(min=2, help="Number of passages.")] = 16,
    given: Annotated[int, typer.Option(min=8, help="Characters of the context.")] = 300,
    scored: Annotated[int, typer.Option(min=8, help="Scored characters.")] = 400,
    samples: Annotated[int, typer.Option(min=2, help="Masked canvases a block.")] = 8,
) -> None:
    """Bound models on the same passages, in nats a character."""
    documents = [one for one in read_documents(data) if one.doc_id.startswith(only)]
    chosen = passages_of(documents, passages, given, scored)
    results = json.loads(out.read_text(encoding="utf-8")) if out.exists() else {}
    for one in model:
        name, _, block = one.rpartition(":")
        if not name or not block.isdigit() or int(block) < 1:
            raise SettingsError(f"--model {one!r} is invalid: give NAME:BLOCK, a model and its block length")
        label = f"{one} {only or 'all'} {passages} {given} {scored} {samples}"
        if label not in results:
            bound = passage_bound(load_model(name), chosen, block_length=int(block), samples=samples)
            results[label] = asdict(bound)
            write_json(out, results)
        stderr().print(f"{label}: {results[label]}", markup=False, soft_wrap=True)
    stdout().print(str(out), markup=False)


if __name__ == "__main__":
    typer.run(main)
