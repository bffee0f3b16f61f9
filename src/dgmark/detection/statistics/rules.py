"""`TextTest`: what detection asks of a rule; the test of one key on one text. Knows no rule by name."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pkgutil import resolve_name
from typing import Any, ClassVar, NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from dgmark.detection.reading.reader import ScoredIds
from dgmark.detection.reading.surprisal import SurprisalModel
from dgmark.detection.results.detection import Detection
from dgmark.detection.results.figures import TOKENS, RuleFigures, TokenSpan, Uncertain
from dgmark.errors import DgmarkError, SettingsError, each
from dgmark.watermark.key import WatermarkKey


@dataclass(frozen=True)
class RuleOptions:
    """The options of a rule's test: none, unless the rule has a subclass with fields, each of which has a default."""


@dataclass(frozen=True)
class DetectionSettings:
    """What a detector asks a test to do.

    Attributes:
        fpr: the p-value that the test must reach: the false-positive rate of its key, or of each of its sub-keys.
        options: those of the rule's test, of the class that it names.
        weighted: whether a language model reads along, so that tokens have a surprisal.
    """

    fpr: float
    options: RuleOptions = RuleOptions()
    weighted: bool = False


class Expectation(NamedTuple):
    """What a marked text is expected to show.

    Attributes:
        coins: how many independent coins its evidence is worth.
        match: the share of them that matches.
        share: the share of the false-positive rate that one sub-key's test of the whole text has.
    """

    coins: int
    match: float
    share: float


class TextTest(ABC):
    """The test of one key, or of any sub-key of it, on one text.

    A rule's test is a class that inherits from this. It must write `__init__`, `p_value`, `uncertain_because` and
    `fields`; each of the others says what it means that a rule leaves it out.

    Args:
        key: a key of the rule.
        tokens: the scored tokens.
        settings: those of the detector.

    Attributes:
        options_type: the class of its options, which are arguments of `Detector`.
        figures_type: the class of what it finds beside the fields of every detection.
        weighs: whether it takes weights where tokens have a surprisal; otherwise all count alike, and none may.
        scores_layout: whether a text is scored only as it is, unless the caller asks for steps that undo disguises.
            Otherwise one with markup or wrapped lines is read once more without them, and both readings share the rate.
        no_spans: why there are no spans, in half a sentence; None if `spans` finds them.
        units: what `num_tokens_scored` counts, one and many, in words.
        shown_match: what `matched_tokens` shows, in words.

    Raises:
        VocabularyMismatch: an id lies outside the key's vocabulary.
    """

    options_type: ClassVar[type[RuleOptions]] = RuleOptions
    figures_type: ClassVar[type[RuleFigures]] = RuleFigures
    weighs: ClassVar[bool] = False
    scores_layout: ClassVar[bool] = False
    no_spans: ClassVar[str | None] = "this key's rule tests whole texts only"
    units: ClassVar[tuple[str, str]] = TOKENS
    shown_match: ClassVar[str] = "matching token"

    @abstractmethod
    def __init__(self, key: WatermarkKey, tokens: ScoredIds, settings: DetectionSettings) -> None: ...

    @classmethod
    def of_texts(
        cls, key: WatermarkKey, texts: Sequence[ScoredIds], settings: DetectionSettings
    ) -> "list[TextTest | DgmarkError]":
        """The tests of several texts, in the place of one that cannot be tested its error.

        By default each is made by itself; a rule may do for all of them at once what costs much for each.
        """
        return each(lambda tokens: cls(key, tokens, settings), texts)

    @abstractmethod
    def p_value(self) -> float:
        """The chance that a random key fits this very text as well.

        It has paid for what the test itself tries (shifts, parts), but for no sub-keys and nothing that is tried beside
        it.
        """

    @abstractmethod
    def uncertain_because(self, share: float, level: float) -> Uncertain | None:
        """Why this test would not find a typical mark in a text like this: "empty", "short" or "repetitive".

        Args:
            share: the share of the rate that this text has.
            level: the p-value to reach.

        Returns:
            None if it would find it.
        """

    @abstractmethod
    def fields(self, found: bool) -> dict[str, Any]:
        """The fields of a `Detection` that the rule computes.

        Args:
            found: whether the text is marked.

        Returns:
            `z_score`, `green_fraction` and `num_tokens_matched`, and any of `figures` (of `figures_type`), `test`,
            `subkey`, `subkey_confidence` and `num_tokens_scored` (by default all tokens that were read).
        """

    def matched_tokens(self, detection: Detection) -> Bool[np.ndarray, " n"] | None:  # noqa: ARG002
        """Which tokens match at the shift, or under the sub-key, of a detection of this text; None if none are shown.

        Without this, `dgmark detect --show` and reports mark no single tokens.
        """
        return None

    def shown_tokens(self) -> Bool[np.ndarray, " n"] | None:
        """Which tokens are shown as scored; None for all of them."""
        return None

    def spans(self, fpr: float) -> list[TokenSpan]:  # noqa: ARG002
        """The spans that carry the mark, which do not overlap, in order; see `no_spans`.

        Args:
            fpr: the largest chance to report any span without marked text, over all sub-keys.
        """
        return []

    def token_weights(self) -> Float[np.ndarray, " n"] | None:
        """How much each token counts, from 0 to 1; None if all count alike."""
        return None

    @classmethod
    def expectation(cls, spec: Any, tokens: int, refilled: float) -> Expectation | None:  # noqa: ARG003
        """What a marked text of so many tokens is expected to show; None if the rule does not know.

        Args:
            spec: the key's spec.
            tokens: the tokens of the text.
            refilled: share of the tokens that carry the mark, where the others were there before.
        """
        return None

    @classmethod
    def seconds(cls, key: WatermarkKey, tokens: float) -> float:  # noqa: ARG003
        """About how many seconds one core takes to test a text of so many tokens; 0 where it hardly takes any.

        Services refuse texts that would take too long.

        Args:
            key: the key, with all its sub-keys.
            tokens: the tokens of the text.
        """
        return 0.0


# how long a token is taken to be, where time is estimated
CHARS_A_TOKEN = 4


def seconds_to_check(content: int | str | Sequence[int], keys: Iterable[WatermarkKey]) -> float:
    """About how many seconds one core takes to look for keys in a text, in so many characters, or in token ids."""
    size = content if isinstance(content, int) else len(content)
    tokens = size / CHARS_A_TOKEN if isinstance(content, int | str) else size
    return sum(rule_test(key).seconds(key, tokens) for key in keys)


def work_of(keys: Sequence[WatermarkKey]) -> str:
    """What takes time when a text is checked for these keys, in words."""
    subkeys = sum(key.num_subkeys for key in keys)
    return f"trying {subkeys:,} sub-keys" if subkeys > len(keys) else "making the groups of a key that rotates"


def rule_test(key: WatermarkKey) -> type[TextTest]:
    """The test of a key's rule."""
    test: type[TextTest] = key.rule.test()
    return test


def check_weighs(key: WatermarkKey) -> None:
    """Refuse a key whose test takes no weights, with a SettingsError."""
    if not rule_test(key).weighs:
        raise SettingsError(
            f"the rule of key {key.fingerprint}, {key.spec.rule}, has no weighted test: leave the surprisal model out"
        )


def language_model(
    model: SurprisalModel | str | None, keys: Sequence[WatermarkKey], *, context: int | None = None
) -> SurprisalModel | None:
    """The language model that reads along, loaded if it is named, once each key's rule is known to take weights.

    A name is what `load_surprisal_model` takes: "builtin", a folder, a GGUF file, a hub id, an address; the context is
    the most tokens that such a model reads at once. The keys are of one tokenizer.
    """
    for key in keys if model is not None else ():
        check_weighs(key)
    if model is None and context is not None:
        raise SettingsError("is that of a language model: name one (surprisal_model, --surprisal-model)", "context")
    if not isinstance(model, str):
        return model
    load: Any = resolve_name("dgmark.models.surprisal_models:load_surprisal_model")  # which may load torch
    loaded: SurprisalModel = load(model, keys[0].spec.tokenizer_fingerprint, context=context)
    return loaded


def options_for(keys: Sequence[WatermarkKey], options: Mapping[str, Any]) -> list[RuleOptions]:
    """The options of each key's test: those that its rule has. One that no rule has is a SettingsError."""
    kinds = [rule_test(key).options_type for key in keys]
    known = {kind: {field.name for field in fields(kind)} for kind in kinds}
    for name in options.keys() - set().union(*known.values()):
        rules = " and ".join(dict.fromkeys(key.spec.rule for key in keys))
        raise SettingsError(f"is no option of rule {rules}: leave it out", field=name)
    return [kind(**{name: options[name] for name in options.keys() & known[kind]}) for kind in kinds]
