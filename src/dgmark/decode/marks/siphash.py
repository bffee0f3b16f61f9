"""SipHash-2-4 of tensors in few operations: a device takes longer to launch one than to compute its numbers.

`hashes.siphash` defines the same hash, and is its test.
"""

import torch
from jaxtyping import Int
from torch import Tensor

from dgmark.watermark.hashes import INITIAL, LENGTH


class TensorSipHash:
    """Hashes words with two of the four parts of the state in each operation: v0 and v2, and v1 and v3.

    Args:
        device: the device of the words.
    """

    def __init__(self, device: torch.device) -> None:
        self._second = torch.arange(2, device=device)
        shifts = 13 + 3 * self._second, 17 + 4 * self._second
        self._rotations = [(64 - shift, (1 << shift) - 1, 1 << shift) for shift in shifts]
        # v0 v2 in halves of 32 bits, low before high: 0 1 2 3 become v2 and v0 rotated by 32
        self._exchanged = torch.cat([2 + self._second, 1 - self._second])

    def __call__(self, words: Int[Tensor, "*shape"], key: tuple[Tensor, Tensor]) -> Int[Tensor, "*shape"]:
        """The hashes of words, under keys of which each half is one for all or one for each word."""
        even, odd = (torch.stack([key[part] ^ INITIAL[part], key[part] ^ INITIAL[part + 2]], -1) for part in (0, 1))
        odd = odd ^ words[..., None] * self._second
        even, odd = self._rounds(even, odd, 2)
        even[..., 0].bitwise_xor_(words)
        odd[..., 1].bitwise_xor_(LENGTH)
        even, odd = self._rounds(even, odd, 2)
        even[..., 0].bitwise_xor_(LENGTH)
        even[..., 1].bitwise_xor_(0xFF)
        even, odd = self._rounds(even, odd, 4)
        last = even ^ odd
        return last[..., 0] ^ last[..., 1]

    def _rounds(self, even: Tensor, odd: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """So many rounds, each of two equal halves, after which v0 and v2 have changed their places."""
        for back, low_bits, factor in count * self._rotations:
            even = even + odd
            # rotated: what moves out on the left comes in on the right
            odd = torch.addcmul((odd >> back) & low_bits, odd, factor) ^ even
            even = even.view(torch.int32).index_select(-1, self._exchanged).view(torch.int64)
        return even, odd
