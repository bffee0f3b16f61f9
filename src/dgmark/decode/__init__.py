"""Decoding masked diffusion models, with or without the mark."""

from dgmark.decode.canvas import Canvas, Commits, Progress, Response, Trace
from dgmark.decode.config import STRATEGIES, DecodeConfig
from dgmark.decode.generation import Generation, generate
from dgmark.decode.infill import Infilling, infill
from dgmark.decode.loop import decode, decode_steps
from dgmark.decode.matching import KeyMatching
from dgmark.decode.prompts import Prepared, Request
from dgmark.decode.proposals import Proposals, propose
from dgmark.decode.scheme import Scheme
from dgmark.decode.select import alternatives, select
from dgmark.decode.steering import Bias, Matching, Noise, Steering, View, everything
from dgmark.decode.stream import BlockFinished, Committed, Event, RowFinished, stream

__all__ = [
    "STRATEGIES",
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
