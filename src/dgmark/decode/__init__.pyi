"""The public names of `dgmark.decode`, which `__init__.py` imports at their first use."""

from dgmark.decode.config import DecodeConfig
from dgmark.decode.marks.key_store import KeyStore
from dgmark.decode.marks.keyed_side import KeyedSide, OneKeySide, side_of_rows
from dgmark.decode.marks.rules import DecodeSide, NoMark, Step, Window
from dgmark.decode.steps.canvas import BlockFinished, Canvas, Committed, Response, Trace
from dgmark.decode.steps.loop import decode, decode_steps
from dgmark.decode.steps.proposals import propose
from dgmark.decode.steps.round_trip import RoundTrip
from dgmark.decode.steps.selection import select_positions
from dgmark.decode.texts.generation import Generation, RowFinished, generate, stream_generate, stream_text
from dgmark.decode.texts.infilling import Infilling, infill
from dgmark.decode.texts.prepared import Prepared
from dgmark.decode.texts.requests import Request

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
    "stream_text",
]
