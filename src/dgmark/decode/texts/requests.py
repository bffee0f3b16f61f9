"""One row to decode: its prompt, its seed and its key; and the requests of a call that writes several rows."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Required

import numpy as np

from dgmark.arguments.checks import flag, is_of, several, shown
from dgmark.arguments.contents import TextOrIds, as_text, contents_or_errors, id_of_row
from dgmark.decode.config import DecodeConfig, DecodeSettings, settings_of
from dgmark.decode.steps.canvas import Progress
from dgmark.decode.steps.draws import check_seed
from dgmark.decode.texts.own_check import TextChecker
from dgmark.errors import DgmarkError, InputError, SettingsError
from dgmark.models.denoiser import Denoiser, check_model
from dgmark.watermark.key import WatermarkKey, check_has_key, check_key, subkey_of

Prompt = str | list[int]
# what `generate` takes: a text, or several texts and lists of token ids
Prompts = str | Iterable[TextOrIds]
# the key of all rows, or of each; None for no mark
KeyOfEach = WatermarkKey | None | Sequence[WatermarkKey | None]


class RowArguments(DecodeSettings, total=False):
    """The keyword arguments of all functions that write texts, for type checkers; `generate` describes them."""

    key: Required[KeyOfEach]
    subkey: int | Sequence[int | None] | None
    seed: int | Sequence[int]
    ids: Iterable[str | int] | None
    check: bool
    progress: Progress | None
    config: DecodeConfig | None


def seed_of(seed: Any, row_id: str) -> int:
    """The seed of a row, from its id: 63 bits of SHA-256 over (version, seed, id).

    The same id and seed give the same number for ever, whatever the order of the rows and the others of their batch.
    """
    check_seed(seed)
    message = f"dgmark/row-seed/v1\0{seed}\0{row_id}".encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.sha256(message).digest()[:8], "little") >> 1


@dataclass(frozen=True)
class Request:
    """One row to decode.

    Attributes:
        prompt: a text, or token ids; for an infilling, the encoded text with its holes; or the error of the row.
        seed: seed of this row: its text depends on no other row.
        key: the key to mark with; None for no mark. In place of a key with sub-keys it is one of them: the given one,
            or one that the operating system draws for this row, whatever its seed and prompt.
    """

    prompt: Any
    seed: int
    key: WatermarkKey | None

    def __post_init__(self) -> None:
        object.__setattr__(self, "seed", check_seed(self.seed))
        object.__setattr__(self, "key", key_of_text(self.key))

    @property
    def whole_key(self) -> WatermarkKey | None:
        """The key that checkers of the text have; None without a mark."""
        return None if self.key is None else self.key.whole

    @property
    def subkey(self) -> int | None:
        """The number of the sub-key; None without one."""
        return None if self.key is None else self.key.number


def key_of_text(key: WatermarkKey | None, subkey: int | None = None) -> WatermarkKey | None:
    """The key that marks one text, see `WatermarkKey.for_text`; None for text without a mark."""
    check_key(key, or_none=True)
    if key is not None:
        return key.for_text(subkey)
    if subkey is not None:
        raise SettingsError("a text without a mark has no sub-key: give a key, or leave the sub-key out")
    return None


def prompts_or_errors(prompts: Any) -> list[Prompt | DgmarkError]:
    """One text, or several texts and lists of ids, as prompts; in the place of what is neither, its SettingsError."""
    text = as_text(prompts)
    contents = contents_or_errors(prompts) if text is None else [text]
    return [content.tolist() if isinstance(content, np.ndarray) else content for content in contents]


def requests_of(
    prompts: Sequence[Any],
    key: KeyOfEach,
    seed: int | Sequence[int],
    subkey: int | Sequence[int | None] | None = None,
    ids: Iterable[str | int] | None = None,
) -> list[Request]:
    """Make a request for each prompt; an error in the place of one is that of the row.

    `generate` says what the other arguments mean.
    """
    number = len(prompts)
    keys, subkeys = _of_rows(key, number, "key"), _of_rows(subkey, number, "subkey")
    if ids is None:
        seeds = _of_rows(seed, number, "seed")
        if not is_of(seed, list, tuple):
            first = check_seed(seed)
            seeds = [first + row for row in range(number)]
    else:
        names = row_ids(ids, number)
        seeds = [seed_of(seed, name) for name in names]
        subkeys = list(map(_subkey_of_id, keys, subkeys, names))
    rows = zip(prompts, seeds, keys, subkeys, strict=True)
    return [Request(prompt, row_seed, key_of_text(*marked)) for prompt, row_seed, *marked in rows]


def row_ids(ids: Iterable[str | int], number: int) -> list[str]:
    """The ids of rows as texts, of which no two are equal; whole numbers are spelled in digits."""
    names = []
    for place, row_id in enumerate(_of_rows(several(ids, "ids"), number, "ids")):
        name = id_of_row(row_id)
        if name is None:
            raise SettingsError(
                f"id {place} (counted from 0) is {shown(row_id)}: give each row a text or a whole number"
            )
        names.append(name)
    for name, count in Counter(names).items():
        if count > 1:
            raise InputError(f"{count} rows have the id {shown(name)}: give each row its own id")
    return names


def _subkey_of_id(key: WatermarkKey | None, subkey: int | None, row_id: str) -> int | None:
    """The given sub-key of a row, or the one that belongs to its id."""
    check_key(key, or_none=True)
    if subkey is not None or key is None or key.num_subkeys == 1:
        return subkey
    return subkey_of(key, row_id)


def _of_rows(value: Any, number: int, name: str) -> list[Any]:
    """One value for each row: those of a list, which has as many as there are rows, or the same for all."""
    if not is_of(value, list, tuple):
        return [value] * number
    if len(value) != number:
        raise SettingsError(f"{name} is a list of {len(value)} for {number} rows: give one for each row")
    return [*value]


class AskedRows:
    """The keyword arguments of a function that writes texts (`RowArguments`), taken apart.

    Attributes:
        requests: makes the requests of prompts, see `requests_of`.
        settings: the decoding settings that were given.
        checker: checks each text that is written; None to check none.
        progress: called after each step with the number of tokens it committed.
    """

    def __init__(
        self,
        model: Denoiser,
        *,
        key: Any,
        subkey: Any = None,
        seed: Any = 0,
        ids: Any = None,
        check: Any = False,
        progress: Any = None,
        config: Any = None,
        **settings: Any,
    ) -> None:
        if progress is not None and not callable(progress):
            raise SettingsError(f"progress is a function of a number of tokens, not a {type(progress).__name__}")
        self.progress: Progress | None = progress
        self.settings = settings_of(config, settings)
        check_model(model)
        self.checker: TextChecker | None = None
        if flag("check", check):
            check_has_key(key)
            self.checker = TextChecker(model.tokenizer)
        self.requests = partial(requests_of, key=key, seed=seed, subkey=subkey, ids=ids)
