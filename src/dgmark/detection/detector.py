"""The detector: from a text and a key to a verdict with a stated error rate (paper section 3.5).

The false-positive rate holds for any text chosen without knowledge of the key. The paper puts a threshold on the
z-score; here it is on the p-value. Knows nothing of models and prompts, and needs no torch.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any, TypedDict, Unpack

from dgmark.arguments.checks import instance, number, shown, whole
from dgmark.arguments.contents import Content, TextOrIds, content_of
from dgmark.checkpoint.tokenizer import Tokenizer
from dgmark.detection.reading.disguises.normalise import checked_steps, whole_letters
from dgmark.detection.reading.disguises.readings import TextReading, readings
from dgmark.detection.reading.reader import Ranges, Reader, ScoredIds, at_words
from dgmark.detection.reading.surprisal import SurprisalModel
from dgmark.detection.results.detection import Detection
from dgmark.detection.results.figures import Phase, ScoredToken, Span, Verdict
from dgmark.detection.results.shading import Shade, shades_of
from dgmark.detection.scorer import ReadText, Scorer, detections_of
from dgmark.detection.statistics.p_values import adjusted_p, bonferroni_p
from dgmark.detection.statistics.rules import DetectionSettings, TextTest, language_model, options_for, rule_test
from dgmark.errors import DgmarkError, SettingsError, each
from dgmark.watermark.key import WatermarkKey, check_key

DEFAULT_FPR = 1e-4
# no p-value is below the smallest normal float, and shares of the rate must be representable as well
MIN_FPR = 1e-300
_MOST_KEYS = 10**15
# tokens of texts that are tested together
_TOKENS_AT_ONCE = 2**14


class OwnRuleOptions(TypedDict, total=False):
    """The options of the tests of dgmark's own rules as arguments, for type checkers; see `PositionOptions`."""

    phase: Phase
    max_crop: int


class Detector(Scorer):
    """Detects the mark of one key, or of any sub-key of one key.

    Args:
        key: the key.
        tokenizer: the model's tokenizer, or its folder or file; by default the one the key names.
        fpr: false-positive rate to hold over all keys that are tried, from 1e-300 to below 1.
        normalise: steps of `normalise.STEPS` that undo disguises, or "all" of them, tried if the unchanged text does
            not show the mark. Ids are never changed.
        keys_tested: how many keys are tried, including this one: a whole number of at least 1. P-values are corrected
            for all of them.
        surprisal_model: a language model that reads the texts, such as a `dgmark.LanguageModel`, or what names one:
            "builtin", a folder, a GGUF file, a hub id, or the address of a server. Each pair of tokens
            then has a weight by how much choice the tokens had; see docs/statistics.md. Only for keys of rule bigram.
        options: the options of the rule's test: for a key of rule position those of `PositionOptions`, `phase` and
            `max_crop`. Rule bigram has none: a missing beginning moves no pair.

    A text that the steps change, that is hard-wrapped, or whose words stand in signs of markup or on lines of their
    own, is tried as it is and with all of that undone, and pays for both readings.

    Attributes:
        reader: reads texts and ids.

    Raises:
        SettingsError: `key` is not a key, or a setting is invalid.
        TokenizerMismatch: the tokenizer is not the key's.
    """

    def __init__(
        self,
        key: WatermarkKey,
        *,
        tokenizer: Tokenizer | str | os.PathLike[str] | None = None,
        fpr: float = DEFAULT_FPR,
        normalise: Sequence[str] = (),
        keys_tested: int = 1,
        surprisal_model: SurprisalModel | str | None = None,
        **options: Unpack[OwnRuleOptions],
    ) -> None:
        check_key(key)
        keys_tested = whole("keys tested", keys_tested)
        if keys_tested < 1:
            raise SettingsError(f"keys tested {keys_tested} is below 1: count this key and all others that are tried")
        check_fpr(fpr, keys_tested * key.num_subkeys)
        self.key, self.keys_tested, self.fpr = key, keys_tested, float(fpr)
        self.normalise = checked_steps(normalise)
        (own,) = options_for([key], options)
        self._settings = DetectionSettings(fpr / keys_tested / key.num_subkeys, own, surprisal_model is not None)
        self._test = rule_test(key)
        self.reader = Reader(key, tokenizer, language_model(surprisal_model, [key]))

    @property
    def tokenizer(self) -> Tokenizer:
        """The key's tokenizer, loaded when first needed."""
        return self.reader.tokenizer

    @property
    def settings(self) -> dict[str, Any]:
        """Everything that a detection depends on except the text."""
        model = self.reader.surprisal_model
        return {
            "keys": [setting_of(self.key)],
            "fpr": self.fpr,
            "normalise": sorted(set(self.normalise)),
            **asdict(self._settings.options),
            **({"surprisal_model": model.fingerprint} if model is not None else {}),
        }

    def detect(self, text_or_ids: TextOrIds, *, only: Ranges | None = None) -> Detection:
        """Score one text, or the token ids of one response.

        Ids are scored up to the first end token. A text is not cut there: whoever can put an end token into a text
        could hide everything after it.

        Args:
            text_or_ids: a text, or token ids as a list of whole numbers or as an integer array of one dimension and at
                least 16 bits, of numpy, pandas, Arrow, polars or torch.
            only: ranges [start, end) to score, in characters (in indices for ids), such as the infilled parts of a
                text. Tokens that straddle an edge are not scored. Positions count from the first token of the text.

        Raises:
            InputError: the tokenizer cannot encode the text, because it has no unknown token.
            VocabularyMismatch: an id lies outside the key's vocabulary.
            SettingsError: the input is neither a text nor ids, or a range is empty or lies outside the text.
        """
        if only is None:
            return super().detect(text_or_ids)
        if self.normalise:
            raise SettingsError("ranges refer to the unchanged text: leave normalisation out")
        return self.score(self.reader.read(text_or_ids, only))

    @property
    def reads_layout(self) -> bool:
        """Whether the key's rule reads a text once more without its layout."""
        return not self._test.scores_layout

    @property
    def no_spans(self) -> str | None:
        """Why `spans` finds none with this key, and what to do; None if the key's rule can find them.

        The subject of the sentence is the setting, as `SettingsError` takes it.
        """
        why = self._test.no_spans
        if why is None:
            return None
        return f"finds nothing, as {why}: leave it out, or give ranges that were chosen without the key"

    def spans(self, text_or_ids: TextOrIds) -> tuple[Span, ...]:
        """The spans of a text (or of ids) that carry the mark, in order; with sub-keys, the mark of any of them.

        The chance to report any span without marked text is at most `fpr`, over all keys that are tried. The ends of a
        span are estimates; in a text they are moved outwards to where words begin and end. They are places of the text
        as it is given, also where disguises are undone. A span ends where nothing new is scored: a long repetition is
        not in one.

        Raises:
            SettingsError: the key's rule finds none.
        """
        if self.no_spans:
            raise SettingsError(self.no_spans, field="spans")
        content = content_of(text_or_ids)
        tried = readings(content, self.normalise)
        found = [self._spans(content, reading, len(tried) * self.keys_tested) for reading in tried]
        return min(found, key=lambda spans: min((span.p_value for span in spans), default=1.0))

    def _spans(self, content: Content, reading: TextReading, tried: int) -> tuple[Span, ...]:
        """The spans of a reading of a text for one key, once the readings and keys that are tried share the rate."""
        located = self.reader.locate(reading.content)
        found = self.test(located).spans(self.fpr / tried)
        starts, ends = located.offsets.T
        edges = [(int(starts[span.first]), int(ends[span.last - 1])) for span in found]
        if isinstance(reading.content, str):
            edges = [reading.original(start, end) for start, end in at_words(reading.content, edges)]
        if isinstance(content, str) and reading.mapped:
            # what stands for a letter and the marks on it has the place of the last of these
            edges = [whole_letters(content, start, end) for start, end in edges]
        return tuple(
            Span(start, end, span.last - span.first, bonferroni_p(span.p_value, tried), span.subkey)
            for (start, end), span in zip(edges, found, strict=True)
        )

    def tokens(self, text: str, detection: Detection) -> list[ScoredToken]:
        """Each token of `text`, and whether it matches at the shift (and sub-key) of `detection`, for display.

        Under rule "bigram" a token matches if more of its pairs match than do not, and long repetitions are not scored.

        Raises:
            SettingsError: `detection` is not a detection.
        """
        if not isinstance(detection, Detection):
            raise SettingsError(f"a detection is what detect returns, not a {type(detection).__name__}")
        reading = readings(content_of(text), self.normalise)[-1 if detection.normalised else 0]
        _, offsets = self.reader.encode(reading.content)
        scored = self.reader.read(reading.content)
        test = self.test(scored)
        matches, weights, visible = test.matched_tokens(detection), test.token_weights(), test.shown_tokens()
        matched, weight = dict[int, bool](), dict[int, float]()
        for token, place in enumerate(scored.positions.tolist()):
            if matches is not None and (visible is None or visible[token]):
                matched[place] = bool(matches[token])
            if weights is not None:
                weight[place] = float(weights[token])
        return [
            ScoredToken(*reading.original(start, end), matched.get(place), weight.get(place, 1.0))
            for place, (start, end) in enumerate(offsets.tolist())
        ]

    def shades(self, text: str, detection: Detection) -> list[Shade]:
        """Which characters of the spans of `detection` to shade: matching tokens, by how much they count.

        Empty where all tokens count alike, as without a language model, and where the spans are not known.

        Raises:
            SettingsError: `detection` is not a detection, or `text` is not a text.
        """
        if instance("the detection", detection, Detection).figures.weights is None or not detection.spans:
            return []
        tokens, text = dict[int | None, list[ScoredToken]](), instance("the text", text, str)
        shades = list[Shade]()
        for span in sorted(detection.spans, key=lambda span: span.start):
            if span.subkey not in tokens:
                tokens[span.subkey] = self.tokens(text, replace(detection, subkey=span.subkey))
            shades += shades_of(text, tokens[span.subkey], span.start, span.end)
        return shades

    # --- the test of tokens ---

    @property
    def _tried(self) -> int:
        """How many keys and sub-keys each p-value is corrected for."""
        return self.keys_tested * self.key.num_subkeys

    def test(self, tokens: ScoredIds) -> TextTest:
        """The test of scored tokens, by the key's rule.

        Raises:
            VocabularyMismatch: an id lies outside the key's vocabulary.
            SettingsError: `tokens` is not what `reader` reads, with or without a language model.
        """
        tokens = instance("the tokens", tokens, ScoredIds)
        if self._settings.weighted != (tokens.surprisal is not None):
            raise SettingsError("a weighted test takes tokens that a language model has read, and no other test does")
        return self._test(self.key, tokens, self._settings)

    def p_value(self, test: TextTest, share: float) -> float:
        """The p-value of a test that has this share of the rate, once it has paid for the keys and sub-keys.

        Raises:
            SettingsError: `test` is not a test of the key's rule, or the share is not above 0 and at most 1.
        """
        self._check_share(test, share)
        return bonferroni_p(adjusted_p(test.p_value(), share), self._tried)

    def _check_share(self, test: object, share: float) -> None:
        """Refuse what is not a test, and a share of the rate by which a p-value cannot be divided."""
        if not isinstance(test, self._test):
            raise SettingsError(f"a test is what Detector.test returns, not a {type(test).__name__}")
        if not MIN_FPR < number("the share", share) <= 1:
            raise SettingsError(f"the share {shown(share)} of the rate is not above 0 and at most 1")

    def score(self, tokens: ScoredIds, share: float = 1.0) -> Detection:
        """The detection of scored tokens: of the key, or of the likeliest of its sub-keys.

        Args:
            tokens: the scored tokens.
            share: the share of the rate that this text has, above 0 and at most 1.

        Raises:
            VocabularyMismatch: an id lies outside the key's vocabulary.
            SettingsError: an argument is of a wrong type or out of range.
        """
        return self.detection(self.test(tokens), len(tokens.ids), share)

    def _detections(self, contents: list[Content]) -> list[Detection | DgmarkError]:
        score, layout = self._score_many, self.reads_layout
        return detections_of(contents, self.reader, score, steps=self.normalise, layout=layout)

    def _score_many(self, texts: list[ReadText]) -> list[Detection | DgmarkError]:
        """What `score` gives for each text at its share of the rate, or its error; some are tested together."""
        found = list[Detection | DgmarkError]()
        for some in _batches(texts):
            tests = self._test.of_texts(self.key, [tokens for tokens, _ in some], self._settings)
            tested = [
                test if isinstance(test, DgmarkError) else (test, len(tokens.ids), share)
                for test, (tokens, share) in zip(tests, some, strict=True)
            ]
            found += each(lambda args: self.detection(*args), tested)
        return found

    def detection(self, test: TextTest, scored: int, share: float) -> Detection:
        """The detection of a text by its test, of which so many tokens are scored.

        Raises:
            SettingsError: an argument is of a wrong type or out of range.
        """
        self._check_share(test, share)
        scored = whole("the number of scored tokens", scored)
        level = self.fpr / self._tried
        p = adjusted_p(test.p_value(), share)
        uncertain = test.uncertain_because(share, level) if p > level else None
        verdict: Verdict = "watermarked" if p <= level else "uncertain" if uncertain else "not_detected"
        return Detection(
            verdict=verdict,
            p_value=bonferroni_p(p, self._tried),
            fpr=self.fpr,
            key_fingerprint=self.key.fingerprint,
            key_name=self.key.name,
            rule=self.key.spec.rule,
            rule_title=self.key.rule.title,
            units=self._test.units,
            guaranteed=not self.key.keyless,
            keys_tested=self.keys_tested,
            subkeys_tested=self.key.num_subkeys,
            uncertain_because=uncertain,
            **{"num_tokens_scored": scored, **test.fields(verdict == "watermarked")},
        )


def _batches(texts: Sequence[ReadText]) -> Iterator[list[ReadText]]:
    """The texts in their order, so many together that their tokens fill a batch."""
    batch, tokens = list[ReadText](), 0
    for text in texts:
        batch.append(text)
        tokens += len(text[0].ids)
        if tokens >= _TOKENS_AT_ONCE:
            yield batch
            batch, tokens = [], 0
    if batch:
        yield batch


class DetectorSettings(OwnRuleOptions, total=False):
    """The keyword arguments of `Detector`, for type checkers."""

    tokenizer: Tokenizer | str | os.PathLike[str] | None
    fpr: float
    normalise: Sequence[str]
    keys_tested: int
    surprisal_model: SurprisalModel | str | None


def detect(text_or_ids: TextOrIds, key: WatermarkKey, **settings: Unpack[DetectorSettings]) -> Detection:
    """Score one text, or the token ids of one response, against one key.

    Args:
        text_or_ids: the text or ids, see `Detector.detect`.
        key: the key.
        settings: those of `Detector`.
    """
    return Detector(key, **settings).detect(text_or_ids)


def setting_of(key: WatermarkKey) -> str:
    """The key as a setting of a detection: its fingerprint, and its number if it is one sub-key."""
    return key.fingerprint if key.number is None else f"{key.fingerprint}/{key.number}"


def check_fpr(fpr: float, keys: int = 1) -> None:
    """Refuse an invalid false-positive rate, or one too small for this many keys and sub-keys.

    Raises:
        SettingsError: the rate is not below 1, or each key's share is below 1e-300.
    """
    if keys > _MOST_KEYS:
        raise SettingsError(f"more than {_MOST_KEYS:,} keys and sub-keys cannot be tested")
    if not MIN_FPR * keys <= number("fpr", fpr) < 1:
        least = f" (at least {MIN_FPR * keys:g})" if 0 < fpr < 1 else ""
        raise SettingsError(
            f"fpr {shown(fpr)} is not between 0 and 1{least}: give the share of unmarked texts "
            "that may be called watermarked, such as 1e-4"
        )
