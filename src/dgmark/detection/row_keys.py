"""A key for each row: a text is tested with the key that its row names, so that no search is paid for.

The names must not depend on what the texts say: a tenant's name, not the key that fits best.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Unpack

from dgmark.arguments.checks import is_of, several, shown
from dgmark.arguments.contents import TextOrIds
from dgmark.checkpoint.tokenizer import Tokenizer
from dgmark.detection.detector import Detector, DetectorSettings
from dgmark.detection.results.detection import Detection
from dgmark.detection.scorer import Scorer
from dgmark.detection.statistics.rules import language_model
from dgmark.errors import DgmarkError, InputError, SettingsError, each
from dgmark.watermark.key import WatermarkKey, check_key

_SHOWN = 10


def key_named(keys: Mapping[str, WatermarkKey], name: object) -> WatermarkKey:
    """The key that a row names, by its name or its fingerprint; an InputError if there is none."""
    if is_of(name, str):
        found = keys.get(str(name)) or next((key for key in keys.values() if key.fingerprint == name), None)
        if found is not None:
            return found
    names = ", ".join([*keys][:_SHOWN]) + (", ..." if len(keys) > _SHOWN else "")
    raise InputError(f"there is no key {shown(name)}: the keys are {names}; name one of them, or its fingerprint")


class RowKeys:
    """Tests each text with the key that its row names.

    Args:
        keys: the keys by name.
        settings: those of `Detector`; the tokenizer is by default each key's own.

    Raises:
        SettingsError: a setting is invalid, also for one of the keys.
    """

    def __init__(self, keys: Mapping[str, WatermarkKey], **settings: Unpack[DetectorSettings]) -> None:
        if not is_of(keys, Mapping) or not keys:
            raise SettingsError("the keys are given by name, as dgmark.named_keys reads them from a folder")
        self.keys = dict(keys)
        for key in self.keys.values():
            check_key(key)
        # loaded once
        settings["surprisal_model"] = language_model(settings.get("surprisal_model"), [*self.keys.values()])
        given, tokenizers = settings.get("tokenizer"), dict[str, Tokenizer]()  # one in memory for all keys of one
        self._detectors: dict[WatermarkKey, Detector] = {}
        for key in self.keys.values():
            settings["tokenizer"] = given or tokenizers.get(key.spec.tokenizer_fingerprint)
            detector = self._detectors[key] = Detector(key, **settings)
            tokenizers.setdefault(key.spec.tokenizer_fingerprint, detector.tokenizer)

    @property
    def detectors(self) -> list[Detector]:
        """The detector of each key."""
        return [*self._detectors.values()]

    @property
    def settings(self) -> dict[str, Any]:
        """Everything that a detection depends on except the text and the name of its key."""
        settings = [detector.settings for detector in self._detectors.values()]
        keys = sorted(key for setting in settings for key in setting["keys"])
        return {**settings[0], "keys": keys, "key_of_row": True}

    def detector(self, name: object) -> Detector:
        """The detector of the key that a row names.

        Raises:
            InputError: there is no such key.
        """
        return self._detectors[key_named(self.keys, name)]

    def detect_many(self, texts_or_ids: Iterable[TextOrIds], names: Sequence[object]) -> list[Detection | DgmarkError]:
        """Test texts, each with the key of its name; in the place of one that cannot be tested, its error."""
        rows, names = several(texts_or_ids, "texts"), several(names, "names of keys")
        if len(rows) != len(names):
            raise SettingsError(f"there are {len(rows)} texts and {len(names)} names of keys: give each text one")
        found: list[Any] = each(lambda name: key_named(self.keys, name), names)
        for key, detector in self._detectors.items():
            places = [place for place, one in enumerate(found) if one is key]
            results = detector.detect_many([rows[place] for place in places], errors="return")
            for place, result in zip(places, results, strict=True):
                found[place] = result
        return found


AnyScorer = Scorer | RowKeys


def detect_rows(scorer: AnyScorer, rows: Sequence[tuple[TextOrIds, object]]) -> list[Detection | DgmarkError]:
    """Test each row's text, by its key where rows name keys; in the place of one that cannot be tested, its error."""
    texts, names = [text for text, _ in rows], [name for _, name in rows]
    if isinstance(scorer, RowKeys):
        return scorer.detect_many(texts, names)
    return scorer.detect_many(texts, errors="return")
