"""Decoding masked diffusion models, with or without the mark.

The settings need no torch; every other name is imported at its first use. No module shares its name with a name below,
because importing the module would replace that name.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dgmark.decode.canvas import Canvas, Response, Trace
    from dgmark.decode.config import DecodeConfig
    from dgmark.decode.events import BlockFinished, Committed
    from dgmark.decode.generation import Generation, RowFinished, generate, stream_generate
    from dgmark.decode.infilling import Infilling, infill
    from dgmark.decode.loop import decode, decode_steps
    from dgmark.decode.matching import KeyMatching
    from dgmark.decode.prompts import Prepared, Request
    from dgmark.decode.proposals import propose
    from dgmark.decode.round_trip import RoundTrip
    from dgmark.decode.selection import select_positions
    from dgmark.decode.steering import Matching, Steering, View, match_all

_NAMES = {
    "canvas": ("Canvas", "Response", "Trace"),
    "config": ("DecodeConfig",),
    "events": ("BlockFinished", "Committed"),
    "generation": ("Generation", "RowFinished", "generate", "stream_generate"),
    "infilling": ("Infilling", "infill"),
    "loop": ("decode", "decode_steps"),
    "matching": ("KeyMatching",),
    "prompts": ("Prepared", "Request"),
    "proposals": ("propose",),
    "round_trip": ("RoundTrip",),
    "selection": ("select_positions",),
    "steering": ("Matching", "Steering", "View", "match_all"),
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names}

__all__ = [
    "BlockFinished",
    "Canvas",
    "Committed",
    "DecodeConfig",
    "Generation",
    "Infilling",
    "KeyMatching",
    "Matching",
    "Prepared",
    "Request",
    "Response",
    "RoundTrip",
    "RowFinished",
    "Steering",
    "Trace",
    "View",
    "decode",
    "decode_steps",
    "generate",
    "infill",
    "match_all",
    "propose",
    "select_positions",
    "stream_generate",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'dgmark.decode' has no attribute {name!r}")
    value = getattr(import_module(f"dgmark.decode.{_MODULES[name]}"), name)
    globals()[name] = value
    return value
