"""The result of a detection: its fields, its row, and what it means in sentences for people who know no statistics.

Knows nothing of how the result was computed. The report, the command line and `Detection.summary` all say it in these
words. `z_score` and `z_window` are the paper's (section 3.5).
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, Protocol, runtime_checkable

from dgmark.detection.normalise import WRAPPING
from dgmark.detection.reader import Reader, TextOrIds

DETECTION_SCHEMA = 1
# raised whenever a text's p-value changes, so that no file mixes p-values of two versions
STATISTICS_VERSION = 1
# fields of the sub-key found, which only those learn who ask for it
PAYLOAD_FIELDS = ("subkey", "subkey_confidence")

Verdict = Literal["watermarked", "not_detected", "uncertain"]
Phase = Literal["any", "start"]
Limit = Literal["empty", "short", "repetitive"]


@dataclass(frozen=True)
class Span:
    """A part of a text that carries the mark.

    Attributes:
        start: index of its first character (of its first id, if ids were given).
        end: index after its last character (or id).
        num_tokens_scored: number of scored tokens in it.
        p_value: chance that a random key finds as good a span anywhere in this very text.
        subkey: the sub-key that the span is marked with; None if the key has none.
    """

    start: int
    end: int
    num_tokens_scored: int
    p_value: float
    subkey: int | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Detection:
    """The result for one text and one key.

    Attributes:
        verdict: "watermarked" (p <= fpr), "not_detected", or "uncertain" (too short or too repetitive to decide).
        p_value: chance that a random key fits this very text as well, adjusted for all that was tried; in (0, 1].
        z_score: the paper's z-score at the best phase; for comparison, not for the verdict.
        green_fraction: matched / scored, of tokens; under rule "bigram" of pairs, as the z-score.
        num_tokens_scored: number of scored tokens of the response; special tokens are not scored.
        num_tokens_matched: number of tokens in their position's matching set, at the best phase; under rule "bigram"
            those of which more pairs match than do not.
        fpr: false-positive rate that the verdict was held to.
        shift: how many tokens are taken to be missing at the front (modulo the code's period without rotation).
        shifts_tested: how many shifts were tried; the p-value pays for them.
        key_fingerprint: identifies the key.
        guaranteed: whether the p-value rests on a secret key; false for scheme token-id.
        z_window: the paper's window statistic (mean squared z of 8 tokens), for comparison; mean 1 on fair
            coins. None under rule "bigram" and for baselines.
        num_pairs_scored: rule "bigram": number of distinct pairs of tokens; 0 with rule "position".
        num_pairs_matched: rule "bigram": number of them that match.
        normalised: what was undone in the text before it was scored: disguises, by the steps' names, and "wrapping";
            empty if the text was scored unchanged.
        spans: the spans that carry the mark; None if not requested.
        marked_share: the share of the text that the spans cover, in characters that are no white space (in ids, if
            ids were given); None if not requested.
        keys_tested: how many keys were tried, which the p-value pays for; the result is that of the likeliest key.
        baseline: the name of the baseline whose mark was tested (lab/docs/evaluation.md); None for dgMARK. For
            baselines, "tokens scored" are what their statistic counts (pairs or windows).
        p_published: the p-value by the baseline's own publication, for comparison; None for dgmark.
        uncertain_because: why the verdict is "uncertain": "empty" (no token is scored), "short" (as many different
            tokens would not tell either), or "repetitive"; None for the other verdicts.
        subkeys_tested: how many sub-keys of the key were tried, which the p-value pays for.
        subkey: the sub-key of the mark, which is the payload of the text; None if no mark was found or the key has no
            sub-keys. Rows leave it out unless it is asked for.
        subkey_confidence: probability that the mark is this sub-key's and no other's, given that the text has the key's
            mark; None if no mark was found or no sub-keys were scanned.
        subkey_tested: the likeliest sub-key, found or not, so that what is asked of the same text later needs no new
            scan; None if the key has no sub-keys. No row has it.
        incomplete: whether parts of the document that held the text were not read, as its notes say. Whoever read it
            sets this; the words of the verdict follow it, and no row has it.
        key_name: whose texts the key marks, as its file says; the words of the verdict name it. No row has it.
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
    z_window: float | None = None
    num_pairs_scored: int = 0
    num_pairs_matched: int = 0
    normalised: tuple[str, ...] = ()
    spans: tuple[Span, ...] | None = None
    marked_share: float | None = None
    keys_tested: int = 1
    baseline: str | None = None
    p_published: float | None = None
    uncertain_because: Limit | None = None
    subkeys_tested: int = 1
    subkey: int | None = field(default=None, repr=False)
    subkey_confidence: float | None = field(default=None, repr=False)
    subkey_tested: int | None = field(default=None, repr=False)
    incomplete: bool = field(default=False, repr=False)
    key_name: str | None = field(default=None, repr=False)

    @property
    def summary(self) -> str:
        """The verdict, and for a text without the mark that this does not tell who or what wrote it."""
        verdict = verdict_sentence(self)
        return verdict if self.verdict == "watermarked" or self.spans else f"{verdict} {ANY_SOURCE}"

    @property
    def disguised(self) -> bool:
        """Whether a disguise was undone, so that places in what was scored are not places in the text."""
        return self.normalised not in ((), (WRAPPING,))

    @property
    def in_part(self) -> bool:
        """Whether the mark was found in a part of the text only."""
        return bool(self.spans) and (self.verdict != "watermarked" or (self.marked_share or 0) < WHOLE)

    def with_spans(self, spans: Sequence[Span], content: TextOrIds) -> "Detection":
        """This detection with the spans of its text, or of its ids."""
        return replace(self, spans=tuple(spans), marked_share=share_of(spans, content))

    def to_row(self, row_id: str, *, payload: bool = False) -> dict[str, Any]:
        """The detection as a JSON row.

        Args:
            row_id: the text's id.
            payload: include the sub-key found and its confidence.
        """
        row = asdict(self) | {"summary": self.summary, "normalised": list(self.normalised)}
        row["spans"] = None if self.spans is None else [asdict(span) for span in self.spans]
        if not payload:
            for span in row["spans"] or ():
                del span["subkey"]
        names = [*DETECTION_FIELDS, *(["subkeys_tested"] if self.subkeys_tested > 1 else [])]
        names += PAYLOAD_FIELDS if payload else []
        return {"id": row_id, **{name: row[name] for name in names}, "schema": DETECTION_SCHEMA}


# the fields of each row between its id and its schema, in order: those of `Detection`, with the summary in their midst
_HIDDEN = {"subkeys_tested", "subkey_tested", "incomplete", "key_name", *PAYLOAD_FIELDS}
DETECTION_FIELDS = [name for name in Detection.__dataclass_fields__ if name not in _HIDDEN]
DETECTION_FIELDS.insert(DETECTION_FIELDS.index("guaranteed") + 1, "summary")


@dataclass(frozen=True)
class ScoredToken:
    """One token of a text, for display: its characters [start, end), and whether it matched (None: not scored).

    Under rule "bigram" also how many pairs it completes, as the right token, and how many of them match; else 0.
    """

    start: int
    end: int
    matched: bool | None
    pairs_scored: int = 0
    pairs_matched: int = 0


def verdict_of(p_value: float, level: float, *, detectable: bool) -> Verdict:
    """The verdict of a p-value at `level`; `detectable`: whether a typical mark would be found in this text."""
    return "watermarked" if p_value <= level else "not_detected" if detectable else "uncertain"


@runtime_checkable
class Scorer(Protocol):
    """Scores texts: `Detector`, `Keyring` and the baselines' `BaselineDetector`."""

    @property
    def reader(self) -> Reader:
        """Reads texts and ids for this scorer."""
        ...

    @property
    def settings(self) -> dict[str, Any]:
        """Everything that a detection depends on except the text, as plain JSON values.

        Every scorer has the fields keys (fingerprints), fpr, baseline, phase, max_crop and normalise.
        """
        ...

    def detect(self, text_or_ids: TextOrIds) -> Detection:
        """Score one text, or the token ids of one response."""
        ...

    def detect_many(self, texts_or_ids: Iterable[TextOrIds]) -> list[Detection]:
        """Score several texts or responses; the detections equal those of `detect`."""
        ...


def share_of(spans: Iterable[Span], content: TextOrIds) -> float:
    """The share of a text that spans cover, in characters that are no white space; of ids, in ids."""
    return sum(_size(content[span.start : span.end]) for span in spans) / max(1, _size(content))


def _size(content: TextOrIds) -> int:
    return len("".join(content.split())) if isinstance(content, str) else len(content)


# --- in words ----------------------------------------------------------------------------------------

MIN_TOKENS = 200
WHOLE = 0.8  # share of a text from which on spans count as all of it
ANY_SOURCE = "A text without this watermark may come from any other language model or from a person."
_NO_SECRET = "But this key has no secret (it is keyless): anybody can make this mark or remove it."  # noqa: S105
_SCALES = ((10**12, "trillion"), (10**9, "billion"), (10**6, "million"))
_RAREST = 10**15
_HEADINGS = {"watermarked": "Watermark{} found", "not_detected": "No watermark{} found", "uncertain": "Inconclusive"}
# signs without praise or blame: neither is a marked text right, nor an unmarked one wrong
_SYMBOLS = {"watermarked": "●", "not_detected": "○", "uncertain": "?"}


def rarity(p_value: float) -> str:
    """How rarely something of this probability happens, rounded so as to claim less: "1 in 7 million".

    Args:
        p_value: a probability in (0, 1].
    """
    times = min(_RAREST, math.floor(1 / p_value * (1 + 1e-9)))
    digits = 10 ** (len(str(times)) - 1)
    times = times // digits * digits
    if times == 1:
        return "likely by chance"
    for scale, name in _SCALES:
        if times >= scale:
            return f"1 in {times // scale:,} {name}"
    return f"1 in {times:,}"


def heading(found: Detection) -> str:
    """The verdict in a few words."""
    known = found.verdict == "watermarked" or found.spans or found.keys_tested == 1
    of = f" of {found.key_name}" if known and found.key_name else ""
    part = f" in part ({percent_of(found.marked_share)} of the text)" if found.in_part else ""
    words = _HEADINGS["watermarked" if part else found.verdict].format(of) + part
    return f"{words}, in the part that was read" if found.incomplete else words


def percent_of(share: float | None) -> str:
    """A share of the text, rounded so as to claim less."""
    percent = math.floor(100 * (share or 0) + 1e-9)
    return f"{percent}%" if percent else "under 1%"


def symbol(found: Detection) -> str:
    """A sign for the verdict, so that its colour is not all that tells it."""
    return "◐" if found.in_part else _SYMBOLS[found.verdict]


def verdict_sentence(found: Detection, *, public: bool = False) -> str:
    """The verdict in one or two sentences.

    Args:
        found: the detection.
        public: leave out how rare the match is, which helps those who remove the mark.
    """
    text = "the part of this text that was read" if found.incomplete else "this text"
    if found.verdict == "watermarked":
        chance = found.fpr if public else min(found.p_value, found.fpr)
        return f"{_finding(found, text)} " + (
            f"The chance that a text written without the key looks like this is at most {rarity(chance)}."
            if found.guaranteed
            else _NO_SECRET
        )
    if found.spans:
        return f"{_finding(found, text)} " + (
            f"The chance to find such a span in a text written without the key is at most {rarity(found.fpr)}."
            if found.guaranteed
            else _NO_SECRET
        )
    if found.verdict == "uncertain":
        return f"The test is inconclusive for this text: {_too_little(found)}"
    if found.keys_tested > 1:
        return f"No watermark of the {found.keys_tested:,} keys was found in {text}."
    return f"The {_mark(found)} was not found in {text}."


def where(found: Detection) -> str:
    """Whether spans carry the mark by themselves; empty if they were not looked for, or this need not be said."""
    if found.spans is None:
        return ""
    spans = len(found.spans)
    if spans == 1:
        return "One span carries the watermark by itself; its edges are estimates."
    if spans:
        return f"{spans} spans carry the watermark by themselves; their edges are estimates."
    if found.verdict == "watermarked":
        return "No single span is strong enough to be shown by itself: how much of the text is marked is not known."
    return ""


def meaning(found: Detection) -> list[str]:
    """What the verdict means and what it does not, one sentence each."""
    sentences = []
    if found.verdict == "watermarked" or found.spans:
        if found.guaranteed:
            writer = "chosen by a language model that used this key"
            if found.key_name:
                writer = f"written by the assistant of {found.key_name}, or by another language model with its key"
            sentences.append(f"The watermark shows that the words, or most of those marked here, were {writer}.")
        if found.in_part:
            sentences.append(
                "Nothing follows for the unmarked rest: a person or another model may have written it, or it may be "
                "marked text that was edited, or that is too short or too predictable to show the mark."
            )
        sentences.append("It does not show who asked for the text, or that its contents are true or false.")
    else:
        sentences.append(ANY_SOURCE)
        sentences.append("A watermark fades when a text is paraphrased, translated or heavily edited.")
        if found.uncertain_because is None and 0 < found.num_tokens_scored < MIN_TOKENS:
            sentences.append(
                f"The text is very short: below {MIN_TOKENS} tokens (words or parts of words) even a marked text is "
                "often missed."
            )
    if found.disguised:
        undone = ", ".join(step for step in found.normalised if step != WRAPPING)
        sentences.append(f"The text was cleaned of disguises before it was tested: {undone}.")
    if WRAPPING in found.normalised:
        sentences.append("Line ends that only wrap the text's lines were read as spaces.")
    return sentences


def counted(found: Detection) -> str:
    """How much of the text was tested."""
    scored = found.num_tokens_scored
    if found.baseline is not None:
        return f"{scored:,} tokens or groups of tokens, which are words or parts of words"
    pairs = f", and {found.num_pairs_scored:,} different pairs of them" if found.num_pairs_scored else ""
    return f"{scored:,} token{'' if scored == 1 else 's'}, which are words or parts of words{pairs}"


def matches(found: Detection) -> tuple[str, str]:
    """What is counted as matching, "pairs" or "tokens", and how many of how many: "350 of 555"."""
    if found.num_pairs_scored:
        return "pairs", f"{found.num_pairs_matched:,} of {found.num_pairs_scored:,}"
    return "tokens", f"{found.num_tokens_matched:,} of {found.num_tokens_scored:,}"


def _finding(found: Detection, text: str) -> str:
    """What carries the mark: the text, spans of it, or, where no span is known, something in it."""
    spans = len(found.spans or ())
    if found.in_part:
        some = "A span" if spans == 1 else f"{spans} spans"
        carry = "carries" if spans == 1 else "carry"
        return f"{some} of {text} ({percent_of(found.marked_share)} of it) {carry} the {_mark(found)}."
    return (
        f"{text[0].upper()}{text[1:]} carries the {_mark(found)}."
        if spans
        else f"The {_mark(found)} was found in {text}."
    )


def _mark(found: Detection) -> str:
    name = "" if found.baseline is None else f"{found.baseline} "
    return f"{name}watermark of {found.key_name or f'key {found.key_fingerprint}'}"


def _too_little(found: Detection) -> str:
    match found.uncertain_because:
        case "empty":
            return "it holds nothing that can be tested."
        case "repetitive":
            return f"its {counted(found)}, repeat each other too much."
        case _:
            return f"with {counted(found)}, it is too short."
