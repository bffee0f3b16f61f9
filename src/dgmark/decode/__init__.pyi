"""The public names of `dgmark.decode`, which `__init__.py` imports at their first use."""

from dgmark.decode.canvas import BlockFinished, Canvas, Committed, Response, Trace
from dgmark.decode.config import DecodeConfig
from dgmark.decode.generation import Generation, RowFinished, generate, stream_generate
from dgmark.decode.infilling import Infilling, infill
from dgmark.decode.key_store import KeyStore
from dgmark.decode.keyed_side import KeyedSide, OneKeySide, side_of_rows
from dgmark.decode.loop import decode, decode_steps
from dgmark.decode.prepared import Prepared
from dgmark.decode.proposals import propose
from dgmark.decode.requests import Request
from dgmark.decode.round_trip import RoundTrip
from dgmark.decode.rules import DecodeSide, NoMark, Step, Window
from dgmark.decode.selection import select_positions

__all__ = [
    "BlockFinished",
    "Canvas",
    "Committed",
    "DecodeConfig",
    "DecodeSide",
    "Generation",
    "Infilling",
    "KeyStore",
    "KeyedSide",
    "NoMark",
    "OneKeySide",
    "Prepared",
    "Request",
    "Response",
    "RoundTrip",
    "RowFinished",
    "Step",
    "Trace",
    "Window",
    "decode",
    "decode_steps",
    "generate",
    "infill",
    "propose",
    "select_positions",
    "side_of_rows",
    "stream_generate",
]
