"""`generate_files`: generate a text for each prompt of many files on a Ray cluster into a folder."""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import pyarrow as arrow
import ray
from ray.data import Dataset

from dgmark.checkpoint.folder import BUILTIN
from dgmark.detection.detect_files import Tally
from dgmark.errors import DgmarkError
from dgmark.rows.jsonl import BadRow, Row
from dgmark.rows.texts import MAX_CHARS, Item, prompt_of
from dgmark.scale.cluster import workers_of
from dgmark.scale.folder import ERROR, KIND, ROW, labels, run_files
from dgmark.scale.source import item_in, tables_of
from dgmark.watermark.key import WatermarkKey, check_key

if TYPE_CHECKING:
    from dgmark.models.denoiser import Denoiser

# some dozen prompts for a worker at a time, and rows for a file
BLOCK_BYTES, FILE_ROWS = 2**13, 64
_TEXTS = (ROW, "id", KIND, ERROR, "prompt", "text", "model", "dtype", "key_fingerprint", "settings")
# those of the rows of `dgmark generate --out` without the trace; `settings` are JSON
COLUMNS = arrow.schema(
    dict.fromkeys(_TEXTS, arrow.string())
    | dict.fromkeys(("prompt_ids", "token_ids"), arrow.list_(arrow.int64()))
    | dict.fromkeys(("seed", "subkey", "schema"), arrow.int64())
    | dict.fromkeys(("chat", "ended"), arrow.bool_())
)


class Generate:
    """Makes texts in one process of the cluster, with one model. Its name is what Ray's bars and logs show."""

    def __init__(
        self,
        key: "ray.ObjectRef[WatermarkKey | None]",
        subkey: int | None,
        seed: int,
        loading: Mapping[str, Any],
        settings: Mapping[str, Any],
        **options: Any,
    ) -> None:
        self._key: WatermarkKey | None = ray.get(key)
        self._subkey, self._seed, self._loading = subkey, seed, loading
        self._settings: Any = dict(settings)
        self._options = options

    @cached_property
    def _model(self) -> "Denoiser":
        # at the first batch: Ray tells why a batch failed, but not why a process did not start
        from dgmark.models.load import load_model

        return load_model(**self._loading)

    def __call__(self, batch: arrow.Table) -> arrow.Table:
        """Make a text for each row of a table; the row in place i of a file has the seed `seed + i`."""
        rows = batch.to_pylist()
        prompts = [item_in(row) for row in rows]
        good = [
            (one, self._seed + row["place"]) for one, row in zip(prompts, rows, strict=True) if isinstance(one, Item)
        ]
        made = iter(self._made([(one.content, seed) for one, seed in good]))
        results = [prompt if isinstance(prompt, BadRow) else next(made) for prompt in prompts]
        return arrow.Table.from_pylist(list(map(_row, rows, results)), schema=COLUMNS)

    def _made(self, prompts: list[tuple[Any, int]]) -> list[Any]:
        from dgmark.decode.generation import generations_or_errors
        from dgmark.decode.prompts import Prepared, Request, key_of_text

        if not prompts:
            return []
        requests = [Request(prompt, seed, key_of_text(self._key, self._subkey)) for prompt, seed in prompts]
        prepared = Prepared.of(
            self._model, requests, self._settings, batch_size=len(requests), strict=False, **self._options
        )
        return generations_or_errors(prepared, range(len(requests)))


def _row(source: Row, made: Any) -> Row:
    if isinstance(made, BadRow | DgmarkError):
        error = made.error if isinstance(made, BadRow) else str(made)
        return {**labels(source, error=True), "id": source["id"], ERROR: error}
    row = made.to_row(source["id"], with_trace=False)
    prompt = row.pop("prompt")
    row["prompt" if isinstance(prompt, str) else "prompt_ids"] = prompt
    return {**row, **labels(source, error=False), "settings": json.dumps(row["settings"], sort_keys=True)}


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
    on_resume: Callable[[int], object] | None = None,
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
        on_resume: called with the number of rows that the folder holds, before any text is made.
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
    run = {
        "command": "generate",
        "key_fingerprint": None if key is None else key.fingerprint,
        "model": loading,
        "settings": json.loads(json.dumps(settings, sort_keys=True)),
        "seed": seed,
        "chat": chat,
        "subkey": subkey,
    }

    def work(prompts: Dataset) -> Dataset:
        return prompts.map_batches(
            Generate,
            fn_constructor_args=(ray.put(key), subkey, seed, loading, settings),
            fn_constructor_kwargs={"chat": chat, "pad": pad},
            batch_size=batch_size,
            batch_format="pyarrow",
            **workers_of(workers, on_gpu=True),
        )

    digest = hashlib.sha256(json.dumps(run, sort_keys=True).encode()).hexdigest()[:16]
    return run_files(
        inputs,
        out,
        work,
        partial(tables_of, item=_prompt_of, settings=digest, column="prompt", max_chars=MAX_CHARS),
        run,
        address=address,
        counted="model",
        block_bytes=BLOCK_BYTES,
        file_rows=FILE_ROWS,
        on_resume=on_resume,
    )


def _prompt_of(row: Row | BadRow) -> Item | BadRow:
    if isinstance(row, BadRow):
        return row
    prompt = prompt_of(row)
    return prompt if isinstance(prompt, BadRow) else Item(row["id"], prompt)
