"""Published watermarks behind dgMARK's own loop and key file, for comparison: `scheme(name, **options)`.

Detection needs no torch; what embeds is imported when it is first asked for.
"""

from dgmark.baselines.baseline import Baseline
from dgmark.baselines.detector import SchemeDetector
from dgmark.baselines.dmark import DMark
from dgmark.baselines.gloaguen import Gloaguen
from dgmark.baselines.gumbel import Gumbel
from dgmark.baselines.kgw import Kgw
from dgmark.baselines.order import DgMark
from dgmark.baselines.pattern_mark import PatternMark
from dgmark.baselines.registry import SCHEMES, Scheme, parse_options, scheme
from dgmark.baselines.unigram import Unigram

__all__ = [
    "SCHEMES",
    "Baseline",
    "DMark",
    "DgMark",
    "Gloaguen",
    "Gumbel",
    "Kgw",
    "PatternMark",
    "Scheme",
    "SchemeDetector",
    "Unigram",
    "parse_options",
    "scheme",
]
