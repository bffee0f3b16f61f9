"""Published watermarks behind dgMARK's own loop and key file, for comparison: `scheme(name, **options)`.

Detection needs no torch; the code that embeds a mark is imported at its first use.
"""

from dgmark.lab.baselines.baseline import Baseline
from dgmark.lab.baselines.detector import SchemeDetector
from dgmark.lab.baselines.dmark import DMark
from dgmark.lab.baselines.gloaguen import Gloaguen
from dgmark.lab.baselines.gumbel import Gumbel
from dgmark.lab.baselines.kgw import Kgw
from dgmark.lab.baselines.order import DgMark
from dgmark.lab.baselines.pattern_mark import PatternMark
from dgmark.lab.baselines.registry import SCHEMES, Scheme, parse_options, scheme
from dgmark.lab.baselines.unigram import Unigram

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
