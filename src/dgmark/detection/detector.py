"""The detector: from a text and a key to a verdict with a stated error rate (paper section 3.5).

`KeyTest` runs the test of one key on scored tokens; `Detector` reads texts for it. The false-positive rate holds for
any text chosen without knowledge of the key. The paper puts a threshold on the z-score; here it is on the p-value.
Knows nothing of models and prompts, and needs no torch.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, get_args

import numpy as np

from dgmark.arguments import number, whole
from dgmark.checkpoint.tokenizer import Tokenizer
from dgmark.detection.bigram_test import PairTest, find_spans
from dgmark.detection.exact_test import ExactTest, adjusted_p, bonferroni_p, window_statistic, z_score
from dgmark.detection.normalise import WRAPPING, check_steps, readings, unwrap
from dgmark.detection.reader import Ranges, Reader, ScoredIds, TextOrIds, at_words, several_texts
from dgmark.detection.result import Detection, Limit, Phase, ScoredToken, Span, verdict_of
from dgmark.errors import SettingsError
from dgmark.watermark.groups import GroupTables
from dgmark.watermark.key import WatermarkKey, check_key
from dgmark.watermark.strength import typical_match

DEFAULT_FPR = 1e-4
DEFAULT_MAX_CROP = 1024
NO_SPANS = (
    "spans need a key of the bigram rule, and this key is of the position rule: leave spans out, or give ranges that "
    "were chosen without the key"
)
# no p-value is below the smallest normal float, and shares of the rate must be representable as well
MIN_FPR = 1e-300


class KeyTest:
    """The test of one key, or of all sub-keys of one key, held to one false-positive rate.

    Args:
        key: the key.
        fpr: the false-positive rate over all keys that are tried.
        phase: whether tokens may be missing at the front; see `Detector`.
        max_crop: how many.
        keys: how many keys are tried, including this one.

    Raises:
        SettingsError: `key` is not a key, or a setting is invalid.
    """

    def __init__(
        self,
        key: WatermarkKey,
        *,
        fpr: float = DEFAULT_FPR,
        phase: Phase = "any",
        max_crop: int = DEFAULT_MAX_CROP,
        keys: int = 1,
    ) -> None:
        check_key(key)
        self.key, self.fpr, self.phase, self.max_crop = key, fpr, phase, max_crop
        self._keys_tested = keys
        self._subkeys_tested = key.num_subkeys
        # what each p-value pays for
        self._tried = keys * self._subkeys_tested
        check_fpr(fpr, self._tried)
        if not isinstance(phase, str) or phase not in get_args(Phase):
            raise SettingsError(f"phase {phase!r} is not one of: {', '.join(get_args(Phase))}")
        if whole("max crop", max_crop) < 0:
            raise SettingsError(f"max crop {max_crop} is negative")
        if key.spec.rule == "bigram" and (phase, max_crop) != ("any", DEFAULT_MAX_CROP):
            raise SettingsError(
                "phase and max crop are of the position rule, as under the bigram rule a missing beginning moves no "
                "pair: leave them out"
            )
        if not key.spec.rotation and max_crop != DEFAULT_MAX_CROP:
            raise SettingsError(
                "max crop is of keys with a rotation, as under other keys all numbers of missing tokens are looked at: "
                "leave it out"
            )

    def __setattr__(self, name: str, value: object) -> None:
        """Set an attribute once: the settings are checked when they are given."""
        if name in vars(self):
            raise AttributeError(f"{name} of a {type(self).__name__} cannot be changed: make another one")
        super().__setattr__(name, value)

    @property
    def settings(self) -> dict[str, Any]:
        """Everything that a detection depends on except the text."""
        return {
            "keys": [setting_of(self.key)],
            "fpr": self.fpr,
            "baseline": None,
            "phase": self.phase,
            "max_crop": self.max_crop,
            "normalise": [],
        }

    def score(self, tokens: ScoredIds, share: float = 1.0) -> Detection:
        """The detection of scored tokens: of the key, or of the likeliest of its sub-keys.

        Args:
            tokens: the scored tokens.
            share: the share of the rate that this text has.
        """
        if self.key.spec.rule == "bigram":
            return self._score_pairs(tokens, share)
        spec, tables = self.key.spec, self.key.tables
        exact = ExactTest(tables, self.phase, self.max_crop)
        hypotheses = exact.hypotheses(tokens.ids, tokens.positions)
        best = min(hypotheses, key=lambda hypothesis: hypothesis.p_value)
        p, level = adjusted_p(best.p_value, share), self.fpr / self._tried
        scored, limit = len(tokens.ids), None
        if p > level:
            limit = hypotheses[0].limit(scored, typical_match(spec), share, level)
        verdict = verdict_of(p, level, detectable=limit is None)
        matched = tables.matching(tokens.ids, tokens.positions + best.shift)
        return Detection(
            verdict=verdict,
            z_score=z_score(best.matched, scored, spec.modulus),
            green_fraction=best.matched / scored if scored else 0.0,
            num_tokens_matched=best.matched,
            shift=best.shift,
            shifts_tested=exact.shifts_tested,
            z_window=float(window_statistic(matched, spec.modulus)),
            **self._common(tokens, p, limit),
        )

    def _score_pairs(self, tokens: ScoredIds, share: float) -> Detection:
        """The detection of scored tokens by a key of rule "bigram"."""
        test, level = PairTest(self.key, tokens), self.fpr / self._tried
        number = self.key.number if self._subkeys_tested == 1 else test.likeliest()[0]
        part = test.best_part(number)
        p, limit = adjusted_p(part.p_value, share), None
        if p > level:
            limit = test.limit(share, level)
        verdict = verdict_of(p, level, detectable=limit is None)
        found = number if verdict == "watermarked" else None
        matched = int(test.matches(number).sum())
        return Detection(
            verdict=verdict,
            z_score=z_score(matched, test.pairs, 2),
            green_fraction=matched / test.pairs if test.pairs else 0.0,
            num_tokens_matched=int(np.count_nonzero(test.levels(number) > 0)),
            shift=0,
            shifts_tested=1,
            num_pairs_scored=test.pairs,
            num_pairs_matched=matched,
            subkey=found,
            subkey_confidence=test.confidence(found, part) if self._subkeys_tested > 1 and found is not None else None,
            subkey_tested=number,
            **self._common(tokens, p, limit),
        )

    def _common(self, tokens: ScoredIds, p: float, limit: Limit | None) -> dict[str, Any]:
        """The fields of a detection that are the same under every rule; `p` has not paid for the keys yet."""
        return {
            "p_value": bonferroni_p(p, self._tried),
            "num_tokens_scored": len(tokens.ids),
            "fpr": self.fpr,
            "key_fingerprint": self.key.fingerprint,
            "key_name": self.key.name,
            "guaranteed": not self.key.keyless,
            "keys_tested": self._keys_tested,
            "subkeys_tested": self._subkeys_tested,
            "uncertain_because": limit,
        }

    def exact_p(self, tokens: ScoredIds) -> float:
        """The p-value of a key of rule "position" by itself, at the whole rate; its tables are not kept in memory."""
        exact = ExactTest(GroupTables(self.key.spec, self.key.secret or b""), self.phase, self.max_crop)
        return min(hypothesis.p_value for hypothesis in exact.hypotheses(tokens.ids, tokens.positions))

    def _tested(self, tokens: ScoredIds, detection: Detection) -> WatermarkKey:
        """The key, or the sub-key that a detection of these tokens tested."""
        if self._subkeys_tested == 1:
            return self.key
        tested = detection.subkey_tested
        return self.key.subkey(PairTest(self.key, tokens).likeliest()[0] if tested is None else tested)


class Detector(KeyTest):
    """Detects the mark of one key.

    Args:
        key: the key.
        tokenizer: the model's tokenizer, or its folder or file; by default the one the key names.
        fpr: false-positive rate to hold, from 1e-300 to below 1.
        phase: for a key of the position rule: "any" allows for tokens missing at the front and pays for it; "start"
            takes the text as complete.
        max_crop: with a rotating key and phase "any", the largest number of tokens that may be missing.
        normalise: steps of `normalise.STEPS` that undo disguises, tried if the unchanged text does not show the mark.
            Ids are never changed.

    A text that the steps change, or that is hard-wrapped, is tried as it is and with all of that undone, and pays for
    both readings.

    Attributes:
        reader: reads texts and ids.
        normalise: the steps.

    Raises:
        SettingsError: `key` is not a key, or a setting is invalid.
        TokenizerMismatch: the tokenizer is not the key's.
    """

    def __init__(
        self,
        key: WatermarkKey,
        *,
        tokenizer: Tokenizer | str | None = None,
        fpr: float = DEFAULT_FPR,
        phase: Phase = "any",
        max_crop: int = DEFAULT_MAX_CROP,
        normalise: Sequence[str] = (),
    ) -> None:
        super().__init__(key, fpr=fpr, phase=phase, max_crop=max_crop)
        check_steps(normalise)
        self.normalise = tuple(normalise)
        self.reader = Reader(key, tokenizer)

    @property
    def tokenizer(self) -> Tokenizer:
        """The key's tokenizer, loaded when first needed."""
        return self.reader.tokenizer

    @property
    def settings(self) -> dict[str, Any]:
        """Everything that a detection depends on except the text."""
        return super().settings | {"normalise": sorted(set(self.normalise))}

    def detect(self, text_or_ids: TextOrIds, *, only: Ranges | None = None) -> Detection:
        """Score one text, or the token ids of one response.

        Ids are scored up to the first end token. A text is not cut there: whoever can put an end token into a text
        could hide everything behind it.

        Args:
            text_or_ids: the text or ids.
            only: ranges [start, end) to score, in characters (in indices for ids), such as the infilled parts of a
                text. Tokens that straddle an edge are not scored. Positions count from the first token of the text.

        Raises:
            VocabularyMismatch: an id lies outside the key's vocabulary.
            SettingsError: the input is neither a text nor ids, or a range is empty or lies outside the text.
        """
        if self.normalise and only is not None:
            raise SettingsError("ranges refer to the unchanged text: leave normalisation out")
        if only is not None:
            return self.score(self.reader.read(text_or_ids, only))
        return self.detect_many([text_or_ids])[0]

    def detect_many(self, texts_or_ids: Iterable[TextOrIds]) -> list[Detection]:
        """Score several texts or responses, encoding the texts together; the detections equal those of `detect`.

        Raises:
            VocabularyMismatch: an id lies outside the key's vocabulary.
            SettingsError: the input is one text instead of several, or an item is neither a text nor ids.
        """
        return detect_readings(self.reader, self.score, texts_or_ids, self.normalise)

    @property
    def finds_spans(self) -> bool:
        """Whether `spans` can find spans with this key; with a key of the position rule it cannot."""
        return self.key.spec.rule == "bigram"

    def spans(self, text_or_ids: TextOrIds) -> tuple[Span, ...]:
        """The spans of a text (or of ids) that carry the mark, in order; with sub-keys, the mark of any of them.

        The chance to report any span without marked text is at most `fpr`. The ends of a span are estimates; in a text
        they are moved outwards to where words begin and end.

        Raises:
            SettingsError: the key is of the position rule.
        """
        if not self.finds_spans:
            raise SettingsError(NO_SPANS)
        tried = [content for content, _ in readings(text_or_ids)]
        found = [self._spans(content, len(tried)) for content in tried]
        return min(found, key=lambda spans: min((span.p_value for span in spans), default=1.0))

    def _spans(self, content: TextOrIds, tried: int) -> tuple[Span, ...]:
        """The spans of one of the readings of a text, which share the rate."""
        tokens, offsets = self.reader.locate(content)
        found = find_spans(self.key, tokens, self.fpr / tried)
        edges = [(int(offsets[span.first, 0]), int(offsets[span.last - 1, 1])) for _, span in found]
        if isinstance(content, str):
            edges = at_words(content, edges)
        return tuple(
            Span(start, end, span.last - span.first, bonferroni_p(span.p_value, tried), number)
            for (start, end), (number, span) in zip(edges, found, strict=True)
        )

    def tokens(self, text: str, detection: Detection) -> list[ScoredToken]:
        """Each token of `text`, and whether it matches at the shift (and sub-key) of `detection`, for display.

        Under rule "bigram" a token matches if more of its pairs match than do not.

        Raises:
            SettingsError: `detection` is not a detection.
        """
        if not isinstance(detection, Detection):
            raise SettingsError(f"a detection is what detect returns, not a {type(detection).__name__}")
        ids, offsets = self.reader.encode(unwrap(text) if detection.normalised == (WRAPPING,) else text)
        positions, scored = np.arange(len(ids)), self.reader.counts(ids)
        key = self._tested(ScoredIds(ids[scored], positions[scored]), detection)
        matched, pairs = np.zeros(len(ids), dtype=bool), np.zeros((2, len(ids)), dtype=np.int64)
        if key.spec.rule == "bigram":
            test = PairTest(key, ScoredIds(ids[scored], positions[scored]))
            matched[scored], pairs[:, scored] = test.levels(key.number) > 0, test.completed(key.number)
        else:
            matched = key.tables.matching(ids, positions + detection.shift)
        return [
            ScoredToken(start, end, bool(match) if counts else None, *of_token)
            for (start, end), match, counts, of_token in zip(
                offsets.tolist(), matched, scored, pairs.T.tolist(), strict=True
            )
        ]


def detect_readings(
    reader: Reader,
    score: Callable[[ScoredIds, float], Detection],
    texts_or_ids: Iterable[TextOrIds],
    steps: Sequence[str] = (),
) -> list[Detection]:
    """The detections of texts, each by its likelier reading; the readings of a text share the rate.

    Args:
        reader: reads the texts, encoding them together.
        score: the detection of tokens at a share of the rate.
        texts_or_ids: the texts or responses.
        steps: steps that undo disguises.
    """
    tried = [readings(item, steps) for item in several_texts(texts_or_ids)]
    tokens = iter(reader.read_many([content for one in tried for content, _ in one]))
    found = [[replace(score(next(tokens), 1 / len(one)), normalised=undone) for _, undone in one] for one in tried]
    return [min(one, key=lambda detection: detection.p_value) for one in found]


def detect(text_or_ids: TextOrIds, key: WatermarkKey, **settings: Any) -> Detection:
    """Score one text, or the token ids of one response, against one key.

    Args:
        text_or_ids: the text or ids.
        key: the key.
        settings: those of `Detector`: tokenizer, fpr, phase, max_crop, normalise.
    """
    return Detector(key, **settings).detect(text_or_ids)


def shift_settings(key: WatermarkKey) -> set[str]:
    """The settings of a detection, of those that say how a text is shifted, that concern a key."""
    return ({"phase"} if key.spec.rule == "position" else set()) | ({"max_crop"} if key.spec.rotation else set())


def setting_of(key: WatermarkKey) -> str:
    """The key as a setting of a detection: its fingerprint, and its number if it is one sub-key."""
    return key.fingerprint if key.number is None else f"{key.fingerprint}/{key.number}"


def check_fpr(fpr: float, keys: int = 1) -> None:
    """Refuse an invalid false-positive rate, or one too small for this many keys and sub-keys.

    Raises:
        SettingsError: the rate is not below 1, or each key's share is below 1e-300.
    """
    if not MIN_FPR * keys <= number("fpr", fpr) < 1:
        raise SettingsError(
            f"fpr {fpr} is not between 0 and 1 (at least {MIN_FPR * keys}): give the share of unmarked texts that "
            "may be called watermarked, such as 1e-4"
        )
