"""`DetectColumns`: a batch with a column of texts in, the same batch with the columns of a verdict out. No torch."""

import os
from functools import lru_cache
from pathlib import Path
from typing import Any, Unpack

from dgmark.arguments import flag, instance
from dgmark.checkpoint.tokenizer import Tokenizer
from dgmark.columns.batch import contents_of_column, ids_of_column, with_errors_of, with_results
from dgmark.columns.key_source import KeySource, check_source, read_keys, refuse_to_travel
from dgmark.columns.row_schema import DETECT_FIELDS, Schema
from dgmark.detection.detector import Detector, ScoringSettings
from dgmark.detection.keyring import Keyring
from dgmark.detection.result import Scorer
from dgmark.errors import DgmarkError
from dgmark.watermark.key import WatermarkKey


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
        tokenizer: see `Detector`; only a path travels to other processes.
        prefix: what the names of the added columns begin with.
        allow_open_key: accept a key file that every user of the machine can read.
        settings: other settings of `Detector`, or of `Keyring` for a folder of keys.

    Attributes:
        schema: the added columns and their types, as a schema of pyarrow if that is installed, else by name.

    Raises:
        SettingsError: an argument is of a wrong type, or `key` is neither a path, a variable nor a key.
    """

    schema = Schema(DETECT_FIELDS)

    def __init__(
        self,
        key: KeySource,
        column: str = "text",
        *,
        id_column: str | None = None,
        tokenizer: Tokenizer | str | os.PathLike[str] | None = None,
        prefix: str = "",
        allow_open_key: bool = False,
        **settings: Unpack[ScoringSettings],
    ) -> None:
        self.column = instance("the column", column, str)
        self.id_column = None if id_column is None else instance("the column of ids", id_column, str)
        self.prefix = instance("the prefix", prefix, str)
        self._key = check_source(key)
        self._tokenizer = str(tokenizer) if isinstance(tokenizer, Path) else tokenizer
        self._allow_open = flag("allow_open_key", allow_open_key)
        self._settings = tuple(
            (name, tuple(value) if isinstance(value, list) else value) for name, value in sorted(settings.items())
        )
        if isinstance(self._key, WatermarkKey):
            self.scorer  # noqa: B018 (wrong settings are errors of this call)

    @property
    def scorer(self) -> Scorer:
        """What scores the texts, read at its first use in a process.

        Raises:
            KeyFileError: the key cannot be read here.
            ModelNotFound: the tokenizer is unavailable.
            SettingsError: a setting is invalid.
        """
        arguments: Any = self._key, self._tokenizer, self._allow_open, self._settings
        try:
            hash(arguments)
        except (TypeError, ValueError):  # settings of wrong types, of which `Detector` says what is wrong
            return _scorer.__wrapped__(*arguments)
        return _scorer(*arguments)

    def __call__(self, batch: Any) -> Any:
        """The batch with the added columns.

        Raises:
            InputError: it has no such column, one of another type, or one of the added columns already.
            SettingsError: it is no batch.
        """
        return detected(self.scorer, batch, self.column, id_column=self.id_column, prefix=self.prefix)

    def __getstate__(self) -> dict[str, Any]:
        """What travels to other processes: no key, and no tokenizer.

        Raises:
            SettingsError: this holds a key or a tokenizer.
        """
        refuse_to_travel(self._key)
        refuse_to_travel(self._tokenizer)
        return self.__dict__.copy()


def detected(
    scorer: Scorer, batch: Any, column: str, *, id_column: str | None = None, prefix: str = "", payload: bool = True
) -> Any:
    """A batch with the columns of the verdicts on the texts of a column; see `DetectColumns`.

    Args:
        scorer: scores the texts.
        batch: the batch.
        column: the column of the texts.
        id_column: see `DetectColumns`.
        prefix: see `DetectColumns`.
        payload: state the sub-key found, which is the payload of the text; else its column holds nulls.
    """
    contents = contents_of_column(batch, column)
    if id_column is not None:
        contents = with_errors_of(ids_of_column(batch, id_column), contents)
    usable = [content for content in contents if not isinstance(content, DgmarkError)]
    found = iter(scorer.detect_many(usable, errors="return"))
    results = [one if isinstance(one, DgmarkError) else next(found) for one in contents]
    return with_results(batch, results, DETECT_FIELDS, prefix, left_out=() if payload else ("subkey",))


@lru_cache(maxsize=8)
def _scorer(key: str | WatermarkKey, tokenizer: Tokenizer | str | None, allow_open: bool, settings: Any) -> Scorer:
    """The scorer of a key or of the keys of a folder, made once a process."""
    given: dict[str, Any] = {"tokenizer": tokenizer, **dict(settings)}
    keys = read_keys(key, allow_open=allow_open)
    folder = isinstance(key, str) and os.path.isdir(key)
    scorer: Scorer = Keyring(keys, **given) if folder else Detector(keys[0], **given)
    scorer.reader.tokenizer  # noqa: B018 (a wrong tokenizer is an error of the job, not of each row)
    return scorer
