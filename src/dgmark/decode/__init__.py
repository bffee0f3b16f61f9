"""Decoding masked diffusion models, with or without the mark."""

from dgmark.decode.config import STRATEGIES, DecodeConfig
from dgmark.decode.generation import Generation, generate, generate_batch
from dgmark.decode.loop import Progress, Response, Trace, decode
from dgmark.decode.matching import KeyMatching, Matching, everything
from dgmark.decode.select import select
from dgmark.decode.strategies import Proposals, propose

__all__ = [
    "STRATEGIES",
    "DecodeConfig",
    "Generation",
    "KeyMatching",
    "Matching",
    "Progress",
    "Proposals",
    "Response",
    "Trace",
    "decode",
    "everything",
    "generate",
    "generate_batch",
    "propose",
    "select",
]
