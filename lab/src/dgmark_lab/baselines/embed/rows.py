"""Green lists as rows over the vocabulary, computed on demand: no table of the vocabulary's size squared.

One step needs nearly the same lists as the step before, so cached rows save almost all hashing.
"""

from collections.abc import Callable
from typing import Literal

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from dgmark_lab.baselines.prf import SubKey, states, threshold, uniform_bits

# bytes of cached rows, and words hashed at once
_CACHED_BYTES = 2**26
_AT_ONCE = 2**17

# (tokens (n,)) -> rows (n, vocab)
Hash = Callable[[Tensor], Tensor]


def green_hash(
    subkey: SubKey, gamma: float, vocab: int, device: torch.device, side: Literal["left", "right"] = "left"
) -> Hash:
    """Return a function that computes rows of the green relation B[left, right], for tokens on `side` of the pair."""
    every = torch.arange(vocab, device=device)
    limit = threshold(gamma)
    if side == "left":
        return lambda left: uniform_bits(states(subkey, left)[:, None], every) < limit
    state = states(subkey, every)
    return lambda right: uniform_bits(state, right[:, None]) < limit


class RowMemory:
    """A cache of rows by token. Each row is computed once; all are dropped when the cache is full."""

    def __init__(self, compute: Hash, vocab: int, device: torch.device) -> None:
        self._compute = compute
        self._capacity = max(1, _CACHED_BYTES // vocab)
        self._chunk = max(1, _AT_ONCE // vocab)
        self._slot = torch.full((vocab,), -1, device=device)
        self._rows = torch.empty(0, vocab, dtype=torch.bool, device=device)
        self._used = 0

    def __call__(self, tokens: Int[Tensor, " n"]) -> Bool[Tensor, "n vocab"]:
        """Return the row of each token."""
        missing = torch.unique(tokens[self._slot[tokens] < 0])
        if self._used + len(missing) > self._capacity:
            self._forget()
            missing = torch.unique(tokens)
        if len(missing):
            self._learn(missing)
        return self._rows[self._slot[tokens]]

    def _forget(self) -> None:
        self._slot.fill_(-1)
        self._used = 0

    def _learn(self, tokens: Tensor) -> None:
        needed = self._used + len(tokens)
        if needed > len(self._rows):
            # one call may need more rows than the capacity
            room = self._rows.new_empty(max(needed, min(2 * needed, self._capacity)), self._rows.shape[1])
            room[: self._used] = self._rows[: self._used]
            self._rows = room
        for part in torch.split(tokens, self._chunk):
            self._rows[self._used : self._used + len(part)] = self._compute(part)
            self._slot[part] = torch.arange(self._used, self._used + len(part), device=part.device)
            self._used += len(part)
