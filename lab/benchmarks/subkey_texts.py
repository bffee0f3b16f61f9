"""Make texts of the built-in models under sub-keys of one key, or without a mark, and keep them for other benchmarks.

Each text is made at the model's default settings, with `cache="dual"`; a store is resumed where it stopped.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int

from dgmark.watermark.groups import SECRET_BYTES
from dgmark.watermark.key import WatermarkKey
from dgmark_lab.experiments.prompt_sets import BUILTIN_PROMPTS

BATCH = 32


def public_key(model: str, subkeys: int) -> WatermarkKey:
    """A key from a public seed: it protects nothing. All such keys of a model have one secret.

    The sub-keys of a smaller N are the first of a larger one, so texts of them are texts of both.
    """
    secret = np.random.default_rng([20, 1]).bytes(SECRET_BYTES)
    return replace(WatermarkKey.generate(model, code_length=0, subkeys=subkeys), key_id="forging", secret=secret)


def prompts() -> list[str]:
    """The prompts of the built-in set."""
    return [json.loads(line)["prompt"] for line in BUILTIN_PROMPTS.read_text().splitlines()]


def make_texts(
    store: Path,
    subkeys: Sequence[tuple[int, int | None]],
    length: int,
    *,
    model: str = "storyteller",
    batch: int = BATCH,
) -> None:
    """Make the texts that are missing.

    Args:
        store: the file of texts.
        subkeys: number of each text, which is its seed too, and its sub-key; None for no mark.
        length: tokens of each text.
        model: name of a built-in model.
        batch: texts made at a time.
    """
    import dgmark
    from dgmark.decode import DecodeConfig
    from dgmark.decode.generation import generations
    from dgmark.decode.prompts import Prepared, Request

    loaded, key, prompted, before = dgmark.load_model(model), public_key(model, 65_536), prompts(), stored(store, model)
    config = DecodeConfig.of(loaded, length=length, cache="dual")
    missing = [each for each in subkeys if each[0] not in before]
    store.parent.mkdir(exist_ok=True)
    for begin in range(0, len(missing), batch):
        some = missing[begin : begin + batch]
        requests = [
            Request(prompted[n % len(prompted)], n, None if subkey is None else key.subkey(subkey))
            for n, subkey in some
        ]
        prepared = Prepared.of(loaded, requests, config, pad=True, batch_size=batch)
        with store.open("a") as file:
            for (n, subkey), made in zip(some, generations(prepared, range(len(some))), strict=True):
                file.write(json.dumps({"response": n, "subkey": subkey, "text": made.text}) + "\n")
        print(f"{store.name}: {begin + len(some)} of {len(missing)}", flush=True)


def stored(store: Path, model: str = "storyteller") -> dict[int, Int[np.ndarray, " n"]]:
    """The texts made so far, by number, as token ids read back from them."""
    from dgmark.checkpoint.tokenizer import load_tokenizer

    tokenizer = load_tokenizer(model)
    return {row["response"]: np.array(tokenizer.encode(row["text"])) for row in _rows(store)}


def _rows(store: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in store.read_text().splitlines()] if store.exists() else []
