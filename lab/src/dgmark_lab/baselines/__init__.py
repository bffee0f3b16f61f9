"""Published watermarks behind dgMARK's own loop and key file, for comparison: `baseline(name, **options)`."""

from collections.abc import Sequence
from typing import Any

from dgmark.errors import SettingsError
from dgmark_lab.baselines.base import Baseline
from dgmark_lab.baselines.cdmark import CdMark
from dgmark_lab.baselines.gloaguen import Gloaguen
from dgmark_lab.baselines.green_lists import DMark, Kgw, LrDwm, Unigram
from dgmark_lab.baselines.gumbel import Gumbel
from dgmark_lab.baselines.pattern_mark import PatternMark
from dgmark_lab.baselines.tango import Tango
from dgmark_lab.options import make, parse_options

BASELINES: dict[str, type[Baseline]] = {
    kind.name: kind for kind in (Kgw, Unigram, PatternMark, Gloaguen, DMark, LrDwm, CdMark, Gumbel, Tango)
}


def baseline(name: str, **options: Any) -> Baseline:
    """Return the baseline of this name with these options; the others have the baseline's defaults.

    Raises:
        SettingsError: no baseline or option has this name, or a value is invalid.
    """
    if name not in BASELINES:
        raise SettingsError(f"baseline {name!r} is not one of: {', '.join(BASELINES)}")
    return make(BASELINES[name], f"baseline {name}", options)


def parse_baseline(name: str, texts: Sequence[str]) -> Baseline:
    """Return the baseline of this name, with options written as NAME=VALUE; a list of numbers is "-1,1".

    Raises:
        SettingsError: no baseline or option has this name, or a value is invalid.
    """
    return baseline(name, **parse_options(texts))


__all__ = ["BASELINES", "Baseline", "Gloaguen", "Gumbel", "PatternMark", "Tango", "baseline", "parse_baseline"]
