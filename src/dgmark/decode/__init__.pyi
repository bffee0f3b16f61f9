"""The public names of `dgmark.decode`, which `__init__.py` imports at their first use."""

from dgmark.decode.canvas import BlockFinished, Canvas, Committed, Response, Trace
from dgmark.decode.config import DecodeConfig
from dgmark.decode.generation import Generation, RowFinished, generate, stream_generate
from dgmark.decode.infilling import Infilling, infill
from dgmark.decode.keyed_rules import KeyStore, keyed_rule
from dgmark.decode.loop import decode, decode_steps
from dgmark.decode.prompts import Prepared, Request
from dgmark.decode.proposals import propose
from dgmark.decode.round_trip import RoundTrip
from dgmark.decode.rules import Rule, View, Window
from dgmark.decode.selection import select_positions

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
