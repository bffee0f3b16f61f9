"""The options of `dgmark detect`: which go together, and the scorer that they describe."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from dgmark.cli.results import Format
from dgmark.detection.detector import DEFAULT_MAX_CROP, Detector
from dgmark.detection.keyring import Keyring, load_keys
from dgmark.detection.normalise import STEPS
from dgmark.detection.reader import Ranges
from dgmark.detection.scorer import Scorer
from dgmark.detection.strip import check_target
from dgmark.errors import SettingsError
from dgmark.lab.baselines import Baseline, Scheme
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
class DetectOptions:
    """The options of `dgmark detect`, as the command line gives them.

    Raises:
        SettingsError: options that do not go together.
    """

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
    only: Ranges
    max_crop: int
    allow_open_key: bool

    def __post_init__(self) -> None:
        if (self.key is None) == (self.keys is None):
            raise SettingsError("give --key FILE, the key to look for, or --keys FOLDER, but not both")
        if self.show and self.output is not Format.TABLE:
            raise SettingsError("--show is for --format table")
        if self.out and (self.show or self.plot or self.output not in (Format.TABLE, Format.JSONL)):
            raise SettingsError("--out writes JSON Lines: leave --show, --plot and other formats out")
        if self.only and (self.show or self.spans or self.plot):
            raise SettingsError("--show, --spans and --plot need the whole text: leave them out, or leave --only out")
        if self.plot:
            check_target(self.plot)
        if isinstance(self.scheme, Baseline):
            self._check_baseline(self.scheme)
        elif self.key is not None and self.steps and (self.spans or self.show or self.only or self.plot):
            raise SettingsError("--normalise changes the text: leave --spans, --show, --only and --plot out")
        elif self.keys is not None and (self.mode is not Mode.AUTO or self._of_one_key()):
            raise SettingsError(
                "--keys goes with --mode auto only, and without --normalise, --spans, --show, --only and --plot: "
                "find the key first, then give it with --key"
            )

    def _check_baseline(self, scheme: Baseline) -> None:
        plain = (self.mode, self.phase, self.max_crop) == (Mode.AUTO, Phase.ANY, DEFAULT_MAX_CROP)
        if self.key is None or not plain or self._of_one_key():
            raise SettingsError(
                f"scheme {scheme.name} is looked for in whole texts with one --key: leave --mode, --phase, "
                "--max-crop, --normalise, --spans, --show, --only and --plot out"
            )

    def _of_one_key(self) -> bool:
        return bool(self.show or self.spans or self.only or self.steps or self.plot)

    def scorer(self) -> Scorer:
        """Read the keys; what scores texts with them.

        Raises:
            KeyFileError: a key file that cannot be used.
            SettingsError: an invalid setting.
            ModelError: the tokenizer cannot be loaded.
        """
        shared: dict[str, Any] = {
            "tokenizer": self.tokenizer,
            "fpr": self.fpr,
            "phase": self.phase.value,
            "max_crop": self.max_crop,
        }
        if self.keys is not None:
            return Keyring(load_keys(self.keys, allow_open=self.allow_open_key), **shared)
        assert self.key is not None
        key = WatermarkKey.load(self.key, allow_open=self.allow_open_key)
        if isinstance(self.scheme, Baseline):
            return self.scheme.detector(key, fpr=self.fpr, tokenizer=self.tokenizer)
        return Detector(key, mode=self.mode.value, normalise=self.steps, **shared)


def parse_steps(names: Sequence[str]) -> tuple[str, ...]:
    """The steps of --normalise; "all" stands for every one."""
    return tuple(STEPS) if "all" in names else tuple(names)


def parse_ranges(texts: Iterable[str]) -> Ranges:
    """The ranges of --only, each written START:END.

    Raises:
        SettingsError: a text that is not two whole numbers.
    """
    ranges = []
    for text in texts:
        start, colon, end = text.partition(":")
        if not (colon and start.isdecimal() and end.isdecimal()):
            raise SettingsError(f"--only {text} is not START:END, two whole numbers")
        ranges.append((int(start), int(end)))
    return ranges
