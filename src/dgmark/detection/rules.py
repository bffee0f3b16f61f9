"""The detection side of each rule, in one place. Whoever tests texts asks it, and branches on no rule.

A rule says what detection asks of the keys of one spec: whether it finds spans, which settings concern it, the law of
its expected evidence, and the test of one key on one text. A test says its p-value, which has paid for nothing that is
tried beside it; why a typical mark would not be found (`limit`); the fields of a `Detection` that are the rule's own
(`figures`); what each token adds to the counts (`by_token`); the spans; and the likeliest sub-key (`number`).
"""

from dgmark.detection.bigram_rule import BigramRule, PairTest
from dgmark.detection.position_rule import PositionRule, PositionTest
from dgmark.watermark.spec import BigramSpec, WatermarkSpec

DetectionRule = BigramRule | PositionRule
TextTest = PairTest | PositionTest


def rule_of(spec: WatermarkSpec) -> DetectionRule:
    """The detection side of a spec's rule."""
    return BigramRule(spec) if isinstance(spec, BigramSpec) else PositionRule(spec)
