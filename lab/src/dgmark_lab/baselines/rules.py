"""The published watermarks as rules of dgmark, which the entry points of this distribution name."""

from typing import Any

from dgmark.watermark.rules import Rule
from dgmark_lab.baselines import specs


def _published(
    spec: type[specs.PublishedSpec], module: str, title: str, *, decoding: str | None = None, **more: Any
) -> Rule:
    """A rule whose sides stand in modules of one name, unless `decoding` names another decode side."""
    name = spec.__name__.removesuffix("Spec")
    return Rule(
        spec,
        decoding=f"dgmark_lab.baselines.decode.{decoding or f'{module}:{name}Side'}",
        detection=f"dgmark_lab.baselines.{module}:{name}Test",
        title=title,
        distribution="dgmark-lab",
        **more,
    )


_BY_POSITION, _BY_NEIGHBOUR = "by_position:ByPositionSide", "green_lists:NeighbourSide"
KGW = _published(specs.KgwSpec, "green_lists", "KGW", decoding=_BY_NEIGHBOUR, settings={"strategy": "left_to_right"})
UNIGRAM = _published(specs.UnigramSpec, "green_lists", "Unigram", decoding=_BY_POSITION)
PATTERN_MARK = _published(specs.PatternMarkSpec, "pattern_mark", "PATTERN-MARK", decoding=_BY_POSITION)
GLOAGUEN = _published(specs.GloaguenSpec, "green_lists", "Gloaguen et al.'s", decoding="gloaguen:GloaguenSide")
DMARK = _published(specs.DMarkSpec, "green_lists", "DMark", decoding=_BY_NEIGHBOUR)
LR_DWM = _published(specs.LrDwmSpec, "green_lists", "LR-DWM", decoding=_BY_NEIGHBOUR)
CDMARK = _published(specs.CdMarkSpec, "cdmark", "CDMArk", decoding=_BY_POSITION)
GUMBEL = _published(specs.GumbelSpec, "gumbel", "Gumbel-max")
TANGO = _published(specs.TangoSpec, "tango", "TANGO")
REPLAYMARK = _published(specs.ReplayMarkSpec, "replaymark", "ReplayMark")
