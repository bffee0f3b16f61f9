"""What the tests of all rules find in a text, as plain fields. Knows nothing of how it was computed.

`z_score` and `z_window` are the paper's (section 3.5).
"""

from dataclasses import dataclass, field
from typing import Literal

from dgmark.detection.reading.disguises.readings import LAYOUT

# the share of a text from which on spans count as all of it
WHOLE_TEXT = 0.8
TOKENS = ("token", "tokens")  # one and many

Verdict = Literal["watermarked", "not_detected", "uncertain"]
Phase = Literal["any", "start"]
TestKind = Literal["count", "weighted"]
Uncertain = Literal["empty", "short", "repetitive", "unread", "not_shown", "markup"]


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
class WeightFigures:
    """What the weighted test finds in a text; weights are whole numbers of quarter nats.

    Attributes:
        model: name of the language model that read the text.
        fingerprint: identifies the model.
        digest: hash of the weights of the pairs of the text: equal weights, equal p-values.
        scored: weight of all distinct pairs.
        matched: weight of those that match.
        effective_pairs: how many pairs of one weight would say as much.
    """

    model: str
    fingerprint: str
    digest: str
    scored: int
    matched: int
    effective_pairs: float


@dataclass(frozen=True)
class RuleFigures:
    """What the test of one rule finds beside the fields of every detection: a dataclass of plain JSON values.

    A rule that finds more has a subclass with fields of its own, which its test names (`TextTest.figures_type`).
    """

    @property
    def pairs(self) -> tuple[int, int] | None:
        """How many pairs match, and of how many; None if the rule counts tokens."""
        return None

    @property
    def tries(self) -> int:
        """How many hypotheses were tried with each key, which the p-value is corrected for."""
        return 1

    @property
    def weights(self) -> WeightFigures | None:
        """What the weighted test finds; None without a language model."""
        return None

    def lines(self) -> tuple[tuple[str, str], ...]:
        """What `dgmark detect` shows of them: labels and values."""
        return ()


@dataclass(frozen=True)
class PairFigures(RuleFigures):
    """What rule "bigram" finds.

    Attributes:
        pairs_scored: number of distinct pairs of tokens in the whole text.
        pairs_matched: number of them that match.
        weights: what the weighted test finds; None without a language model.
    """

    pairs_scored: int
    pairs_matched: int
    weights: WeightFigures | None = None

    @property
    def pairs(self) -> tuple[int, int]:
        """How many pairs match, and of how many."""
        return self.pairs_matched, self.pairs_scored

    def lines(self) -> tuple[tuple[str, str], ...]:
        """The weights and the language model, if there is one."""
        if (of := self.weights) is None:
            return ()
        weights = f"{of.matched:,} of {of.scored:,} match, as telling as {of.effective_pairs:.0f} equal pairs"
        return ("weights", weights), ("language model", f"{of.model} ({of.fingerprint})")


@dataclass(frozen=True)
class ShiftFigures(RuleFigures):
    """What a rule that knows positions finds of the place of a text.

    Attributes:
        shift: how many tokens are taken to be missing at the front (modulo the code's period without rotation).
        shifts_tested: how many shifts were tried; the p-value is corrected for them.
    """

    shift: int
    shifts_tested: int

    @property
    def tries(self) -> int:
        """How many shifts were tried."""
        return self.shifts_tested


@dataclass(frozen=True)
class PositionFigures(ShiftFigures):
    """What rule "position" finds.

    Attributes:
        z_window: the paper's window statistic (mean squared z of 8 tokens), for comparison; mean 1 on fair coins.
    """

    z_window: float


# which rows have a field; all of them where this does not say otherwise
NO_ROWS, ROWS_OF_SUBKEYS, ROWS_WITH_PAYLOAD = ({"rows": which} for which in ("none", "of sub-keys", "with payload"))


@dataclass(frozen=True)
class Finding:
    """What was found in one text with one key; the fields of a `Detection`.

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
    figures: RuleFigures = RuleFigures()
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


@dataclass(frozen=True)
class ScoredToken:
    """One token of a text, for display.

    Attributes:
        start: index of its first character.
        end: index after its last one.
        matched: whether it matched; None if it is not scored.
        weight: how much it counts, from 0 to 1; 1 where all tokens count alike.
    """

    start: int
    end: int
    matched: bool | None
    weight: float = 1.0


@dataclass(frozen=True)
class TokenSpan:
    """Scored tokens [first, last) that carry the mark, and the p-value of this part, which is corrected for all parts.

    Attributes:
        first: the first token.
        last: the token after the last one.
        p_value: the p-value, at least the smallest normal float.
        log_p: the logarithm of the tail over the part's share, without limits and before any factor for sub-keys; it
            ranks the parts, also those of a long text whose p-values are the smallest float.
        subkey: the sub-key that marks them; None for a key without sub-keys.
    """

    first: int
    last: int
    p_value: float
    log_p: float
    subkey: int | None = None
