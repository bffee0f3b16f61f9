"""Decoding masked diffusion models, with or without the mark.

The settings need no torch; every other name is imported at its first use. No module shares its name with a name below,
because importing the module would replace that name.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dgmark.decode.canvas import Canvas, Commits, Progress, Response, Trace
    from dgmark.decode.config import DecodeConfig
    from dgmark.decode.generation import Generation, generate
    from dgmark.decode.infilling import Infilling, infill
    from dgmark.decode.loop import decode, decode_steps
    from dgmark.decode.matching import KeyMatching
    from dgmark.decode.prompts import Prepared, Request
    from dgmark.decode.proposals import Proposals, propose
    from dgmark.decode.round_trip import RoundTrip
    from dgmark.decode.scheme import Scheme
    from dgmark.decode.selection import alternatives, select
    from dgmark.decode.steering import Bias, Matching, Noise, Steering, View, everything
    from dgmark.decode.streaming import BlockFinished, Committed, Event, RowFinished, stream

_NAMES = {
    "canvas": ("Canvas", "Commits", "Progress", "Response", "Trace"),
    "config": ("DecodeConfig",),
    "generation": ("Generation", "generate"),
    "infilling": ("Infilling", "infill"),
    "loop": ("decode", "decode_steps"),
    "matching": ("KeyMatching",),
    "prompts": ("Prepared", "Request"),
    "proposals": ("Proposals", "propose"),
    "round_trip": ("RoundTrip",),
    "scheme": ("Scheme",),
    "selection": ("alternatives", "select"),
    "steering": ("Bias", "Matching", "Noise", "Steering", "View", "everything"),
    "streaming": ("BlockFinished", "Committed", "Event", "RowFinished", "stream"),
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names}

__all__ = [
    "Bias",
    "BlockFinished",
    "Canvas",
    "Commits",
    "Committed",
    "DecodeConfig",
    "Event",
    "Generation",
    "Infilling",
    "KeyMatching",
    "Matching",
    "Noise",
    "Prepared",
    "Progress",
    "Proposals",
    "Request",
    "Response",
    "RoundTrip",
    "RowFinished",
    "Scheme",
    "Steering",
    "Trace",
    "View",
    "alternatives",
    "decode",
    "decode_steps",
    "everything",
    "generate",
    "infill",
    "propose",
    "select",
    "stream",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'dgmark.decode' has no attribute {name!r}")
    value = getattr(import_module(f"dgmark.decode.{_MODULES[name]}"), name)
    globals()[name] = value
    return value
