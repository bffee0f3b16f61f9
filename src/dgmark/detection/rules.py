"""The detection side of each rule, in one place. Whoever tests texts asks it, and branches on no rule.

A rule says of the keys of one spec:

    finds_spans     whether spans that carry the mark can be found
    whole_share     the share of the rate that the test of the whole text has
    distances       the distances of what is counted: a text of n tokens has n - d of these at a distance of d
    coins_of        (a, b): for an expected p-value a text of n tokens has a n^b independent coins at each distance
    tokens_of_coin  how many tokens decide one of them
    test            the test of one key on one text

A test says its p-value, which has paid for nothing that is tried beside it; why a typical mark would not be found
(`uncertain_because`); the fields of a `Detection` that are the rule's own (`figures`); which tokens match
(`matched_tokens`); the spans; and the likeliest sub-key (`subkey`).
"""

from dgmark.detection.bigram_rule import BigramRule, PairTest
from dgmark.detection.position_rule import PositionRule, PositionTest
from dgmark.watermark.spec import BigramSpec, WatermarkSpec

DetectionRule = BigramRule | PositionRule
TextTest = PairTest | PositionTest


def rule_of(spec: WatermarkSpec) -> DetectionRule:
    """The detection side of a spec's rule."""
    return BigramRule(spec) if isinstance(spec, BigramSpec) else PositionRule(spec)
