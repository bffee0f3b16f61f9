"""The keyring: which of many keys, if any, a text is marked with. The p-value is corrected for the number of keys.

Each key is tested as if it were alone, and the likeliest is reported: its p-value, times the number of keys and
sub-keys. Knows nothing of models and prompts. Ours.
"""

import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, Unpack

from dgmark.arguments.checks import as_path, check_name, several
from dgmark.arguments.contents import Content
from dgmark.checkpoint.tokenizer import Tokenizer
from dgmark.detection.detector import DEFAULT_FPR, Detector, OwnRuleOptions, setting_of
from dgmark.detection.reading.reader import Reader
from dgmark.detection.reading.surprisal import SurprisalModel
from dgmark.detection.results.detection import Detection
from dgmark.detection.scorer import ReadText, Scorer, detections_of
from dgmark.detection.statistics.rules import language_model, options_for
from dgmark.errors import DgmarkError, KeyFileNotFound, SettingsError, each
from dgmark.watermark.key import WatermarkKey, check_key

# p-values whose logarithms differ by less are equal in rank: rounding, which differs between machines, decides none
_RANKING_DIGITS = 9


class Keyring(Scorer):
    """Detects the mark of any of several keys, of one model or of several.

    A detection is that of the likeliest key; its p-value is multiplied by the number of keys.

    Args:
        keys: the keys, at least one.
        tokenizer: the model's tokenizer, or its folder or file; by default each key's own.
        fpr: false-positive rate to hold over all keys together.
        surprisal_model: see `Detector`; each key must be of a rule that takes weights.
        options: see `Detector`; those that the rule of one of the keys has.

    Attributes:
        detectors: the detector of each key, which shares the rate with the others.

    Raises:
        SettingsError: there is no key, an item is not a key, or a setting is invalid.
        TokenizerMismatch: the tokenizer is not that of each key.
    """

    def __init__(
        self,
        keys: Sequence[WatermarkKey],
        *,
        tokenizer: Tokenizer | str | os.PathLike[str] | None = None,
        fpr: float = DEFAULT_FPR,
        surprisal_model: SurprisalModel | str | None = None,
        **options: Unpack[OwnRuleOptions],
    ) -> None:
        self.keys = _checked_keys(keys)
        of_tests = options_for(self.keys, options)
        model = language_model(surprisal_model, self.keys)
        self.detectors = [
            Detector(key, fpr=fpr, keys_tested=len(self.keys), surprisal_model=model, **asdict(own))
            for key, own in zip(self.keys, of_tests, strict=True)
        ]
        of_models: dict[tuple[str, int], list[Detector]] = {}
        for detector in self.detectors:
            spec = detector.key.spec
            of_models.setdefault((spec.tokenizer_fingerprint, spec.table_size), []).append(detector)
        self._of_models = [(Reader(some[0].key, tokenizer, model), some) for some in of_models.values()]
        for reader, some in self._of_models:
            reader.tokenizer  # noqa: B018 # loaded here: a wrong tokenizer is an error of the keys, not of a text
            for detector in some:
                detector.reader = reader
        self.reader = self._of_models[0][0]

    @property
    def settings(self) -> dict[str, Any]:
        """Everything that a detection depends on except the text."""
        of_all = {name: value for detector in self.detectors for name, value in detector.settings.items()}
        return of_all | {"keys": sorted(setting_of(key) for key in self.keys)}

    def _detections(self, contents: list[Content]) -> list[Detection | DgmarkError]:
        found = []
        for reader, detectors in self._of_models:
            score = partial(each, partial(_likeliest_key, detectors))
            layout = any(detector.reads_layout for detector in detectors)
            found.append(detections_of(contents, reader, score, layout=layout))
        return [_likeliest(of_models) for of_models in zip(*found, strict=True)]


def _likeliest_key(detectors: Sequence[Detector], text: ReadText) -> Detection:
    """The detection of the likeliest of some keys of one model."""
    tokens, share = text
    # one at a time: a test of pairs is large
    tested = ((detector, detector.test(tokens)) for detector in detectors)
    likeliest, test = min(tested, key=lambda pair: _rank(pair[0].p_value(pair[1], share)))
    return likeliest.detection(test, len(tokens.ids), share)


def _likeliest(of_models: Sequence[Detection | DgmarkError]) -> Detection | DgmarkError:
    """The likeliest of a text's detections; the first error if there are only errors."""
    found = [detection for detection in of_models if not isinstance(detection, DgmarkError)]
    return min(found, key=lambda detection: _rank(detection.p_value)) if found else of_models[0]


def _rank(p_value: float) -> float:
    return round(math.log(p_value), _RANKING_DIGITS)


def _checked_keys(keys: Iterable[WatermarkKey]) -> list[WatermarkKey]:
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
    return keys


def load_keys(folder: str | Path, *, allow_open: bool = False) -> list[WatermarkKey]:
    """Read the keys of a folder's `.json` files, in order of name, or that of one file.

    Raises:
        KeyFileNotFound: the folder does not exist or holds no key file.
        KeyFileFormat: a `.json` file is not a key file.
        SettingsError: `folder` is not a path.
    """
    return [WatermarkKey.load(file, allow_open=allow_open) for file in _key_files(folder)]


def named_keys(folder: str | Path, *, allow_open: bool = False) -> dict[str, WatermarkKey]:
    """What `load_keys` reads, by the files' names without their ending, for those who name keys.

    Raises:
        SettingsError: a file's name is not a name of 1 to 80 visible characters.
    """
    files = _key_files(folder)
    for file in files:
        check_name(file.stem, f"the key in the folder {folder}")
    return {file.stem: WatermarkKey.load(file, allow_open=allow_open) for file in files}


def _key_files(folder: str | Path) -> list[Path]:
    path = as_path(folder, "a folder of keys")
    if os.path.isfile(path):
        return [path]
    if not os.path.isdir(path):
        raise KeyFileNotFound(f"{folder} is not a folder: give the folder that holds the key files")
    files = sorted(path.glob("*.json"))
    if not files:
        raise KeyFileNotFound(
            f"the folder {folder} holds no key file (*.json): make one with `dgmark keygen {path / 'main.json'}`"
        )
    for file in files:
        if not file.is_file():  # reading a pipe may never end
            raise KeyFileNotFound(f"{file} is not a regular file: take it out of the folder of keys")
    return files
