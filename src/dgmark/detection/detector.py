"""From a text and a key to a verdict with a stated error rate. No model, no prompt, no torch.

Two tests share the false-positive rate, for any text chosen without knowledge of the key: `intact.py` (exact) and
`edited.py` (allows for tokens cut out and put in).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import get_args

import numpy as np
from jaxtyping import Bool, Int

from dgmark.checkpoint.tokenizer import Tokenizer, load_tokenizer
from dgmark.detection.edited import deciding_share, edited_test
from dgmark.detection.intact import Hypothesis, IntactTest, Phase
from dgmark.detection.match_null import z_score
from dgmark.detection.normalise import check_steps, normalise
from dgmark.detection.redraw import GroupDraws
from dgmark.detection.result import DETECTION_SCHEMA, Detection, Mode, ScoredToken, Span, Verdict, summary
from dgmark.detection.spans import check_length, find_stretches
from dgmark.detection.windows import DEFAULT_WINDOW, WindowTest, window_statistic, window_test
from dgmark.errors import ModelNotFound, SettingsError
from dgmark.watermark.groups import check_ids
from dgmark.watermark.key import WatermarkKey

__all__ = [
    "DEFAULT_FPR",
    "DEFAULT_MAX_CROP",
    "DETECTION_SCHEMA",
    "Detection",
    "Detector",
    "Mode",
    "Phase",
    "Ranges",
    "ScoredToken",
    "Span",
    "TextOrIds",
    "Verdict",
    "detect",
]

DEFAULT_FPR = 1e-4
# raised with every change of what p-value a text gets, so that no file mixes two
STATISTICS_VERSION = 2
# no p-value is below the smallest normal number, and shares of a rate have to be numbers, too
SMALLEST_FPR = 1e-300
DEFAULT_MAX_CROP = 1024
# in mode "auto", the share of the false-positive rate that belongs to the test for intact text: small, as alignment
# finds intact text nearly as well, and the test for it needs little where there is a mark
INTACT_WEIGHT = 0.1

TextOrIds = str | Sequence[int] | np.ndarray
Ranges = Sequence[tuple[int, int]]


@dataclass(frozen=True)
class ScoredIds:
    """The tokens that count: their ids, their positions among all tokens, and the characters (indices) they cover."""

    ids: Int[np.ndarray, " n"]
    positions: Int[np.ndarray, " n"]
    offsets: Int[np.ndarray, "n 2"]


class Detector:
    """Detects the mark of one key.

    Args:
        key: the key.
        tokenizer: the model's tokenizer, or where to find it; by default the one the key names.
        fpr: false-positive rate to hold, from 1e-300 to below 1.
        mode: "auto" tests the text as intact and as edited, and pays for both; "intact" allows for a crop alone;
            "edited" allows for edits and leaves the exact test out.
        phase: "any" allows for tokens missing at the front and pays for it; "start" takes the text as complete.
        max_crop: with a rotating key and phase "any", the most tokens that may be missing.
        normalise: steps of `normalise.STEPS` to undo disguises with, if the text as it is does not show the mark;
            a text that they change pays for both tries. Ids are never changed.

    Raises:
        SettingsError: a setting that cannot be meant.
        TokenizerMismatch: the tokenizer is not the key's.
    """

    def __init__(
        self,
        key: WatermarkKey,
        *,
        tokenizer: Tokenizer | str | None = None,
        fpr: float = DEFAULT_FPR,
        mode: Mode = "auto",
        phase: Phase = "any",
        max_crop: int = DEFAULT_MAX_CROP,
        normalise: Sequence[str] = (),
    ) -> None:
        if not SMALLEST_FPR <= fpr < 1:
            raise SettingsError(f"fpr {fpr} is not between 0 and 1 (at least {SMALLEST_FPR})")
        if mode not in get_args(Mode):
            raise SettingsError(f"mode {mode!r} is not one of: {', '.join(get_args(Mode))}")
        if phase not in ("any", "start"):
            raise SettingsError(f"phase {phase!r} is not one of: any, start")
        if max_crop < 0:
            raise SettingsError(f"max crop {max_crop} is negative")
        self.key = key
        self.fpr = fpr
        self.mode = mode
        self.phase = phase
        self.max_crop = max_crop
        check_steps(normalise)
        self.normalise = tuple(normalise)
        self._intact = IntactTest(key.tables, phase, max_crop)
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

    def detect(self, text_or_ids: TextOrIds, *, only: Ranges | None = None) -> Detection:
        """Score one text, or the token ids of one response.

        Ids are scored up to the first end token. A text is not cut there: whoever can put an end token into a text
        could hide everything behind it.

        Args:
            text_or_ids: the text or ids.
            only: ranges [start, end) to score, of characters (of ids: of indices); tokens that straddle an edge are
                not scored. Positions still count from the first token of all: for text that was filled in.

        Raises:
            VocabularyMismatch: an id lies outside the key's vocabulary.
            SettingsError: a range that is empty or lies outside the text.
        """
        if only is None:
            if self.normalise and isinstance(text_or_ids, str):
                return self._detect_normalised(text_or_ids)
            return self._detect_ids(self._encode(text_or_ids))
        if self.normalise:
            raise SettingsError("ranges are of the text as it is: leave normalisation out")
        tokens = self.scored_tokens(text_or_ids)
        length = len(text_or_ids)
        inside = np.zeros(len(tokens.ids), dtype=bool)
        for start, end in only:
            if not 0 <= start < end <= length:
                raise SettingsError(
                    f"range {start}:{end} is not START:END with 0 <= START < END <= {length}, "
                    "the length of what is scored"
                )
            inside |= (tokens.offsets[:, 0] >= start) & (tokens.offsets[:, 1] <= end)
        return self._detect_scored(tokens.ids[inside], tokens.positions[inside])

    def spans(self, text_or_ids: TextOrIds) -> tuple[Span, ...]:
        """The stretches of a text (or of ids) that carry the mark, in order.

        The chance to report any stretch without marked text is at most `fpr`; where a stretch begins and ends is an
        estimate.

        Raises:
            SettingsError: the text is too long for the key's many states.
        """
        tokens = self.scored_tokens(text_or_ids)
        check_length(self.key.spec, len(tokens.ids))
        return tuple(
            Span(
                start=int(tokens.offsets[stretch.first, 0]),
                end=int(tokens.offsets[stretch.last - 1, 1]),
                num_tokens_scored=stretch.last - stretch.first,
                p_value=stretch.p_value,
            )
            for stretch in find_stretches(self._intact, tokens.ids, tokens.positions, self.fpr)
        )

    def windows(self, text_or_ids: TextOrIds, window: int = DEFAULT_WINDOW) -> WindowTest:
        """The paper's sliding-window statistic of a text, for comparison, with a p-value by re-drawn keys.

        Raises:
            SettingsError: a window of no token.
        """
        if window < 1:
            raise SettingsError(f"window {window} is not at least 1 token")
        tokens = self.scored_tokens(text_or_ids)
        draws = GroupDraws(self.key.secret, tokens.ids, tokens.positions)
        return window_test(self.key.tables, tokens.ids, tokens.positions, draws, window=window)

    def scored_tokens(self, text_or_ids: TextOrIds) -> ScoredIds:
        """The tokens that count of a text, or of the ids of one response."""
        if isinstance(text_or_ids, str):
            encoding = self.tokenizer.encode_with_offsets(text_or_ids)
            ids = np.array(encoding.ids, dtype=np.int64)
            offsets = np.array(encoding.offsets, dtype=np.int64).reshape(-1, 2)
        else:
            ids = self._response(text_or_ids)
            offsets = np.arange(len(ids))[:, None] + np.arange(2)
        positions = self._scored[ids].nonzero()[0]
        return ScoredIds(ids[positions], positions, offsets[positions])

    def detect_many(self, texts_or_ids: Iterable[TextOrIds]) -> list[Detection]:
        """Score many; the same detections as one by one, texts encoded together."""
        items = list(texts_or_ids)
        if self.normalise:
            return [self.detect(item) for item in items]
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

    def _encode(self, text_or_ids: TextOrIds) -> Int[np.ndarray, " n"]:
        if isinstance(text_or_ids, str):
            return np.array(self.tokenizer.encode(text_or_ids), dtype=np.int64)
        return self._response(text_or_ids)

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

    def _detect_normalised(self, text: str) -> Detection:
        """Try the text as it is first, then normalised, half of the rate each; one test if they are the same."""
        changed, steps = normalise(text, self.normalise)
        share = 0.5 if steps else 1.0
        found = self._detect_ids(self._encode(text), share)
        if not steps or found.verdict == "watermarked":
            return found
        other = replace(self._detect_ids(self._encode(changed), share), normalised=steps)
        return min(found, other, key=lambda detection: detection.p_value)

    def _detect_ids(self, ids: Int[np.ndarray, " n"], share: float = 1.0) -> Detection:
        """Score ids that the key's table covers: checked ones, or those of its own tokenizer."""
        positions = self._scored[ids].nonzero()[0]
        return self._detect_scored(ids[positions], positions, share)

    def _detect_scored(
        self, ids: Int[np.ndarray, " n"], positions: Int[np.ndarray, " n"], share: float = 1.0
    ) -> Detection:
        """Score tokens that count; `share` of the false-positive rate is theirs."""
        hypotheses = self._intact.hypotheses(ids, positions)
        best = min(hypotheses, key=lambda hypothesis: hypothesis.p_value)
        weight = share * {"auto": INTACT_WEIGHT, "intact": 1.0, "edited": 0.0}[self.mode]
        p = min(1.0, best.p_value / weight) if weight else 1.0
        edited = None
        if p > self.fpr and share > weight:
            edited = edited_test(self.key, ids, positions, self.phase, self.fpr * (share - weight))
            p = min(p, edited.p_value / (share - weight))
        tells = p <= self.fpr or self._could_tell(hypotheses[0], len(ids), weight, share)
        verdict: Verdict = "watermarked" if p <= self.fpr else "not_detected" if tells else "uncertain"
        matched = self.key.tables.matching(ids, positions + best.shift)
        fingerprint, keyless = self.key.fingerprint, self.key.keyless
        return Detection(
            verdict=verdict,
            p_value=p,
            z_score=z_score(best.matched, len(ids), self.key.spec.modulus),
            green_fraction=best.matched / len(ids) if len(ids) else 0.0,
            num_tokens_scored=len(ids),
            num_tokens_matched=best.matched,
            fpr=self.fpr,
            shift=best.shift,
            shifts_tested=self._intact.shifts_tested,
            key_fingerprint=fingerprint,
            guaranteed=not keyless,
            summary=summary(verdict, p_value=p, fpr=self.fpr, scored=len(ids), key=fingerprint, keyless=keyless),
            mode=self.mode,
            p_intact=None if self.mode == "edited" else best.p_value,
            p_edited=edited.p_value if edited else None,
            draws=edited.draws if edited else 0,
            edited_fraction=edited.edited_fraction if edited and verdict == "watermarked" else None,
            z_window=float(window_statistic(matched, self.key.spec.modulus)),
        )

    def _could_tell(self, plain: Hypothesis, scored: int, weight: float, share: float) -> bool:
        """Whether a typical mark, which steers half of the tokens that chance would miss, would be found if intact.

        By the exact test, at the larger of its own share of the rate and that of the part of the edited test that can
        decide: alignment finds intact text about as well.
        """
        if share > weight:
            left = share - weight
            weight = max(weight, left * deciding_share(self.key.spec, scored, self.fpr * left))
        chance = 1 / self.key.spec.modulus
        typical = min(int(np.ceil(scored * (1 + chance) / 2)), plain.null.largest)
        return plain.null.tail(typical) / (plain.weight * weight) <= self.fpr


def detect(
    text_or_ids: TextOrIds,
    key: WatermarkKey,
    *,
    tokenizer: Tokenizer | str | None = None,
    fpr: float = DEFAULT_FPR,
    mode: Mode = "auto",
    phase: Phase = "any",
) -> Detection:
    """Score one text or one response's ids against one key; see `Detector`."""
    return Detector(key, tokenizer=tokenizer, fpr=fpr, mode=mode, phase=phase).detect(text_or_ids)
