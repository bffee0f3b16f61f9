"""The options of `dgmark detect`: which ones can be combined, and the scorer that they describe."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dgmark.cli.baselines import BaselineName, BaselineOptions, baseline_of
from dgmark.cli.card import View
from dgmark.cli.option_groups import OptionGroup, option, parameter
from dgmark.cli.options import DETECTION, KEY, MODEL, OUTPUT, AllowOpenKey
from dgmark.cli.results import Format
from dgmark.detection.detector import DEFAULT_FPR, DEFAULT_MAX_CROP, Detector
from dgmark.detection.keyring import Keyring, load_keys
from dgmark.detection.normalise import STEPS
from dgmark.detection.reader import Ranges
from dgmark.detection.scorer import Scorer
from dgmark.detection.strip import check_target
from dgmark.errors import SettingsError
from dgmark.report import SigningKey, check_report_path
from dgmark.watermark.key import WatermarkKey

if TYPE_CHECKING:
    from dgmark.cli.baselines import Baseline

TOKENIZER_OF_KEY = "the one that the key names"


class Mode(StrEnum):
    """Which tests are computed."""

    AUTO = "auto"
    INTACT = "intact"
    EDITED = "edited"


class Phase(StrEnum):
    """Whether the front of a text may be missing."""

    ANY = "any"
    START = "start"


@dataclass(frozen=True)
class DetectOptions:
    """The options of `dgmark detect` as given on the command line.

    Raises:
        SettingsError: some of the options cannot be combined.
    """

    key: Path | None
    keys: Path | None
    baseline: "Baseline | None"
    fpr: float
    mode: Mode
    phase: Phase
    output: Format
    tokenizer: str | None
    steps: tuple[str, ...]
    out: Path | None
    plot: Path | None
    extract: Path | None
    reports: tuple[Path, ...]
    signer: SigningKey | None
    public: bool
    spans: bool
    payload: bool
    show: bool
    verbose: bool
    only: Ranges
    max_crop: int
    allow_open_key: bool

    def __post_init__(self) -> None:
        if self.key is None and self.keys is None:
            raise SettingsError(
                "no key is named: give --key FILE, the key file of whoever marks the texts, or --keys FOLDER with "
                "several such files"
            )
        if self.key is not None and self.keys is not None:
            raise SettingsError("--key and --keys exclude each other: leave one of them out")
        if (self.show or self.verbose) and self.output is not Format.TABLE:
            raise SettingsError(
                "--show and --verbose need --format table: leave them or the other format out "
                "(the other formats hold all numbers)"
            )
        for report in self.reports:
            check_report_path(report)
        if (self.signer or self.public) and not self.reports:
            raise SettingsError("--sign and --public concern a report: give --report FILE too")
        if self.payload and self.reports:
            raise SettingsError("a report never holds the payload, which is for the key's owner: leave --payload out")
        if self.out and (self.show or self.verbose or self.one_text or self.output not in (Format.TABLE, Format.JSONL)):
            raise SettingsError(
                "--out writes JSON Lines: leave --show, --verbose, --plot, --report, --extract and other formats out"
            )
        if self.only and (self.show or self.spans or self.plot or self.reports):
            raise SettingsError(
                "--show, --spans, --plot and --report need the whole text: leave them out, or leave --only out"
            )
        if self.plot:
            check_target(self.plot)
        if self.baseline is not None:
            self._check_baseline(self.baseline)
        elif self.key is not None and self.steps and (self.spans or self.show or self.only or self.plot):
            raise SettingsError("--normalise changes the text: leave --spans, --show, --only and --plot out")
        elif self.keys is not None and (self.mode is not Mode.AUTO or self._needs_one_key()):
            raise SettingsError(
                "--keys needs --mode auto and excludes --normalise, --spans, --show, --only, --plot and --report: "
                "find the key first, then give it with --key (its p-value alone does not pay for the other keys)"
            )

    @property
    def one_text(self) -> str | None:
        """The first given option that takes a single text; None if none is given."""
        given = {"--plot": self.plot, "--report": self.reports, "--extract": self.extract}
        return next((name for name, value in given.items() if value), None)

    @property
    def view(self) -> View:
        """What is shown of the results."""
        return View(self.show, self.verbose, whole=not self.only, payload=self.payload)

    def _check_baseline(self, baseline: "Baseline") -> None:
        plain = (self.mode, self.phase, self.max_crop) == (Mode.AUTO, Phase.ANY, DEFAULT_MAX_CROP)
        if self.key is None or not plain or self.payload or self._needs_one_key():
            raise SettingsError(
                f"baseline {baseline.name} is looked for in whole texts with one --key: leave --mode, --phase, "
                "--max-crop, --normalise, --spans, --payload, --show, --only, --plot and --report out"
            )

    def _needs_one_key(self) -> bool:
        return bool(self.show or self.spans or self.only or self.steps or self.plot or self.reports)

    def scorer(self) -> Scorer:
        """Read the keys and make the scorer that the options describe.

        Raises:
            KeyFileError: a key file is unusable.
            SettingsError: a setting is invalid.
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
        if self.baseline is not None:
            return self.baseline.detector(key, fpr=self.fpr, tokenizer=self.tokenizer)
        return Detector(key, mode=self.mode.value, normalise=self.steps, **shared)


def parse_steps(names: Sequence[str]) -> tuple[str, ...]:
    """The steps that --normalise names; "all" stands for every step."""
    return tuple(STEPS) if "all" in names else tuple(names)


def parse_ranges(texts: Iterable[str]) -> Ranges:
    """The ranges of --only, each written START:END.

    Raises:
        SettingsError: a text is not two whole numbers with a colon between.
    """
    ranges = []
    for text in texts:
        start, colon, end = text.partition(":")
        if not (colon and start.isdecimal() and end.isdecimal()):
            raise SettingsError(f"--only {text} is not START:END: give two whole numbers, such as 120:900")
        ranges.append((int(start), int(end)))
    return ranges


def _options_of(values: dict[str, Any]) -> DetectOptions:
    baseline = baseline_of(values.pop("baseline"), values.pop("baseline_option"))
    steps, only = parse_steps(values.pop("normalise") or ()), parse_ranges(values.pop("only") or ())
    reports, sign = tuple(values.pop("report") or ()), values.pop("sign")
    signer = SigningKey.load(sign, allow_open=values["allow_open_key"]) if sign else None
    return DetectOptions(**values, baseline=baseline, steps=steps, only=only, reports=reports, signer=signer)


DetectingOptions = Annotated[
    DetectOptions,
    OptionGroup(
        options=(
            option("key", Path | None, "Key file of whoever marks the texts.", panel=KEY),
            option("keys", Path | None, "Folder of key files: find the key, if any, that marked the text.", panel=KEY),
            parameter("baseline", BaselineName),
            parameter("baseline_option", BaselineOptions),
            parameter("allow_open_key", AllowOpenKey, False),
            option("tokenizer", str | None, "Tokenizer folder or file.", panel=MODEL, default_text=TOKENIZER_OF_KEY),
            option(
                "fpr",
                float,
                "False-positive rate: share of unmarked texts that may be called watermarked.",
                panel=DETECTION,
                default=DEFAULT_FPR,
            ),
            option(
                "mode",
                Mode,
                "auto: test for intact and for edited text; intact: allow only for a crop; edited: allow for edits.",
                panel=DETECTION,
                default=Mode.AUTO,
            ),
            option(
                "phase",
                Phase,
                "any: tokens may be missing at the front; start: the text is complete.",
                panel=DETECTION,
                default=Phase.ANY,
            ),
            option(
                "normalise",
                list[str] | None,
                f"If no mark is found, undo disguises and test again: all, or {', '.join(STEPS)}; may be repeated.",
                *("--normalise", "--normalize"),
                panel=DETECTION,
            ),
            option(
                "spans",
                bool,
                "Find the passages (spans) that carry the mark; a single text shows them anyway.",
                "--spans",
                panel=DETECTION,
                default=False,
            ),
            option(
                "payload",
                bool,
                "Also give the payload: the sub-key that the text is marked with, and how sure that is.",
                "--payload",
                panel=DETECTION,
                default=False,
            ),
            parameter(
                "only",
                Annotated[
                    list[str] | None,
                    typer.Option(
                        metavar="START:END",
                        help="Score only these characters (indices for ids); choose them without the key; "
                        "may be repeated.",
                        rich_help_panel=DETECTION,
                    ),
                ],
            ),
            option(
                "max_crop",
                int,
                "With a rotating key: how many tokens may be missing at the front.",
                panel=DETECTION,
                default=DEFAULT_MAX_CROP,
            ),
            option("output", Format, "Output format.", "--format", panel=OUTPUT, default=Format.TABLE),
            option("out", Path | None, "Write JSON Lines to this file; if it exists, resume it.", panel=OUTPUT),
            option("plot", Path | None, "Draw the matches of one text to this file (.png, .svg).", panel=OUTPUT),
            option(
                "extract",
                Path | None,
                "Write the exact text that is scored to this file; - is stdout, and then the result goes to stderr.",
                panel=OUTPUT,
            ),
            option(
                "report",
                list[Path] | None,
                "Write a report of one text to this file (.html, .json); may be repeated.",
                panel=OUTPUT,
            ),
            option("sign", Path | None, "Sign the report with this key (see `dgmark report keygen`).", panel=OUTPUT),
            option(
                "public",
                bool,
                "Leave the numbers out of the report that guide the removal of the mark.",
                "--public",
                panel=OUTPUT,
                default=False,
            ),
            option("show", bool, "Show the texts with their marked passages.", "--show", panel=OUTPUT, default=False),
            option(
                "verbose",
                bool,
                "Show the statistics too; with --show, which tokens of the passages match.",
                *("--verbose", "-v"),
                panel=OUTPUT,
                default=False,
            ),
        ),
        value=_options_of,
    ),
]
