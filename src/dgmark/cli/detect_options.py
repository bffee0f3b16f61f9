"""The options of `dgmark detect`: which ones can be combined, and the scorer that they describe."""

import inspect
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from dgmark.cli.console import stderr
from dgmark.cli.option_groups import OptionGroup
from dgmark.cli.options import AllowOpenKey, AsRows, KeyColumn, ModelContext, SurprisalModel, Tokenizer, set_options
from dgmark.detection.detector import DEFAULT_FPR, Detector
from dgmark.detection.keyring import Keyring, named_keys
from dgmark.detection.reading.reader import Ranges, Reader
from dgmark.detection.results.figures import Phase
from dgmark.detection.row_keys import AnyScorer, RowKeys
from dgmark.detection.statistics.position import DEFAULT_MAX_CROP
from dgmark.detection.statistics.rules import language_model
from dgmark.errors import DgmarkError, SettingsError, each
from dgmark.files.inputs import STDIN
from dgmark.report.page import check_report_path
from dgmark.report.signing import SigningKey
from dgmark.rows.scoring import ScoringOptions, one_key
from dgmark.watermark.commitment import KeyCommitment
from dgmark.watermark.key import WatermarkKey


@dataclass(frozen=True)
class DetectOptions:
    """What is looked for, and what is written about it, as given on the command line.

    Raises:
        SettingsError: some of the options cannot be combined.
    """

    key: Annotated[
        Path | None,
        typer.Option(
            "--key", "-k", help="Key that may have marked the texts: a file, a name, or - for standard input."
        ),
    ] = None
    keys: Annotated[Path | None, typer.Option(help="Folder of key files: which of them marked the text, if any.")] = (
        None
    )
    key_column: KeyColumn = None
    allow_open_key: AllowOpenKey = False
    tokenizer: Tokenizer = None
    fpr: Annotated[float, typer.Option(help="False-positive rate that verdicts are held to.")] = DEFAULT_FPR
    fdr: Annotated[
        float | None,
        typer.Option(metavar="Q", help="Also tell which of many texts are found at this false discovery rate."),
    ] = None
    phase: Annotated[
        Phase | None, typer.Option(help="Position keys: start if the front is not cut off.", show_default="any")
    ] = None
    max_crop: Annotated[
        int | None,
        typer.Option(help="Rotating keys: how many tokens may be missing.", show_default=str(DEFAULT_MAX_CROP)),
    ] = None
    normalise: Annotated[
        list[str] | None,
        typer.Option(metavar="STEP", help="Undo all disguises, or those named; repeatable."),
    ] = None
    surprisal_model: SurprisalModel = None
    context: ModelContext = None
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="START:END", help="Score only these characters; choose them without the key."),
    ] = None
    spans: Annotated[bool, typer.Option("--spans", help="Find the marked spans of several texts, too.")] = False
    payload: Annotated[
        bool, typer.Option("--payload", help="Also give the sub-key that marks the text, and how sure that is.")
    ] = False
    show: Annotated[bool, typer.Option("--show", help="Show the texts with their marked spans.")] = False
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show the statistics.")] = False
    output: Annotated[
        Literal["table", "json", "jsonl", "csv"],
        typer.Option("--format", metavar="FORMAT", help="table, json, jsonl or csv."),
    ] = "table"
    as_json: AsRows = False
    out: Annotated[
        str | None,
        typer.Option("--out", "-o", help="Write JSON Lines, or Parquet from Parquet, to this file; resume it."),
    ] = None
    extract: Annotated[Path | None, typer.Option(help="Write the text that is scored to this file.")] = None
    report: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Write one report of all texts (.html, .json); repeatable."),
    ] = None
    sign: Annotated[Path | None, typer.Option(help="Sign the report with this key (`dgmark report keygen`).")] = None
    commitment: Annotated[
        Path | None, typer.Option(help="Name in the report this commitment to the key (`dgmark key commit`).")
    ] = None
    public: Annotated[
        bool, typer.Option("--public", help="Leave out of the report what guides the removal of the mark.")
    ] = False

    def __post_init__(self) -> None:
        for report in self.report or ():
            check_report_path(report)
        shown, of_rows = self.show or self.verbose, self.form in ("table", "jsonl")
        mistakes: dict[str, object] = {
            "no key is named: give --key KEY, that of whoever marks the texts, or --keys FOLDER with several": (
                not self.key and not self.keys
            ),
            "--key and --keys exclude each other: leave one of them out": self.key and self.keys,
            "--key-column names files of a folder of keys: give it with --keys FOLDER": self.key_column
            and not self.keys,
            "--json is short for --format jsonl: leave one of the two out": (
                self.as_json and self.output not in ("table", "jsonl")
            ),
            "--show and --verbose need --format table: leave them, --json or the other format out": (
                shown and self.form != "table"
            ),
            "--sign, --public and --commitment concern a report: give --report FILE too": (
                (self.sign or self.public or self.commitment) and not self.report
            ),
            "a report never holds the payload, which is for the key's owner: leave --payload out": (
                self.payload and self.report
            ),
            "--out writes JSON Lines: leave --show, --verbose, --report, --extract and other formats out": (
                self.out and (shown or self.report or self.extract or not of_rows)
            ),
            "--show, --spans and --report need the whole text: leave them out, or leave --only out": (
                self.ranges and (self.show or self.spans or self.report)
            ),
            "--fdr Q is a rate between 0 and 1, such as 0.01": self.fdr is not None and not 0 < self.fdr < 1,
            "--fdr needs the p-values of all texts: print the rows, as with --format jsonl, in place of --out": (
                self.fdr is not None and self.out
            ),
            "--normalise changes the text: leave --only out": self.key and self.steps and self.only,
            "--keys excludes --normalise, --only and --commitment: find the key first, then give it with --key (its "
            "p-value alone is not corrected for the other keys)": (
                self.keys and (self.only or self.steps or self.commitment)
            ),
        }
        for problem, wrong in mistakes.items():
            if wrong:
                raise SettingsError(problem)

    @property
    def form(self) -> str:
        """The form of the results on stdout: --json is short for --format jsonl."""
        return "jsonl" if self.as_json else self.output

    @property
    def files_read(self) -> list[str]:
        """The files and folders that the options name and that are read."""
        named = (self.key, self.keys, self.tokenizer, self.sign, self.commitment)
        return [str(path) for path in named if path is not None]

    @cached_property
    def named(self) -> dict[str, WatermarkKey]:
        """The keys, by the names of their files without the ending; a KeyFileError if a file is unusable."""
        if self.key is not None:
            return {self.key.stem: WatermarkKey.load(self.key, allow_open=self.allow_open_key)}
        return named_keys(str(self.keys), allow_open=self.allow_open_key)

    @property
    def key_files(self) -> dict[str, str]:
        """The names of the files of keys, by the keys' fingerprints."""
        return {key.fingerprint: f"{name}.json" for name, key in self.named.items() if name != STDIN}

    @property
    def steps(self) -> tuple[str, ...]:
        """The steps that --normalise names."""
        return tuple(self.normalise or ())

    @cached_property
    def ranges(self) -> Ranges:
        """The ranges of --only, each written START:END.

        Raises:
            SettingsError: one is not two whole numbers with a colon between.
        """
        ranges = []
        for text in self.only or ():
            start, colon, end = text.partition(":")
            if not (colon and start.isdecimal() and end.isdecimal()):
                raise SettingsError(f"--only {text} is not START:END: give two whole numbers, such as 120:900")
            ranges.append((int(start), int(end)))
        return ranges

    @property
    def scoring(self) -> ScoringOptions:
        """What to do with each text."""
        return ScoringOptions(self.ranges, self.spans, self.payload)

    @cached_property
    def signer(self) -> SigningKey | None:
        """The key that signs reports."""
        return SigningKey.load(self.sign, allow_open=self.allow_open_key) if self.sign else None

    @cached_property
    def key_commitment(self) -> KeyCommitment | None:
        """The commitment that the report names."""
        return KeyCommitment.load(self.commitment) if self.commitment else None

    def check_report(self, scorer: AnyScorer) -> None:
        """Read what a report is made with, and check that the key meets the commitment.

        Raises:
            KeyFileError: the file of the key that signs is unusable.
            InputError: the commitment cannot be read, or is to another key.
        """
        _, commitment = self.signer, self.key_commitment  # both are read here, before the work
        if commitment is not None:
            commitment.check(one_key(scorer).key)

    def scorer(self) -> AnyScorer:
        """Read the keys and make the scorer that the options describe.

        Raises:
            KeyFileError: a key file is unusable.
            SettingsError: a setting is invalid.
            ModelError: the tokenizer cannot be loaded.
        """
        shared: dict[str, Any] = {
            "tokenizer": self.tokenizer,
            "fpr": self.fpr,
            **set_options(phase=self.phase, max_crop=self.max_crop),
        }
        keys = [*self.named.values()]
        if self.key is None and self.key_column is None:
            keys = _with_tokenizer(keys, self.tokenizer)
        shared["surprisal_model"] = language_model(self.surprisal_model, keys, context=self.context)
        if self.key is not None:
            return Detector(keys[0], normalise=self.steps, **shared)
        return Keyring(keys, **shared) if self.key_column is None else RowKeys(self.named, **shared)


def _with_tokenizer(keys: list[WatermarkKey], tokenizer: str | None) -> list[WatermarkKey]:
    """The keys whose tokenizers can be loaded; stderr names the others. If no tokenizer can, its first error."""
    of_models = {key.spec.tokenizer_fingerprint: key for key in keys}
    read = dict(zip(of_models, each(lambda key: Reader(key, tokenizer).tokenizer, of_models.values()), strict=True))
    errors = {name: error for name, error in read.items() if isinstance(error, DgmarkError)}
    if len(errors) == len(read):
        raise next(iter(errors.values()))
    for name, error in errors.items():
        some = ", ".join(key.fingerprint for key in keys if key.spec.tokenizer_fingerprint == name)
        stderr().print(f"not tried with {some}: {error}")
    return [key for key in keys if key.spec.tokenizer_fingerprint not in errors]


# what is looked for, in every command that takes a table
_TESTS = ("allow_open_key", "tokenizer", "fpr", "phase", "max_crop", "normalise", "surprisal_model", "payload")


Tests = Annotated[dict[str, Any], OptionGroup(set_options, _TESTS, inspect.signature(DetectOptions))]
