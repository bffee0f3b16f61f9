"""One report of several: what the reports of single texts found, in a table that is signed as a whole.

Knows no key and tests nothing: it repeats what those reports say, without their texts, and counts.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dgmark.arguments.checks import visible_name
from dgmark.detection.results.figures import Verdict
from dgmark.detection.results.words import rarity
from dgmark.errors import InputError
from dgmark.report.rate import ChosenRate
from dgmark.report.signing import verify_report
from dgmark.report.statement import TriedKey
from dgmark.version import __version__

JOINED_VERSION = 1
MAX_REPORTS = 1000


class _Text(BaseModel):
    model_config = ConfigDict(strict=True)

    sha256: str
    characters: int


class _Method(BaseModel):
    fpr: float = Field(gt=0, lt=1)
    service_fpr: float | None = Field(None, gt=0, lt=1)
    keys_tested: int = 1


class _Span(BaseModel):
    start: int
    end: int
    quote: str
    p_value: float | None = None


class _Single(BaseModel):
    """What is read of the report of one text; see docs/formats.md."""

    model_config = ConfigDict(strict=True)

    format: Literal["dgmark-report"]
    created: str
    name: str
    verdict: Verdict
    heading: str
    sentence: str
    meaning: list[str] = []
    notes: list[str]
    spans: list[_Span] | None
    text: _Text
    key_fingerprint: str
    key_name: str | None = None
    keys: list[TriedKey] = []
    method: _Method

    @property
    def found(self) -> bool:
        """Whether the text, or a part of it, carries the mark."""
        return self.verdict == "watermarked" or bool(self.spans)


@dataclass(frozen=True)
class JoinedReport:
    """Several reports as one.

    Attributes:
        name: what the report calls them.
        reports: the fields of each, without its text, its signature and the list of keys that it tried.
        keys: the keys that they tried.
        created: when they were joined.
        unanswered: the names of documents that were to be checked with them, and of which there is no report.
    """

    name: str
    reports: tuple[dict[str, Any], ...]
    created: datetime
    unanswered: tuple[str, ...] = ()
    keys: tuple[TriedKey, ...] = ()

    @classmethod
    def of(
        cls, documents: Sequence[str], name: str, jwks: Mapping[str, Any] | None, unanswered: Sequence[str] = ()
    ) -> "JoinedReport":
        """Join JSON reports.

        Args:
            documents: the files of 1 to 1,000 reports, exactly as they were made.
            name: what the joined report calls them.
            jwks: the keys of which one must have signed each; None if they are not signed.
            unanswered: names of documents without a report, by the word of whoever asks for this one.

        Raises:
            SignatureInvalid: one is not signed by these keys, or was changed since.
            InputError: one is not a JSON report of a text.
        """
        reports = tuple(_fields(document, jwks) for document in documents)
        keys = {
            key.fingerprint: key for fields in reports for key in map(TriedKey.model_validate, fields.pop("keys", []))
        }
        created = datetime.now(UTC).replace(microsecond=0)
        return cls(visible_name(name), reports, created, tuple(map(visible_name, unanswered)), tuple(keys.values()))

    @property
    def singles(self) -> list[_Single]:
        """What each report says."""
        return [_Single.model_validate(report) for report in self.reports]

    def key_of(self, single: _Single) -> TriedKey:
        """The key of a report, with the name of its file if that is known."""
        own = TriedKey(fingerprint=single.key_fingerprint, name=single.key_name)
        return next((key for key in self.keys if key.fingerprint == own.fingerprint), own)

    @property
    def heading(self) -> str:
        """In how many texts the mark was found, at which rate, and how many texts have several reports or none."""
        singles, more = self.singles, len(self.unanswered)
        texts = {single.text.sha256: False for single in singles}
        for single in singles:
            texts[single.text.sha256] |= single.found
        said = f"Watermark found in {sum(texts.values()):,} of {len(texts):,} text{'s'[: len(texts) != 1]}"
        if again := len(singles) - len(texts):
            said += f"; {again:,} report{'s'[: again != 1]} of the same texts not counted again"
        if more:
            said += f"; {more:,} more {'has' if more == 1 else 'have'} no answer"
        loosest = max((single.method for single in singles), key=lambda method: method.fpr)
        rate = ChosenRate(loosest.fpr, loosest.service_fpr)
        return f"{rate.qualify(said)}, {rarity(loosest.fpr)}" if rate.chosen_by == "request" else said

    @property
    def sentence(self) -> str:
        """How likely a false finding among so many is."""
        chance = min(1.0, sum(single.method.fpr for single in self.singles))
        how = f"at most {rarity(chance)}" if chance <= 1 / 2 else "not small"
        keys = "the key" if len(self.keys) < 2 else f"any of the {len(self.keys)} keys"
        return (
            f"Each text was tested by itself. If all of them were written without {keys}, the chance that any of them "
            f"is called watermarked is {how}, and so is the chance that a span of any is found."
        )

    def to_fields(self) -> dict[str, Any]:
        """The report as plain JSON values (docs/formats.md)."""
        return {
            "format": "dgmark-joined-report",
            "version": JOINED_VERSION,
            "created": self.created.isoformat(),
            "name": self.name,
            "heading": self.heading,
            "sentence": self.sentence,
            "keys": [key.model_dump() for key in self.keys],
            "reports": list(self.reports),
            "unanswered": list(self.unanswered),
            "dgmark": __version__,
        }


def _fields(document: str, jwks: Mapping[str, Any] | None) -> dict[str, Any]:
    """The fields of a JSON report, without its text and its signature.

    Raises:
        SignatureInvalid: its signature does not hold.
        InputError: this is not a JSON report of a text.
    """
    content = document.encode("utf-8", "surrogatepass")
    if jwks is not None:
        verify_report(content, jwks)
    try:
        fields: dict[str, Any] = json.loads(content)
        _Single.model_validate(fields)
    except (ValueError, RecursionError, ValidationError):
        raise InputError(
            "one of the reports to be joined is not a JSON report of a text: send each as it came from /v1/report with "
            "format json"
        ) from None
    fields["name"] = visible_name(fields["name"])
    fields["text"].pop("content", None)
    fields.pop("signature", None)
    return fields
