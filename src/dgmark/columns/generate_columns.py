"""`GenerateColumns`: a batch with a column of prompts in, the same batch with the columns of marked texts out."""

import os
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Unpack

from dgmark.arguments.checks import flag, instance
from dgmark.arguments.contents import Content, as_text
from dgmark.columns.batch import open_batch, zipped
from dgmark.columns.key_source import KeySource, check_source, read_keys, refuse_to_travel
from dgmark.columns.row_schema import CHECK_FIELDS, GENERATE_FIELDS, Schema
from dgmark.decode.config import DecodeConfig, DecodeSettings
from dgmark.detection.keyring import named_keys
from dgmark.detection.row_keys import key_named
from dgmark.errors import DgmarkError, SettingsError, each, needed_extra, together
from dgmark.watermark.key import WatermarkKey, check_has_key

if TYPE_CHECKING:
    from dgmark.decode.texts.generation import Generation
    from dgmark.models.denoiser import Denoiser


class GenerateColumns:
    """Writes a marked text for each prompt of a column: a callable from a batch to a batch, as `DetectColumns` is.

    The seed and the sub-key of a row follow from its id and the seed alone, so that a task that is tried again, batches
    of another size and rows in another order give the same texts. A row that cannot be written gets nulls and its
    `error`. The model and the key are loaded once a process, at the first call.

    Args:
        model: the name or folder of a model, or a loaded one, for use in this process alone.
        key: where the key is, see `DetectColumns`; None for texts without a mark.
        column: the column of the prompts: texts, or lists of token ids.
        id_column: the column of the rows' ids: texts or whole numbers, each row its own.
        key_column: a column that names the key of each row, see `DetectColumns`.
        seed: the seed that ids are hashed with.
        prefix: what the names of the added columns begin with.
        batch_size: largest number of rows decoded at once.
        chat: put each prompt into the model's chat template.
        pad: see `generate`.
        check: look for the mark in each text, see `generate`: the columns `verdict` and `p_value` say what was found.
        device: device of the model, see `load_model`.
        dtype: number format of the model, see `load_model`.
        allow_open_key: accept a key file that every user of the machine can read.
        settings: decoding settings, the fields of `DecodeConfig`.

    Attributes:
        schema: the added columns and their types, as a schema of pyarrow if that is installed, else by name.

    Raises:
        SettingsError: there is no column of ids, an argument is invalid, or there is no key to check with.
    """

    schema, fields, prefix = Schema(), GENERATE_FIELDS, ""

    def __init__(
        self,
        model: "str | os.PathLike[str] | Denoiser",
        key: KeySource | None,
        column: str = "prompt",
        *,
        id_column: str | None = None,
        key_column: str | None = None,
        seed: int = 0,
        prefix: str = "",
        batch_size: int = 8,
        chat: bool = False,
        pad: bool | None = None,
        check: bool = False,
        device: str | None = None,
        dtype: str | None = None,
        allow_open_key: bool = False,
        **settings: Unpack[DecodeSettings],
    ) -> None:
        if id_column is None:
            raise SettingsError(
                "there is no column of ids: name one as id_column, because the seed and the sub-key of a row follow "
                "from its id. By its place in a batch, a task that is tried again would write other texts, and each "
                "batch would begin with the same seeds"
            )
        unknown = settings.keys() - DecodeConfig.__dataclass_fields__.keys()
        if unknown:
            DecodeConfig(**settings)  # which names the settings that there are
        self.column, self.id_column = instance("the column", column, str), instance("the column of ids", id_column, str)
        self.key_column = None if key_column is None else instance("the column of keys", key_column, str)
        self.prefix = instance("the prefix", prefix, str)
        self._model: Any = str(model) if isinstance(model, Path) else model
        self._key = None if key is None else check_source(key)
        if flag("check", check):
            check_has_key(key)
            self.fields = {**GENERATE_FIELDS, **CHECK_FIELDS}
        self._loading = {name: value for name, value in (("device", device), ("dtype", dtype)) if value is not None}
        self._allow_open = flag("allow_open_key", allow_open_key)
        # arguments of `generate`
        self._given: Any = {"seed": seed, "batch_size": batch_size, "chat": flag("chat", chat), "pad": pad}
        self._given |= {"check": check, **settings}

    @property
    def model(self) -> "Denoiser":
        """The model, loaded at its first use in a process.

        Raises:
            ModelError: it cannot be loaded here.
        """
        return _model(self._model, **self._loading) if isinstance(self._model, str) else self._model

    @property
    def key(self) -> WatermarkKey | None:
        """The key, read at its first use in a process.

        Raises:
            KeyFileError: it cannot be read here.
            SettingsError: a folder of keys is given.
        """
        return None if self._key is None else _key(self._key, self._allow_open)

    def __call__(self, batch: Any) -> Any:
        """The batch with the added columns.

        Warns:
            MarkWarning: once a batch, see `generate`.

        Raises:
            InputError: it has no such column, one of another type, or one of the added columns already.
            SettingsError: it is not a batch, or a setting is invalid or leaves no mark.
            KeyFileError: the key is bound to another tokenizer or vocabulary.
        """
        rows = open_batch(batch, self.fields, self.prefix)
        prompts, ids = rows.contents(self.column), rows.ids(self.id_column)
        if self.key_column is None:
            keys: list[Any] = [self.key] * len(ids)
        else:
            named = _keys(str(self._key), self._allow_open)
            keys = each(lambda name: key_named(named, as_text(name)), rows.column(self.key_column))
        texts = each(_values, together(self._written, zipped(keys, ids, prompts)))
        return rows.with_results(texts, self.fields, self.prefix)

    def _written(self, rows: "list[tuple[WatermarkKey | None, str, Content]]") -> "list[Generation | DgmarkError]":
        with needed_extra("generate", "generating"):
            from dgmark.decode.texts.generation import generate

        keys, ids, prompts = zip(*rows, strict=True) if rows else ((), (), ())
        return generate(self.model, prompts, key=keys, ids=ids, errors="return", **self._given)

    def __getstate__(self) -> dict[str, Any]:
        """What travels to other processes: no key, and no model.

        Raises:
            SettingsError: this holds a key or a model.
        """
        refuse_to_travel(self._key, self._model)
        return self.__dict__.copy()


def _values(text: "Generation") -> SimpleNamespace:
    """The fields of a text and of its check."""
    return SimpleNamespace(**vars(text), **({} if text.check is None else vars(text.check)))


@lru_cache(maxsize=2)
def _model(name: str, **loading: Any) -> "Denoiser":
    """The model of a name, loaded once a process."""
    with needed_extra("generate", "generating"):
        from dgmark.models.load import load_model

    return load_model(name, **loading)


@lru_cache(maxsize=8)
def _key(source: str | WatermarkKey, allow_open: bool) -> WatermarkKey:
    """The key of a source, read once a process."""
    if isinstance(source, str) and os.path.isdir(source):
        raise SettingsError(f"{source} is a folder, and texts are marked with one key: give the file of a key")
    (key,) = read_keys(source, allow_open=allow_open)
    return key


@lru_cache(maxsize=8)
def _keys(folder: str, allow_open: bool) -> dict[str, WatermarkKey]:
    """The keys of a folder, read once a process."""
    return named_keys(folder, allow_open=allow_open)
