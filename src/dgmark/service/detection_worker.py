"""What a worker does: read a document, check texts under the named keys, and word the answer.

Knows keys and texts, and nothing of HTTP. Answers are finished JSON, so that the process that serves has no work with
long texts.
"""

import json
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import PurePath
from typing import Any, Literal

from dgmark.checkpoint.tokenizer import Tokenizer, load_tokenizer, well_formed
from dgmark.detection.detector import Detector
from dgmark.detection.intact import Phase
from dgmark.detection.keyring import Keyring
from dgmark.detection.result import Detection, Mode, Span, Verdict, verdict_of
from dgmark.detection.scorer import Scorer
from dgmark.detection.shares import bonferroni_p
from dgmark.detection.words import Limit, heading, meaning, rarity, symbol, verdict_sentence, where
from dgmark.documents.document import Document, read_opened
from dgmark.documents.reading import Limits
from dgmark.errors import DgmarkError, InputError, SettingsError
from dgmark.report import Report, to_html, to_json
from dgmark.rows.jsonl import sha256_of
from dgmark.watermark.key import WatermarkKey

Content = str | list[int]
ReportKind = Literal["html", "json"]
_LONGEST_NAME = 200
_SCORERS = 64  # kept, each for other options


class TooLong(InputError):
    """The texts of a request are longer than the service takes."""


class TableDocument(InputError):
    """A document is a table, which holds many texts."""


@dataclass(frozen=True)
class Upload:
    """A document as it came, with the name that it came with."""

    name: str
    content: bytes


@dataclass(frozen=True)
class Options:
    """How texts are checked; see `Detector`.

    Attributes:
        keys: names of the keys to look for.
        fpr: false-positive rate over all of them.
        mode: which tests are computed.
        phase: whether the front may be missing.
        max_crop: with a rotating key, how many tokens may be missing.
        normalise: steps that undo disguises.
    """

    keys: tuple[str, ...]
    fpr: float
    mode: Mode
    phase: Phase
    max_crop: int
    normalise: tuple[str, ...] = ()


@dataclass(frozen=True)
class Extras:
    """What an answer says beside the verdict.

    Attributes:
        public: leave out what guides the removal of the mark.
        spans: find the spans that carry the mark.
        rates: further false-positive rates to give the verdict at.
        include_text: repeat the text that was scored.
    """

    public: bool = False
    spans: bool = False
    rates: tuple[float, ...] = ()
    include_text: bool = False


@dataclass(frozen=True)
class Answer:
    """A finished answer, and the verdicts in it; "error" stands for a text that could not be checked."""

    content: bytes
    verdicts: tuple[str, ...]


@dataclass(frozen=True)
class _Checked:
    """One text's detection, with the spans at the loosest rate that is wanted."""

    content: Content
    detection: Detection
    spans: tuple[Span, ...]
    limits: Mapping[float, Limit | None]

    def at(self, fpr: float) -> "_Checked":
        """The same text at another rate."""
        limit = self.limits[fpr]
        verdict: Verdict = verdict_of(self.detection.p_value, fpr, detectable=limit is None)
        because = limit if verdict == "uncertain" else None
        spans = tuple(span for span in self.spans if span.p_value <= fpr)
        return replace(
            self, detection=replace(self.detection, fpr=fpr, verdict=verdict, uncertain_because=because), spans=spans
        )


class Checker:
    """Checks texts under the keys of one service.

    Args:
        keys: the keys by name.
        tokenizer: the keys' tokenizer, or its folder or file; None for the ones that the keys name.
        max_chars: characters of the texts of one request (ids, if ids are given).
        max_texts: texts of one batch.
        limits: what a document may cost.
    """

    def __init__(
        self,
        keys: Mapping[str, WatermarkKey],
        *,
        tokenizer: str | None,
        max_chars: int,
        max_texts: int,
        limits: Limits,
    ) -> None:
        self.keys = dict(keys)
        self.max_chars, self.max_texts, self.limits = max_chars, max_texts, limits
        self._tokenizer_name = tokenizer

    @cached_property
    def _tokenizer(self) -> Tokenizer | None:
        return None if self._tokenizer_name is None else load_tokenizer(self._tokenizer_name)

    def warm(self) -> None:
        """Load what the first request of each key would wait for."""
        for key in self.keys.values():
            Detector(key, tokenizer=self._tokenizer).detect("The first text takes longer than those after it.")

    def detect(self, source: Content | Upload, options: Options, extras: Extras) -> Answer:
        """Check one text, and answer with the fields of `DetectAnswer`.

        Raises:
            InputError: the document cannot be read, is a table, or is too long.
            SettingsError: an option is invalid, or cannot be combined with another.
            VocabularyMismatch: an id lies outside the keys' vocabulary.
        """
        content, document = self._read(source)
        checked = self._checked(content, options, extras)
        fields = self._fields(checked, options, extras)
        if document is not None:
            fields["document"] = {"kind": document.kind, "notes": list(document.notes), "pages": document.pages}
        return Answer(_encoded(fields), (checked.detection.verdict,))

    def detect_many(self, source: Iterable[tuple[str, Content]] | Upload, options: Options) -> Answer:
        """Check several texts, or the rows of a table; one that cannot be checked has an `error`.

        Raises:
            InputError: the document cannot be read, or the texts are too many or too long.
            SettingsError: an option is invalid, or cannot be combined with another.
        """
        items = self._rows(source) if isinstance(source, Upload) else list(source)
        self._check_size([content for _, content in items])
        scorer = self._scorer(options)
        rows = [self._row(scorer, item, content, options) for item, content in items]
        return Answer(_encoded({"results": rows}), tuple(row.get("verdict", "error") for row in rows))

    def report(self, source: Content | Upload, options: Options, kind: ReportKind, name: str, public: bool) -> Answer:
        """Make the report of one text, with an empty place for a signature.

        Raises:
            InputError: the document cannot be read, is a table, or is too long.
            SettingsError: an option is invalid.
        """
        content, _ = self._read(source)
        detection = self._scorer(options).detect(content)
        found = self._detector_of(detection, options, options.fpr)
        report = Report.of(found, name, content, detection=detection, public=public)
        if len(options.keys) > 1 and not public:
            passages = (
                replace(one, p_value=bonferroni_p(one.p_value or 1, len(options.keys))) for one in report.passages
            )
            report = replace(report, passages=tuple(passages))
        return Answer((to_html if kind == "html" else to_json)(report), (detection.verdict,))

    # --- reading ---

    def _read(self, source: Content | Upload) -> tuple[Content, Document | None]:
        document = self._document(source) if isinstance(source, Upload) else None
        if document is not None and document.rows:
            raise TableDocument(
                f"this is a table with {len(document.rows)} texts: send it to /v1/detect/batch, or check one text of it"
            )
        content = document.text if document is not None else source
        assert not isinstance(content, Upload)
        self._check_size([content])
        return content, document

    def _document(self, upload: Upload) -> Document:
        name = well_formed(PurePath(upload.name.replace("\\", "/")).name)[-_LONGEST_NAME:] or "the document"
        with tempfile.TemporaryFile() as file:
            file.write(upload.content)
            file.seek(0)
            return read_opened(file, name, limits=self.limits)

    def _rows(self, upload: Upload) -> list[tuple[str, Content]]:
        document = self._document(upload)
        return list(document.rows) if document.rows else [(well_formed(upload.name), document.text)]

    def _check_size(self, contents: list[Content]) -> None:
        if len(contents) > self.max_texts:
            raise TooLong(f"{len(contents)} texts are more than the {self.max_texts} that one request may hold")
        length = sum(map(len, contents))
        if length > self.max_chars:
            raise TooLong(
                f"the text has {length:,} characters or ids, and one request may hold {self.max_chars:,}: "
                "check it in parts"
            )

    # --- checking ---

    @cached_property
    def _scorer(self) -> Callable[[Options], Scorer]:
        return lru_cache(_SCORERS)(self._new_scorer)

    def _new_scorer(self, options: Options) -> Scorer:
        keys = [self.keys[name] for name in options.keys]
        shared: dict[str, Any] = {
            "tokenizer": self._tokenizer,
            "fpr": options.fpr,
            "phase": options.phase,
            "max_crop": options.max_crop,
        }
        if len(keys) == 1:
            return Detector(keys[0], mode=options.mode, normalise=options.normalise, **shared)
        if options.mode != "auto" or options.normalise:
            raise SettingsError("a mode other than auto, and normalise, need one key: name it with `key`")
        return Keyring(keys, **shared)

    def _detector_of(self, detection: Detection, options: Options, fpr: float) -> Detector:
        """The detector of the key that was found, which shares the rate with the other keys."""
        alone = replace(options, keys=(self._name_of(detection, options),), fpr=fpr / len(options.keys))
        scorer = self._scorer(alone)
        assert isinstance(scorer, Detector)
        return scorer

    def _name_of(self, detection: Detection, options: Options) -> str:
        return next(name for name in options.keys if self.keys[name].fingerprint == detection.key_fingerprint)

    def _checked(self, content: Content, options: Options, extras: Extras) -> _Checked:
        if extras.rates and options.normalise:
            raise SettingsError("rates concern the unchanged text: leave rates or normalise out")
        detection = self._scorer(options).detect(content)
        keys = len(options.keys)
        found = self._detector_of(detection, options, max((options.fpr, *extras.rates)))
        # this detector has one key, and shares the rate with the others
        limits = found.limits(content, [rate / keys for rate in extras.rates], detection) if extras.rates else []
        spans = found.spans(content) if extras.spans and not detection.normalised else ()
        paid = tuple(replace(span, p_value=bonferroni_p(span.p_value, keys)) for span in spans)
        return _Checked(content, detection, paid, dict(zip(extras.rates, limits, strict=True)))

    # --- answers ---

    def _row(self, scorer: Scorer, item: str, content: Content, options: Options) -> dict[str, Any]:
        try:
            checked = _Checked(content, scorer.detect(content), (), {})
        except DgmarkError as error:
            return {"id": item, "error": str(error)}
        return {"id": item, **self._fields(checked, options, Extras())}

    def _fields(self, checked: _Checked, options: Options, extras: Extras) -> dict[str, Any]:
        detection, content = checked.detection, checked.content
        asked = [place for place, span in enumerate(checked.spans) if span.p_value <= detection.fpr]
        text: dict[str, Any] = {"sha256": sha256_of(_well_formed(content)), "length": len(content)}
        if extras.include_text:
            text["content"] = _well_formed(content)
        marked = detection.verdict == "watermarked"
        named = marked or asked or len(options.keys) == 1
        fields: dict[str, Any] = {
            "form": "public" if extras.public else "full",
            "key": self._name_of(detection, options) if named else None,
            "keys_tested": len(options.keys),
            **_worded(checked, asked, extras),
            "is_watermarked": marked,
            "guaranteed": detection.guaranteed,
            "text": text,
        }
        if extras.public:
            fields["key_fingerprint"] = detection.key_fingerprint if named else None
            if extras.spans:
                fields["spans"] = [{"start": span.start, "end": span.end} for span in checked.spans]
            return fields
        row = detection.to_row("")
        del row["id"], row["spans"]
        fields |= row
        if extras.spans:
            fields["spans"] = [
                {"start": span.start, "end": span.end, "p_value": span.p_value, "rarity": rarity(span.p_value)}
                for span in checked.spans
            ]
        if extras.rates:
            fields["at_rates"] = [_at_rate(checked, rate, extras) for rate in sorted(extras.rates, reverse=True)]
            fields["rarity"] = rarity(detection.p_value)
        return fields


def _worded(checked: _Checked, spans: list[int], extras: Extras) -> dict[str, Any]:
    detection = checked.detection
    many = len(spans)
    return {
        "verdict": detection.verdict,
        "fpr": detection.fpr,
        "heading": heading(detection, passages=many),
        "symbol": symbol(detection, passages=many),
        "sentence": verdict_sentence(detection, passages=many, public=extras.public),
        "meaning": meaning(detection, passages=many),
        "where": where(detection, passages=many) if extras.spans else "",
    }


def _at_rate(checked: _Checked, fpr: float, extras: Extras) -> dict[str, Any]:
    """The verdict at another rate, with the numbers of the spans that hold there."""
    spans = [place for place, span in enumerate(checked.spans) if span.p_value <= fpr]
    return {"rarity": rarity(fpr), **_worded(checked.at(fpr), spans, extras), "spans": spans}


def _well_formed(content: Content) -> Content:
    return well_formed(content) if isinstance(content, str) else content


def _encoded(fields: Mapping[str, Any]) -> bytes:
    return json.dumps(fields, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
