"""From a text and a key to a verdict with a stated error rate. No model, no prompt, no torch.

The p-value is that of `statistics.MatchNull`: true for any text chosen without knowledge of the key.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Int

from dgmark.errors import ModelNotFound, SettingsError
from dgmark.key import WatermarkKey
from dgmark.statistics import SMALLEST_P, MatchNull, residue_counts, z_score
from dgmark.tokenizer import Tokenizer, load_tokenizer
from dgmark.watermark import check_ids

DETECTION_SCHEMA = 1
DEFAULT_FPR = 1e-4
DEFAULT_MAX_CROP = 1024

# tokens at the front of a text that tell a rotating key's crop; more would not tell it better
_SEARCHED = 4096

Verdict = Literal["watermarked", "not_detected", "uncertain"]
Phase = Literal["any", "start"]
TextOrIds = str | Sequence[int] | np.ndarray


@dataclass(frozen=True)
class Detection:
    """What one text says of one key.

    Attributes:
        verdict: "watermarked" (p <= fpr), "not_detected", or "uncertain" (too short or too repetitive to tell).
        p_value: chance that a random key matches this very text as well at any phase tried; in (0, 1].
        z_score: the paper's, at the best phase; for comparison, not for the verdict.
        green_fraction: matched / scored.
        num_tokens_scored: tokens of the response, special ones left out.
        num_tokens_matched: those in their position's matching set, at the best phase.
        fpr: false-positive rate that the verdict was held to.
        shift: how many tokens are taken to be missing at the front (modulo the code's period without rotation).
        shifts_tested: how many were tried, and paid for in the p-value.
        key_fingerprint: names the key.
        guaranteed: whether the p-value rests on a secret key; false for scheme token-id.
        summary: the verdict in one plain sentence.
    """

    verdict: Verdict
    p_value: float
    z_score: float
    green_fraction: float
    num_tokens_scored: int
    num_tokens_matched: int
    fpr: float
    shift: int
    shifts_tested: int
    key_fingerprint: str
    guaranteed: bool
    summary: str

    def to_row(self, row_id: str) -> dict[str, Any]:
        """The detection as a JSON row."""
        return {"id": row_id, **asdict(self), "schema": DETECTION_SCHEMA}


@dataclass(frozen=True)
class ScoredToken:
    """One token of a text for display: its characters [start, end), and whether it matched (None: not scored)."""

    start: int
    end: int
    matched: bool | None


@dataclass(frozen=True)
class _Hypothesis:
    """The mark is there, `shift` tokens into its text; `weight` is its share of the false-positive rate."""

    shift: int
    matched: int
    weight: float
    null: MatchNull

    @cached_property
    def p_value(self) -> float:
        return min(1.0, max(SMALLEST_P, self.null.tail(self.matched) / self.weight))


class Detector:
    """Detects the mark of one key.

    Args:
        key: the key.
        tokenizer: the model's tokenizer, or where to find it; by default the one the key names.
        fpr: false-positive rate to hold, in (0, 1).
        phase: "any" allows for tokens missing at the front and pays for it; "start" takes the text as complete.
        max_crop: with a rotating key and phase "any", the most tokens that may be missing.

    Raises:
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
    ) -> None:
        if not 0 < fpr < 1:
            raise SettingsError(f"fpr {fpr} is not between 0 and 1")
        if phase not in ("any", "start"):
            raise SettingsError(f"phase {phase!r} is not one of: any, start")
        if max_crop < 0:
            raise SettingsError(f"max crop {max_crop} is negative")
        self.key = key
        self.fpr = fpr
        self.phase = phase
        self.max_crop = max_crop
        self._tokenizer: Tokenizer | None = None
        if tokenizer is not None:
            self._tokenizer = load_tokenizer(tokenizer) if isinstance(tokenizer, str) else tokenizer
            key.check_tokenizer(self._tokenizer)

    @property
    def tokenizer(self) -> Tokenizer:
        """The key's tokenizer, loaded when first needed."""
        if self._tokenizer is None:
            try:
                tokenizer = load_tokenizer(self.key.spec.tokenizer)
            except ModelNotFound as error:
                raise ModelNotFound(
                    f"the key names the tokenizer {self.key.spec.tokenizer!r}, which is not here: give --tokenizer the "
                    f"model's folder or tokenizer.json (vocabulary {self.key.spec.tokenizer_fingerprint})"
                ) from error
            self.key.check_tokenizer(tokenizer)
            self._tokenizer = tokenizer
        return self._tokenizer

    def detect(self, text_or_ids: TextOrIds) -> Detection:
        """Score one text, or the token ids of one response.

        Ids are scored up to the first end token. A text is not cut there: whoever can put an end token into a text
        could hide everything behind it.

        Raises:
            VocabularyMismatch: an id lies outside the key's vocabulary.
        """
        if isinstance(text_or_ids, str):
            return self._detect_ids(np.array(self.tokenizer.encode(text_or_ids), dtype=np.int64))
        return self._detect_ids(self._response(text_or_ids))

    def detect_many(self, texts_or_ids: Iterable[TextOrIds]) -> list[Detection]:
        """Score many; the same detections as one by one, texts encoded together."""
        items = list(texts_or_ids)
        encoded = iter(self.tokenizer.encode_batch([item for item in items if isinstance(item, str)]) or [])
        return [
            self._detect_ids(np.array(next(encoded), dtype=np.int64) if isinstance(item, str) else self._response(item))
            for item in items
        ]

    def tokens(self, text: str, detection: Detection) -> list[ScoredToken]:
        """Each token of `text` with its match at the shift of `detection`, for display."""
        encoding = self.tokenizer.encode_with_offsets(text)
        ids = np.array(encoding.ids, dtype=np.int64)
        matched = self.key.tables.matching(ids, np.arange(len(ids)) + detection.shift)
        scored = self._scored[ids]
        return [
            ScoredToken(start, end, bool(match) if counts else None)
            for (start, end), match, counts in zip(encoding.offsets, matched, scored, strict=True)
        ]

    def _response(self, ids: Sequence[int] | np.ndarray) -> Int[np.ndarray, " n"]:
        try:
            array = np.asarray(ids)
        except (ValueError, OverflowError):  # ragged, or beyond any id
            raise SettingsError("token ids are a flat list of whole numbers") from None
        if array.ndim != 1 or (array.size and not np.issubdtype(array.dtype, np.integer)):
            raise SettingsError("token ids are a flat list of whole numbers")
        array = array.astype(np.int64)
        check_ids(array, self.key.spec.table_size)
        ends = self._end[array].nonzero()[0]
        return array[: ends[0]] if len(ends) else array

    @cached_property
    def _end(self) -> Bool[np.ndarray, " vocab"]:
        return self._table_of(self.tokenizer.end_ids)

    @cached_property
    def _scored(self) -> Bool[np.ndarray, " vocab"]:
        return ~self._table_of(self.tokenizer.special_ids)

    def _table_of(self, ids: Iterable[int]) -> Bool[np.ndarray, " vocab"]:
        table = np.zeros(self.key.spec.table_size, dtype=bool)
        table[list(ids)] = True
        return table

    def _detect_ids(self, ids: Int[np.ndarray, " n"]) -> Detection:
        """Score ids that the key's table covers: checked ones, or those of its own tokenizer."""
        positions = self._scored[ids].nonzero()[0]
        ids = ids[positions]
        hypotheses = self._hypotheses(ids, positions)
        best = min(hypotheses, key=lambda hypothesis: hypothesis.p_value)
        tested = self.key.spec.period if not self.key.spec.rotation else self.max_crop + 1
        return self._detection(best, hypotheses[0], len(ids), 1 if self.phase == "start" else tested)

    def _hypotheses(self, ids: Int[np.ndarray, " n"], positions: Int[np.ndarray, " n"]) -> list[_Hypothesis]:
        """The hypotheses worth a p-value, the first one standing for an uncropped text."""
        spec = self.key.spec
        if self.phase == "start" or (spec.rotation and not self.max_crop):
            return [self._hypothesis(ids, positions, 0, self._matched(ids, positions), 1.0)]
        # Any one shift may be looked at after the fact, however it is found, as each has its share of the rate.
        if not spec.rotation:
            counts = self._matched_by_phase(ids, positions)
            best = int(counts.argmax())
            return [self._hypothesis(ids, positions, best, int(counts[best]), 1 / spec.period)]
        found = self._likeliest_crop(ids[:_SEARCHED], positions[:_SEARCHED])
        return [
            self._hypothesis(ids, positions, shift, self._matched(ids, positions + shift), weight)
            for shift, weight in ((0, 0.5), (found, 0.5 / self.max_crop))
        ]

    def _hypothesis(
        self, ids: Int[np.ndarray, " n"], positions: Int[np.ndarray, " n"], shift: int, matched: int, weight: float
    ) -> _Hypothesis:
        spec = self.key.spec
        items = spec.segment(positions + shift) * spec.table_size + ids
        counts = residue_counts(items, self.key.tables.residues(positions + shift), spec.modulus)
        return _Hypothesis(shift, matched, weight, MatchNull.of(counts))

    def _matched(self, ids: Int[np.ndarray, " n"], positions: Int[np.ndarray, " n"]) -> int:
        return int(np.count_nonzero(self.key.tables.matching(ids, positions)))

    def _matched_by_phase(
        self, ids: Int[np.ndarray, " n"], positions: Int[np.ndarray, " n"]
    ) -> Int[np.ndarray, " period"]:
        """Matches if the first token stood at a position = 0, 1, ... modulo the code's period."""
        spec, tables = self.key.spec, self.key.tables
        places = positions % spec.period * spec.modulus + tables.table()[ids]
        counts = np.bincount(places, minlength=spec.period * spec.modulus).reshape(spec.period, spec.modulus)
        matched: Int[np.ndarray, " period"] = counts[np.arange(spec.period), tables.shifted_codes].sum(axis=1)
        return matched

    def _likeliest_crop(self, ids: Int[np.ndarray, " n"], positions: Int[np.ndarray, " n"]) -> int:
        """The shift in 1..max_crop at which most tokens match a rotating key."""
        spec, tables = self.key.spec, self.key.tables
        distinct, token = np.unique(ids, return_inverse=True)
        last = int(positions.max(initial=0)) + self.max_crop
        groups = np.stack([tables.table(segment)[distinct] for segment in range(last // spec.rotation + 1)])
        counts = [
            np.count_nonzero(groups[at // spec.rotation, token] == tables.residues(at))
            for at in (positions + shift for shift in range(1, self.max_crop + 1))
        ]
        return 1 + int(np.argmax(counts))

    def _detection(self, best: _Hypothesis, plain: _Hypothesis, scored: int, tested: int) -> Detection:
        if best.p_value <= self.fpr:
            verdict: Verdict = "watermarked"
        else:
            verdict = "not_detected" if self._could_tell(plain, scored) else "uncertain"
        return Detection(
            verdict=verdict,
            p_value=best.p_value,
            z_score=z_score(best.matched, scored, self.key.spec.modulus),
            green_fraction=best.matched / scored if scored else 0.0,
            num_tokens_scored=scored,
            num_tokens_matched=best.matched,
            fpr=self.fpr,
            shift=best.shift,
            shifts_tested=tested,
            key_fingerprint=self.key.fingerprint,
            guaranteed=not self.key.keyless,
            summary=self._summary(verdict, best, scored),
        )

    def _could_tell(self, plain: _Hypothesis, scored: int) -> bool:
        """Whether a typical mark, which steers half of the tokens that chance would miss, would be found here."""
        chance = 1 / self.key.spec.modulus
        typical = min(int(np.ceil(scored * (1 + chance) / 2)), plain.null.largest)
        return plain.null.tail(typical) / plain.weight <= self.fpr

    def _summary(self, verdict: Verdict, best: _Hypothesis, scored: int) -> str:
        name = f"key {self.key.fingerprint}"
        if self.key.keyless:
            name += " (keyless: anybody can make or remove this mark, and the p-value holds for no secret)"
        match verdict:
            case "watermarked":
                return (
                    f"The text carries the mark of {name}: a text without it matches this well with "
                    f"probability {best.p_value:.2g} or less, below the false-positive rate {self.fpr:g}."
                )
            case "not_detected":
                return (
                    f"No mark of {name} was found at the false-positive rate {self.fpr:g}; "
                    "this does not tell who or what wrote the text."
                )
            case _:
                return (
                    f"Too little to tell: {scored} tokens, as they repeat here, could not show even a typical mark of "
                    f"{name} at the false-positive rate {self.fpr:g}."
                )


def detect(
    text_or_ids: TextOrIds,
    key: WatermarkKey,
    *,
    tokenizer: Tokenizer | str | None = None,
    fpr: float = DEFAULT_FPR,
    phase: Phase = "any",
) -> Detection:
    """Score one text or one response's ids against one key; see `Detector`."""
    return Detector(key, tokenizer=tokenizer, fpr=fpr, phase=phase).detect(text_or_ids)
