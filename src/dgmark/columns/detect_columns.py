"""`DetectColumns`: a batch with a column of texts in, the same batch with the columns of a verdict out. No torch."""

import os
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, TypedDict, Unpack

from dgmark.arguments.checks import flag, instance
from dgmark.arguments.contents import as_text
from dgmark.checkpoint.tokenizer import Tokenizer
from dgmark.columns.batch import open_batch, zipped
from dgmark.columns.key_source import KeySource, check_source, read_keys, refuse_to_travel
from dgmark.columns.row_schema import Schema
from dgmark.detection.detector import DEFAULT_FPR, Detector, check_fpr
from dgmark.detection.keyring import Keyring, named_keys
from dgmark.detection.reading.surprisal import SurprisalModel
from dgmark.detection.results.detection import DETECT_FIELDS, SPAN_FIELDS
from dgmark.detection.results.figures import Phase
from dgmark.detection.row_keys import AnyScorer, RowKeys
from dgmark.detection.statistics.rules import check_weighs, options_for
from dgmark.errors import KeyFileError, SettingsError, each, together
from dgmark.rows.item import Item
from dgmark.rows.scoring import ScoringOptions, score
from dgmark.watermark.key import WatermarkKey


class ColumnSettings(TypedDict, total=False):
    """The other settings of `Detector`, for type checkers."""

    fpr: float
    phase: Phase
    max_crop: int
    normalise: Sequence[str]
    keys_tested: int


class DetectColumns:
    """Scores the texts of a column: a callable from a batch to a batch, for Ray Data, Spark, datasets, pandas, polars.

    It returns what it is given, a dict of arrays or lists, a DataFrame of pandas or polars, or a Table or RecordBatch
    of pyarrow, with the columns of `schema` added. A row without a usable text gets nulls and its `error`. The key and
    the tokenizer are read once a process, at the first call, so that no job carries a secret.

    Args:
        key: the path of a key file, or of a folder of them; "env:NAME" for an environment variable that holds the
            content of a key file; or a `WatermarkKey`, for use in this process alone.
        column: the column of the texts, or of lists of token ids.
        id_column: a column of ids, of which each row must have its own.
        key_column: a column that names the key of each row, of a folder of keys: the file's name without `.json`, or
            the key's fingerprint. Each text is tested with this key alone.
        tokenizer: see `Detector`; only a path travels to other processes.
        surprisal_model: see `Detector`; only a name travels to other processes.
        payload: state the sub-key found, which is the payload of the text; else its column holds nulls.
        spans: add columns of the spans that carry the mark and of the share of the text that they cover.
        prefix: what the names of the added columns begin with.
        allow_open_key: accept a key file that every user of the machine can read.
        settings: other settings of `Detector`, or of `Keyring` for a folder of keys.

    Attributes:
        schema: the added columns and their types, as a schema of pyarrow if that is installed, else by name.

    Raises:
        SettingsError: an argument is of a wrong type, `key` is neither a path, a variable nor a key, there is no such
            setting, or one is invalid, for the key if it can be read here.
    """

    schema, fields, prefix = Schema(), DETECT_FIELDS, ""

    def __init__(
        self,
        key: KeySource,
        column: str = "text",
        *,
        id_column: str | None = None,
        key_column: str | None = None,
        tokenizer: Tokenizer | str | os.PathLike[str] | None = None,
        surprisal_model: SurprisalModel | str | None = None,
        payload: bool = True,
        spans: bool = False,
        prefix: str = "",
        allow_open_key: bool = False,
        **settings: Unpack[ColumnSettings],
    ) -> None:
        self.column = instance("the column", column, str)
        self.id_column = None if id_column is None else instance("the column of ids", id_column, str)
        self.key_column = None if key_column is None else instance("the column of keys", key_column, str)
        self.prefix, self.payload = instance("the prefix", prefix, str), flag("payload", payload)
        self.fields = {**DETECT_FIELDS, **(SPAN_FIELDS if flag("spans", spans) else {})}
        self._scoring = ScoringOptions(spans=spans)
        self._key = check_source(key)
        self._tokenizer = str(tokenizer) if isinstance(tokenizer, Path) else tokenizer
        self._model = surprisal_model
        self._allow_open = flag("allow_open_key", allow_open_key)
        self._settings: Any = {
            name: tuple(value) if isinstance(value, list) else value for name, value in sorted(settings.items())
        }
        if unknown := settings.keys() - ColumnSettings.__annotations__.keys():
            raise SettingsError(
                f"there is no setting {', '.join(sorted(unknown))}; the settings are "
                f"{', '.join(ColumnSettings.__annotations__)}"
            )
        # wrong settings are errors of this call, not of another process; a key that is not here is one of the job
        with suppress(KeyFileError):
            self._check()

    def _check(self) -> None:
        """Refuse settings that do not suit the keys. No tokenizer and no language model is loaded."""
        keys = read_keys(self._key, allow_open=self._allow_open)
        several = isinstance(self._key, str) and os.path.isdir(self._key)
        if self.key_column is not None and not several:
            raise SettingsError("a column of keys names files of a folder: give that folder as the key")
        for key in keys if self._model is not None else ():
            check_weighs(key)
        settings = dict(self._settings)
        if several and self.key_column is None:
            if unknown := settings.keys() & {"normalise", "keys_tested"}:
                raise SettingsError(f"a folder of keys takes no {', '.join(sorted(unknown))}: give one key")
            check_fpr(settings.pop("fpr", DEFAULT_FPR), sum(key.num_subkeys for key in keys))
            options_for(keys, settings)
        else:
            for key in keys:
                Detector(key, **settings)
        if isinstance(self._key, WatermarkKey):
            self.scorer  # noqa: B018 (which is used here)

    @property
    def scorer(self) -> AnyScorer:
        """What scores the texts, read at its first use in a process.

        Raises:
            KeyFileError: the key cannot be read here.
            ModelError: the tokenizer or the language model is unavailable.
            SettingsError: a setting is invalid.
        """
        source: Any = self._key, self.key_column is not None, self._allow_open, self._scoring
        given = {"tokenizer": self._tokenizer, "surprisal_model": self._model, **self._settings}
        try:
            hash((*source, *given.values()))
        except (TypeError, ValueError):  # settings of wrong types, of which `Detector` says what is wrong
            return _scorer.__wrapped__(*source, **given)
        return _scorer(*source, **given)

    def __call__(self, batch: Any) -> Any:
        """The batch with the added columns.

        Raises:
            InputError: it has no such column, one of another type, or one of the added columns already.
            SettingsError: it is not a batch.
        """
        rows = open_batch(batch, self.fields, self.prefix)
        contents = rows.contents(self.column)
        absent = [None] * len(contents)
        ids = absent if self.id_column is None else rows.ids(self.id_column)
        keys = absent if self.key_column is None else map(as_text, rows.column(self.key_column))
        items = each(lambda row: Item("", row[1], key=row[2]), zipped(ids, contents, keys))
        results = together(partial(score, self.scorer, self._scoring), items)
        return rows.with_results(results, self.fields, self.prefix, left_out=() if self.payload else ("subkey",))

    def __getstate__(self) -> dict[str, Any]:
        """What travels to other processes: no key, and no tokenizer.

        Raises:
            SettingsError: this holds a key or a tokenizer.
        """
        refuse_to_travel(self._key, self._tokenizer, self._model)
        return self.__dict__.copy()


@lru_cache(maxsize=8)
def _scorer(source: Any, named: bool, allow_open: bool, scoring: ScoringOptions, **given: Any) -> AnyScorer:
    """The scorer of a key or of the keys of a folder, made once a process; `named`, if rows name their keys."""
    if named:
        return scoring.check(RowKeys(named_keys(str(source), allow_open=allow_open), **given))
    keys = read_keys(source, allow_open=allow_open)
    folder = isinstance(source, str) and os.path.isdir(source)
    return scoring.check(Keyring(keys, **given) if folder else Detector(keys[0], **given))
