"""Published watermarks behind dgMARK's own loop and key file, for comparison: `scheme(name, **options)`.

Detection needs no torch; the code that embeds a mark is imported at its first use.
"""

from dgmark_lab.baselines.baseline import Baseline
from dgmark_lab.baselines.detector import SchemeDetector
from dgmark_lab.baselines.dmark import DMark
from dgmark_lab.baselines.gloaguen import Gloaguen
from dgmark_lab.baselines.gumbel import Gumbel
from dgmark_lab.baselines.kgw import Kgw
from dgmark_lab.baselines.order import DgMark
from dgmark_lab.baselines.pattern_mark import PatternMark
from dgmark_lab.baselines.registry import SCHEMES, Scheme, parse_options, scheme
from dgmark_lab.baselines.unigram import Unigram

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
