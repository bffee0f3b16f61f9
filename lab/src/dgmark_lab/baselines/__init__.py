"""Published watermarks, for comparison: rules of dgmark, in its own loop and with its own key files."""

from dgmark.watermark.rules import Rule
from dgmark_lab.baselines import rules

BASELINES: dict[str, Rule] = {
    rule.name: rule
    for rule in (
        rules.KGW,
        rules.UNIGRAM,
        rules.PATTERN_MARK,
        rules.GLOAGUEN,
        rules.DMARK,
        rules.LR_DWM,
        rules.CDMARK,
        rules.GUMBEL,
        rules.TANGO,
        rules.REPLAYMARK,
    )
}
