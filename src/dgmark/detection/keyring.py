"""The keyring: which of many keys, if any, a text is marked with. The p-value pays for the number of keys.

Each key is tested as if it were alone, and the likeliest is reported: its p-value, times the number of keys and
sub-keys. Knows nothing of models and prompts. Ours.
"""

import math
import os
from collections.abc import Iterable, Sequence
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, Literal, overload

from dgmark.arguments.checks import Errors, as_path, check_name, several
from dgmark.arguments.contents import TextOrIds, content_of
from dgmark.checkpoint.tokenizer import Tokenizer
from dgmark.detection.detector import DEFAULT_FPR, Detector, ReadText, detect_readings, model_settings, setting_of
from dgmark.detection.finding import Phase
from dgmark.detection.reader import Reader
from dgmark.detection.result import Detection
from dgmark.detection.rules import DEFAULT_MAX_CROP, DetectionSettings, check_settings, language_model, rule_test
from dgmark.detection.surprisal import SurprisalModel
from dgmark.errors import DgmarkError, KeyFileNotFound, SettingsError, TokenizerMismatch, each
from dgmark.watermark.key import WatermarkKey, check_key

# p-values whose logarithms differ by less are equal in rank: rounding, which differs between machines, decides none
_RANKING_DIGITS = 9


class Keyring:
    """Detects the mark of any of several keys of one tokenizer.

    Args:
        keys: the keys, at least one.
        tokenizer: the model's tokenizer, or its folder or file; by default the one the first key names.
        fpr: false-positive rate to hold over all keys together.
        phase: see `Detector`.
        max_crop: see `Detector`.
        surprisal_model: see `Detector`; each key must be of a rule that takes weights.

    Raises:
        SettingsError: there is no key, an item is not a key, or a setting is invalid.
        TokenizerMismatch: the keys are bound to different tokenizers.
    """

    def __init__(
        self,
        keys: Sequence[WatermarkKey],
        *,
        tokenizer: Tokenizer | str | os.PathLike[str] | None = None,
        fpr: float = DEFAULT_FPR,
        phase: Phase = "any",
        max_crop: int = DEFAULT_MAX_CROP,
        surprisal_model: SurprisalModel | str | None = None,
    ) -> None:
        self.keys = _checked_keys(keys)
        settings = check_settings(self.keys, DetectionSettings(fpr, phase, max_crop))
        self._phase, self._max_crop = phase, max_crop
        model = language_model(surprisal_model, self.keys)
        self._detectors = [
            Detector(
                key,
                fpr=fpr,
                keys_tested=len(self.keys),
                phase=one.phase,
                max_crop=one.max_crop,
                surprisal_model=model,
            )
            for key, one in zip(self.keys, settings, strict=True)
        ]
        self.reader = Reader(self.keys[0], tokenizer, model)
        self.reader.tokenizer  # noqa: B018 (loaded here: a wrong tokenizer is an error of the keys, not of a text)

    @property
    def settings(self) -> dict[str, Any]:
        """Everything that a detection depends on except the text."""
        keys = sorted(setting_of(key) for key in self.keys)
        own = {"keys": keys, "phase": self._phase, "max_crop": self._max_crop}
        return self._detectors[0].settings | own | model_settings(self.reader)

    def detect(self, text_or_ids: TextOrIds) -> Detection:
        """Score one text, or the token ids of one response, against every key; see `Detector.detect`.

        Returns:
            The detection of the likeliest key. Its p-value is multiplied by the number of keys.

        Raises:
            VocabularyMismatch: an id lies outside the keys' vocabulary.
            SettingsError: the input is neither a text nor ids.
        """
        return self.detect_many([content_of(text_or_ids)])[0]

    @overload
    def detect_many(
        self, texts_or_ids: Iterable[TextOrIds], *, errors: Literal["raise"] = "raise"
    ) -> list[Detection]: ...

    @overload
    def detect_many(
        self, texts_or_ids: Iterable[TextOrIds], *, errors: Literal["return"]
    ) -> list[Detection | DgmarkError]: ...

    def detect_many(self, texts_or_ids: Iterable[TextOrIds], *, errors: Errors = "raise") -> Sequence[Any]:
        """Score several texts or responses, encoding the texts together; the detections equal those of `detect`.

        Args:
            texts_or_ids: see `Detector.detect_many`.
            errors: see `Detector.detect_many`.

        Raises:
            VocabularyMismatch: an id lies outside the keys' vocabulary.
            SettingsError: see `Detector.detect_many`.
        """
        only_as_it_is = all(rule_test(key).scores_layout() for key in self.keys)
        return detect_readings(
            self.reader, partial(each, self._score), texts_or_ids, only_as_it_is=only_as_it_is, errors=errors
        )

    def _score(self, text: ReadText) -> Detection:
        """The detection of the likeliest key."""
        tokens, share = text
        tested = ((one, one.test(tokens)) for one in self._detectors)  # one at a time: a test of pairs is large
        likeliest, test = min(tested, key=lambda one: round(math.log(one[0].p_value(one[1], share)), _RANKING_DIGITS))
        return likeliest.detection(test, len(tokens.ids), share)


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
    return [WatermarkKey.load(file, allow_open=allow_open) for file in _key_files(folder)]


def named_keys(folder: str | Path, *, allow_open: bool = False) -> dict[str, WatermarkKey]:
    """What `load_keys` reads, by the files' names without their ending, for those who name keys.

    Raises:
        SettingsError: a file's name is no name of 1 to 80 visible characters.
    """
    files = _key_files(folder)
    for file in files:
        check_name(file.stem, f"the key in the folder {folder}")
    return {file.stem: WatermarkKey.load(file, allow_open=allow_open) for file in files}


def _key_files(folder: str | Path) -> list[Path]:
    path = as_path(folder, "a folder of keys")
    if not os.path.isdir(path):
        raise KeyFileNotFound(f"{folder} is not a folder: give the folder that holds the key files")
    files = sorted(path.glob("*.json"))
    if not files:
        raise KeyFileNotFound(
            f"the folder {folder} holds no key file (*.json): make one with `dgmark keygen {path / 'main.json'}`"
        )
    for file in files:
        if not file.is_file():  # reading a pipe may never end
            raise KeyFileNotFound(f"{file} is no regular file: take it out of the folder of keys")
    return files
