"""What a report says: the verdict, the marked spans, what they rest on, and how to check them again."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

from pydantic import BaseModel

from dgmark.arguments.checks import flag, instance, several, visible_name
from dgmark.arguments.contents import TextOrIds, content_of, sha256_of
from dgmark.checkpoint.tokenizer import well_formed
from dgmark.detection.detector import check_fpr
from dgmark.detection.results.detection import STATISTICS_VERSION, Detection, verdict_sentence
from dgmark.detection.results.figures import Span
from dgmark.detection.results.sentences import heading, meaning
from dgmark.detection.results.shading import Shade, cut
from dgmark.detection.row_keys import AnyScorer, RowKeys
from dgmark.detection.statistics.expected import matched_by_chance
from dgmark.errors import SettingsError
from dgmark.report.rate import ChosenRate
from dgmark.rows.scoring import detector_of, detectors_of, with_spans
from dgmark.version import __version__
from dgmark.watermark.commitment import KeyCommitment

REPORT_VERSION = 1
MAX_QUOTE = 160  # characters of a span that are quoted
# what it proves that the key meets a commitment
PROVES = (
    "If this commitment was public before the text was written, the key is older than the text and was not made to fit "
    "it. When it became public is shown by where it was published, or by a time stamp, not by this report. If there "
    "are commitments to other keys as well, the chance of a false finding is as many times larger as there are keys."
)


class TriedKey(BaseModel, frozen=True):
    """A key that was looked for.

    Attributes:
        fingerprint: identifies it.
        name: whose texts it marks, if its file says so.
        file: the name of its file, if that is known.
    """

    fingerprint: str
    name: str | None = None
    file: str | None = None


@dataclass(frozen=True)
class Report:
    """One detection, ready to be filed.

    Attributes:
        name: what the text is called, such as its file name.
        text: the exact text that was scored.
        detection: the detection with the spans; these are None if this key finds none.
        tokenizer: name and fingerprint of the tokenizer.
        created: when the report was made.
        public: whether numbers that guide the removal of the mark are left out.
        notes: what was left out of the document, and what the reader should know.
        commitment: the commitment that the key meets; None if none is named.
        service_fpr: the rate of the service that made the report; None if a person made it.
        by_chance: what `matched_by_chance` says of the detection; None if it was not asked.
        shades: what `Detector.shades` says of the detection; nothing in a public report.
        keys: the keys that were looked for; the p-value pays for all of them.
    """

    name: str
    text: str
    detection: Detection
    tokenizer: tuple[str, str]
    created: datetime
    public: bool = False
    notes: tuple[str, ...] = ()
    commitment: KeyCommitment | None = None
    service_fpr: float | None = None
    by_chance: tuple[int, int] | None = None
    shades: tuple[Shade, ...] = ()
    keys: tuple[TriedKey, ...] = ()

    @classmethod
    def of(
        cls,
        scorer: AnyScorer,
        name: str,
        text: TextOrIds,
        *,
        detection: Detection | None = None,
        public: bool = False,
        notes: Iterable[str] = (),
        commitment: KeyCommitment | None = None,
        service_fpr: float | None = None,
        key_files: dict[str, str] | None = None,
    ) -> "Report":
        """Report a text's detection, with the spans that carry the mark if the key finds spans.

        Args:
            scorer: the `Detector` of one key, or a `Keyring` or `RowKeys`.
            name: what the text is called; see `visible_name` for what of it the report states.
            text: the text.
            detection: the text's detection by this scorer; computed by default, but not for a `RowKeys`.
            public: leave out the numbers that guide the removal of the mark: p-values, match counts.
            notes: what was left out of the document that held the text, see `read_document`.
            commitment: a commitment to the key of the detection, which the report names.
            service_fpr: the service's own rate, if a service makes the report: requests may choose another.
            key_files: names of the files of keys by the keys' fingerprints, for whoever reads the report.

        Raises:
            SettingsError: `text` is not a text, or is too long for finding spans; or another argument is of a wrong
                type or out of range.
            CommitmentMismatch: the key does not meet the commitment.
        """
        if service_fpr is not None:
            check_fpr(service_fpr)
        noted = [instance("a note", note, str) for note in several(notes, "notes")]
        text = content_of(text)
        if not isinstance(text, str):
            raise SettingsError("a report shows the text that was scored, but this input holds token ids only")
        detection = with_spans(scorer, _detected(scorer, text, detection), text)
        detector = detector_of(scorer, detection)
        if commitment is not None:
            instance("the commitment", commitment, KeyCommitment).check(detector.key)
        tried = [tested.key for tested in detectors_of(scorer)] if detection.keys_tested > 1 else [detector.key]
        files = {} if key_files is None else instance("the key files", key_files, dict)
        return cls(
            name=visible_name(instance("the name of the text", name, str)),
            text=well_formed(text),
            detection=detection,
            tokenizer=(detector.tokenizer.name, detector.tokenizer.fingerprint),
            created=datetime.now(UTC).replace(microsecond=0),
            public=flag("public", public),
            notes=tuple(map(well_formed, noted)),
            commitment=commitment,
            service_fpr=service_fpr,
            by_chance=matched_by_chance(detector.key.spec, detection),
            shades=() if public else tuple(detector.shades(text, detection)),
            keys=tuple(
                TriedKey(fingerprint=key.fingerprint, name=key.name, file=files.get(key.fingerprint)) for key in tried
            ),
        )

    @property
    def spans(self) -> tuple[Span, ...]:
        """The spans that carry the mark."""
        return self.detection.spans or ()

    @property
    def rate(self) -> ChosenRate:
        """The false-positive rate, and who chose it."""
        return ChosenRate(self.detection.fpr, self.service_fpr)

    @property
    def heading(self) -> str:
        """The verdict in a few words."""
        return self.rate.qualify(heading(self.detection))

    @property
    def sentence(self) -> str:
        """The verdict in one or two sentences."""
        return verdict_sentence(self.detection, public=self.public)

    @property
    def meaning(self) -> list[str]:
        """What the verdict means and what it does not."""
        return meaning(self.detection)

    @property
    def text_sha256(self) -> str:
        """SHA-256 of the text in UTF-8, as 64 hex digits."""
        return sha256_of(self.text)

    def to_fields(self) -> dict[str, Any]:
        """The report as plain JSON values (docs/formats.md)."""
        detection, weights = self.detection, self.detection.figures.weights
        fields = {
            "format": "dgmark-report",
            "version": REPORT_VERSION,
            "public": self.public,
            "created": self.created.isoformat(),
            "name": self.name,
            "verdict": detection.verdict,
            "heading": self.heading,
            "sentence": self.sentence,
            "meaning": self.meaning,
            "notes": list(self.notes),
            "marked_share": detection.marked_share,
            "spans": None if detection.spans is None else [self._span_fields(span) for span in detection.spans],
            "text": {"sha256": self.text_sha256, "characters": len(self.text), "content": self.text},
            "key_fingerprint": detection.key_fingerprint,
            "key_name": detection.key_name,
            "keys": [key.model_dump() for key in self.keys],
            "method": {
                "fpr": detection.fpr,
                "fpr_chosen_by": self.rate.chosen_by,
                "service_fpr": self.service_fpr,
                "guaranteed": detection.guaranteed,
                "normalised": list(detection.normalised),
                "keys_tested": detection.keys_tested,
                "subkeys_tested": detection.subkeys_tested,
                "test": detection.test,
                "language_model": weights and weights.model,
                "language_model_fingerprint": weights and weights.fingerprint,
                "tokenizer": self.tokenizer[0],
                "tokenizer_fingerprint": self.tokenizer[1],
                "dgmark": __version__,
                "statistics": STATISTICS_VERSION,
            },
        }
        if self.commitment is not None:
            named = self.commitment.model_dump(mode="json", include={"sha256", "created"})
            fields["key_commitment"] = {**named, "proves": PROVES}
        if not self.public:
            fields["evidence"] = detection.to_row(self.name)
        return fields

    def _span_fields(self, span: Span) -> dict[str, Any]:
        fields = {"start": span.start, "end": span.end, "quote": self.quote(span)}
        return fields if self.public else {**fields, "p_value": span.p_value}

    def quote(self, span: Span) -> str:
        """The beginning of a span on one line, at most 160 characters.

        Raises:
            SettingsError: `span` is not a span.
        """
        instance("the span", span, Span)
        return quote(self.text[span.start : span.end])

    def pieces(self) -> list[tuple[list[tuple[str, int]], int]]:
        """The text cut at the edges of the spans: each piece with the number of its span, 0 for none.

        A piece is cut where its shade changes: each part with the level of its shade, 0 for none.
        """
        edges = sorted({0, len(self.text), *(edge for span in self.spans for edge in (span.start, span.end))})
        numbers = {span.start: number for number, span in enumerate(self.spans, 1)}
        return [
            (
                [(self.text[first:last], level) for first, last, level in cut(start, end, self.shades)],
                numbers.get(start, 0),
            )
            for start, end in pairwise(edges)
        ]


def _detected(scorer: AnyScorer, text: str, detection: Detection | None) -> Detection:
    """The detection of a text that is given, or that of its scorer."""
    if not isinstance(scorer, AnyScorer):
        raise SettingsError(f"a report is made with a Detector or a Keyring, not with a {type(scorer).__name__}")
    if detection is not None:
        return instance("the detection", detection, Detection)
    if isinstance(scorer, RowKeys):
        raise SettingsError("a RowKeys tests a text with the key that its row names: give its detection")
    return scorer.detect(text)


def quote(text: str) -> str:
    """The beginning of a text on one line, at most 160 characters."""
    words = " ".join(text.split())
    return words if len(words) <= MAX_QUOTE else words[: MAX_QUOTE - 1].rstrip() + "…"
