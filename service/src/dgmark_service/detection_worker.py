"""What a worker does: read a document, check texts under the named keys, and word the answer.

Knows keys and texts, and nothing of HTTP. Answers are finished JSON, so that the process that serves has no work with
long texts.
"""

import json
import tempfile
import time
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache
from pathlib import PurePath
from typing import Any

from dgmark.arguments.checks import visible_name
from dgmark.arguments.contents import sha256_of
from dgmark.checkpoint.tokenizer import Tokenizer, load_tokenizer, well_formed
from dgmark.detection.detector import Detector
from dgmark.detection.keyring import Keyring
from dgmark.detection.reading.surprisal import SurprisalModel
from dgmark.detection.results.detection import Detection, verdict_sentence
from dgmark.detection.results.legibility import of_document
from dgmark.detection.results.sentences import heading, meaning, symbol, where
from dgmark.detection.results.words import rarity
from dgmark.detection.scorer import Scorer
from dgmark.detection.statistics.expected import matched_by_chance
from dgmark.detection.statistics.rules import CHARS_A_TOKEN, seconds_to_check, work_of
from dgmark.errors import InputError, SettingsError, SignatureInvalid
from dgmark.models.surprisal_models import load_surprisal_model
from dgmark.report.joined import JoinedReport
from dgmark.report.page import to_html, to_json
from dgmark.report.rate import ChosenRate
from dgmark.report.signed import read_signed_report
from dgmark.report.statement import Report
from dgmark.rows.documents import Document, document_limits, read_opened
from dgmark.rows.scoring import detector_of, with_spans
from dgmark.watermark.commitment import KeyCommitment
from dgmark.watermark.key import WatermarkKey
from dgmark_service.error_answers import ErrorAnswer
from dgmark_service.json_fields import R, fields_of
from dgmark_service.schemas import DetectRequest, JoinRequest, ReportRequest, VerifyAnswer
from dgmark_service.settings import ServiceSettings

Content = str | list[int]
# of one text: its spans take a third of the time of a request for most keys
MAX_SPAN_CHARS = 250_000
# by which a language model is measured, and how much slower it checks a text: long ones are read in windows that
# overlap, and some texts in more than one reading
_SAMPLE, _SLOWER = "The first text takes longer than those after it. " * 40, 2.0
_MAX_SCORERS = 64  # kept, each for other options


@dataclass(frozen=True)
class Upload:
    """A document as it came, with the name that it came with."""

    name: str
    content: bytes


@dataclass(frozen=True)
class Options:
    """How texts are checked; see `Detector` for the last one.

    Attributes:
        keys: names of the keys to look for.
        public: leave out what guides the removal of the mark.
        fpr: false-positive rate over all of them.
        service_fpr: the service's own rate over all of them, which is that of requests that name none.
        of_rules: options of the keys' rules, by name.
    """

    keys: tuple[str, ...]
    public: bool
    fpr: float
    service_fpr: float
    of_rules: tuple[tuple[str, Any], ...] = ()
    normalise: tuple[str, ...] = ()


@dataclass(frozen=True)
class Answer:
    """A finished answer, and the verdict in it."""

    content: bytes
    verdict: str


@dataclass
class Checker:
    """Checks texts under the keys of one service.

    Attributes:
        settings: the service's settings: its limits, tokenizer and language model.
        keys: the keys by name.
        commitments: commitments to keys, by the keys' fingerprints.
        chars_per_second: how fast the language model checks a text, as `warm` measures it; None without one.
    """

    settings: ServiceSettings
    keys: Mapping[str, WatermarkKey]
    commitments: Mapping[str, KeyCommitment]
    chars_per_second: float | None = None

    @cached_property
    def _tokenizer(self) -> Tokenizer | None:
        return None if self.settings.tokenizer is None else load_tokenizer(self.settings.tokenizer)

    @cached_property
    def _surprisal_model(self) -> SurprisalModel | None:
        name, fingerprint = self.settings.surprisal_model, next(iter(self.keys.values())).spec.tokenizer_fingerprint
        context = self.settings.surprisal_context
        return None if name is None else load_surprisal_model(name, fingerprint, context=context)

    def warm(self) -> float | None:
        """Load what the first request of each key would wait for, and measure `chars_per_second`."""
        for key in self.keys.values():
            detector = Detector(key, tokenizer=self._tokenizer, surprisal_model=self._surprisal_model)
            detector.detect("The first text takes longer than those after it.")
        if self._surprisal_model is not None:
            began = time.perf_counter()
            self._surprisal_model.surprisals([_SAMPLE])
            self.chars_per_second = len(_SAMPLE) / (time.perf_counter() - began) / _SLOWER
        return self.chars_per_second

    def detect(self, asked: DetectRequest, upload: Upload | None, options: Options) -> Answer:
        """Check one text, and answer with the fields of `FullAnswer` or `PublicAnswer`.

        Raises:
            InputError: the document cannot be read, is a table, or is too long.
            SettingsError: an option is invalid, or cannot be combined with another.
            VocabularyMismatch: an id lies outside the keys' vocabulary.
        """
        source = upload or (asked.text if asked.token_ids is None else asked.token_ids) or ""
        content, document = self._read(source, options)
        detection = self._judge(content, document, options)
        scorer, unsearched = self._scorer(options), ""
        found = detector_of(scorer, detection)
        if asked.spans and not found.no_spans:
            try:
                _check_span_size(content)
                detection = with_spans(scorer, detection, content)
            except (ErrorAnswer, SettingsError) as error:
                unsearched = f"Marked spans were not looked for: {error}."
        fields = self._fields(content, detection, options, asked)
        if isinstance(content, str) and not options.public and (shades := found.shades(content, detection)):
            fields["shades"] = [asdict(shade) for shade in shades]
        if document is not None:
            fields["document"] = {"kind": document.kind, "notes": list(document.notes), "pages": document.pages}
        if unsearched:
            fields["where"] = unsearched
        encoded = json.dumps(fields, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
        return Answer(encoded, detection.verdict)

    def report(self, asked: ReportRequest, upload: Upload | None, options: Options) -> Answer:
        """Make the report of one text, with an empty place for a signature.

        Raises:
            InputError: the document cannot be read, is a table, or is too long, also for finding spans.
            SettingsError: an option is invalid.
        """
        content, document = self._read(upload or asked.text or "", options)
        name = upload.name if upload and "name" not in asked.model_fields_set else asked.name
        detection = self._judge(content, document, options)
        scorer = self._scorer(options)
        found = detector_of(scorer, detection)
        if not found.no_spans:
            _check_span_size(content)
        about: dict[str, Any] = {"public": options.public, "service_fpr": options.service_fpr}
        about["notes"] = document.notes if document else ()
        about["commitment"] = self.commitments.get(found.key.fingerprint)
        report = Report.of(scorer, name, content, detection=detection, **about)
        return Answer((to_html if asked.format == "html" else to_json)(report), detection.verdict)

    def fields(self, body: bytes, model: type[R], document: bool | None) -> R:
        """The fields of a body; see `fields_of`."""
        return fields_of(body, model, document)

    def join(self, asked: JoinRequest, signers: Mapping[str, Any] | None) -> bytes:
        """Make one report of several, with an empty place for a signature.

        Raises:
            InputError: one of them is none, or is not signed by one of the signers.
        """
        try:
            joined = JoinedReport.of(asked.reports, asked.name, signers, asked.unanswered)
        except SignatureInvalid as error:  # which no process can send to another
            raise InputError(str(error)) from None
        return (to_html if asked.format == "html" else to_json)(joined)

    def verify(self, document: bytes, keys: Mapping[str, Any], own_key: str | None) -> VerifyAnswer:
        """Whether a report is signed with one of the keys, of which the service's own may be one."""
        try:
            report = read_signed_report(document, keys)
        except SignatureInvalid as error:
            return VerifyAnswer(valid=False, detail=str(error), reason=error.reason, key_id=error.key_id)
        own = report["key_id"] == own_key
        signer = report["signer"] or ("this service" if own else None)
        signed = f"by {signer}" if signer else "with a key whose owner this service does not name"
        return VerifyAnswer(valid=True, detail=f"signed {signed}, and not changed since", own=own, **report)

    def _read(self, source: Content | Upload, options: Options) -> tuple[Content, Document | None]:
        if isinstance(source, Upload):
            name = visible_name(PurePath(source.name.replace("\\", "/")).name)
            with tempfile.TemporaryFile() as file:
                file.write(source.content)
                file.seek(0)
                document = read_opened(file, name, limits=self._limits(public=options.public))
            if document.rows:
                raise InputError(
                    f"this is a table with {len(document.rows)} texts: send each as a text, or check the file with "
                    "`dgmark detect`"
                )
            content: Content = document.text
        else:
            content, document = source, None
            if not (content.strip() if isinstance(content, str) else content):
                raise InputError("the text is empty")
        _check_size(content, "one request may hold", self.settings.max_chars)
        return content, document

    def _limits(self, *, public: bool) -> Any:
        """What a document may cost."""
        settings = self.settings
        return document_limits(
            seconds=(min(settings.public_seconds, settings.seconds) if public else settings.seconds) / 2,
            file_bytes=settings.body_bytes,
            unpacked_bytes=8 * settings.body_bytes,
            text_bytes=4 * settings.max_chars,
            memory_bytes=min(2**30, settings.worker_bytes),
        )

    def _named(self, options: Options) -> list[WatermarkKey]:
        """The keys to look for, unless one is gone."""
        for name in options.keys:
            if name not in self.keys:
                raise ErrorAnswer(503, f"the keys were read again while this waited, and {name!r} is gone: ask again")
        return [self.keys[name] for name in options.keys]

    def _judge(self, content: Content, document: Document | None, options: Options) -> Detection:
        """The verdict on one text, if the keys can be looked for in it within the time of a request."""
        keys = self._named(options)
        chars = len(content) if isinstance(content, str) else len(content) * CHARS_A_TOKEN
        seconds = self._seconds(chars, keys)
        if seconds > self.settings.seconds:
            what = "reading along" if seconds > 2 * seconds_to_check(chars, keys) else work_of(keys)
            detail = f"{what} for this text would take about {seconds:.0f} seconds, and a request may take "
            detail += f"{self.settings.seconds:g}: check it in parts of up to {self.most_chars(*keys):,} characters"
            raise ErrorAnswer(413, detail)
        scorer = self._scorer(options)
        found = scorer.detect(content)
        if document is None:
            return found
        return of_document(
            found, scorer.reader, content, incomplete=document.incomplete, uncertain_because=document.uncertain_because
        )

    def most_chars(self, *keys: WatermarkKey) -> int:
        """The longest text that can be checked for these keys within the time of a request."""
        lengths, most = range(self.settings.max_chars + 1), self.settings.seconds
        return max(0, bisect_right(lengths, most, key=lambda chars: self._seconds(chars, keys)) - 1)

    def _seconds(self, chars: int, keys: Sequence[WatermarkKey]) -> float:
        """About how long it takes to look for keys in so many characters, and to read them by the language model."""
        reading = chars / self.chars_per_second if self.chars_per_second else 0.0
        return seconds_to_check(chars, keys) + reading

    @cached_property
    def _scorer(self) -> Callable[[Options], Scorer]:
        return lru_cache(_MAX_SCORERS)(self._new_scorer)

    def _new_scorer(self, options: Options) -> Scorer:
        keys = self._named(options)
        shared: dict[str, Any] = {
            "tokenizer": self._tokenizer,
            "surprisal_model": self._surprisal_model,
            "fpr": options.fpr,
            **dict(options.of_rules),
        }
        if len(keys) == 1:
            return Detector(keys[0], normalise=options.normalise, **shared)
        if options.normalise:
            raise SettingsError("normalise needs one key: name it with `key`")
        return Keyring(keys, **shared)

    def _name_of(self, detection: Detection, options: Options) -> str:
        return next(name for name in options.keys if self.keys[name].fingerprint == detection.key_fingerprint)

    def _fields(self, content: Content, detection: Detection, options: Options, asked: DetectRequest) -> dict[str, Any]:
        named = detection.verdict == "watermarked" or detection.spans or len(options.keys) == 1
        rate = ChosenRate(options.fpr, options.service_fpr)
        scored = well_formed(content) if isinstance(content, str) else content
        fields: dict[str, Any] = {
            "form": "public" if options.public else "full",
            "key": self._name_of(detection, options) if named else None,
            "key_name": detection.key_name if named else None,
            "keys_tested": len(options.keys),
            "verdict": detection.verdict,
            "fpr": detection.fpr,
            "fpr_rarity": rarity(detection.fpr),
            "fpr_chosen_by": rate.chosen_by,
            "heading": rate.qualify(heading(detection)),
            "symbol": symbol(detection),
            "sentence": verdict_sentence(detection, public=options.public),
            "meaning": meaning(detection),
            "where": where(detection),
            "marked_share": detection.marked_share,
            "in_part": detection.in_part,
            "is_watermarked": detection.verdict == "watermarked",
            "guaranteed": detection.guaranteed,
            "text": {"sha256": sha256_of(scored), "length": len(content)},
        }
        if asked.include_text:
            fields["text"]["content"] = scored
        if options.public:
            fields["key_fingerprint"] = detection.key_fingerprint if named else None
        else:
            row = detection.to_row("")
            del row["id"], row["spans"]
            spec = self.keys[self._name_of(detection, options)].spec
            figures = {"rarity": rarity(detection.p_value), "matched_by_chance": matched_by_chance(spec, detection)}
            fields |= {**row, **figures}
        if detection.spans is not None:
            fields["spans"] = [
                {"start": span.start, "end": span.end}
                | ({} if options.public else {"p_value": span.p_value, "rarity": rarity(span.p_value)})
                for span in detection.spans
            ]
        return fields


def _check_span_size(content: Content) -> None:
    _check_size(content, "spans are found in up to", MAX_SPAN_CHARS)


def _check_size(content: Content, what: str, most: int) -> None:
    if len(content) > most:
        detail = f"the text has {len(content):,} characters or ids, and {what} {most:,}: check it in parts"
        raise ErrorAnswer(413, detail)
