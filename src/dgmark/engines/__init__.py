"""Adapters for engines that serve diffusion language models: the mark where the tokens are made.

`core` is the mark itself, on the device; each other module fits it to one engine and imports nothing of it until it is
used.
"""

from dgmark.decode.marks.key_store import Keys, KeyStore
from dgmark.decode.steps.draws import uniform_draws
from dgmark.decode.steps.proposals import Proposals
from dgmark.engines.core import Block, check_loop, keyed_logits, mark, mark_edits, propose_block

__all__ = [
    "Block",
    "KeyStore",
    "Keys",
    "Proposals",
    "check_loop",
    "keyed_logits",
    "mark",
    "mark_edits",
    "propose_block",
    "uniform_draws",
]
