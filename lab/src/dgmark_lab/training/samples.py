"""Texts of a model after held-out beginnings: at T = 1 and greedy, marked and unmarked, with equal settings and seeds.

Rows go to one JSON Lines file per cell; existing rows are reused.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dgmark.checkpoint.tokenizer import Tokenizer
from dgmark.decode import DecodeConfig
from dgmark.decode.generation import generations
from dgmark.decode.prompts import Prepared, Request
from dgmark.errors import InputError
from dgmark.models.denoiser import CacheMode
from dgmark.models.load import NetworkDenoiser
from dgmark.rows.jsonl import Row
from dgmark.rows.row_file import RowFile
from dgmark.watermark.groups import WatermarkSpec
from dgmark.watermark.key import WatermarkKey
from dgmark_lab.training.corpus import Document

SAMPLING = {"t1": 1.0, "greedy": 0.0}
MARKS = ("unmarked", "marked")


@dataclass(frozen=True)
class Plan:
    """The samples to generate.

    Attributes:
        texts: texts of a cell.
        length: response tokens.
        block_length: positions of a block.
        batch: rows decoded at once.
        cache: see `dgmark.decode.DecodeConfig`.
    """

    texts: int = 20
    length: int = 256
    block_length: int = 32
    batch: int = 4
    cache: CacheMode = "none"


def cells() -> list[str]:
    """List the names of the four cells, "t1-unmarked" first."""
    return [f"{sampling}-{mark}" for sampling in SAMPLING for mark in MARKS]


def evaluation_key(model: NetworkDenoiser) -> WatermarkKey:
    """Make a key for the model from a public phrase: everybody gets the same texts, and it protects nothing."""
    tokenizer = model.tokenizer
    spec = WatermarkSpec(
        table_size=model.vocab_size, tokenizer="evaluated", tokenizer_fingerprint=tokenizer.fingerprint
    )
    secret = hashlib.sha256(b"dgmark training evaluation: not a secret").digest()
    return WatermarkKey(spec=spec, key_id="evaluation", secret=secret)


def held_out_prompts(documents: Sequence[Document], tokenizer: Tokenizer, count: int, tokens: int = 32) -> list[str]:
    """Draw beginnings of paragraphs from one held-out document after another: whole words, about `tokens` tokens.

    Raises:
        InputError: too few paragraphs are long enough.
    """
    rng = np.random.default_rng(0)
    prompts: list[str] = []
    order = rng.permutation(len(documents))
    for attempt in range(8):  # each round draws another paragraph of every document
        for index in order:
            long = [one for one in documents[index].paragraphs if len(one) > 8 * tokens]
            if len(prompts) < count and attempt < len(long):
                paragraph = long[int(rng.integers(len(long)))]
                prompt = tokenizer.decode(tokenizer.encode(paragraph)[:tokens]).rpartition(" ")[0]
                if prompt and prompt not in prompts:
                    prompts.append(prompt)
    if len(prompts) < count:
        raise InputError(f"only {len(prompts)} held-out paragraphs are long enough for {count} prompts; ask for fewer")
    return prompts


def generate_cell(model: NetworkDenoiser, prompts: Sequence[str], cell: str, plan: Plan, path: Path) -> list[Row]:
    """Generate the rows of one cell (prompt, text, token_ids, ended); rows that are in `path` already are reused.

    Raises:
        ResumeMismatch: the file holds rows of another model or other settings.
    """
    sampling, mark = cell.split("-")
    key = evaluation_key(model) if mark == "marked" else None
    config = DecodeConfig(plan.length, plan.block_length, temperature=SAMPLING[sampling], cache=plan.cache)
    agree: dict[str, Any] = {
        "model": model.name,
        "dtype": str(model.dtype).removeprefix("torch."),
        "key_fingerprint": key.fingerprint if key else None,
        "settings": config.to_dict(),
    }
    names = [f"{cell}-{index}" for index in range(len(prompts))]
    with RowFile(path, agree, same=("prompt", "text", "token_ids", "ended")) as file:
        missing = [index for index, name in enumerate(names) if file.done.get(name, {}).get("prompt") != prompts[index]]
        requests = [Request(prompts[index], index, key) for index in missing]
        prepared = Prepared.of(model, requests, config, batch_size=plan.batch)
        for numbers in prepared.chunks():
            indices = missing[numbers.start : numbers.stop]
            results = generations(prepared, numbers)
            rows = [one.to_row(names[index], with_trace=False) for one, index in zip(results, indices, strict=True)]
            file.append(rows)
            file.done.update({row["id"]: row for row in rows})
        return [file.done[name] for name in names]
