"""What the tests of rules find in a text, as plain fields: spans, tokens, and the figures of each rule."""

from dataclasses import dataclass, field
from typing import Literal

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
