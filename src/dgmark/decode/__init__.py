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
    from dgmark.decode.keyed_rules import KeyStore, keyed_rule
    from dgmark.decode.loop import decode, decode_steps
    from dgmark.decode.prompts import Prepared, Request
    from dgmark.decode.proposals import propose
    from dgmark.decode.round_trip import RoundTrip
    from dgmark.decode.rules import Rule, View, Window
    from dgmark.decode.selection import select_positions

# a name is looked for in this order: the settings first, for which torch need not be imported
_MODULES = (
    *("config", "canvas", "events", "generation", "infilling", "keyed_rules", "loop"),
    *("prompts", "proposals", "round_trip", "rules", "selection"),
)

__all__ = [
    "BlockFinished",
    "Canvas",
    "Committed",
    "DecodeConfig",
    "Generation",
    "Infilling",
    "KeyStore",
    "Prepared",
    "Request",
    "Response",
    "RoundTrip",
    "RowFinished",
    "Rule",
    "Trace",
    "View",
    "Window",
    "decode",
    "decode_steps",
    "generate",
    "infill",
    "keyed_rule",
    "propose",
    "select_positions",
    "stream_generate",
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        for module in (import_module(f"dgmark.decode.{one}") for one in _MODULES):
            if hasattr(module, name):
                return globals().setdefault(name, getattr(module, name))
    raise AttributeError(f"module 'dgmark.decode' has no attribute {name!r}")
