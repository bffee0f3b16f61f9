"""What `dgmark detect` is asked: options that go together, and the detector they ask for."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from dgmark.cli.results import AnyDetector, Format
from dgmark.detection.detector import DEFAULT_MAX_CROP, Detector
from dgmark.detection.keyring import Keyring, load_keys
from dgmark.detection.strip import check_target
from dgmark.errors import SettingsError
from dgmark.lab.baselines import Baseline, Scheme, SchemeDetector
from dgmark.rows.jsonl import Row
from dgmark.watermark.key import WatermarkKey


class Mode(StrEnum):
    """Which tests decide."""

    AUTO = "auto"
    INTACT = "intact"
    EDITED = "edited"


class Phase(StrEnum):
    """Whether the front of a text may be missing."""

    ANY = "any"
    START = "start"


@dataclass(frozen=True)
class Asked:
    """The options of `dgmark detect`, as the command line gives them."""

    key: Path | None
    keys: Path | None
    scheme: Scheme | None
    fpr: float
    mode: Mode
    phase: Phase
    output: Format
    tokenizer: str | None
    steps: tuple[str, ...]
    out: Path | None
    plot: Path | None
    spans: bool
    show: bool
    only: tuple[str, ...]
    max_crop: int
    allow_open_key: bool

    def check(self) -> None:
        """Raises SettingsError for options that do not go together."""
        if (self.key is None) == (self.keys is None):
            raise SettingsError("give --key FILE, the key to look for, or --keys FOLDER, but not both")
        if self.show and self.output is not Format.TABLE:
            raise SettingsError("--show is for --format table")
        if self.out and (self.show or self.plot or self.output not in (Format.TABLE, Format.JSONL)):
            raise SettingsError("--out writes JSON Lines: leave --show, --plot and other formats out")
        if self.only and (self.show or self.spans or self.plot):
            raise SettingsError("--show, --spans and --plot are of the whole text: leave them out, or --only")
        if self.plot:
            check_target(self.plot)
        if isinstance(self.scheme, Baseline):
            self._check_baseline(self.scheme)
        elif self.key is not None and self.steps and (self.spans or self.show or self.only or self.plot):
            raise SettingsError("--normalise changes the text: leave --spans, --show, --only and --plot out")
        elif self.keys is not None and (self.mode is not Mode.AUTO or self._of_one_key()):
            raise SettingsError("--keys goes with mode auto, and without what needs the one key: find the key first")

    def _check_baseline(self, scheme: Baseline) -> None:
        plain = (self.mode, self.phase, self.max_crop) == (Mode.AUTO, Phase.ANY, DEFAULT_MAX_CROP)
        if self.key is None or not plain or self._of_one_key():
            raise SettingsError(
                f"scheme {scheme.name} is looked for in whole texts with one --key: leave --mode, --phase, "
                "--max-crop, --normalise, --spans, --show, --only and --plot out"
            )

    def _of_one_key(self) -> bool:
        return bool(self.show or self.spans or self.only or self.steps or self.plot)

    def detector(self) -> AnyDetector:
        """The keys read, as what scores texts."""
        if self.keys is not None:
            return Keyring(load_keys(self.keys, allow_open=self.allow_open_key), **self._options())
        assert self.key is not None
        key = WatermarkKey.load(self.key, allow_open=self.allow_open_key)
        if isinstance(self.scheme, Baseline):
            return self.scheme.detector(key, fpr=self.fpr, tokenizer=self.tokenizer)
        return Detector(key, mode=self.mode.value, normalise=self.steps, **self._options())

    def _options(self) -> dict[str, Any]:
        return {
            "tokenizer": self.tokenizer,
            "fpr": self.fpr,
            "phase": self.phase.value,
            "max_crop": self.max_crop,
        }

    def agreed(self, detector: AnyDetector) -> Row:
        """What the rows of one --out share, in words; the rest of it is in their settings."""
        if isinstance(detector, Keyring):
            return {"fpr": self.fpr, "mode": self.mode.value, "keys_tested": len(detector.keys)}
        agreed: Row = {"fpr": self.fpr, "mode": self.mode.value, "key_fingerprint": detector.key.fingerprint}
        if isinstance(detector, SchemeDetector):
            agreed |= {"scheme": detector.scheme, "mode": "intact"}
        return agreed
