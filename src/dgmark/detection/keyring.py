"""The keyring: which of many keys, if any, a text is marked with. The p-value pays for the number of keys.

For each key only the groups of this text's tokens are kept, not the whole table. All keys of one spec are ranked
together (`key_search.py`), with all their sub-keys if they have any, and the likeliest of each spec is tested as if it
were alone. So the keys may be ranked in any way: the p-value is that of one key, times the number of keys and sub-keys.
Knows nothing of models and prompts. Ours.
"""

import os
from collections import defaultdict
from collections.abc import Iterable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from dgmark.checkpoint.tokenizer import Tokenizer
from dgmark.detection.detector import DEFAULT_FPR, DEFAULT_MAX_CROP, KeyTest, setting_of
from dgmark.detection.edit_test import front_model, sees_all
from dgmark.detection.exact_test import ExactTest
from dgmark.detection.hidden_markov import HiddenMarkovModel
from dgmark.detection.key_search import Candidates, SubkeySearch, rank_aligned
from dgmark.detection.reader import Reader, ScoredIds, TextOrIds
from dgmark.detection.result import Detection, Phase
from dgmark.errors import KeyFileNotFound, SettingsError, TokenizerMismatch, as_path, several
from dgmark.watermark.groups import GroupTables, WatermarkSpec
from dgmark.watermark.key import WatermarkKey, check_key

# keys of each spec that are ranked by the full statistic
_MAX_RANKED = 4


class Keyring:
    """Detects the mark of any of several keys of one tokenizer.

    Args:
        keys: the keys, at least one.
        tokenizer: the model's tokenizer, or its folder or file; by default the one the first key names.
        fpr: false-positive rate to hold over all keys together.
        phase: see `Detector`.
        max_crop: see `Detector`.

    Raises:
        SettingsError: there is no key, an item is not a key, or a setting is invalid.
        TokenizerMismatch: the keys are bound to different tokenizers.
    """

    def __init__(
        self,
        keys: Sequence[WatermarkKey],
        *,
        tokenizer: Tokenizer | str | None = None,
        fpr: float = DEFAULT_FPR,
        phase: Phase = "any",
        max_crop: int = DEFAULT_MAX_CROP,
    ) -> None:
        self.keys = _checked_keys(keys)
        self.fpr = fpr
        self.phase = phase
        self.max_crop = max_crop
        self._test: dict[str, Any] = {"fpr": fpr, "phase": phase, "max_crop": max_crop}
        KeyTest(self.keys[0], **self._test, keys=len(self.keys))  # refuses invalid settings
        self.reader = Reader(self.keys[0], tokenizer)
        self.reader.tokenizer  # noqa: B018 (loaded here: a wrong tokenizer is an error of the keys, not of a text)

    @property
    def settings(self) -> dict[str, Any]:
        """Everything that a detection depends on except the text."""
        return {
            "keys": sorted(setting_of(key) for key in self.keys),
            "fpr": self.fpr,
            "mode": "auto",
            "scheme": None,
            "phase": self.phase,
            "max_crop": self.max_crop,
            "normalise": [],
        }

    @property
    def shared_fields(self) -> dict[str, Any]:
        """The fields that all detections have in common."""
        return {"fpr": self.fpr, "mode": "auto", "keys_tested": len(self.keys)}

    def detect(self, text_or_ids: TextOrIds) -> Detection:
        """Score one text, or the token ids of one response, against every key.

        Returns:
            The detection of the likeliest key. Its p-value is multiplied by the number of keys.

        Raises:
            VocabularyMismatch: an id lies outside the keys' vocabulary.
        """
        return self._detect_scored(self.reader.read(text_or_ids))

    def detect_many(self, texts_or_ids: Iterable[TextOrIds]) -> list[Detection]:
        """Score several texts or responses, encoding the texts together; the detections equal those of `detect`."""
        return [self._detect_scored(tokens) for tokens in self.reader.read_many(texts_or_ids)]

    def _detect_scored(self, tokens: ScoredIds) -> Detection:
        detections = [
            KeyTest(key, **self._test, keys=len(self.keys)).score(tokens, among=among)
            for keys in self._by_spec()
            for key, among in self._likeliest(keys, tokens)
        ]
        return min(detections, key=lambda detection: detection.p_value)

    def _likeliest(
        self, keys: list[WatermarkKey], tokens: ScoredIds
    ) -> list[tuple[WatermarkKey, Sequence[int] | None]]:
        """The likeliest keys of one spec, each with the sub-keys to test, if it has any."""
        if len(keys) == 1 or not len(tokens.ids):
            return [(keys[0], None)]
        if keys[0].spec.subkeys == 1 or keys[0].number is not None:
            return [(key, None) for key in self._likeliest_keys(keys, tokens)]
        search = SubkeySearch(keys, tokens, "auto", self.phase, self.max_crop)
        return [(keys[place], [subkey]) for place, subkey in search.likeliest()]

    def _likeliest_keys(self, keys: list[WatermarkKey], tokens: ScoredIds) -> list[WatermarkKey]:
        """The likeliest key by alignment, and by the exact test where alignment does not see all."""
        model: HiddenMarkovModel | None = None
        groups, codes, exact = [], [], []
        alignment_sees_all = sees_all(keys[0].spec, self.phase, self.max_crop, len(tokens.ids))
        for key in keys:
            # not the key's own tables, which would cache whole tables; a sub-key's do not
            tables = GroupTables(key.spec, key.secret or b"") if key.number is None else key.tables
            model = model or front_model(tables, tokens.ids, tokens.positions, self.phase)
            groups.append(model.groups(tables))
            codes.append(tables.code)
            if not alignment_sees_all:
                hypotheses = ExactTest(tables, self.phase, self.max_crop).hypotheses(tokens.ids, tokens.positions)
                exact.append(min(hypothesis.p_value for hypothesis in hypotheses))
        assert model is not None
        coded = np.stack(codes) if keys[0].spec.code_length else None
        candidates = Candidates(np.arange(len(keys)), np.stack(groups, axis=1), coded)
        likeliest = [int(rank_aligned(model, [candidates], _MAX_RANKED).numbers[0])]
        if exact:
            likeliest.append(exact.index(min(exact)))
        return [keys[number] for number in dict.fromkeys(likeliest)]

    def _by_spec(self) -> list[list[WatermarkKey]]:
        """The keys that can be ranked together: of one spec, and all or none of them with sub-keys to try."""
        keys: dict[tuple[WatermarkSpec, bool], list[WatermarkKey]] = defaultdict(list)
        for key in self.keys:
            keys[key.spec, key.number is None].append(key)
        return list(keys.values())


def _checked_keys(keys: Iterable[WatermarkKey]) -> list[WatermarkKey]:
    """The keys as a list, once checked to be keys of one tokenizer."""
    if isinstance(keys, str | PathLike | WatermarkKey):
        raise SettingsError(
            "Keyring takes a list of keys: load_keys('folder') reads those of a folder, "
            "WatermarkKey.load('key.json') reads one"
        )
    keys = several(keys, "keys")
    if not keys:
        raise SettingsError("there is no key to look for; give at least one")
    for key in keys:
        check_key(key)
        if (key.spec.tokenizer_fingerprint, key.spec.table_size) != (
            keys[0].spec.tokenizer_fingerprint,
            keys[0].spec.table_size,
        ):
            raise TokenizerMismatch(
                f"keys {keys[0].fingerprint} and {key.fingerprint} are bound to different tokenizers or "
                "vocabularies: look for the keys of one model at a time"
            )
    return keys


def load_keys(folder: str | Path, *, allow_open: bool = False) -> list[WatermarkKey]:
    """Read the keys of a folder's `.json` files, in order of name.

    Raises:
        KeyFileNotFound: the folder does not exist or holds no key file.
        KeyFileFormat: a `.json` file is not a key file.
        SettingsError: `folder` is not a path.
    """
    return list(named_keys(folder, allow_open=allow_open).values())


def named_keys(folder: str | Path, *, allow_open: bool = False) -> dict[str, WatermarkKey]:
    """The keys of a folder's `.json` files by the files' names without their ending, in order of name.

    Raises:
        KeyFileNotFound: the folder does not exist or holds no key file.
        KeyFileFormat: a `.json` file is not a key file.
        SettingsError: `folder` is not a path.
    """
    if not os.path.isdir(as_path(folder, "a folder of keys")):
        raise KeyFileNotFound(f"{folder} is not a folder: give the folder that holds the key files")
    files = sorted(Path(folder).glob("*.json"))
    if not files:
        raise KeyFileNotFound(
            f"the folder {folder} holds no key file (*.json): "
            f"make one with `dgmark keygen {Path(folder) / 'main.json'}`"
        )
    return {file.stem: WatermarkKey.load(file, allow_open=allow_open) for file in files}
