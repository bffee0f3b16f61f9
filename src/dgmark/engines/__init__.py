"""Adapters for engines that serve diffusion language models: the mark where the tokens are made.

`core` and `keys` are the mark itself, on the device; each other module fits them to one engine and imports nothing of
it until it is used.
"""

from dgmark.engines.core import Keys, mark, matching, propose_block, uniform_draws
from dgmark.engines.keys import KeyStore

__all__ = ["KeyStore", "Keys", "mark", "matching", "propose_block", "uniform_draws"]
