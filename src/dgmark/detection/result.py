"""The result of a detection: its fields and its row.

Knows nothing of how the result was computed. `z_score` and `z_window` are the paper's (section 3.5).
"""

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from dgmark.detection import words
from dgmark.detection.words import Limit

DETECTION_SCHEMA = 1
# fields of the sub-key found, which only those learn who ask for it
PAYLOAD_FIELDS = ("subkey", "subkey_confidence")

Verdict = Literal["watermarked", "not_detected", "uncertain"]
Mode = Literal["auto", "intact", "edited"]


@dataclass(frozen=True)
class Span:
    """A stretch of a text that carries the mark.

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
        green_fraction: matched / scored.
        num_tokens_scored: number of scored tokens of the response; special tokens are not scored.
        num_tokens_matched: number of tokens in their position's matching set, at the best phase.
        fpr: false-positive rate that the verdict was held to.
        shift: how many tokens are taken to be missing at the front (modulo the code's period without rotation).
        shifts_tested: how many shifts were tried; the p-value pays for them.
        key_fingerprint: identifies the key.
        guaranteed: whether the p-value rests on a secret key; false for scheme token-id.
        mode: what the p-value allows for: "intact" (a crop), "edited" (edits), or "auto" (a text edited or not).
        p_intact: p-value of the matches at one shift alone; None in mode "edited".
        p_aligned: p-value of the alignment test alone; None if not needed (p_intact settles it) or not requested.
        draws: number of keys drawn for the alignment test.
        edited_fraction: estimated insertions and deletions per scored token; None if alignment found no mark.
        z_window: the paper's window statistic (mean squared z of 8 tokens), for comparison; mean 1 on fair coins.
        normalised: steps that changed the text before it was scored; empty if the text was scored unchanged.
        spans: the spans that carry the mark; None if not requested.
        keys_tested: how many keys were tried, which the p-value pays for; the result is that of the likeliest key.
        scheme: the scheme whose mark was tested: "dgmark", or a baseline's name (docs/baselines.md). For baselines,
            "tokens scored" are what their statistic counts (pairs or windows).
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
    mode: Mode = "intact"
    p_intact: float | None = None
    p_aligned: float | None = None
    draws: int = 0
    edited_fraction: float | None = None
    z_window: float = 1.0
    normalised: tuple[str, ...] = ()
    spans: tuple[Span, ...] | None = None
    keys_tested: int = 1
    scheme: str = "dgmark"
    p_published: float | None = None
    uncertain_because: Limit | None = None
    subkeys_tested: int = 1
    subkey: int | None = field(default=None, repr=False)
    subkey_confidence: float | None = field(default=None, repr=False)
    subkey_tested: int | None = field(default=None, repr=False)

    @property
    def summary(self) -> str:
        """The verdict in plain sentences."""
        return words.summary(self, passages=len(self.spans or ()))

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
DETECTION_FIELDS = [*Detection.__dataclass_fields__]
DETECTION_FIELDS.insert(DETECTION_FIELDS.index("guaranteed") + 1, "summary")
DETECTION_FIELDS = [
    name for name in DETECTION_FIELDS if name not in ("subkeys_tested", "subkey_tested", *PAYLOAD_FIELDS)
]


@dataclass(frozen=True)
class ScoredToken:
    """One token of a text, for display: its characters [start, end), and whether it matched (None: not scored)."""

    start: int
    end: int
    matched: bool | None


def verdict_of(p_value: float, level: float, *, detectable: bool) -> Verdict:
    """The verdict of a p-value at `level`; `detectable`: whether a typical mark would be found in this text."""
    return "watermarked" if p_value <= level else "not_detected" if detectable else "uncertain"
