"""The quality of trained models: their bound on the same held-out documents (cross entropy of autoregressive ones)."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from dgmark.checkpoint.tokenizer import load_tokenizer
from dgmark_lab.training.corpus import file_hash, read_documents
from dgmark_lab.training.networks import load_network
from dgmark_lab.training.objective import held_out_bound, held_out_rows

SCHEMA = 1
THIS = "this model"


def evaluate(
    model: str, data: Path, *, against: Sequence[str], rows: int, length: int, device: torch.device
) -> dict[str, Any]:
    """Compute the bounds of models on held-out documents, as plain JSON values.

    Args:
        model: a built-in model's name, or a model folder.
        data: the documents.
        against: other models to measure.
        rows: held-out rows.
        length: tokens of a row.
        device: where to compute.

    Raises:
        ModelError: a model does not exist.
        InputError: no document is as long as a row.
    """
    documents = list(read_documents(data))
    models = {THIS: model, **{Path(other).name: other for other in against}}
    bounds = {}
    for name, folder in models.items():
        network, tokenizer = load_network(folder), load_tokenizer(folder)
        network.module.to(device).train(False)
        held_out = held_out_rows(documents, tokenizer, length, rows)
        bounds[name] = asdict(held_out_bound(network, held_out))
    return {"heldout_sha256": file_hash(data), "bounds": bounds, "schema": SCHEMA}
