"""`python -m dgmark_lab.training.prepare`: tokenise documents into shards, as training does by itself."""

from pathlib import Path
from typing import Annotated

import typer

from dgmark.cli.console import command_errors, stderr
from dgmark_lab.training.shards import Shards, prepare_shards
from dgmark_lab.training.tokens import training_tokenizer

NEW = "new"


def prepare(data: Path, folder: Path, tokenizer: str, vocab_size: int) -> Shards:
    """Make token shards of a data file; `tokenizer` is a model's name, a folder, or "new".

    Raises:
        InputError: the data is unusable.
        ModelError: the tokenizer does not exist.
    """
    known = None if tokenizer == NEW else training_tokenizer(tokenizer)
    shards = prepare_shards(data, folder, tokenizer=known, vocab_size=vocab_size)
    counts = shards.manifest
    stderr().print(
        f"{folder}: {counts['documents']:,} documents, {counts['tokens']:,} tokens, "
        f"{counts['characters'] / max(counts['tokens'], 1):.2f} characters a token",
        markup=False,
    )
    return shards


@command_errors
def main(
    data: Annotated[Path, typer.Option(help='JSON Lines (.jsonl, .xz, .gz) of {"id", "paragraphs"}.')],
    out: Annotated[Path, typer.Option(help="Folder of token shards.")],
    tokenizer: Annotated[str, typer.Option(help="Model name, folder, or: new.")] = "storyteller",
    vocab_size: Annotated[int, typer.Option(min=300, max=65_536, help="Size of a new tokenizer.")] = 8192,
) -> None:
    """Tokenise documents into shards."""
    prepare(data, out, tokenizer, vocab_size)


if __name__ == "__main__":
    typer.run(main)
