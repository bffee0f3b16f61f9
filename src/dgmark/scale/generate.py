"""`generate_files`: generate a text for each prompt of many files on a Ray cluster into a folder."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as arrow

from dgmark.checkpoint.folder import BUILTIN
from dgmark.detection.detect_files import Tally
from dgmark.errors import DgmarkError
from dgmark.rows.jsonl import BadRow, Row
from dgmark.rows.texts import Item, prompt_of
from dgmark.scale.folder import Work, run_files
from dgmark.scale.source import Reading
from dgmark.watermark.key import WatermarkKey, check_key

if TYPE_CHECKING:
    from dgmark.models.denoiser import Denoiser

_TEXTS = ("id", "prompt", "text", "model", "dtype", "key_fingerprint", "settings")
# those of the rows of `dgmark generate --out` without the trace; `settings` are JSON
COLUMNS = {
    **dict.fromkeys(_TEXTS, arrow.string()),
    **dict.fromkeys(("prompt_ids", "token_ids"), arrow.list_(arrow.int64())),
    **dict.fromkeys(("seed", "subkey", "schema"), arrow.int64()),
    **dict.fromkeys(("chat", "ended"), arrow.bool_()),
}


@dataclass
class _Writer:
    """Writes texts with one model; the item in place i of a file has the seed `seed + i`."""

    key: WatermarkKey | None
    subkey: int | None
    seed: int
    loading: Mapping[str, Any]
    settings: Any
    options: dict[str, Any]

    @cached_property
    def _model(self) -> "Denoiser":
        # at the first batch: Ray tells why a batch failed, but not why a process did not start
        from dgmark.models.load import load_model

        return load_model(**self.loading)

    def __call__(self, items: list[Item | BadRow], places: list[int]) -> list[Row]:
        from dgmark.decode.generation import generations_or_errors
        from dgmark.decode.prompts import Prepared, Request, key_of_text

        requests = [
            Request(one.content, self.seed + place, key_of_text(self.key, self.subkey))
            for one, place in zip(items, places, strict=True)
            if isinstance(one, Item)
        ]
        made: list[Any] = []
        if requests:
            prepared = Prepared.of(
                self._model, requests, self.settings, batch_size=len(requests), strict=False, **self.options
            )
            made = generations_or_errors(prepared, range(len(requests)))
        texts = iter(made)
        return [_row_of(one.row_id, next(texts) if isinstance(one, Item) else one) for one in items]


def _row_of(row_id: str, made: Any) -> Row:
    if isinstance(made, BadRow | DgmarkError):
        return {"id": row_id, "error": made.error if isinstance(made, BadRow) else str(made)}
    row: Row = made.to_row(row_id, with_trace=False)
    prompt = row.pop("prompt")
    row["prompt" if isinstance(prompt, str) else "prompt_ids"] = prompt
    return {**row, "settings": json.dumps(row["settings"], sort_keys=True)}


def generate_files(
    key: WatermarkKey | None,
    inputs: str | Iterable[str],
    out: str,
    *,
    address: str = "local",
    loading: Mapping[str, Any] | None = None,
    subkey: int | None = None,
    seed: int = 0,
    chat: bool = False,
    pad: bool | None = None,
    workers: int | None = None,
    batch_size: int = 8,
    **settings: Any,
) -> Tally:
    """Generate a text for each prompt of files into a folder.

    A second run with the same settings makes the rows that are missing: after a crash, and of files that were added.
    The row in place i of a file has `seed + i`. The key is an object in Ray's store: it stands in no log and in no
    name of a task.

    Args:
        key: the key to mark with; None for text without a mark.
        inputs: .jsonl and .parquet files with columns `id` and `prompt`, see `run_files`.
        out: the folder to write, see `run_files`.
        address: "local", "auto", or the address of a Ray cluster, see `cluster`.
        loading: arguments of `load_model`; the built-in model by default.
        subkey: the sub-key to mark all rows with; by default the system draws one for each row.
        seed: seed of the first row of each file.
        chat: put each prompt into the model's chat template.
        pad: decode prompts of different lengths together, padded; by default on accelerators, if the model can.
        workers: number of processes, each with a model, and with a GPU if the cluster has any; by default as many as
            the cluster has room for.
        batch_size: rows decoded together.
        settings: those of `DecodeConfig`.

    Returns:
        The counts of all rows of the folder, including those of earlier runs; `verdicts` counts them by model.

    Raises:
        SettingsError: a setting is invalid, an input is of another kind, or no cluster answers.
        InputError: an input does not exist, the folder cannot be written, or another run is writing it.
        ResumeMismatch: the folder holds another run.
    """
    from dgmark.decode.prompts import key_of_text

    loading = {"name_or_path": BUILTIN, **(loading or {})}
    check_key(key, or_none=True)
    key_of_text(key, subkey)  # an error of the run, not of each row
    reading = Reading(
        run={
            "command": "generate",
            "key_fingerprint": None if key is None else key.fingerprint,
            "model": loading,
            "settings": json.loads(json.dumps(settings, sort_keys=True)),
            "seed": seed,
            "chat": chat,
            "subkey": subkey,
        },
        item_of=_prompt_of,
        column="prompt",
    )
    work = Work(
        reading,
        rows_of=_Writer(key, subkey, seed, loading, settings, {"chat": chat, "pad": pad}),
        columns=COLUMNS,
        counted="model",
        batch_size=batch_size,
        block_bytes=2**13,  # some dozen prompts
        file_rows=64,
        on_gpu=True,
    )
    return run_files(work, inputs, out, address, workers)


def _prompt_of(row: Row | BadRow) -> Item | BadRow:
    if isinstance(row, BadRow):
        return row
    prompt = prompt_of(row)
    return prompt if isinstance(prompt, BadRow) else Item(row["id"], prompt)
