"""`Detection`: the result for one text and one key, as fields, as a row, and in a sentence.

`z_score` is the paper's (section 3.5). Knows nothing of how it was computed.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from types import MappingProxyType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from dgmark.arguments.checks import flag, several
from dgmark.arguments.column_names import Fields
from dgmark.arguments.contents import Content, TextOrIds, content_of
from dgmark.detection.reading.disguises.readings import LAYOUT
from dgmark.detection.results.figures import TOKENS, RuleFigures, Span, TestKind, Uncertain, Verdict
from dgmark.detection.results.words import options_of, percent_of, rarity
from dgmark.errors import SettingsError
from dgmark.watermark.rules import OWN, find_rule

DETECTION_SCHEMA = 1
# raised whenever a text's p-value changes, so that no file mixes p-values of two versions
STATISTICS_VERSION = 1
# the columns of a detection in a table
DETECT_FIELDS: Fields = MappingProxyType(
    {
        "verdict": "string",
        "p_value": "double",
        "num_tokens_scored": "int64",
        "green_fraction": "double",
        "test": "string",
        "subkey": "int64",
        "key_fingerprint": "string",
        "uncertain_because": "string",
        "normalise_would_change": "list<string>",
        "error": "string",
    }
)
# those of its spans
SPAN_FIELDS: Fields = MappingProxyType(
    {"marked_share": "double", "spans": "list<struct<start:int64,end:int64,num_tokens_scored:int64,p_value:double>>"}
)
# the share of a text from which on spans count as all of it
WHOLE_TEXT = 0.8
ANY_SOURCE = "A text without this watermark may come from any other language model or from a person."
_NO_SECRET = "But this key has no secret (it is keyless): anybody can make this mark or remove it."  # noqa: S105
_DISGUISES = {
    "ansi": "codes for a terminal",
    "nfc": "letters in parts, such as separate accents",
    "invisible": "invisible characters",
    "compatibility": "mathematical or fullwidth letters",
    "homoglyphs": "look-alike letters of other alphabets",
    "whitespace": "no-break or repeated spaces, or tabs for spaces,",
    "capitals": "capitals alone",
}
# which rows have a field; all of them where this does not say otherwise
NO_ROWS, ROWS_OF_SUBKEYS, ROWS_WITH_PAYLOAD = ({"rows": which} for which in ("none", "of sub-keys", "with payload"))


@dataclass(frozen=True)
class Detection:
    """The result for one text and one key.

    Attributes:
        verdict: "watermarked" (p <= fpr), "not_detected", or "uncertain" (see `uncertain_because`).
        p_value: chance that a random key fits this very text as well, adjusted for all that was tried; in (0, 1].
        z_score: the paper's z-score at the best phase, of weights if pairs have some; for comparison, not for the
            verdict.
        green_fraction: matched / scored, of tokens; under rule "bigram" of pairs, as the z-score.
        num_tokens_scored: number of scored tokens of the response; special tokens are not scored.
        num_tokens_matched: number of tokens in their position's matching set, at the best phase; under rule "bigram"
            those of which more pairs match than do not.
        fpr: false-positive rate that the verdict was held to.
        key_fingerprint: identifies the key.
        guaranteed: whether the p-value rests on a secret key; false for grouping token-id.
        figures: what the test of the key's rule finds beside these fields, in a class of the rule's own: `PairFigures`
            for rule "bigram", `PositionFigures` for rule "position".
        test: "count" if all tokens or pairs count alike, "weighted" if each pair has a weight by how much choice its
            tokens had, as a language model sees the text; None for published rules of the lab.
        normalised: what was undone in the text before it was scored: disguises, by the steps' names, and the layout,
            by the names of `readings.LAYOUT`; empty if the text was scored unchanged.
        normalise_would_change: the steps that would undo disguises of many words of a text in which no mark was found,
            and that were not applied; empty otherwise.
        spans: the spans that carry the mark; None if not requested.
        marked_share: the share of the text that the spans cover, in characters that are not white space (in ids, if
            ids were given); None if not requested. A long repetition is in no span and counts as not covered.
        keys_tested: how many keys the p-value is corrected for; the result is that of the likeliest key.
        rule: the rule of the key. For published rules of the lab, "tokens scored" are what their statistic counts
            (pairs or windows).
        uncertain_because: why the verdict is "uncertain": "empty" (no token is scored), "short" (as many different
            tokens would not tell either), "repetitive", "unread" (of the document that held the text, so much was not
            read, or makes no words, that it cannot be called not detected), "not_shown" (so much of the text is not
            shown by the document), or "markup" (signs of markup touch so many of its words); None for the other
            verdicts.
        subkeys_tested: how many sub-keys of the key were tried, which the p-value is corrected for.
        subkey: the sub-key of the mark, which is the payload of the text; None if no mark was found or the key has no
            sub-keys. Rows leave it out unless it is asked for.
        subkey_confidence: probability that the mark is this sub-key's and no other's, given that the text has the key's
            mark; None if no mark was found or no sub-keys were scanned.
        incomplete: whether parts of the document that held the text were not read, as its notes say. Whoever read it
            sets this; the words of the verdict follow it, and no row has it.
        rule_title: what stands before "watermark" in the words of the verdict, such as "KGW". No row has it.
        units: what is counted as scored, one and many, in words. No row has it.
        key_name: whose texts the key marks, as its file says; the words of the verdict name it. No row has it.
    """

    verdict: Verdict
    p_value: float
    z_score: float
    green_fraction: float
    num_tokens_scored: int
    num_tokens_matched: int
    fpr: float
    key_fingerprint: str
    guaranteed: bool
    figures: RuleFigures = field(default_factory=RuleFigures)
    test: TestKind | None = None
    normalised: tuple[str, ...] = ()
    normalise_would_change: tuple[str, ...] = ()
    spans: tuple[Span, ...] | None = None
    marked_share: float | None = None
    keys_tested: int = 1
    rule: str = field(kw_only=True)
    uncertain_because: Uncertain | None = None
    subkeys_tested: int = field(default=1, metadata=ROWS_OF_SUBKEYS)
    subkey: int | None = field(default=None, repr=False, metadata=ROWS_WITH_PAYLOAD)
    subkey_confidence: float | None = field(default=None, repr=False, metadata=ROWS_WITH_PAYLOAD)
    incomplete: bool = field(default=False, repr=False, metadata=NO_ROWS)
    rule_title: str = field(default="", repr=False, metadata=NO_ROWS)
    units: tuple[str, str] = field(default=TOKENS, repr=False, metadata=NO_ROWS)
    key_name: str | None = field(default=None, repr=False, metadata=NO_ROWS)

    @property
    def counts(self) -> tuple[str, int, int]:
        """What is counted as matching, "pairs" or "tokens", how many of them match, and of how many."""
        if self.figures.pairs is not None:
            return "pairs", *self.figures.pairs
        return "tokens", self.num_tokens_matched, self.num_tokens_scored

    @property
    def tries(self) -> int:
        """How many keys, sub-keys and hypotheses of the rule were tried, which the p-value is corrected for."""
        return self.keys_tested * self.subkeys_tested * self.figures.tries

    @property
    def disguised(self) -> bool:
        """Whether a disguise was undone before the text was scored."""
        return not set(self.normalised) <= LAYOUT.keys()

    @property
    def in_part(self) -> bool:
        """Whether the mark was found in a part of the text only."""
        return bool(self.spans) and (self.verdict != "watermarked" or (self.marked_share or 0) < WHOLE_TEXT)

    @property
    def summary(self) -> str:
        """The verdict, and for a text without the mark that this does not tell who or what wrote it."""
        sentence = verdict_sentence(self)
        return sentence if self.verdict == "watermarked" or self.spans else f"{sentence} {ANY_SOURCE}"

    def with_spans(self, spans: Sequence[Span], content: TextOrIds) -> "Detection":
        """This detection with the spans of its text, or of its ids.

        Args:
            spans: what `Detector.spans` found.
            content: the text or ids.

        Raises:
            SettingsError: one of the spans, or the content, is of another type.
        """
        spans = several(spans, "spans")
        for span in spans:
            if not isinstance(span, Span):
                raise SettingsError(f"a span is what Detector.spans finds, not a {type(span).__name__}")
        return replace(self, spans=tuple(spans), marked_share=share_of(spans, content_of(content)))

    def to_row(self, row_id: str, *, payload: bool = False) -> dict[str, Any]:
        """The detection as a JSON row.

        Args:
            row_id: the text's id.
            payload: include the sub-key found and its confidence.
        """
        payload = flag("payload", payload)
        names = [*DETECTION_FIELDS, *(["subkeys_tested"] if self.subkeys_tested > 1 else [])]
        names += PAYLOAD_FIELDS if payload else []
        row = {name: plain(getattr(self, name)) for name in names}
        if not payload:
            for span in row["spans"] or ():
                del span["subkey"]
        return {"id": row_id, **row, "schema": DETECTION_SCHEMA}

    @classmethod
    def arrow_schema(cls, *, payload: bool = False, rules: Sequence[str] = tuple(OWN)) -> Any:
        """The schema of pyarrow of what `to_row` gives, in which no column is of type null, whatever the rows hold.

        Args:
            payload: include the sub-key found and its confidence.
            rules: the rules of the keys, whose figures the column `figures` has the fields of.

        Raises:
            ImportError: pyarrow is not installed.
            SettingsError: `payload` is neither true nor false, or there is no such rule.
        """
        import pyarrow as pa

        kinds = {"id": str, **get_type_hints(cls), "summary": str, "schema": int}
        asked = PAYLOAD_FIELDS if flag("payload", payload) else ()
        names = ["id", *DETECTION_FIELDS, "subkeys_tested", *asked, "schema"]
        figures = [find_rule(rule).test().figures_type for rule in several(rules, "rules")]
        of_rules = {name: kind for figure in figures for name, kind in get_type_hints(figure).items()}
        types = pa.struct([(name, _arrow_type(kind)) for name, kind in of_rules.items()])
        return pa.schema([(name, types if name == "figures" else _arrow_type(kinds[name])) for name in names])


# the fields of each row between its id and its schema, in order, with the summary in their midst
DETECTION_FIELDS = [field.name for field in fields(Detection) if not field.metadata]
DETECTION_FIELDS.insert(DETECTION_FIELDS.index("guaranteed") + 1, "summary")
# fields of the sub-key found, which only those learn who ask for it
PAYLOAD_FIELDS = tuple(field.name for field in fields(Detection) if field.metadata == ROWS_WITH_PAYLOAD)


def _arrow_type(kind: Any) -> Any:
    import pyarrow as pa

    known = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}
    if kind in known:
        return known[kind]
    if is_dataclass(kind):
        return pa.struct([(name, _arrow_type(inner)) for name, inner in get_type_hints(kind).items()])
    first, *_ = get_args(kind)
    if get_origin(kind) is Literal:
        return pa.string()
    return pa.list_(_arrow_type(first)) if get_origin(kind) is tuple else _arrow_type(first)  # which may be None


def plain(value: Any) -> Any:
    """A field as a plain value; `asdict` on all of a detection would copy each of its values."""
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value


def share_of(spans: Iterable[Span], content: Content | list[int]) -> float:
    """The share of a text that spans cover, in characters that are not white space; of ids, in ids."""
    covered = sum(_size(content[span.start : span.end]) for span in spans)
    return min(1.0, covered / max(1, _size(content)))  # of two columns of a page, two spans may hold the same lines


def _size(content: Content | list[int]) -> int:
    return len("".join(content.split())) if isinstance(content, str) else len(content)


# --- the verdict in a sentence ---


def verdict_sentence(found: Detection, *, public: bool = False) -> str:
    """The verdict in one or two sentences; in public without how rare the match is, which helps to remove the mark."""
    text = "the part of this text that was read" if found.incomplete else "this text"
    if found.verdict == "watermarked" or found.spans:
        return f"{_finding(found, text)} {_chance(found, public) if found.guaranteed else _NO_SECRET}"
    if found.verdict == "uncertain":
        return f"The test is inconclusive for this text: {_why(found)}{_disguises(found)}"
    if found.keys_tested > 1:
        return f"No watermark of the {found.keys_tested:,} keys was found in {text}.{_disguises(found)}"
    return f"The {_mark(found)} was not found in {text}.{_disguises(found)}"


def _chance(found: Detection, public: bool) -> str:
    if found.verdict != "watermarked":
        return f"The chance to find such a span in a text written without the key is at most {rarity(found.fpr)}."
    chance = found.fpr if public else min(found.p_value, found.fpr)
    return f"The chance that a text written without the key looks like this is at most {rarity(chance)}."


def counted(found: Detection) -> str:
    """How much of the text was tested."""
    scored, (what, _, number) = found.num_tokens_scored, found.counts
    pairs = ""
    if what == "pairs" and number:
        pairs = f", and {number:,} different pairs of them" if number > 1 else ", and one pair"
    return f"{scored:,} {found.units[scored != 1]}, which are words or parts of words{pairs}"


def _finding(found: Detection, text: str) -> str:
    """What carries the mark: the text, spans of it, or, where no span is known, something in it."""
    spans = len(found.spans or ())
    if found.in_part:
        some = "A span" if spans == 1 else f"{spans} spans"
        carry = "carries" if spans == 1 else "carry"
        return f"{some} of {text} ({percent_of(found.marked_share)} of it) {carry} the {_mark(found)}."
    if spans:
        return f"{text[0].upper()}{text[1:]} carries the {_mark(found)}."
    return f"The {_mark(found)} was found in {text}."


def _mark(found: Detection) -> str:
    name = f"{found.rule_title} " if found.rule_title else ""
    return f"{name}watermark of {found.key_name or f'key {found.key_fingerprint}'}"


def _disguises(found: Detection) -> str:
    """What in the text can cost it a mark, and how to undo it; empty if there is little of that."""
    if not found.normalise_would_change:
        return ""
    steps = found.normalise_would_change
    named = " and ".join(_DISGUISES[step] for step in steps)
    one_key = " for one key" if found.keys_tested > 1 else ""
    return (
        f" But many of its words hold {named}, which can hide a watermark: test it again{one_key} with these undone, "
        f"by {options_of(steps)} on the command line or normalise={list(steps)} in Python and HTTP."
    )


def _why(found: Detection) -> str:
    match found.uncertain_because:
        case "empty":
            return "it holds nothing that can be tested."
        case "repetitive":
            return f"its {counted(found)}, repeat each other too much."
        case "unread":
            return "much of the document was not read or makes no words, and the watermark may stand there."
        case "not_shown":
            return "much of what was read is not shown by the document, and may hide the watermark of the rest."
        case "markup":
            return "signs of markup stand between many of its words, and may have cost it a watermark."
        case _:
            return f"with {counted(found)}, it is too short."
