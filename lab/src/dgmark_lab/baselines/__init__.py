"""Published watermarks, for comparison: rules of dgmark, in its own loop and with its own key files."""

from dgmark.watermark.rules import Rule
from dgmark_lab.baselines import rules

BASELINES: dict[str, Rule] = {one.name: one for one in vars(rules).values() if isinstance(one, Rule)}
