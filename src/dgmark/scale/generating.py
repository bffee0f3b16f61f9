"""Generation over Ray datasets: `generate` for a dataset, `generate_files` for files into a folder."""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import pyarrow as arrow
import ray
from ray.data import Dataset

from dgmark.detection.many import Tally
from dgmark.errors import DgmarkError, SettingsError
from dgmark.rows.jsonl import BadRow, Row
from dgmark.rows.texts import MAX_CHARS, Item, prompt_of
from dgmark.scale.folder import DONE, ERROR, KIND, ROW, gpus_of_cluster, workers_of
from dgmark.scale.running import Files, Kind, run_files
from dgmark.scale.source import from_dataset
from dgmark.watermark.key import WatermarkKey, check_key

if TYPE_CHECKING:
    from dgmark.decode.config import Settings
    from dgmark.models.denoiser import Denoiser

# some dozen prompts for a worker at a time, and rows for a file
BLOCK_BYTES, FILE_ROWS = 2**13, 64
_IDS = arrow.list_(arrow.int64())
# those of the rows of `dgmark generate --out` without the trace; `settings` are JSON
COLUMNS = arrow.schema(
    {
        ROW: arrow.string(),
        "id": arrow.string(),
        KIND: arrow.string(),
        ERROR: arrow.string(),
        "prompt": arrow.string(),
        "prompt_ids": _IDS,
        "chat": arrow.bool_(),
        "text": arrow.string(),
        "token_ids": _IDS,
        "ended": arrow.bool_(),
        "model": arrow.string(),
        "dtype": arrow.string(),
        "seed": arrow.int64(),
        "key_fingerprint": arrow.string(),
        "subkey": arrow.int64(),
        "settings": arrow.string(),
        "schema": arrow.int64(),
    }
)


class Generate:
    """Makes texts in one process of the cluster, with one model. Its name is what Ray's bars and logs show."""

    def __init__(
        self,
        key: "ray.ObjectRef[WatermarkKey | None]",
        loading: Mapping[str, Any],
        settings: Mapping[str, Any],
        *,
        seed: int,
        chat: bool,
        pad: bool | None,
        subkey: int | None,
        column: str,
    ) -> None:
        """Fetch the key from Ray's store of objects."""
        self._key: WatermarkKey | None = ray.get(key)
        self._loading, self._settings = dict(loading), cast("Settings", dict(settings))
        self._seed, self._chat, self._pad = seed, chat, pad
        self._subkey, self._column = subkey, column

    @cached_property
    def _model(self) -> "Denoiser":
        # at the first batch: Ray tells why a batch failed, but not why a process did not start
        from dgmark.models.load import load_model

        return load_model(**self._loading)

    def __call__(self, batch: arrow.Table) -> arrow.Table:
        """Make a text for each row of a table."""
        rows = batch.to_pylist()
        prompts = [from_dataset(row, self._column) for row in rows]
        good = [(row, prompt) for row, prompt in zip(rows, prompts, strict=True) if isinstance(prompt, Item)]
        made = iter(self._made(good))
        return arrow.Table.from_pylist(
            [
                self._row(row, prompt.error if isinstance(prompt, BadRow) else next(made))
                for row, prompt in zip(rows, prompts, strict=True)
            ],
            schema=COLUMNS,
        )

    def _made(self, prompts: list[tuple[Row, Item]]) -> list[Any]:
        from dgmark.decode.generation import generations_or_errors
        from dgmark.decode.prompts import Prepared, Request, key_of_text

        requests = [
            Request(prompt.content, self._seed_of(row), key_of_text(self._key, self._subkey)) for row, prompt in prompts
        ]
        if not requests:
            return []
        prepared = Prepared.of(
            self._model,
            requests,
            self._settings,
            chat=self._chat,
            pad=self._pad,
            batch_size=len(requests),
            strict=False,
        )
        return generations_or_errors(prepared, range(len(requests)))

    def _seed_of(self, row: Row) -> int:
        if row.get("seed") is not None:
            return int(row["seed"])
        if row.get("place") is not None:
            return self._seed + int(row["place"])
        told = hashlib.sha256(str(row["id"]).encode("utf-8", "surrogatepass")).digest()
        return self._seed + int.from_bytes(told[:4], "big")

    @staticmethod
    def _row(source: Row, made: Any) -> Row:
        if isinstance(made, str | DgmarkError):
            return {ROW: source.get(ROW), "id": str(source.get("id") or ""), KIND: ERROR, ERROR: str(made)}
        row = made.to_row(str(source["id"]), with_trace=False)
        prompt = row.pop("prompt")
        field = "prompt" if isinstance(prompt, str) else "prompt_ids"
        return {
            **row,
            ROW: source.get(ROW),
            KIND: DONE,
            field: prompt,
            "settings": json.dumps(row["settings"], sort_keys=True),
        }


def generate(
    dataset: Dataset,
    key: WatermarkKey | None,
    *,
    loading: Mapping[str, Any] | None = None,
    subkey: int | None = None,
    seed: int = 0,
    chat: bool = False,
    pad: bool | None = None,
    workers: int | None = None,
    gpus: float | None = None,
    batch_size: int = 8,
    **settings: Any,
) -> Dataset:
    """Generate a text for each prompt of a dataset.

    The key is an object in Ray's store: it stands in no log and in no name of a task.

    Args:
        dataset: rows with `id`, and `prompt` (a text) or `token_ids`. A row's `seed` is its own; without one it is
            `seed` plus a number that its id gives.
        key: the key to mark with; None for text without a mark.
        loading: arguments of `load_model`; the built-in model by default.
        subkey: the sub-key to mark all rows with; by default the system draws one for each row.
        seed: see `dataset`.
        chat: put each prompt into the model's chat template.
        pad: decode prompts of different lengths together, padded; by default on accelerators, if the model can.
        workers: number of processes, each with a model; by default as many as the cluster has processors for.
        gpus: GPUs of each process; by default one if the cluster has any.
        batch_size: rows decoded together.
        settings: those of `DecodeConfig`.

    Returns:
        A row for each row, see `COLUMNS`; one that cannot be decoded has `kind` "error" and an `error`. It is lazy:
        Ray makes what is read or written of it.

    Raises:
        SettingsError: the key is none, or has no such sub-key.
    """
    work = _work(key, loading, settings, seed=seed, chat=chat, pad=pad, subkey=subkey, column="prompt")
    return _generate(dataset, work, workers, gpus, batch_size)


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
    gpus: float | None = None,
    batch_size: int = 8,
    on_resume: Callable[[int], object] | None = None,
    **settings: Any,
) -> Tally:
    """Generate a text for each prompt of files into a folder, as `dgmark generate --ray` does.

    A second run with the same settings makes the rows that are missing: after a crash, and of files that were added.
    The row in place i of a file has `seed + i`.

    Args:
        key: the key to mark with; None for text without a mark.
        inputs: .jsonl and .parquet files with columns `id` and `prompt`, and folders of these: paths that all nodes
            see, or addresses such as `s3://bucket/folder`.
        out: the folder to write, a path or an address; see `dgmark.scale.folder`.
        address: "local" for this machine alone, "auto", or the address of a Ray cluster. Where Ray is connected
            already, that cluster is used.
        loading: arguments of `load_model`; the built-in model by default.
        subkey: the sub-key to mark all rows with; by default the system draws one for each row.
        seed: seed of the first row of each file.
        chat: put each prompt into the model's chat template.
        pad: decode prompts of different lengths together, padded; by default on accelerators, if the model can.
        workers: number of processes, each with a model; by default as many as the cluster has processors for.
        gpus: GPUs of each process; by default one if the cluster has any.
        batch_size: rows decoded together.
        on_resume: called with the number of rows that the folder holds, before any text is made.
        settings: those of `DecodeConfig`.

    Returns:
        The counts of all rows of the folder, including those of earlier runs; `verdicts` counts them by model.

    Raises:
        SettingsError: a setting is invalid, an input is of another kind, or no cluster answers.
        InputError: an input does not exist, or the folder cannot be written.
        ResumeMismatch: the folder holds another run.
        InputError: another run is writing the folder.
    """
    work = _work(key, loading, settings, seed=seed, chat=chat, pad=pad, subkey=subkey, column="text")
    run = {
        "command": "generate",
        "key_fingerprint": None if key is None else key.fingerprint,
        "model": dict(loading or {}),
        "settings": json.loads(json.dumps(settings, sort_keys=True)),
        **{name: work[name] for name in ("seed", "chat", "subkey")},
    }
    return run_files(
        Files(inputs, out, address, on_resume),
        Kind(_prompt_of, "prompt", MAX_CHARS, "model", BLOCK_BYTES, FILE_ROWS),
        run,
        hashlib.sha256(json.dumps(run, sort_keys=True).encode()).hexdigest()[:16],
        lambda prompts: _generate(prompts, work, workers, gpus, batch_size),
    )


def _prompt_of(row: Row | BadRow) -> Item | BadRow:
    if isinstance(row, BadRow):
        return row
    prompt = prompt_of(row)
    return prompt if isinstance(prompt, BadRow) else Item(row["id"], prompt)


def _work(
    key: WatermarkKey | None, loading: Mapping[str, Any] | None, settings: Mapping[str, Any], **more: Any
) -> dict[str, Any]:
    check_key(key, or_none=True)
    if more["subkey"] is not None:
        if key is None:
            raise SettingsError("a text without a mark has no sub-key: give a key, or leave the sub-key out")
        key.for_text(more["subkey"])
    return {"key": key, "loading": dict(loading or {}), "settings": dict(settings), **more}


def _generate(
    dataset: Dataset, work: Mapping[str, Any], workers: int | None, gpus: float | None, batch_size: int
) -> Dataset:
    gpus = gpus_of_cluster() if gpus is None else gpus
    return dataset.map_batches(
        Generate,
        fn_constructor_kwargs={**work, "key": ray.put(work["key"])},
        batch_size=batch_size,
        batch_format="pyarrow",
        compute=workers_of(workers, gpus),
        num_gpus=gpus,
    )
